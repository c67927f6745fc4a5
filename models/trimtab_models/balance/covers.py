"""First plans for budgets of bytes: what leaves each node, at the least price.

Theory.  At a trial distance d each node must lose its excess above the band, and may give more, down to the band's
lower end; together the nodes must cover the deficits below it (see `knapsack.py`).  What a node loses is a knapsack,
solved for all amounts at once on a grid.  Here loads are rounded down to grid steps, so that the key groups which are
chosen carry as much as they are to.  For a price mu of load, each node chooses by itself the amount s that minimises
price(s) - mu s.  At the least mu that covers the deficits, nodes change over to their larger amount one by one.  The
chosen key groups then go, heaviest first, to the least loaded nodes.

The least d that the budgets can pay for is found by bisection.  There the packing may fail, so plans for somewhat
larger d are made as well, which need fewer moves.
"""

from collections.abc import Iterator

import numpy as np

from trimtab_models.balance.construct import packed
from trimtab_models.balance.pieces import Excesses, Pieces
from trimtab_models.balance.problem import Floats, Ints, Problem
from trimtab_models.solving.stop import Stop

CELLS = 1024
LEAST_CELLS = 128  # a coarser grid chooses too much
ENTRIES = 8_000_000  # most entries of the table of choices, pieces of a node x nodes x cells: 8 MB
MARGINS_PP = (0.0, 0.1, 0.25, 0.5, 1.0, 2.0)
MIXTURES = ((1.0, 1.0), (1.0, 4.0), (4.0, 1.0))  # weights of two budgets
PACKING = 0.5  # of the largest key group
BISECTIONS = 14
SECTIONS = 16


def plans_by_price(problem: Problem, start: Ints, least: float, reached: float, stop: Stop) -> Iterator[Ints]:
    """(K,) plans for load distances from `least` on, below `reached`; budgets are kept, limits may not be.

    None where there is no budget of bytes, or where a plan that reaches `reached` is off by no more than packing is.
    """
    packing = PACKING * float(problem.load.max(initial=0.0)) / float(problem.capacity[problem.kept].min())
    if problem.max_cost_bytes is None or reached - least <= packing:
        return
    scaled = problem.prices / np.maximum(problem.allowances, 1e-300)[:, None]
    mixtures = MIXTURES if len(scaled) == 2 else (np.ones(len(scaled)),)
    for weights in mixtures if len(scaled) else ():
        covers = Covers.of(problem, np.asarray(weights) @ scaled)
        if covers is None or stop():
            return
        low, high = least, reached
        for _ in range(BISECTIONS):
            if stop():
                return
            middle = 0.5 * (low + high)
            low, high = (low, middle) if _is_affordable(problem, covers.chosen(middle)) else (middle, high)
        for margin in MARGINS_PP:
            if stop() or high + margin >= reached:
                break
            chosen = covers.chosen(high + margin)
            if _is_affordable(problem, chosen):
                yield packed(problem, start, chosen)


def _is_affordable(problem: Problem, chosen: Ints) -> bool:
    return bool((problem.prices[:, chosen].sum(axis=1) <= problem.allowances).all())


class Covers:
    """For each node the cheapest sets of key groups that carry at least so many grid steps."""

    @classmethod
    def of(cls, problem: Problem, price: Floats) -> "Covers | None":
        """The sets by `price` (K,) of a move; None if the tables would be too large."""
        pieces = Pieces.ordered(problem, -problem.load)
        entries = len(problem.capacity) * int(np.diff(pieces.first).max(initial=0))
        cells = min(CELLS, ENTRIES // max(1, entries))
        return None if cells < LEAST_CELLS or not len(pieces.load) else cls(problem, pieces, price, cells)

    def __init__(self, problem: Problem, pieces: Pieces, price: Floats, cells: int) -> None:
        self._pieces, self._excesses = pieces, Excesses(problem)
        movable = np.bincount(pieces.node, pieces.load, len(problem.capacity))
        self._step = np.maximum(movable, 1e-300) / cells
        self._steps: Ints = np.floor(pieces.load / self._step[pieces.node]).astype(np.int64)
        self._cells = np.arange(cells + 1)
        self._price = np.full((len(self._step), cells + 1), np.inf)
        self._price[:, 0] = 0.0
        count = np.diff(pieces.first)
        self._taken = np.zeros((int(count.max(initial=0)), *self._price.shape), np.bool_)
        for rank, taken in enumerate(self._taken):  # the rank-th key group of all nodes at once
            nodes = np.flatnonzero(count > rank)
            piece = pieces.first[nodes] + rank
            rest = np.maximum(0, self._cells - self._steps[piece][:, None])
            with_it = np.take_along_axis(self._price[nodes], rest, axis=1) + price[pieces.key_groups[piece]][:, None]
            taken[nodes] = with_it < self._price[nodes]
            self._price[nodes] = np.minimum(self._price[nodes], with_it)
        dearest = price[pieces.key_groups] / np.maximum(pieces.load, 1e-9 * float(movable.sum()))
        self._dearest = float(dearest.max(initial=0.0))

    def chosen(self, d: float) -> Ints:
        """The key groups that leave their nodes for a load distance of `d`."""
        amounts = self._amounts(d)
        chosen = []
        for node, amount in enumerate(amounts.tolist()):
            left = amount
            for piece in range(int(self._pieces.first[node + 1]) - 1, int(self._pieces.first[node]) - 1, -1):
                if left > 0 and self._taken[piece - self._pieces.first[node], node, left]:
                    chosen.append(piece)
                    left = max(0, left - int(self._steps[piece]))
        return self._pieces.key_groups[np.array(chosen, np.int64)]

    def _amounts(self, d: float) -> Ints:
        """(N,) the grid steps that each node loses."""
        cells, last = self._cells, len(self._cells) - 1
        above, spare = np.maximum(0.0, self._excesses.above(d)), self._excesses.spare(d)
        deficit = float(np.maximum(0.0, -spare).sum()) - self._excesses.unplaced
        most = (self._price < np.inf).sum(axis=1) - 1  # rounded down, all pieces together may be a few steps short
        least = np.minimum(np.ceil(np.minimum(above / self._step, last) - 1e-6), most)
        price = np.where(cells >= least[:, None], self._price, np.inf)
        carried = np.minimum(cells * self._step[:, None], np.maximum(0.0, spare)[:, None])
        nodes = np.arange(len(price))

        def cheapest(mu: float) -> Ints:
            found: Ints = (price - mu * carried).argmin(axis=1)
            return found

        few, many = cheapest(0.0), cheapest(self._dearest)
        if carried[nodes, few].sum() >= deficit:
            return few
        low, high = 0.0, self._dearest
        for section in range(SECTIONS):
            mu = high * 1e-3 if section == 0 else 0.5 * (low + high) if low else high * 1e-1
            trial = cheapest(mu)
            if carried[nodes, trial].sum() >= deficit:
                high, many = mu, trial
            else:
                low, few = mu, trial
        more = carried[nodes, many] - carried[nodes, few]
        dearer = (price[nodes, many] - price[nodes, few]) / np.maximum(more, 1e-300)
        order = np.argsort(np.where(more > 0, dearer, np.inf), kind="stable")
        missing = deficit - float(carried[nodes, few].sum())
        changed = order[: int(np.searchsorted(np.cumsum(more[order]), missing)) + 1]
        amounts = few.copy()
        amounts[changed] = many[changed]
        return amounts
