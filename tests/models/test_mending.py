"""Broken rules are mended first: as many as the budget allows, and the bound is that of plans that mend them all."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings

from tests.models.test_balance_properties import allowed_allocations, load_distance, solved
from tests.models.test_placing_rules import breaches, broken, ruled
from trimtab_models.balance.problem import FREE, AllowedNodes, BalanceProblem, PlacingRules

quick = settings(max_examples=100, deadline=None)


@quick
@given(case=ruled(marked=False, unplaced=False))
def test_the_bound_is_that_of_all_plans_that_mend_as_much(case: tuple[BalanceProblem, PlacingRules]) -> None:
    """If all is mended, of the plans that mend all; else of all plans."""
    problem, rules = case
    problem = replace(problem, max_load_distance=1e6)
    result = solved(rules.applied(problem))
    left = broken(problem, rules, result.allocation).any()
    plans = [plan for plan in allowed_allocations(problem) if not breaches(problem, rules, plan)]
    alike = [plan for plan in plans if left or not broken(problem, rules, plan).any()]
    least = min(load_distance(problem, plan) for plan in alike)
    assert result.lower_bound <= least + 1e-9
    if result.score.load_distance <= result.lower_bound + 1e-9:
        assert result.score.load_distance == pytest.approx(least)


@quick
@given(case=ruled(marked=False, unplaced=False, limits=False))
def test_as_many_leave_as_the_budget_allows(case: tuple[BalanceProblem, PlacingRules]) -> None:
    problem, rules = case
    problem = replace(problem, max_load_distance=1e6, max_cost_bytes=None)
    before = broken(problem, rules, problem.home)
    left = broken(problem, rules, solved(rules.applied(problem)).allocation)
    budget = len(before) if problem.max_migrations is None else problem.max_migrations
    assert left.sum() == max(0, before.sum() - budget)


@quick
@given(case=ruled(marked=False, unplaced=False))
def test_mending_lifts_no_node_above_what_a_drain_may_cost(case: tuple[BalanceProblem, PlacingRules]) -> None:
    problem, rules = case
    result = solved(rules.applied(problem))
    allowed = max(load_distance(problem, problem.home), problem.max_load_distance)
    assert problem.deviations(result.allocation).max() <= allowed + 1e-6


def a_full_node() -> tuple[BalanceProblem, PlacingRules]:
    """Six key groups of 10 are pinned to node 0, which is full of six others; nodes 1 and 2 have what is pinned."""
    rules = PlacingRules(
        class_of=np.array([FREE] * 6 + [0] * 6),
        allowed=np.array([[True, False, False, False]]),
        frozen=np.zeros(12, np.bool_),
    )
    problem = BalanceProblem.plain(
        load=np.full(12, 10.0), home=np.array([0] * 6 + [1, 2] * 3), capacity=np.ones(4), max_load_distance=30.0
    )
    return problem, rules


def test_others_make_room_for_what_is_pinned() -> None:
    """The mean is 30: node 0 has 60 of what is pinned to it alone, and the others what has left it for that."""
    problem, rules = a_full_node()
    result = solved(rules.applied(problem))
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
        result = solved(rules.applied(replace(problem, home=home)))
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


def test_classes_without_a_row_are_refused() -> None:
    with pytest.raises(ValueError, match="class_of must name rows of nodes"):
        AllowedNodes(class_of=np.array([1]), nodes=np.ones((1, 2), np.bool_))
