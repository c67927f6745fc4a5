"""Placements that follow the fluid relaxation, from coarse to fine.

Few instances fill machines badly; many instances cost much by themselves.  The best number depends on both, so several
totals are tried.  For a given total, operators get instances in proportion to the CPU that the fluid plan gives them,
which makes all instances about equally large.  Machine classes get them in proportion to the plan's shares; within a
class, each instance goes where most capacity is left.
"""

import numpy as np

from trimtab_models.sizing.fluid import Fluid
from trimtab_models.sizing.problem import Floats, Ints, SizingProblem

PER_MACHINE = (0.5, 0.75, 1, 1.25, 1.5, 2, 2.5, 3, 4, 5, 6, 8, 10, 14, 20)


def totals(problem: SizingProblem, limit: int) -> list[int]:
    """Total numbers of instances to try, each between one per operator and `limit`."""
    least, machines = len(problem.operators), len(problem.machines)
    return sorted({min(limit, max(least, round(each * machines))) for each in PER_MACHINE})


def follow(problem: SizingProblem, fluid: Fluid, total: int) -> Ints:
    """(O, M) a placement of about `total` instances, never more."""
    first = [int(group[0]) for group in problem.classes]
    work = problem.relative * (problem.per_rate[0][:, first] * fluid.shares).sum(axis=1)
    counts = 1 + _apportion(work, total - len(work))
    share = problem.relative * fluid.bound / counts
    use = problem.per_rate * share[:, None] + problem.per_instance  # (Q, O, M) of one instance
    placement = np.zeros((len(work), len(problem.machines)), np.int64)
    left = problem.capacity.copy()
    largest_first = np.argsort(-use[0].min(axis=1), kind="stable")
    for operator in largest_first.tolist():
        for machines, count in zip(problem.classes, _apportion(fluid.shares[operator], counts[operator]), strict=True):
            for _ in range(count):
                room = ((left - use[:, operator]) / problem.capacity)[:, machines].min(axis=0)
                machine = machines[room.argmax()]
                placement[operator, machine] += 1
                left[:, machine] -= use[:, operator, machine]
    return placement


def _apportion(weights: Floats, total: int) -> Ints:
    """Integers in proportion to `weights` that add up to `total`, by largest remainder."""
    exact = weights * (total / weights.sum()) if weights.sum() > 0 else np.full(len(weights), total / len(weights))
    whole: Ints = np.floor(exact).astype(np.int64)
    order = np.argsort(whole - exact, kind="stable")
    whole[order[: total - int(whole.sum())]] += 1
    return whole
