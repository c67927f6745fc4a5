"""The fluid relaxation, with divisible operators: a bound, and a guide for placements.

In this linear program y(o, c) tuples/s of operator o go to the machines of class c, on z(o, c) instances, which may be
a fraction.  Every operator has at least one instance, every instance has its fixed cost, and none carries more than
fills a machine alone.  Every placement at its rate is a solution, so the optimum is an upper bound on its rate.
"""

from dataclasses import dataclass

import numpy as np

from trimtab_models.sizing.problem import Floats, SizingProblem

SOLVER_TOLERANCE = 1e-7  # relative; GLOP's own is 1e-8


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Fluid:
    """`bound` on the source rate, negative if not even idle instances fit; `shares` (O, C) of each operator's input."""

    bound: float
    shares: Floats


def fluid_relaxation(problem: SizingProblem) -> Fluid:
    """The optimum of this program, with its bound raised by the solver's tolerance."""
    from ortools.math_opt.python import mathopt  # type: ignore[import-untyped]  # (slow to load)

    first = [int(group[0]) for group in problem.classes]
    scale = _crude_bound(problem)
    unit = problem.relative * scale  # scales the rate, so that all coefficients are percentages
    use = problem.per_rate[..., first] * unit[:, None]
    fixed, capacity = problem.per_instance[..., first], problem.capacity[:, first]
    most = _most_per_instance(use, capacity[:, None] - fixed)
    model = mathopt.Model()
    rate = model.add_variable(lb=0.0)
    operators, classes = range(len(problem.operators)), range(len(first))
    share = [[model.add_variable(lb=0.0) for _ in classes] for _ in operators]
    instances = [[model.add_variable(lb=0.0) for _ in classes] for _ in operators]
    for operator in operators:
        model.add_linear_constraint(mathopt.fast_sum(share[operator]) == rate)
        model.add_linear_constraint(mathopt.fast_sum(instances[operator]) >= 1)
        for at in classes:
            model.add_linear_constraint(share[operator][at] <= most[operator, at] * instances[operator][at])
            if (fixed[:, operator, at] > capacity[:, at]).any():
                model.add_linear_constraint(instances[operator][at] == 0)
    for resource in range(len(capacity)):
        for at in classes:
            terms = [use[resource, operator, at] * share[operator][at] for operator in operators]
            terms += [fixed[resource, operator, at] * instances[operator][at] for operator in operators]
            room = float(len(problem.classes[at]) * capacity[resource, at])
            model.add_linear_constraint(mathopt.fast_sum(terms) <= room)
    if problem.max_instances is not None:
        total = mathopt.fast_sum(each for row in instances for each in row)
        model.add_linear_constraint(total <= problem.max_instances)
    model.maximize(rate)
    result = mathopt.solve(model, mathopt.SolverType.GLOP)
    if result.termination.reason is not mathopt.TerminationReason.OPTIMAL:
        return Fluid(bound=-1.0, shares=np.zeros((len(operators), len(first))))
    reached = result.objective_value()
    return Fluid(
        bound=scale * (reached * (1 + SOLVER_TOLERANCE) + SOLVER_TOLERANCE / 100),
        shares=np.array([[result.variable_values(each) for each in row] for row in share]) / max(reached, 1e-300),
    )


def _most_per_instance(use: Floats, room: Floats) -> Floats:
    """(O, C) share of the input that fills a machine beside the fixed cost of one instance; at most 1."""
    with np.errstate(divide="ignore", invalid="ignore"):
        most = np.where(use > 0, np.maximum(0, room) / use, np.inf).min(axis=0)
    at_most_all: Floats = np.minimum(most, 1.0)
    return at_most_all


def _crude_bound(problem: SizingProblem) -> float:
    """Total CPU / least CPU per tuple/s."""
    return float(problem.capacity[0].sum() / (problem.relative * problem.per_rate[0].min(axis=1)).sum())
