"""The core of a problem: what a tight budget of migrations leaves to choose from, small enough for CP-SAT.

Every plan better than the one at hand takes at least its fewest key groups from each node above the band, and brings at
least the fewest to each node below it (R and S of `bound.py`). Where that is most of the budget, little else can move,
and which key group goes where is a packing of few large pieces, for which a search by single steps is ill suited. In
the core only key groups of the nodes above leave, only the nodes below receive, and each at most `SPARE` more than the
fewest. That may leave the best plan out: what CP-SAT finds here is a plan, what it refutes is no proof.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from trimtab_models.balance.bound import CountConditions
from trimtab_models.balance.exact import Exact
from trimtab_models.balance.problem import UNPLACED, Ints, Problem

SPARE = 1
TIGHT = 0.75  # of the budget is the least that must leave
BOOLEANS = 12_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Core:
    """Where every key group may stand (`nodes`), and the fewest that leave and reach each node (N,)."""

    nodes: list[list[int]]
    leaving: Ints
    arriving: Ints


def core_of(problem: Problem, conditions: CountConditions, reached: float) -> Core | None:
    """The core for plans with a load distance below `reached`; None where it would be no smaller, or too large."""
    budget = problem.max_migrations
    leaving = conditions.mandatory(reached)
    if budget is None or leaving is None or not TIGHT * budget <= leaving.sum() <= budget:
        return None
    if (problem.home == UNPLACED).any():
        return None
    arriving = conditions.arrivals(reached)
    free, receivers = problem.movable & (leaving > 0)[problem.home], np.flatnonzero(arriving).tolist()
    if not 0 < int(free.sum()) * len(receivers) <= BOOLEANS:
        return None
    nodes = [
        sorted({home, *receivers}) if leaves else [home]
        for home, leaves in zip(problem.home.tolist(), free.tolist(), strict=True)
    ]
    return Core(nodes=nodes, leaving=leaving, arriving=arriving)


def solve_core(
    problem: Problem,
    core: Core,
    proven: float,
    reached: float,
    *,
    seed: int,
    work: float,
    left_s: Callable[[], float] = lambda: np.inf,
) -> Ints | None:
    """(K,) the best plan found with a load distance in [`proven`, `reached`]; `work`, `left_s` as of `Exact.solve`."""
    exact = Exact(problem, core.nodes, proven, reached)
    exact.limit_movers(core.leaving, core.arriving, SPARE)
    return exact.solve(seed=seed, work=work, left_s=left_s).allocation
