"""The core of a tight problem: what a packing of few large pieces finds where single steps do not."""

from dataclasses import replace

import numpy as np
import pytest

from trimtab_models.balance.bound import CountConditions, lower_bound
from trimtab_models.balance.evaluate import evaluate
from trimtab_models.balance.exact import SPARE, core_by_bytes, core_of, solve_core
from trimtab_models.balance.improve import Effort
from trimtab_models.balance.problem import BalanceProblem
from trimtab_models.balance.result import BalanceResult
from trimtab_models.balance.solve import BalanceParams, solve
from trimtab_models.simulation.workloads import uneven_cluster
from trimtab_models.solving import Never


def packing() -> BalanceProblem:
    """Two nodes with 13 too much and two with 13 too little: 9 + 4 and 7 + 6 are the only even packing."""
    load = np.array([9.0, 4.0, 25.0, 7.0, 6.0, 25.0, 12.0, 12.0])
    return BalanceProblem.plain(
        load=load, home=np.array([0, 0, 0, 1, 1, 1, 2, 3]), pinned=load > 9, capacity=np.ones(4), max_migrations=4
    )


def test_a_packing_is_found():
    problem = packing()
    core = core_of(problem, CountConditions(problem), 2.0)
    assert core is not None
    plan = solve_core(problem, core, 0.0, 2.0, seed=0, work=10)
    assert plan is not None
    assert plan.tolist() in ([2, 2, 0, 3, 3, 1, 2, 3], [3, 3, 0, 2, 2, 1, 2, 3])


def test_only_nodes_above_give_and_only_nodes_below_receive():
    core = core_of(packing(), CountConditions(packing()), 2.0)
    assert core is not None
    assert core.nodes == [[0, 2, 3], [0, 2, 3], [0], [1, 2, 3], [1, 2, 3], [1], [2], [3]]
    assert (core.leaving.tolist(), core.arriving.tolist()) == ([2, 2, 0, 0], [0, 0, 2, 2])


@pytest.mark.parametrize("seed", range(3))
def test_a_plan_of_the_core_keeps_the_budget_and_the_bound(seed):
    cluster = uneven_cluster(10, 200, 50, seed)
    problem = replace(cluster, max_migrations=5)
    now = evaluate(problem, problem.home).load_distance
    proven = lower_bound(problem, now, Never())
    core = core_of(problem, CountConditions(problem), proven + 1)
    assert core is not None
    assert core.leaving is not None
    plan = solve_core(problem, core, proven, proven + 1, seed=0, work=5)
    assert plan is not None
    score = evaluate(problem, plan)
    assert score.allowed
    assert proven - 1e-9 <= score.load_distance <= proven + 1.01
    moved = plan != problem.home
    assert (np.bincount(problem.home[moved], minlength=10) <= core.leaving + SPARE).all()
    assert (plan == solve_core(problem, core, proven, proven + 1, seed=0, work=5)).all()


def by_bytes(seed: int, share: float) -> BalanceProblem:
    """10 nodes, 2 of them changed by 80 percent; states are log-normal, the budget a share of all of them."""
    cluster = uneven_cluster(10, 200, 80, seed)
    cost = np.random.default_rng(seed).lognormal(10, 1, 200).round()
    return replace(cluster, cost_bytes=cost, max_cost_bytes=share * float(cost.sum()))


@pytest.mark.parametrize("seed", range(3))
def test_a_plan_of_the_core_by_bytes_keeps_the_budget_and_the_bound(seed):
    problem = by_bytes(seed, 0.01)
    now = evaluate(problem, problem.home).load_distance
    proven = lower_bound(problem, now, Never())
    core = core_by_bytes(problem, proven)
    assert core is not None
    plan = solve_core(problem, core, proven, now, seed=0, work=1)
    assert plan is not None
    score = evaluate(problem, plan)
    assert score.allowed
    assert proven - 1e-9 <= score.load_distance < now
    assert all(node in nodes for node, nodes in zip(plan.tolist(), core.nodes, strict=True))
    baseline = solve(
        problem, stop=Never(), seed=0, params=BalanceParams(effort=Effort(steps=600), polish=Effort(steps=0))
    )
    assert isinstance(baseline, BalanceResult)
    assert score.load_distance <= baseline.score.load_distance + 0.5


def test_there_is_no_core_by_bytes_without_such_a_budget_or_where_it_is_not_tight():
    problem = by_bytes(0, 0.01)
    assert core_by_bytes(replace(problem, max_cost_bytes=None), 5.0) is None
    assert core_by_bytes(problem, 0.2) is None


def test_where_the_budget_leaves_much_to_choose_there_is_no_core():
    problem = packing()
    conditions = CountConditions(replace(problem, max_migrations=8))
    assert core_of(replace(problem, max_migrations=8), conditions, 2.0) is None
    assert core_of(replace(problem, max_migrations=None), conditions, 2.0) is None
    assert core_of(problem, CountConditions(problem), 14.0) is None
