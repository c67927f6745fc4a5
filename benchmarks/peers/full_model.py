"""The original model of the paper for general solvers: a Boolean per key group and node (section 4.3.1)."""

import datetime
import time
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from ortools.math_opt.python import mathopt  # type: ignore[import-untyped]

from trimtab_models.balance.evaluate import evaluate
from trimtab_models.balance.problem import BalanceProblem

SOLVERS: Mapping[str, mathopt.SolverType] = {
    "HiGHS": mathopt.SolverType.HIGHS,
    "SCIP": mathopt.SolverType.GSCIP,
    "CP-SAT": mathopt.SolverType.CP_SAT,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """The answer of a solver; `bound` in pp, no allocation if none was found in time."""

    allocation: np.ndarray | None
    bound: float
    seconds: float


def solve(problem: BalanceProblem, name: str, seconds: float) -> Reply:
    """Solve by the solver `name` within `seconds`, including the construction of the model."""
    started = time.monotonic()
    model = mathopt.Model()
    nodes, key_groups = len(problem.capacity), len(problem.load)
    stands = [[model.add_binary_variable() for _ in range(nodes)] for _ in range(key_groups)]
    distance = model.add_variable(lb=0)
    for row in stands:
        model.add_linear_constraint(mathopt.fast_sum(row) == 1)
    for node, capacity in enumerate(problem.capacity.tolist()):
        loads = (problem.load / capacity).tolist()
        node_load = mathopt.fast_sum(load * row[node] for load, row in zip(loads, stands, strict=True))
        model.add_linear_constraint(node_load - distance <= problem.mean)
        model.add_linear_constraint(node_load + distance >= problem.mean)
    home = problem.home.tolist()
    stay = mathopt.fast_sum(row[node] for row, node in zip(stands, home, strict=True))
    model.add_linear_constraint(stay >= key_groups - (problem.max_migrations or 0))
    model.minimize(distance)
    left = max(0.0, seconds - (time.monotonic() - started))
    hint = {distance: evaluate(problem, problem.home).load_distance} | {
        variable: float(node == at) for row, at in zip(stands, home, strict=True) for node, variable in enumerate(row)
    }
    result = mathopt.solve(
        model,
        SOLVERS[name],
        params=mathopt.SolveParameters(time_limit=datetime.timedelta(seconds=left)),
        model_params=mathopt.ModelSolveParameters(solution_hints=[mathopt.SolutionHint(variable_values=hint)]),
    )
    allocation = None
    if result.has_primal_feasible_solution():
        values = result.variable_values()
        allocation = np.array([max(range(nodes), key=lambda node: values[row[node]]) for row in stands], np.int64)
    bound = max(0.0, result.best_objective_bound())
    return Reply(allocation=allocation, bound=bound if np.isfinite(bound) else 0.0, seconds=time.monotonic() - started)
