"""A tight bound for small instances, by linear programs: too slow for the controller, and only for a comparison.

A worker n with room `u c_n - L_n` below a level u that follows F and inherits at most t after any loss needs
`F + t <= room`.  So it chooses: a worker that takes a large key group may follow little.  Its t lies in one of a few
classes `[low, high]`; in each, it follows at most `room - low`, inherits at most `high`, and takes no key group and no
two of one domain that are larger together.  Where even a mixture of classes for each worker, and of workers for each
key group, cannot place all key groups, no assignment stays at or below u.
"""

import numpy as np
from ortools.math_opt.python import mathopt  # type: ignore[import-untyped]

from trimtab_models.standbys import Problem

CLASSES = 12
LEAST = 0.5
"""Of a worker's room: the upper end of the first class."""
LARGE = 0.15
"""Of a worker's room: larger key groups are each bound to the share of their class."""
PRECISION = 0.1
"""In percent of a worker."""


def disjunctive_bound(problem: Problem, proven: float, reached: float) -> float:
    """A bound on the worst load (percent of a worker), between `proven` and `reached`, with PRECISION.

    For one standby per key group, without limits.
    """
    low, high = proven, reached
    while high - low > PRECISION:
        level = 0.5 * (low + high)
        low, high = (level, high) if _is_refuted(problem, level) else (low, level)
    return low


def _is_refuted(problem: Problem, level: float) -> bool:
    model = mathopt.Model()
    key_groups = range(len(problem.owner))
    places: list[list[mathopt.Variable]] = [[] for _ in key_groups]
    for worker in range(len(problem.capacity)):
        room = level * float(problem.capacity[worker]) - float(problem.own[worker])
        if room <= 0.0 or problem.removing[worker]:
            continue
        ends = np.linspace(LEAST * room, room, CLASSES).tolist()
        shares = [
            _add_class(model, problem, worker, room, low, high, places)
            for low, high in zip([0.0, *ends[:-1]], ends, strict=True)
        ]
        model.add_linear_constraint(mathopt.fast_sum(shares) <= 1)
    if not all(places):
        return True
    for key_group in key_groups:
        model.add_linear_constraint(mathopt.fast_sum(places[key_group]) == 1)
    result = mathopt.solve(model, mathopt.SolverType.GLOP)
    return result.termination.reason is mathopt.TerminationReason.INFEASIBLE


def _add_class(
    model: mathopt.Model,
    problem: Problem,
    worker: int,
    room: float,
    low: float,
    high: float,
    places: list[list[mathopt.Variable]],
) -> mathopt.Variable:
    """Add the class of a worker that inherits from `low` to `high`; returns its share, and adds to `places`."""
    domain, inherited = problem.domain[problem.owner], problem.load - problem.follow
    able = (domain != problem.domain[worker]) & (problem.load <= room) & (inherited <= high)
    able &= problem.follow <= room - low
    share = model.add_variable(lb=0.0, ub=1.0)
    follows = model.add_variable(lb=0.0)
    takes = {key_group: model.add_variable(lb=0.0) for key_group in np.flatnonzero(able).tolist()}
    for key_group, part in takes.items():
        places[key_group].append(part)
        if inherited[key_group] > LARGE * room:
            model.add_linear_constraint(part - share <= 0)
    model.add_linear_constraint(
        mathopt.fast_sum(float(problem.follow[key_group]) * part for key_group, part in takes.items()) - follows <= 0
    )
    model.add_linear_constraint(follows - (room - low) * share <= 0)
    for lost in range(problem.domains):
        orphans = [
            (float(inherited[key_group]), part) for key_group, part in takes.items() if domain[key_group] == lost
        ]
        inherits = model.add_variable(lb=0.0)
        model.add_linear_constraint(mathopt.fast_sum(load * part for load, part in orphans) - inherits <= 0)
        model.add_linear_constraint(inherits - high * share <= 0)
        model.add_linear_constraint(follows + inherits - room * share <= 0)
        for most in (1, 2):
            large = [part for load, part in orphans if load > high / (most + 1) + 1e-9]
            if len(large) > most:
                model.add_linear_constraint(mathopt.fast_sum(large) - most * share <= 0)
    return share
