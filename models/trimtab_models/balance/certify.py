"""Closes the gap between bound and plan by CP-SAT on the complete exact model."""

from collections.abc import Callable

import numpy as np

from trimtab_models.balance.exact import ExactModel, ExactResult, everywhere
from trimtab_models.balance.problem import BalanceProblem, Ints

NODES = 60
BOOLEANS = 100_000


def booleans(problem: BalanceProblem) -> float:
    """Number of Booleans in the exact model; infinite if it is too large to try."""
    nodes = len(problem.capacity)
    count = nodes * len(problem.load)
    return count if nodes <= NODES and count <= BOOLEANS else np.inf


def certify(
    problem: BalanceProblem,
    plan: Ints,
    proven: float,
    reached: float,
    *,
    seed: int,
    work: float,
    left_s: Callable[[], float] = lambda: np.inf,
) -> ExactResult:
    """Bound and plan from CP-SAT, started from `plan` with load distance `reached`.

    The bound holds for the problem and is at least `proven`.  `work` and `left_s` as in `ExactModel.solve`.
    """
    exact = ExactModel(problem, everywhere(problem), proven, reached)
    exact.hint(plan)
    return exact.solve(seed=seed, work=work, left_s=left_s)
