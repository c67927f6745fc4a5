"""Inputs of the bound's conditions: movable key groups per node, and how far nodes are outside a trial band."""

from dataclasses import dataclass

import numpy as np

from trimtab_models.balance.problem import UNPLACED, BalanceProblem, Floats, Ints


@dataclass(frozen=True, slots=True, kw_only=True)
class Pieces:
    """The movable placed key groups (P), grouped by node, in a given order within each node."""

    key_groups: Ints  # (P,)
    load: Floats  # (P,)
    node: Ints  # (P,)
    first: Ints  # (N + 1,) index of each node's first piece
    before: Floats  # (P,) load of the earlier pieces of the same node
    running: Floats  # (P + 1,) running sum of load

    @classmethod
    def ordered(cls, problem: BalanceProblem, rank: Floats) -> "Pieces":
        """Pieces ordered by ascending `rank` (K,) within each node."""
        pieces = np.flatnonzero(problem.movable & (problem.home != UNPLACED))
        pieces = pieces[by_node(problem.home[pieces], rank[pieces])]
        node, load = problem.home[pieces], problem.load[pieces]
        first = np.concatenate(([0], np.cumsum(np.bincount(node, minlength=len(problem.capacity)))))
        running = np.concatenate(([0.0], np.cumsum(load)))
        return cls(
            key_groups=pieces, load=load, node=node, first=first,
            before=running[:-1] - running[first[node]], running=running,
        )  # fmt: skip


def by_node(node: Ints, rank: Floats) -> Ints:
    """The order of `np.lexsort((rank, node))`, in half the time: numpy sorts short integers by their digits."""
    order = np.argsort(rank, kind="stable")
    nodes = node[order]
    if len(nodes) and nodes.max() <= np.iinfo(np.uint16).max:
        nodes = nodes.astype(np.uint16)
    ordered: Ints = order[np.argsort(nodes, kind="stable")]
    return ordered


class Excesses:
    """Distance of every node from a trial band before any move, in percent of capacity 1."""

    def __init__(self, problem: BalanceProblem) -> None:
        self._problem = problem
        self._load = problem.node_loads(problem.home)
        self.unplaced = float(problem.load[problem.home == UNPLACED].sum())
        self.slack = 1e-11 * max(1.0, float(problem.load.sum()))  # for rounding: nothing is refuted wrongly

    def above(self, d: float) -> Floats:
        """(N,) load above the upper end of the band; negative below it."""
        return self._load - (self._problem.mean + d) * self._problem.capacity - self.slack

    def spare(self, d: float) -> Floats:
        """(N,) load that a node can give above the band's lower end; negative = deficit, infinite = draining."""
        spare = self._load - (self._problem.mean - d) * self._problem.capacity + self.slack
        return np.where(self._problem.removing, np.inf, spare)


def is_affordable(problem: BalanceProblem, chosen: Ints) -> bool:
    """Whether all `chosen` key groups can move within the budgets."""
    return bool((problem.prices[:, chosen].sum(axis=1) <= problem.allowances).all())
