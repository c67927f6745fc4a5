"""Rules about nodes: no plan breaks one, broken ones are mended first, and the bound holds."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.models.clusters import allowed_allocations, broken_rules, cluster, load_distance, problems, searched
from tests.models.test_balance_hosts import by_flux, on_disks, search, situations
from tests.narrow import of_type
from trimtab_models.albic import solve as albic
from trimtab_models.albic.problem import CollocationProblem
from trimtab_models.balance.bound import class_bound
from trimtab_models.balance.hosts import HostLimits, solve_on_hosts
from trimtab_models.balance.improve import Effort
from trimtab_models.balance.problem import FREE, AllowedNodes, BalanceProblem, PlacingRules
from trimtab_models.balance.result import BalanceResult
from trimtab_models.balance.solve import BalanceParams
from trimtab_models.solving import Never

quick, thorough = settings(max_examples=60), settings(max_examples=100)
Ruled = tuple[BalanceProblem, PlacingRules]
SHORT = albic.AlbicParams(balance=BalanceParams(effort=Effort(steps=100, patience=50), polish=Effort(steps=20)))


@st.composite
def rules_for(draw: st.DrawFn, problem: BalanceProblem) -> PlacingRules:
    """Up to 3 classes, each with a node that is not draining."""
    key_groups, nodes, classes = len(problem.load), len(problem.capacity), draw(st.integers(0, 3))
    allowed = np.array(
        [draw(st.lists(st.booleans(), min_size=nodes, max_size=nodes)) for _ in range(classes)], np.bool_
    ).reshape(classes, nodes)
    for row in allowed:
        row[draw(st.sampled_from(np.flatnonzero(problem.kept).tolist()))] = True
    class_of = draw(st.lists(st.integers(FREE, classes - 1), min_size=key_groups, max_size=key_groups))
    frozen = draw(st.lists(st.sampled_from([False, False, False, True]), min_size=key_groups, max_size=key_groups))
    return PlacingRules(
        class_of=np.array(class_of, np.int64), allowed=allowed, frozen=np.array(frozen, np.bool_).reshape(key_groups)
    )


def rules_of(class_of: list[int], allowed: list[list[bool]], frozen: list[bool]) -> PlacingRules:
    return PlacingRules(class_of=np.array(class_of), allowed=np.array(allowed), frozen=np.array(frozen))


@st.composite
def ruled(draw: st.DrawFn, **kinds: bool) -> Ruled:
    problem = draw(problems(**kinds))
    return problem, draw(rules_for(problem))


def breaches(problem: BalanceProblem, rules: PlacingRules, allocation: np.ndarray) -> list[str]:
    """The rules that a plan breaks, checked key group by key group."""
    found = broken_rules(problem, allocation)
    for key_group, (home, node) in enumerate(zip(problem.home, allocation, strict=True)):
        which = rules.class_of[key_group]
        if node != home and which != FREE and not rules.allowed[which, node]:
            found.append(f"{key_group} was moved to {node}")
        if node != home and home >= 0 and rules.frozen[key_group]:
            found.append(f"{key_group} is frozen")
    return found


def broken(problem: BalanceProblem, rules: PlacingRules, allocation: np.ndarray) -> np.ndarray:
    """(K,) the key groups that still have to leave."""
    evicted = rules.applied(problem).evicted
    return np.zeros(len(problem.load), np.bool_) if evicted is None else evicted & (allocation == problem.home)


@quick
@given(case=ruled())
def test_no_plan_breaks_a_rule(case: Ruled) -> None:
    problem, rules = case
    if not (problem.home >= 0).all():
        problem = replace(problem, usage=problem.usage[:0], limit=problem.limit[:0])  # limits may have to be exceeded
    applied = rules.applied(problem)
    for found in (searched(applied), by_flux(applied, Never())):
        assert breaches(problem, rules, of_type(BalanceResult, found).allocation) == []


@thorough
@given(case=ruled(unplaced=False), room=st.sampled_from([10.0, 1e6]))
def test_the_bound_is_that_of_all_plans_that_mend_as_much(case: Ruled, room: float) -> None:
    """If all is mended, of the plans that mend all; else of all plans."""
    problem, rules = case
    problem = replace(problem, max_load_distance=room)
    bounded = rules.applied(problem)
    kept = [plan for plan in allowed_allocations(problem) if not breaches(problem, rules, plan)]
    assert class_bound(bounded) <= min(load_distance(problem, plan) for plan in kept) + 1e-9
    result = searched(bounded)
    left = broken(problem, rules, result.allocation).any()
    alike = [plan for plan in kept if left or not broken(problem, rules, plan).any()]
    assert result.lower_bound <= min(load_distance(problem, plan) for plan in alike) + 1e-9


@quick
@given(case=ruled(marked=False, unplaced=False, limits=False))
def test_what_is_on_a_barred_node_leaves_it_where_nothing_else_forbids_that(
    case: Ruled,
) -> None:
    problem, rules = case
    problem = replace(problem, max_migrations=None, max_cost_bytes=None, max_load_distance=1e6)
    applied = rules.applied(problem)
    stays = problem.pinned | rules.frozen
    for result in (searched(applied), by_flux(applied, Never())):
        assert isinstance(result, BalanceResult)
        assert rules.keep(result.allocation)[~stays].all()


@quick
@given(data=st.data(), situation=situations())
def test_rules_and_limits_of_hosts_hold_together(
    data: st.DataObject, situation: tuple[BalanceProblem, HostLimits]
) -> None:
    problem, limits = situation
    rules = data.draw(rules_for(problem))
    result = of_type(BalanceResult, solve_on_hosts(rules.applied(problem), limits, search, stop=Never()))
    assert breaches(problem, rules, result.allocation) == []
    assert limits.tolerating(problem.home).keep(result.allocation)


@quick
@given(case=ruled(), data=st.data())
def test_collocation_keeps_the_rules(case: Ruled, data: st.DataObject) -> None:
    problem, rules = case
    if not (problem.home >= 0).all():
        problem = replace(problem, usage=problem.usage[:0], limit=problem.limit[:0])
    key_groups = len(problem.load)
    ends = st.integers(0, max(0, key_groups - 1))
    pairs = sorted(data.draw(st.sets(st.tuples(ends, ends), max_size=6))) if key_groups else []
    pairs = [(source, target) for source, target in pairs if source != target]
    flows = CollocationProblem(
        balance=rules.applied(problem),
        operator=np.arange(key_groups),
        source=np.array([source for source, _ in pairs], np.int64),
        target=np.array([target for _, target in pairs], np.int64),
        rate=np.ones(len(pairs)),
        serialise_cost=1.0,
        deserialise_cost=1.0,
    )
    result = albic.solve(flows, stop=Never(), seed=0, params=SHORT)
    assert isinstance(result, albic.AlbicResult)
    assert breaches(problem, rules, result.balance.allocation) == []


def test_a_pool_that_is_too_large_for_its_load_is_told_by_the_bound() -> None:
    """Half of the load may be on two of four nodes only, and these two hold nothing else: 20 pp are left."""
    rules = rules_of([0] * 8 + [1] * 8, [[True, True, False, False], [False, False, True, True]], [False] * 16)
    problem = cluster([0, 1] * 4 + [2, 3] * 4, [15.0] * 8 + [5.0] * 8, 4)
    assert class_bound(rules.applied(problem)) == pytest.approx(20.0)
    result = searched(rules.applied(problem))
    assert (result.score.load_distance, result.lower_bound) == (pytest.approx(20.0), pytest.approx(20.0))


@thorough
@given(case=ruled(marked=False, unplaced=False, limits=False))
def test_as_many_leave_as_the_budget_allows(case: Ruled) -> None:
    problem, rules = case
    problem = replace(problem, max_load_distance=1e6, max_cost_bytes=None)
    before = broken(problem, rules, problem.home)
    left = broken(problem, rules, searched(rules.applied(problem)).allocation)
    budget = len(before) if problem.max_migrations is None else problem.max_migrations
    assert left.sum() == max(0, before.sum() - budget)


@thorough
@given(case=ruled(marked=False, unplaced=False))
def test_mending_lifts_no_node_above_what_a_drain_may_cost(case: Ruled) -> None:
    problem, rules = case
    result = searched(rules.applied(problem))
    allowed = max(load_distance(problem, problem.home), problem.max_load_distance)
    assert problem.deviations(result.allocation).max() <= allowed + 1e-6


def a_full_node() -> Ruled:
    """Six key groups of 10 are pinned to node 0, which is full of six others; nodes 1 and 2 have what is pinned."""
    rules = rules_of([FREE] * 6 + [0] * 6, [[True, False, False, False]], [False] * 12)
    problem = cluster([0] * 6 + [1, 2] * 3, [10] * 12, 4, max_load_distance=30.0)
    return problem, rules


def test_others_make_room_for_what_is_pinned() -> None:
    """The mean is 30: node 0 has 60 of what is pinned to it alone, and the others what has left it for that."""
    problem, rules = a_full_node()
    result = searched(rules.applied(problem))
    assert result.allocation[6:].tolist() == [0] * 6
    assert sorted(result.allocation[:6].tolist()) == [1, 1, 2, 2, 3, 3]
    assert (result.score.load_distance, result.lower_bound) == (pytest.approx(30.0), pytest.approx(30.0))


def test_what_would_overfill_a_node_waits_for_a_later_round() -> None:
    """Eight moves are enough for the six and two others: 70 pp, where at most 30 are allowed, as the node has now.

    Round by round all of it is mended.
    """
    problem, rules = a_full_node()
    problem = replace(problem, max_migrations=8)
    home, left = problem.home, [6]
    while left[-1] and len(left) < 6:
        result = searched(rules.applied(replace(problem, home=home)))
        assert problem.deviations(result.allocation).max() <= 30.0 + 1e-9
        home = result.allocation
        left.append(int(broken(replace(problem, home=home), rules, home).sum()))
    assert left[-1] == 0, left
    assert left == sorted(left, reverse=True)


def test_a_set_of_key_groups_may_be_where_all_of_them_may_be() -> None:
    allowed = AllowedNodes(
        class_of=np.array([0, 1, 2, 2, 1]),
        nodes=np.array([[True, True, False], [False, True, True], [True, True, True]]),
    )
    merged = allowed.merged(np.array([0, 0, 1, 2, 2]), 3)
    where = [merged.may(which, np.arange(3)).tolist() for which in range(3)]
    assert where == [[False, True, False], [True, True, True], [False, True, True]]


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: rules_of([1], [[True, True]], [False]), "class_of must name classes"),
        (lambda: rules_of([0], [[True, True]], [False, False]), "a class and a frozen flag"),
        (lambda: AllowedNodes(class_of=np.array([1]), nodes=np.ones((1, 2), np.bool_)), "name rows of nodes"),
        (lambda: replace(on_disks([10.0], [0, 0])[1], home=None), "need the home"),
        (lambda: cluster([0], [1], 1, evicted=[True, True]), "evicted must have one entry"),
        (lambda: cluster([2], [1], 2), "home must name nodes"),
        (lambda: cluster([0], [1], 2, capacity=[1.0, 0.0]), "capacity above 0"),
    ],
)
def test_what_does_not_fit_together_cannot_exist(make: Any, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        make()
