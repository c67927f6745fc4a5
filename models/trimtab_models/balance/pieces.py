"""The movable key groups node by node, and how far nodes are outside a trial band: what all conditions start from."""

from dataclasses import dataclass

import numpy as np

from trimtab_models.balance.problem import UNPLACED, Floats, Ints, Problem


@dataclass(frozen=True, slots=True, kw_only=True)
class Pieces:
    """The movable placed key groups, node by node, in a given order within each node."""

    key_groups: Ints  # (P,)
    load: Floats  # (P,)
    node: Ints  # (P,)
    first: Ints  # (N + 1,) where each node's pieces start
    before: Floats  # (P,) load of the pieces of the same node that come earlier
    running: Floats  # (P + 1,) running sum of load

    @classmethod
    def ordered(cls, problem: Problem, rank: Floats) -> "Pieces":
        """Pieces by ascending `rank` ((K,)) within each node."""
        pieces = np.flatnonzero(problem.movable & (problem.home != UNPLACED))
        pieces = pieces[np.lexsort((rank[pieces], problem.home[pieces]))]
        node, load = problem.home[pieces], problem.load[pieces]
        first = np.concatenate(([0], np.cumsum(np.bincount(node, minlength=len(problem.capacity)))))
        running = np.concatenate(([0.0], np.cumsum(load)))
        return cls(
            key_groups=pieces, load=load, node=node, first=first,
            before=running[:-1] - running[first[node]], running=running,
        )  # fmt: skip


class Excesses:
    """How far every node is outside a trial band, in absolute load, before anything is moved."""

    def __init__(self, problem: Problem) -> None:
        self._problem = problem
        self._load = problem.node_loads(problem.home)
        self.unplaced = float(problem.load[problem.home == UNPLACED].sum())
        self.slack = 1e-11 * max(1.0, float(problem.load.sum()))  # rounding of the sums; never refutes too much

    def above(self, d: float) -> Floats:
        """(N,) load above the band; negative inside."""
        return self._load - (self._problem.mean + d) * self._problem.capacity - self.slack

    def spare(self, d: float) -> Floats:
        """(N,) load above the band's lower end: what a node can give; negative is a deficit, infinite if marked."""
        spare = self._load - (self._problem.mean - d) * self._problem.capacity + self.slack
        return np.where(self._problem.removing, np.inf, spare)
