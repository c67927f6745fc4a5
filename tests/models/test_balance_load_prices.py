"""Prices of loads prove and find what knapsacks alone cannot: what leaves a node must come to another one."""

from dataclasses import replace
from unittest.mock import patch

import numpy as np
import pytest

from trimtab_models.balance.bound import lower_bound, stronger_bound
from trimtab_models.balance.evaluate import evaluate
from trimtab_models.balance.load_prices import plans_by_load_prices
from trimtab_models.balance.problem import BalanceProblem
from trimtab_models.balance.result import BalanceResult
from trimtab_models.balance.solve import solve
from trimtab_models.simulation.workloads import uneven_cluster
from trimtab_models.solving import Never


def by_bytes(nodes: int, change: int, share: float) -> BalanceProblem:
    """20 key groups a node, 20 % of the nodes changed by `change` percent; the budget is a share of all bytes."""
    cluster = uneven_cluster(nodes, 20 * nodes, change, 0)
    cost = np.exp(np.random.default_rng(0).normal(0, 1, 20 * nodes))
    return replace(cluster, cost_bytes=cost, max_cost_bytes=share * float(cost.sum()))


def three_nodes() -> BalanceProblem:
    """Loads of 56, 50 and 44: key groups of 10, a dear one of 3, and pinned ones; one move of the cheap is paid for."""
    load = np.array([10.0, 10.0, 36.0, 10.0, 10.0, 27.0, 3.0, 10.0, 34.0])
    return BalanceProblem.plain(
        load=load,
        cost_bytes=np.where(load == 3.0, 50.0, 2.0),
        home=np.array([0, 0, 0, 1, 1, 1, 1, 2, 2]),
        pinned=load > 10.0,
        capacity=np.ones(3),
        max_cost_bytes=3.0,
    )


def test_a_node_that_must_lose_a_key_group_must_not_be_too_low_without_it() -> None:
    """56 less 10 is 46: the key group of 3 that would fill it up is too dear, so no plan is nearer to 50 than 4."""
    problem = three_nodes()
    assert stronger_bound(problem, 0.0, 6.0, Never()) < 2.0
    found = list(plans_by_load_prices(problem, 0.0, 6.0, np.random.default_rng(0), Never()))
    assert found[-1][0] == pytest.approx(4.0, abs=0.05)
    assert min(evaluate(problem, plan).load_distance for _, plan in found) == pytest.approx(4.0)


def test_a_middling_budget_of_bytes_is_proven_and_used_better() -> None:
    problem = by_bytes(20, 20, 0.005)
    start = evaluate(problem, problem.home).load_distance
    without = stronger_bound(problem, lower_bound(problem, start, Never()), start, Never())
    found = list(plans_by_load_prices(problem, without, start, np.random.default_rng(0), Never()))
    assert [bound for bound, _ in found] == sorted(bound for bound, _ in found)
    assert found[-1][0] > without + 0.1
    allowed = [score for _, plan in found if (score := evaluate(problem, plan)).allowed]
    assert min(score.load_distance for score in allowed) < start / 4
    assert all(score.load_distance >= found[-1][0] for score in allowed)


def test_the_same_problem_gives_the_same_plans() -> None:
    problem = by_bytes(20, 50, 0.01)
    once, again = (list(plans_by_load_prices(problem, 0.0, 20.0, np.random.default_rng(0), Never())) for _ in range(2))
    assert [(bound, plan.tolist()) for bound, plan in once] == [(bound, plan.tolist()) for bound, plan in again]


def test_a_budget_of_migrations_is_bounded_but_not_planned() -> None:
    """60 moves for 60 nodes: the conditions of the bound prove next to nothing, and search finds better plans."""
    problem = replace(uneven_cluster(60, 1_200, 20, 0), max_migrations=60)
    start = evaluate(problem, problem.home).load_distance
    without = stronger_bound(problem, lower_bound(problem, start, Never()), start, Never())
    found = list(plans_by_load_prices(problem, without, 0.3, np.random.default_rng(0), Never()))
    assert found[-1][0] > without + 0.1
    assert all((plan == problem.home).all() for _, plan in found)


def test_the_first_prices_are_near_those_that_prove_most() -> None:
    """From prices of 0 the first steps gain so little that the search gave up: the bound stayed at 0.30."""
    problem = replace(uneven_cluster(60, 1_200, 20, 0), max_migrations=50)
    found = list(plans_by_load_prices(problem, 0.303, 0.58, np.random.default_rng(0), Never()))
    assert 0.4 < found[-1][0] < 0.55


def test_without_a_budget_there_are_none() -> None:
    problem = replace(by_bytes(20, 80, 0.01), max_cost_bytes=None)
    assert list(plans_by_load_prices(problem, 0.0, 40.0, np.random.default_rng(0), Never())) == []


def test_the_solver_uses_them() -> None:
    problem = three_nodes()
    found = solve(problem, stop=Never(), seed=0)
    assert found.score.load_distance == pytest.approx(4.0)  # type: ignore[union-attr]


def test_a_linear_program_that_cannot_go_on_from_the_last_solution_is_solved_from_scratch() -> None:
    """Found by hypothesis: three key groups without load, one that is nowhere yet, and no byte to spend."""
    problem = BalanceProblem.plain(
        load=np.array([0.0, 0.0, 0.0, 10.0, 10.0, 10.0]),
        home=np.array([0, 0, 0, 0, 1, -1]),
        capacity=np.full(2, 0.5),
        max_cost_bytes=0.0,
    )
    with patch("trimtab_models.balance.enumeration.PAIRS", -1):  # else it is small enough to be enumerated
        result = solve(problem, stop=Never(), seed=0)
    assert isinstance(result, BalanceResult)
    assert result.score.load_distance == pytest.approx(10.0)  # three equal key groups on two nodes: 40 and 20
    assert result.lower_bound <= 10.0 + 1e-9
