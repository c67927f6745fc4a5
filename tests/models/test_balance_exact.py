"""Exact solvers of others beside ours, and CP-SAT as it certifies, or packs the core of a tight problem."""

import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest

from tests.models.clusters import SHORT, by_bytes, cluster, searched, solved
from trimtab_models.balance.bound import CountConditions, lower_bound
from trimtab_models.balance.evaluate import evaluate
from trimtab_models.balance.exact import SPARE, booleans, certify, core_by_bytes, core_of, solve_core
from trimtab_models.balance.improve import Effort
from trimtab_models.balance.problem import BalanceProblem
from trimtab_models.balance.result import OPTIMAL_PP
from trimtab_models.balance.solve import BalanceParams
from trimtab_models.simulation.workloads import uneven_cluster
from trimtab_models.solving import Deadline, Never, PlanStatus


def random_cluster(seed: int, nodes: int, per_node: int, **changes: object) -> BalanceProblem:
    random = np.random.default_rng(seed)
    count = nodes * per_node
    plain = cluster(
        np.repeat(np.arange(nodes), per_node),
        random.uniform(2, 12, count).round(2),
        nodes,
        cost_bytes=random.integers(1, 9, count).astype(float),
        pinned=random.random(count) < 0.1,
        capacity=random.choice([1.0, 1.0, 2.0], nodes),
    )
    return replace(plain, **changes)


def limited(problem: BalanceProblem, room: float) -> BalanceProblem:
    """The same with a resource of which every node has `room` more than it uses."""
    usage = np.arange(len(problem.load), dtype=float)[None, :] % 5
    problem = replace(problem, usage=usage, limit=np.full((1, len(problem.capacity)), np.inf))
    return replace(problem, limit=problem.usages(problem.home) + room)


SITUATIONS = {
    "two moves": random_cluster(1, 4, 5, max_migrations=2),
    "five moves, one node marked": random_cluster(2, 5, 4, max_migrations=5, removing=np.arange(5) == 2),
    "twelve bytes": random_cluster(3, 4, 5, max_cost_bytes=12.0),
    "both budgets": random_cluster(4, 6, 4, max_migrations=4, max_cost_bytes=14.5),
    "limits": limited(random_cluster(5, 4, 4, max_migrations=4), room=2.0),
}


def full_model_optimum(problem: BalanceProblem) -> float:
    """The least load distance by HiGHS: a Boolean per key group and node, every rule as the paper has it."""
    from ortools.math_opt.python import mathopt  # type: ignore[import-untyped]

    model = mathopt.Model()
    nodes, key_groups = range(len(problem.capacity)), range(len(problem.load))
    on = [[model.add_binary_variable() for _ in nodes] for _ in key_groups]
    distance = model.add_variable(lb=0.0)
    moved = [1 - on[k][problem.home[k]] for k in key_groups]
    for k in key_groups:
        model.add_linear_constraint(sum(on[k]) == 1)
        for node in nodes:
            barred = problem.pinned[k] or problem.removing[node]
            if barred and node != problem.home[k]:
                model.add_linear_constraint(on[k][node] <= 0)
    for node in nodes:
        load = sum(problem.load[k] * on[k][node] for k in key_groups) * (1 / problem.capacity[node])
        model.add_linear_constraint(load - distance <= problem.mean)
        if not problem.removing[node]:
            model.add_linear_constraint(load + distance >= problem.mean)
        for usage, limits in zip(problem.usage, problem.limit, strict=True):
            model.add_linear_constraint(sum(usage[k] * on[k][node] for k in key_groups) <= limits[node])
    if problem.max_migrations is not None:
        model.add_linear_constraint(sum(moved) <= problem.max_migrations)
    if problem.max_cost_bytes is not None:
        cost = sum(problem.cost_bytes[k] * moved[k] for k in key_groups)
        model.add_linear_constraint(cost <= problem.max_cost_bytes)
    model.minimize(distance)
    parameters = mathopt.SolveParameters(absolute_gap_tolerance=1e-6)
    result = mathopt.solve(model, mathopt.SolverType.HIGHS, params=parameters)
    assert result.termination.reason is mathopt.TerminationReason.OPTIMAL
    return result.objective_value()


@pytest.mark.parametrize("situation", SITUATIONS)
def test_bound_plan_and_certificate_agree_with_the_full_model(situation):
    problem = SITUATIONS[situation]
    exact = full_model_optimum(problem)
    plan = solved(problem, replace(SHORT, certify=True))
    assert exact - OPTIMAL_PP <= plan.lower_bound <= exact + 1e-6
    if not problem.removing.any():
        assert exact - 1e-6 <= plan.score.load_distance <= exact + OPTIMAL_PP
        assert plan.status is PlanStatus.OPTIMAL
    now = evaluate(problem, problem.home).load_distance
    certificate = certify(problem, problem.home, 0.0, now, seed=0, work=60)
    assert certificate.lower_bound == pytest.approx(exact, abs=OPTIMAL_PP)
    assert certificate.lower_bound <= exact + 1e-6
    assert certificate.allocation is not None
    score = evaluate(problem, certificate.allocation)
    assert score.allowed
    assert score.load_distance == pytest.approx(exact, abs=OPTIMAL_PP)


def test_a_certificate_takes_no_more_than_a_deadline_leaves():
    """The bound is loose here: without a proof the plan is only feasible."""
    problem = limited(random_cluster(5, 4, 5, max_migrations=6), room=2.0)
    for at_s, status in ((60.0, PlanStatus.OPTIMAL), (0.6, PlanStatus.FEASIBLE)):
        ticks = iter(range(10**9))
        stop = Deadline(lambda ticks=ticks: next(ticks) * 1e-4, at_s=at_s)
        assert searched(problem, replace(SHORT, certify=True), stop=stop).status is status


def test_beyond_sixty_nodes_there_is_no_certificate():
    assert booleans(random_cluster(1, 60, 20)) == 72_000
    assert booleans(random_cluster(1, 61, 20)) == np.inf
    assert booleans(random_cluster(1, 60, 30)) == np.inf


def test_or_tools_is_loaded_only_for_a_certificate():
    """And highspy never: it cannot be loaded beside OR-Tools."""
    check = (
        "import sys, trimtab_models.balance.methods; "
        "assert not {'ortools', 'highspy'} & {name.split('.')[0] for name in sys.modules}"
    )
    assert subprocess.run([sys.executable, "-c", check], timeout=120).returncode == 0


def packing() -> BalanceProblem:
    """Two nodes with 13 too much and two with 13 too little: 9 + 4 and 7 + 6 are the only even packing."""
    load = np.array([9.0, 4.0, 25.0, 7.0, 6.0, 25.0, 12.0, 12.0])
    return cluster([0, 0, 0, 1, 1, 1, 2, 3], load, 4, pinned=load > 9, max_migrations=4)


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
    problem = replace(uneven_cluster(10, 200, 50, seed), max_migrations=5)
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


@pytest.mark.parametrize("seed", range(3))
def test_a_plan_of_the_core_by_bytes_keeps_the_budget_and_the_bound(seed):
    problem = by_bytes(10, 80, 0.01, seed=seed)
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
    baseline = solved(problem, BalanceParams(effort=Effort(steps=600), polish=Effort(steps=0)))
    assert score.load_distance <= baseline.score.load_distance + 0.5


def test_there_is_no_core_by_bytes_without_such_a_budget_or_where_it_is_not_tight():
    problem = by_bytes(10, 80, 0.01)
    assert core_by_bytes(replace(problem, max_cost_bytes=None), 5.0) is None
    assert core_by_bytes(problem, 0.2) is None


def test_where_the_budget_leaves_much_to_choose_there_is_no_core():
    problem = packing()
    conditions = CountConditions(replace(problem, max_migrations=8))
    assert core_of(replace(problem, max_migrations=8), conditions, 2.0) is None
    assert core_of(replace(problem, max_migrations=None), conditions, 2.0) is None
    assert core_of(problem, CountConditions(problem), 14.0) is None
