"""The knapsack condition of the bound, for a budget of bytes: nodes lose indivisible key groups.

Theory.  The condition Cost of `bound.py` allows fractions of key groups, so it underestimates the cost by up to one key
group per node.  Here g_i(s) is the least cost of key groups of node i with a total load of at least s.  This integer
knapsack is solved for all s at once on a grid of `CELLS` steps.  Loads are rounded up to grid steps, so that g_i never
overestimates.  At a trial d, node i must lose s_i >= excess_i and can give at most down to its lower end; what all
nodes give must cover the deficits.  Hence for every price mu >= 0 of load

    sum_i min over s >= excess_i of [g_i(s) - mu min(s, spare_i)]  +  mu deficit  <=  budget

and a mu that violates this refutes d.  The left side is concave in mu, so golden-section search finds its maximum.

Rounding up a key group by a grid step gives load away for nothing: 0.05 pp each for a node at a load of 50.  A finer
grid for the nodes that must lose something closes most of that; it takes longer, so it comes last.
"""

from dataclasses import dataclass

import numpy as np

from trimtab_models.balance.pieces import Excesses, Pieces
from trimtab_models.balance.problem import Bools, Floats, Ints, Problem

CELLS = 1024
ENTRIES = 400_000  # limit on nodes x cells: larger trials take too long
FINE_CELLS = 16_384
FINE_ENTRIES = 200_000  # nodes x cells of the finer grid
GOLDEN = 0.5 * (5**0.5 - 1)
SECTIONS = 16


class KnapsackCondition:
    """The condition for the budget `budget_bytes` of one problem; O(K CELLS) once, then O(N CELLS) per trial."""

    def __init__(self, problem: Problem, budget_bytes: float, above: float | None = None) -> None:
        """Nodes that are outside the band of a load distance of `above` get the finer grid."""
        pieces = Pieces.ordered(problem, -problem.load)
        self._excesses = Excesses(problem)
        self._budget_bytes = budget_bytes
        self._movable = np.bincount(pieces.node, pieces.load, len(problem.capacity)).astype(np.float64)
        costs = problem.cost_bytes[pieces.key_groups]
        fine: Bools = np.zeros(len(self._movable), np.bool_) if above is None else self._excesses.above(above) > 0
        grids = ((~fine, CELLS), (fine, min(FINE_CELLS, FINE_ENTRIES // max(1, int(fine.sum())))))
        self._tables = [
            _Table.of(pieces, costs, np.flatnonzero(nodes), self._movable, max(cells, CELLS))
            for nodes, cells in grids
            if nodes.any()
        ]
        carrying = pieces.load > 1e-9 * self._movable.sum()
        per_load = costs[carrying] / pieces.load[carrying]
        self._dearest = float(per_load.max(initial=0.0))

    def refute(self, d: float) -> bool:
        """Whether no plan within the budget has load distance `d`."""
        above = np.maximum(0.0, self._excesses.above(d))
        if (above > self._movable + self._excesses.slack).any():
            return True
        spare = self._excesses.spare(d)
        deficit = float(np.maximum(0.0, -spare).sum()) - self._excesses.unplaced
        limit = self._budget_bytes * (1 + 1e-9)
        choices = [table.choices(above, spare) for table in self._tables]

        def cheapest(price: float) -> float:
            return sum(float((cost - price * carried).min(axis=1).sum()) for cost, carried in choices) + price * deficit

        if cheapest(0.0) > limit or deficit <= self._excesses.slack:
            return cheapest(0.0) > limit
        low, high = 0.0, self._dearest
        inner = [high - GOLDEN * (high - low), low + GOLDEN * (high - low)]
        values = [cheapest(price) for price in inner]
        for _ in range(SECTIONS):
            if max(values) > limit:
                return True
            if values[0] >= values[1]:
                high = inner[1]
                inner = [high - GOLDEN * (high - low), inner[0]]
                values = [cheapest(inner[0]), values[0]]
            else:
                low = inner[0]
                inner = [inner[1], low + GOLDEN * (high - low)]
                values = [values[1], cheapest(inner[1])]
        return max(values) > limit


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Table:
    """What n nodes lose at least for what cost, on a grid of `step` (n,); `cost` (n, cells + 1)."""

    nodes: Ints  # (n,)
    step: Floats  # (n,)
    cost: Floats

    @classmethod
    def of(cls, pieces: Pieces, cost_bytes: Floats, nodes: Ints, movable: Floats, cells: int) -> "_Table":
        """The table of `nodes`; `cost_bytes` (P,) of the pieces, `movable` (N,) load."""
        step = np.maximum(movable[nodes], 1e-300) / cells
        return cls(nodes=nodes, step=step, cost=_covering(pieces, cost_bytes, nodes, step, cells))

    def choices(self, above: Floats, spare: Floats) -> tuple[Floats, Floats]:
        """(n, cells + 1) the cost of each amount, infinite if less than `above` (N,); what deficits get of it."""
        last = self.cost.shape[1] - 1
        cells = np.arange(last + 1)
        least = np.ceil(np.minimum(above[self.nodes] / self.step, last) - 1e-6)
        cost = np.where(cells >= least[:, None], self.cost, np.inf)
        return cost, np.minimum(cells * self.step[:, None], np.maximum(0.0, spare[self.nodes])[:, None])


def _covering(pieces: Pieces, cost_bytes: Floats, nodes: Ints, step: Floats, cells: int) -> Floats:
    """(n, cells + 1) least cost of movable key groups of each node that carry at least this many grid steps."""
    grid = np.arange(cells + 1)
    least = np.full((len(nodes), cells + 1), np.inf)
    least[:, 0] = 0.0
    first = pieces.first[nodes]
    count = pieces.first[nodes + 1] - first
    for rank in range(int(count.max(initial=0))):  # the rank-th key group of all nodes at once
        rows = np.flatnonzero(count > rank)
        piece = first[rows] + rank
        steps: Ints = np.ceil(pieces.load[piece] / step[rows]).astype(np.int64)
        rest = np.maximum(0, grid - steps[:, None])
        taken = np.take_along_axis(least[rows], rest, axis=1) + cost_bytes[piece][:, None]
        least[rows] = np.minimum(least[rows], taken)
    return least
