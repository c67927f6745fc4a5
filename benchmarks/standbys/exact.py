"""The standby problem for CP-SAT: slow, and only for a comparison."""

import numpy as np
from ortools.sat.python import cp_model

from trimtab_models.standbys.problem import StandbyProblem

SCALE = 1_000
"""Steps per percent of a worker; CP-SAT knows integers only."""


def optimum(problem: StandbyProblem, hint: np.ndarray, seconds: float) -> tuple[float, float]:
    """The best value and bound (percent of a worker) after at most `seconds`, beginning with the plan `hint`.

    For one standby per key group, without limits.  Both are off by up to a hundredth from rounding.
    """
    model = cp_model.CpModel()
    workers = range(len(problem.capacity))
    load, follow = (np.round(values * SCALE).astype(int) for values in (problem.load, problem.follow))
    own = np.bincount(problem.owner, load, len(workers)).astype(int)
    chosen: dict[tuple[int, int], cp_model.IntVar] = {}
    for key_group, owner in enumerate(problem.owner.tolist()):
        able = [n for n in workers if not problem.removing[n] and problem.domain[n] != problem.domain[owner]]
        for worker in able:
            chosen[key_group, worker] = model.new_bool_var("")
            model.add_hint(chosen[key_group, worker], int(hint[key_group, 0] == worker))
        model.add_exactly_one(chosen[key_group, worker] for worker in able)
    highest = model.new_int_var(0, 10_000 * SCALE, "")
    of = problem.domain[problem.owner]
    for domain in range(problem.domains):
        for worker in workers:
            if problem.domain[worker] == domain:
                continue
            carried = sum(
                int(load[key_group] if of[key_group] == domain else follow[key_group]) * chosen[key_group, worker]
                for key_group in range(len(problem.owner))
                if (key_group, worker) in chosen
            )
            model.add(SCALE * (int(own[worker]) + carried) <= int(problem.capacity[worker] * SCALE) * highest)
    model.minimize(highest)
    solver = cp_model.CpSolver()
    solver.parameters.max_time_in_seconds = seconds
    solver.solve(model)
    return solver.objective_value / SCALE, solver.best_objective_bound / SCALE
