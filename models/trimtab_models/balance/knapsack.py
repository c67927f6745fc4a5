"""The knapsack condition of the bound, for a budget of bytes: nodes lose indivisible key groups.

Theory.  The condition Cost of `bound.py` allows fractions of key groups, so it underestimates the cost by up to one key
group per node.  Here g_i(s) is the least cost of key groups of node i with a total load of at least s.  This integer
knapsack is solved for all s at once on a grid of `CELLS` steps.  Loads are rounded up to grid steps, so that g_i never
overestimates.  At a trial d, node i must lose s_i >= excess_i and can give at most down to its lower end; what all
nodes give must cover the deficits.  Hence for every price mu >= 0 of load

    sum_i min over s >= excess_i of [g_i(s) - mu min(s, spare_i)]  +  mu deficit  <=  budget

and a mu that violates this refutes d.  The left side is concave in mu, so golden-section search finds its maximum.
"""

import numpy as np

from trimtab_models.balance.pieces import Excesses, Pieces
from trimtab_models.balance.problem import Floats, Ints, Problem

CELLS = 1024
ENTRIES = 400_000  # limit on nodes x cells: larger trials take too long
GOLDEN = 0.5 * (5**0.5 - 1)
SECTIONS = 16


class KnapsackCondition:
    """The condition for the budget `budget_bytes` of one problem; O(K CELLS) once, then O(N CELLS) per trial."""

    def __init__(self, problem: Problem, budget_bytes: float) -> None:
        pieces = Pieces.ordered(problem, -problem.load)
        self._excesses = Excesses(problem)
        self._budget_bytes = budget_bytes
        self._movable = np.bincount(pieces.node, pieces.load, len(problem.capacity)).astype(np.float64)
        self._step = np.maximum(self._movable, 1e-300) / CELLS
        self._cost = _covering(pieces, problem.cost_bytes[pieces.key_groups], self._step)
        carrying = pieces.load > 1e-9 * self._movable.sum()
        per_load = problem.cost_bytes[pieces.key_groups][carrying] / pieces.load[carrying]
        self._dearest = float(per_load.max(initial=0.0))

    def refute(self, d: float) -> bool:
        """Whether no plan within the budget has load distance `d`."""
        above = np.maximum(0.0, self._excesses.above(d))
        if (above > self._movable + self._excesses.slack).any():
            return True
        spare = self._excesses.spare(d)
        deficit = float(np.maximum(0.0, -spare).sum()) - self._excesses.unplaced
        cells = np.arange(CELLS + 1)
        least = np.ceil(np.minimum(above / self._step, CELLS) - 1e-6)
        cost = np.where(cells >= least[:, None], self._cost, np.inf)
        carried = np.minimum(cells * self._step[:, None], np.maximum(0.0, spare)[:, None])
        limit = self._budget_bytes * (1 + 1e-9)

        def cheapest(price: float) -> float:
            return float((cost - price * carried).min(axis=1).sum()) + price * deficit

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


def _covering(pieces: Pieces, cost_bytes: Floats, step: Floats) -> Floats:
    """(N, CELLS + 1) least cost of movable key groups of each node that carry at least this many grid steps."""
    cells = np.arange(CELLS + 1)
    least = np.full((len(step), CELLS + 1), np.inf)
    least[:, 0] = 0.0
    steps: Ints = np.ceil(pieces.load / step[pieces.node]).astype(np.int64)
    count = np.diff(pieces.first)
    for rank in range(int(count.max(initial=0))):  # the rank-th key group of all nodes at once
        nodes = np.flatnonzero(count > rank)
        piece = pieces.first[nodes] + rank
        rest = np.maximum(0, cells - steps[piece][:, None])
        taken = np.take_along_axis(least[nodes], rest, axis=1) + cost_bytes[piece][:, None]
        least[nodes] = np.minimum(least[nodes], taken)
    return least
