"""First plans for budgets of bytes: what leaves each node, at the least price.

What nodes lose is a knapsack each, coupled by a price of load (`losses.py`).  At the least price of load that covers
the deficits, nodes change over to their larger set one by one, the cheapest first.  The chosen key groups then go,
heaviest first, to the least loaded nodes.

The least d that the budgets can pay for is found by bisection.  There the packing may fail, so plans for somewhat
larger d are made as well, which need fewer moves.
"""

from collections.abc import Iterator

import numpy as np

from trimtab_models.balance.construct import is_affordable, packed
from trimtab_models.balance.knapsack import relative_prices
from trimtab_models.balance.leveling import levelled
from trimtab_models.balance.losses import LARGEST, Losses
from trimtab_models.balance.pieces import Excesses
from trimtab_models.balance.problem import Bools, Floats, Ints, Problem
from trimtab_models.solving.stop import Stop

MARGINS_PP = (0.0, 0.1, 0.25, 0.5, 1.0, 2.0)
MIXTURES = (0.5, 0.2, 0.8)  # shares of the budget of migrations
PACKING = 0.5  # of the largest key group
AMPLE_PP, NEAR_PP = 0.05, 0.02
BISECTIONS = 14


def plans_by_price(problem: Problem, start: Ints, least: float, reached: float, stop: Stop) -> Iterator[Ints]:
    """(K,) plans for load distances from `least` on, below `reached`; budgets are kept, limits may not be.

    None where there is no budget of bytes, or where a plan that reaches `reached` is near enough to `least`: for an
    ample budget that is off by no more than packing is.
    """
    packing = PACKING * float(problem.load.max(initial=0.0)) / float(problem.capacity[problem.kept].min())
    near = reached - least <= (packing if least < AMPLE_PP else NEAR_PP)
    if problem.max_cost_bytes is None or near or len(problem.load) > LARGEST:
        return
    for price in relative_prices(problem, MIXTURES):
        if stop():
            return
        covers = Covers(problem, price, least)
        low, high = least, reached
        for _ in range(BISECTIONS):
            if stop():
                return
            middle = 0.5 * (low + high)
            low, high = (low, middle) if is_affordable(problem, covers.chosen(middle)) else (middle, high)
        for margin in MARGINS_PP:
            if stop() or high + margin >= reached:
                break
            chosen = covers.chosen(high + margin)
            if is_affordable(problem, chosen):
                plan = packed(problem, start, chosen)
                yield plan
                yield levelled(problem, plan, stop)


class Covers:
    """The cheapest key groups that leave their nodes, by the `price` (K,) of a move."""

    def __init__(self, problem: Problem, price: Floats, hot: float) -> None:
        """Nodes outside the band of a load distance of `hot` get the finer grid."""
        fine: Bools = Excesses(problem).above(hot) > 0
        self._losses = Losses(problem, price, fine=fine, listed=True)

    def chosen(self, d: float) -> Ints:
        """The key groups that leave their nodes for a load distance of `d`."""
        losses, cover = self._losses, self._losses.cover(d)
        carried = losses.carried(d)
        more = carried[cover.many] - carried[cover.few]
        dearer = (losses.price[cover.many] - losses.price[cover.few]) / np.maximum(more, 1e-300)
        order = np.argsort(np.where(more > 0, dearer, np.inf), kind="stable")
        changed = order[: int(np.searchsorted(np.cumsum(more[order]), cover.short)) + int(cover.short > 0)]
        sets = cover.few.copy()
        sets[changed] = cover.many[changed]
        return losses.key_groups(sets)
