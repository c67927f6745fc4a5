"""Certify and polish: CP-SAT on the whole of the exact model, for what bound and search have left open."""

from collections.abc import Callable

import numpy as np

from trimtab_models.balance.exact import Answer, Exact, everywhere
from trimtab_models.balance.problem import Ints, Problem

NODES = 60
BOOLEANS = 100_000


def booleans(problem: Problem) -> float:
    """The size of the exact model; infinite where proofs are out of reach."""
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
    """What is proven and found from a `plan` whose load distance is `reached`; `work` and `left_s` as of `Exact.solve`.

    The answer's bound is one on the problem, at least `proven`.
    """
    exact = Exact(problem, everywhere(problem), proven, reached)
    exact.hint(plan)
    return exact.solve(seed=seed, work=work, left_s=left_s)
