"""Closes the gap between bound and plan by CP-SAT on the complete exact model."""

from collections.abc import Callable

import numpy as np

from trimtab_models.balance.exact import Answer, Exact, everywhere
from trimtab_models.balance.problem import Ints, Problem

NODES = 60
BOOLEANS = 100_000


def booleans(problem: Problem) -> float:
    """Number of Booleans in the exact model; infinite if it is too large to try."""
    nodes = len(problem.capacity)
    count = nodes * len(problem.load)
    return count if nodes <= NODES and count <= BOOLEANS else np.inf


def certify(
    problem: Problem,
    plan: Ints,
    proven: float,
    reached: float,
    *,
    seed: int,
    work: float,
    left_s: Callable[[], float] = lambda: np.inf,
) -> Answer:
    """Bound and plan from CP-SAT, started from `plan` with load distance `reached`.

    The bound holds for the problem and is at least `proven`.  `work` and `left_s` as in `Exact.solve`.
    """
    exact = Exact(problem, everywhere(problem), proven, reached)
    exact.hint(plan)
    return exact.solve(seed=seed, work=work, left_s=left_s)
