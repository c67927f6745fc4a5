"""The balance solver on situations that have a name, and Flux as it is published."""

from dataclasses import replace

import numpy as np
import pytest

from tests.models.clusters import cluster, solved
from tests.narrow import of_type
from trimtab_models.balance.improve import Effort
from trimtab_models.balance.result import BalanceResult
from trimtab_models.balance.solve import BalanceParams, solve_flux
from trimtab_models.simulation.workloads import uneven_cluster
from trimtab_models.solving import Deadline, Never, PlanStatus


def flux_of(problem):
    return of_type(BalanceResult, solve_flux(problem, stop=Never(), seed=0))


def test_a_lost_key_group_is_placed_even_where_no_limit_has_room():
    problem = cluster([0, 1, -1], [10, 10, 10], 2, usage=[[5.0, 5.0, 5.0]], limit=[[5.0, 8.0]], max_migrations=0)
    assert solved(problem).allocation.tolist() == [0, 1, 1]


@pytest.mark.parametrize("questions", [0, 1, 5, 20, 60, 200])
def test_a_deadline_is_seen_inside_every_loop(questions):
    """Stopped after any number of questions, the plan is allowed and no worse than now."""
    problem = replace(uneven_cluster(60, 1_200, 50, seed=2), max_migrations=60)
    asked = iter(range(questions))
    result = solved(problem, BalanceParams(), stop=Deadline(lambda: next(asked, 10**9), at_s=10**6))
    assert result.score.allowed
    assert result.lower_bound <= result.score.load_distance <= 30


def test_paper_size_under_a_tight_budget_is_proven_optimal():
    result = solved(replace(uneven_cluster(60, 1_200, 50, seed=3), max_migrations=20))
    assert (result.status, result.score.migrations) == (PlanStatus.OPTIMAL, 20)
    assert result.lower_bound > 5


def test_a_thousand_nodes_without_a_budget_come_within_a_tenth_of_a_point():
    params = BalanceParams(effort=Effort(steps=1500), polish=Effort(steps=10))
    assert solved(uneven_cluster(1_000, 20_000, 50, seed=3), params).score.load_distance <= 0.1


def test_groups_of_a_large_cluster_keep_limits_pins_and_both_budgets():
    random = np.random.default_rng(5)
    plain = uneven_cluster(150, 1_500, 50, seed=5)
    capacity = random.choice([0.5, 1.0, 2.0], 150)
    problem = replace(
        plain, load=plain.load * capacity[plain.home], capacity=capacity, pinned=random.random(1500) < 0.1,
        cost_bytes=random.integers(1, 100, 1500).astype(float), max_migrations=400, max_cost_bytes=15_000.0,
        usage=random.random((2, 1500)), limit=np.full((2, 150), 6.0),
    )  # fmt: skip
    result = solved(problem, BalanceParams(effort=Effort(steps=4000), polish=Effort(steps=50)))
    moved = result.allocation != problem.home
    assert not problem.pinned[moved].any()
    assert moved.sum() <= 400
    assert problem.cost_bytes[moved].sum() <= 15_000
    for usage in problem.usage:
        now, after = (np.bincount(where, usage, 150) for where in (problem.home, result.allocation))
        assert (after <= np.maximum(6.0, now) + 1e-9).all()
    assert result.score.load_distance < 0.5 * flux_of(problem).score.load_distance


def test_flux_pairs_the_first_with_the_last_and_moves_the_largest_that_lowers_the_variance():
    # Round 1: 60, 40, 20, 5: 0 -> 3 moves the 30 (< 55); 1 -> 2 has only the 40, which is not below 20.
    # Round 2: loads 30, 40, 20, 35: 1 -> 2 nothing; 3 -> 0: 5 moves? no, 35 - 30 = 5 is not above 5.
    problem = cluster([0, 0, 0, 1, 2, 3], [30, 20, 10, 40, 20, 5], 4)
    assert flux_of(problem).allocation.tolist() == [3, 0, 0, 1, 2, 3]


def test_a_round_of_flux_stops_at_the_middle_pair():
    """Round 1: the 22 goes from 0 to 3, the 9 from 1 to 2.  Going on, 2 (19) would give its 7 to 1 (11)."""
    # Round 2: 18, 11, 19, 22: neither 3 -> 1 (22 is not below 11) nor 2 -> 0 (gap 1) has a key group.
    problem = cluster([0, 0, 1, 1, 2, 2], [18, 22, 11, 9, 7, 3], 4)
    assert flux_of(problem).allocation.tolist() == [0, 3, 1, 2, 2, 2]
