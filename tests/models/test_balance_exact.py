"""Exact solvers of others beside ours: CP-SAT as it certifies, and the full model through OR-Tools MathOpt."""

import subprocess
import sys
from dataclasses import replace
from unittest.mock import patch

import numpy as np
import pytest

from trimtab_models.balance.evaluate import evaluate
from trimtab_models.balance.exact import booleans, certify
from trimtab_models.balance.improve import Effort
from trimtab_models.balance.problem import BalanceProblem
from trimtab_models.balance.result import OPTIMAL_PP, BalanceResult
from trimtab_models.balance.solve import BalanceParams, solve
from trimtab_models.solving import Deadline, Never, PlanStatus

SHORT = BalanceParams(effort=Effort(steps=600), polish=Effort(steps=50))


def cluster(seed: int, nodes: int, per_node: int, **changes: object) -> BalanceProblem:
    random = np.random.default_rng(seed)
    count = nodes * per_node
    plain = BalanceProblem.plain(
        load=random.uniform(2, 12, count).round(2),
        cost_bytes=random.integers(1, 9, count).astype(float),
        home=np.repeat(np.arange(nodes), per_node),
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
    "two moves": cluster(1, 4, 5, max_migrations=2),
    "five moves, one node marked": cluster(2, 5, 4, max_migrations=5, removing=np.arange(5) == 2),
    "twelve bytes": cluster(3, 4, 5, max_cost_bytes=12.0),
    "both budgets": cluster(4, 6, 4, max_migrations=4, max_cost_bytes=14.5),
    "limits": limited(cluster(5, 4, 4, max_migrations=4), room=2.0),
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
    plan = solve(problem, stop=Never(), seed=0, params=replace(SHORT, certify=True))
    assert isinstance(plan, BalanceResult)
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
    problem = limited(cluster(5, 4, 5, max_migrations=6), room=2.0)
    for at_s, status in ((60.0, PlanStatus.OPTIMAL), (0.6, PlanStatus.FEASIBLE)):
        ticks = iter(range(10**9))
        stop = Deadline(lambda ticks=ticks: next(ticks) * 1e-4, at_s=at_s)
        with patch("trimtab_models.balance.enumeration.PAIRS", -1):  # as for a larger problem
            result = solve(problem, stop=stop, seed=0, params=replace(SHORT, certify=True))
        assert isinstance(result, BalanceResult)
        assert result.status is status


def test_the_same_certificate_twice():
    problem = SITUATIONS["both budgets"]
    now = evaluate(problem, problem.home).load_distance
    first, second = (certify(problem, problem.home, 0.0, now, seed=3, work=60) for _ in range(2))
    assert first.lower_bound == second.lower_bound
    assert first.allocation.tolist() == second.allocation.tolist()


def test_beyond_sixty_nodes_there_is_no_certificate():
    assert booleans(cluster(1, 60, 20)) == 72_000
    assert booleans(cluster(1, 61, 20)) == np.inf
    assert booleans(cluster(1, 60, 30)) == np.inf


def test_or_tools_is_loaded_only_for_a_certificate():
    """And highspy never: it cannot be loaded beside OR-Tools."""
    check = (
        "import sys, trimtab_models.balance.methods; "
        "assert not {'ortools', 'highspy'} & {name.split('.')[0] for name in sys.modules}"
    )
    assert subprocess.run([sys.executable, "-c", check], timeout=120).returncode == 0
