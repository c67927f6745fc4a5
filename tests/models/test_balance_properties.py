"""Invariants of the balance solver on small random problems, against a dumb exhaustive twin."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tests.models.clusters import (
    SHORT,
    allowed_allocations,
    broken_rules,
    cluster,
    load_distance,
    objectives,
    optimum,
    problems,
    searched,
    solved,
)
from trimtab_models.balance.evaluate import evaluate
from trimtab_models.balance.problem import UNPLACED
from trimtab_models.balance.solve import solve_flux
from trimtab_models.solving import Deadline, Never, PlanStatus

quick = settings(max_examples=50)


def assume_comparable(problem):
    """An unplaced key group may have to break a limit."""
    assume((problem.home >= 0).all() or not len(problem.limit))


@pytest.mark.parametrize(
    ("exactly", "beyond"),
    [
        ({"max_migrations": 3}, {"max_migrations": 2}),
        ({"max_cost_bytes": 15.0}, {"max_cost_bytes": 14.0}),
        ({"usage": [[3.0] * 3], "limit": [[9.0, 9.0]]}, {"usage": [[3.0] * 3], "limit": [[9.0, 8.5]]}),
        ({}, {"pinned": [False, False, True]}),
        ({}, {"removing": [False, True]}),
    ],
)
def test_a_plan_may_reach_each_limit_and_not_pass_it(exactly, beyond):
    for changes, allowed in ((exactly, True), (beyond, False)):
        problem = cluster([0, 0, 0], [1, 1, 1], 2, cost_bytes=[5.0] * 3, **changes)
        assert evaluate(problem, np.array([1, 1, 1])).allowed is allowed


@settings(max_examples=100)
@given(problems(), st.data())
def test_the_score_of_any_plan_is_that_of_the_twin(problem, data):
    """What a search proposes is believed when none of the rules is broken."""
    assume_comparable(problem)
    nodes = st.integers(0, len(problem.capacity) - 1)
    plan = np.where(problem.home < 0, data.draw(nodes), problem.home)
    every = set(range(len(plan)))
    few = st.sets(st.sampled_from(sorted(every)), max_size=2) if every else st.just(every)
    for key_group in data.draw(st.one_of(few, st.just(every))):
        plan[key_group] = data.draw(nodes)
    tolerating = problem.tolerating(problem.home)
    score = evaluate(tolerating, plan)
    assert score.allowed == (broken_rules(problem, plan) == [])
    sides = max(score.over, score.under), min(score.over, score.under)
    assert (*sides, score.migrations, score.cost_bytes) == pytest.approx(objectives(problem, plan))
    if len(plan):
        plan[-1] = UNPLACED
        assert not evaluate(tolerating, plan).allowed


@quick
@given(problems(marked=False))
def test_a_tiny_problem_is_solved_by_all_three_objectives_at_once(problem):
    """With the fewest moves of the exact optimum or fewer, as a plan within the tolerance is as good."""
    assume_comparable(problem)
    every = [objectives(problem, allocation) for allocation in allowed_allocations(problem)]
    least = min(distance for distance, *_ in every)
    best = [plan for plan in every if plan[0] <= least + 1e-9]
    other = min(plan[1] for plan in best)
    _, _, moves, cost = min((plan for plan in best if plan[1] <= other + 1e-9), key=lambda plan: plan[2:])
    result = solved(problem)
    assert broken_rules(problem, result.allocation) == []
    distance, side, own_moves, own_cost = objectives(problem, result.allocation)
    assert least - 1e-9 <= distance <= least + SHORT.tolerance + 1e-9
    assert side <= max(other, SHORT.tolerance) + 1e-9
    assert (own_moves, own_cost) <= (moves, cost)
    assert least - 1e-6 <= result.lower_bound <= least + 1e-9


@quick
@given(problems())
def test_the_bound_of_a_tiny_problem_is_its_optimum_marked_nodes_or_not(problem):
    assume_comparable(problem)
    result, least = solved(problem), optimum(problem)
    assert result.lower_bound <= least + 1e-9
    assert result.lower_bound >= min(least, result.score.load_distance) - 1e-6 or not result.score.migrations


@quick
@given(problems(), st.integers(1, 60))
def test_an_enumeration_that_is_stopped_leaves_a_valid_bound_and_plan(problem, questions):
    assume_comparable(problem)
    asked = iter(range(questions))
    result = solved(problem, stop=Deadline(lambda: next(asked, 10**9), at_s=10**6))
    assert broken_rules(problem, result.allocation) == []
    assert result.lower_bound <= optimum(problem) + 1e-9


@quick
@given(problems())
def test_a_plan_breaks_no_rule_is_worth_what_it_says_and_names_what_is_stuck(problem):
    result = searched(problem)
    assert broken_rules(problem, result.allocation) == []
    assert load_distance(problem, result.allocation) == pytest.approx(result.score.load_distance, abs=1e-9)
    moves = (result.allocation != problem.home).any()
    near = result.score.load_distance <= result.lower_bound + SHORT.tolerance
    assert result.status is (PlanStatus.UNCHANGED if not moves else PlanStatus.OPTIMAL if near else PlanStatus.FEASIBLE)
    stuck = {alert.key_group for alert in result.alerts}
    assert all(problem.removing[result.allocation[key_group]] for key_group in stuck)
    assert set(np.flatnonzero(problem.pinned & (problem.home >= 0) & problem.removing[problem.home])) <= stuck
    if problem.max_migrations is None and problem.max_cost_bytes is None:
        assert stuck == set(np.flatnonzero(problem.removing[result.allocation]))


@quick
@given(problems())
def test_the_bound_is_never_above_the_optimum_and_that_of_a_certificate_is_the_optimum(problem):
    assume_comparable(problem)
    result, certified = searched(problem), searched(problem, replace(SHORT, certify=True))
    least = optimum(problem)
    assert result.lower_bound <= min(least + 1e-9, result.score.load_distance)
    assert certified.lower_bound <= least + 1e-9
    assert certified.lower_bound >= least - SHORT.tolerance or not (certified.allocation != problem.home).any()
    if not problem.removing.any():
        assert certified.score.load_distance <= least + SHORT.tolerance


@quick
@given(problems(marked=False, unplaced=False))
def test_a_plan_is_never_worse_than_now_nor_than_flux(problem):
    baseline = solve_flux(problem, stop=Never(), seed=0)
    assert broken_rules(problem, baseline.allocation) == []
    assert searched(problem).score.load_distance <= baseline.score.load_distance + 1e-9
    assert baseline.score.load_distance <= load_distance(problem, problem.home) + 1e-9
