"""Invariants of the balance solver on small random problems, against a dumb exhaustive twin."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any
from unittest.mock import patch

import numpy as np
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tests.narrow import of_type
from trimtab_models.balance.improve import Effort
from trimtab_models.balance.problem import BalanceProblem
from trimtab_models.balance.result import BalanceResult
from trimtab_models.balance.solve import BalanceParams, solve, solve_flux
from trimtab_models.solving import Deadline, Never, PlanStatus, StopRule

SHORT = BalanceParams(effort=Effort(steps=200, patience=100), polish=Effort(steps=50))
quick = settings(max_examples=50)


@st.composite
def problems(draw: st.DrawFn, *, marked: bool = True, unplaced: bool = True, limits: bool = True) -> BalanceProblem:
    """Up to 4 nodes and 6 key groups with everything that can be in a snapshot; at least one node is kept."""
    nodes, key_groups = draw(st.integers(1, 4)), draw(st.integers(0, 6))

    def each(strategy: st.SearchStrategy[Any], count: int) -> Any:
        return np.array(draw(st.lists(strategy, min_size=count, max_size=count)))

    removing = each(st.booleans(), nodes) if marked else np.zeros(nodes)
    removing[draw(st.integers(0, nodes - 1))] = False
    loads = st.one_of(st.sampled_from([0.0, 10.0, 10.0, 20.0]), st.floats(0, 40).map(lambda load: round(load, 2)))
    limited = limits and draw(st.booleans())
    return BalanceProblem(
        load=each(loads, key_groups).astype(float),
        cost_bytes=each(st.integers(1, 5), key_groups).astype(float),
        home=each(st.integers(-1 if unplaced else 0, nodes - 1), key_groups).astype(np.int64),
        pinned=each(st.sampled_from([False, False, False, True]), key_groups).astype(bool),
        capacity=each(st.sampled_from([0.5, 1.0, 1.0, 2.0]), nodes).astype(float),
        removing=removing.astype(bool),
        usage=each(st.integers(0, 4), key_groups).astype(float)[None, :] if limited else np.zeros((0, key_groups)),
        limit=each(st.integers(0, 10), nodes).astype(float)[None, :] if limited else np.zeros((0, nodes)),
        max_migrations=draw(st.one_of(st.none(), st.integers(0, 6))),
        max_cost_bytes=draw(st.one_of(st.none(), st.floats(0, 15))),
    )


def broken_rules(problem: BalanceProblem, allocation: np.ndarray) -> list[str]:
    """The rules that `allocation` breaks, checked key group by key group. Limits only if all were placed before."""
    broken, moved = [], []
    now, after = np.zeros(problem.limit.shape), np.zeros(problem.limit.shape)
    for key_group, node in enumerate(allocation):
        home = problem.home[key_group]
        after[:, node] += problem.usage_on(key_group, node)
        if home >= 0:
            now[:, home] += problem.usage_on(key_group, home)
        if node == home:
            continue
        if problem.removing[node]:
            broken.append(f"{key_group} moved onto marked node {node}")
        if home >= 0:
            moved.append(key_group)
            if problem.pinned[key_group]:
                broken.append(f"{key_group} is pinned")
    if problem.max_migrations is not None and len(moved) > problem.max_migrations:
        broken.append("max_migrations")
    if problem.max_cost_bytes is not None and sum(problem.cost_bytes[moved]) > problem.max_cost_bytes:
        broken.append("max_cost_bytes")
    if (problem.home >= 0).all() and (after > np.maximum(problem.limit, now) + 1e-9).any():
        broken.append("limits")
    return broken


def load_distance(problem: BalanceProblem, allocation: np.ndarray, loads: np.ndarray | None = None) -> float:
    """The contract's definition, node by node; with other `loads` (K,) than those given."""
    loads = problem.load if loads is None else loads
    mean = sum(loads) / sum(problem.capacity[~problem.removing])
    worst = 0.0
    for node in range(len(problem.capacity)):
        deviation = sum(loads[allocation == node]) / problem.capacity[node] - mean
        worst = max(worst, deviation if problem.removing[node] else abs(deviation))
    return worst


def allowed_allocations(problem: BalanceProblem) -> Iterator[np.ndarray]:
    """Every allocation that breaks no rule."""
    nodes = range(len(problem.capacity))
    choices = []
    for key_group, home in enumerate(problem.home):
        kept = [node for node in nodes if not problem.removing[node]]
        if home >= 0 and problem.pinned[key_group]:
            kept = [home]
        elif home >= 0 and home not in kept:
            kept = [*kept, home]
        choices.append(kept)
    shape = tuple(len(choice) for choice in choices)
    for index in np.ndindex(*shape):
        allocation = np.array([choice[at] for choice, at in zip(choices, index, strict=True)], np.int64)
        if not broken_rules(problem, allocation):
            yield allocation


def optimum(problem: BalanceProblem) -> float:
    """The least load distance of all allowed allocations."""
    return min((load_distance(problem, allocation) for allocation in allowed_allocations(problem)), default=np.inf)


def solved(problem: BalanceProblem, params: BalanceParams = SHORT) -> BalanceResult:
    """By search: these problems are small enough to be enumerated, larger ones are not."""
    with patch("trimtab_models.balance.enumeration.PAIRS", -1):
        result = solve(problem, stop=Never(), seed=0, params=params)
    assert isinstance(result, BalanceResult)
    return result


def enumerated(problem: BalanceProblem, *, stop: StopRule | None = None) -> BalanceResult:
    return of_type(BalanceResult, solve(problem, stop=stop or Never(), seed=0, params=SHORT))


def objectives(problem: BalanceProblem, allocation: np.ndarray) -> tuple[float, float, int, float]:
    """Load distance, its other side, moves and their bytes."""
    mean = sum(problem.load) / sum(problem.capacity[~problem.removing])
    over = under = 0.0
    for node in range(len(problem.capacity)):
        deviation = sum(problem.load[allocation == node]) / problem.capacity[node] - mean
        over, under = max(over, deviation), max(under, 0.0 if problem.removing[node] else -deviation)
    moved = (allocation != problem.home) & (problem.home >= 0)
    return max(over, under), min(over, under), int(moved.sum()), float(problem.cost_bytes[moved].sum())


@quick
@given(problems(marked=False))
def test_a_tiny_problem_is_solved_by_all_three_objectives_at_once(problem):
    """With the fewest moves of the exact optimum or fewer, as a plan within the tolerance is as good."""
    assume((problem.home >= 0).all() or not len(problem.limit))
    every = [objectives(problem, allocation) for allocation in allowed_allocations(problem)]
    least = min(distance for distance, *_ in every)
    best = [plan for plan in every if plan[0] <= least + 1e-9]
    other = min(plan[1] for plan in best)
    _, _, moves, cost = min((plan for plan in best if plan[1] <= other + 1e-9), key=lambda plan: plan[2:])
    result = enumerated(problem)
    assert broken_rules(problem, result.allocation) == []
    distance, side, own_moves, own_cost = objectives(problem, result.allocation)
    assert least - 1e-9 <= distance <= least + SHORT.tolerance + 1e-9
    assert side <= max(other, SHORT.tolerance) + 1e-9
    assert (own_moves, own_cost) <= (moves, cost)
    assert least - 1e-6 <= result.lower_bound <= least + 1e-9


@quick
@given(problems())
def test_the_bound_of_a_tiny_problem_is_its_optimum_marked_nodes_or_not(problem):
    assume((problem.home >= 0).all() or not len(problem.limit))
    result, least = enumerated(problem), optimum(problem)
    assert result.lower_bound <= least + 1e-9
    assert result.lower_bound >= min(least, result.score.load_distance) - 1e-6 or not result.score.migrations


@quick
@given(problems(), st.integers(1, 60))
def test_an_enumeration_that_is_stopped_leaves_a_valid_bound_and_plan(problem, questions):
    assume((problem.home >= 0).all() or not len(problem.limit))
    asked = iter(range(questions))
    result = enumerated(problem, stop=Deadline(lambda: next(asked, 10**9), at_s=10**6))
    assert broken_rules(problem, result.allocation) == []
    assert result.lower_bound <= optimum(problem) + 1e-9


@quick
@given(problems())
def test_a_plan_breaks_no_rule_and_is_worth_what_it_says(problem):
    result = solved(problem)
    assert broken_rules(problem, result.allocation) == []
    assert abs(load_distance(problem, result.allocation) - result.score.load_distance) < 1e-9
    assert max(result.score.over, result.score.under) == result.score.load_distance


@quick
@given(problems())
def test_the_bound_is_never_above_the_optimum(problem):
    assume((problem.home >= 0).all() or not len(problem.limit))  # an unplaced key group may have to break a limit
    result = solved(problem)
    assert result.lower_bound <= optimum(problem) + 1e-9
    assert result.lower_bound <= result.score.load_distance


@quick
@given(problems(marked=False))
def test_without_marked_nodes_small_problems_are_solved_to_the_optimum(problem):
    assume((problem.home >= 0).all() or not len(problem.limit))
    result = solved(problem, replace(SHORT, certify=True))
    assert result.score.load_distance <= optimum(problem) + SHORT.tolerance
    assert result.lower_bound >= result.score.load_distance - SHORT.tolerance or not result.score.migrations


@quick
@given(problems())
def test_the_certified_bound_of_a_small_problem_is_its_optimum_marked_nodes_or_not(problem):
    assume((problem.home >= 0).all() or not len(problem.limit))
    result = solved(problem, replace(SHORT, certify=True))
    least = optimum(problem)
    assert result.lower_bound <= least + 1e-9
    assert result.lower_bound >= least - SHORT.tolerance or not (result.allocation != problem.home).any()


@quick
@given(problems(marked=False, unplaced=False))
def test_a_plan_is_never_worse_than_now_nor_than_flux(problem):
    result = solved(problem)
    baseline = solve_flux(problem, stop=Never(), seed=0)
    assert broken_rules(problem, baseline.allocation) == []
    assert result.score.load_distance <= baseline.score.load_distance + 1e-9
    assert baseline.score.load_distance <= load_distance(problem, problem.home) + 1e-9


@quick
@given(problems())
def test_the_status_says_what_is_known(problem):
    result = solved(problem)
    moves = (result.allocation != problem.home).any()
    near = result.score.load_distance <= result.lower_bound + SHORT.tolerance
    assert result.status is (PlanStatus.UNCHANGED if not moves else PlanStatus.OPTIMAL if near else PlanStatus.FEASIBLE)


@quick
@given(problems())
def test_what_cannot_leave_a_marked_node_and_only_that_raises_an_alert(problem):
    result = solved(problem)
    stuck = {alert.key_group for alert in result.alerts}
    assert all(problem.removing[result.allocation[key_group]] for key_group in stuck)
    pinned = np.flatnonzero(problem.pinned & (problem.home >= 0) & problem.removing[problem.home])
    assert set(pinned) <= stuck
    if problem.max_migrations is None and problem.max_cost_bytes is None:
        assert stuck == set(np.flatnonzero(problem.removing[result.allocation]))
