"""The knapsack condition of the bound, for budgets of bytes: nodes lose indivisible key groups.

The condition Cost of `bound.py` allows fractions of key groups, so it underestimates the cost by up to one key group
per node.  Here every node has its integer knapsack, which `losses.py` couples by a price of load: if the relaxed
minimum at a trial d exceeds the budget, no plan reaches d.

Where both budgets bind, a plan that keeps both also keeps every mixture of them; some mixtures are tried.

Rounding up a key group by a grid step gives load away for nothing: 0.05 pp each for a node at a load of 50.  The nodes
that must lose something get a finer grid.
"""

from collections.abc import Iterator

import numpy as np

from trimtab_models.balance.losses import LEAST_ALLOWANCE, LeavingSets
from trimtab_models.balance.pieces import Excesses
from trimtab_models.balance.problem import BalanceProblem, Bools, Floats

MIXTURES = (0.0, 0.5, 0.2, 0.8)  # shares of the budget of migrations


def relative_prices(problem: BalanceProblem, shares: tuple[float, ...] = MIXTURES) -> Iterator[Floats]:
    """(K,) prices of which no plan pays more than 1: the budget of bytes, and mixtures with that of migrations.

    `shares` of the budget of migrations, where both bind.  None without a budget of bytes.
    """
    if problem.max_cost_bytes is None or not len(problem.prices):
        return
    least = LEAST_ALLOWANCE * problem.prices.max(axis=1)
    rows = problem.prices / np.maximum(np.maximum(problem.allowances, least), 1e-300)[:, None]
    for share in shares if len(rows) == 2 else (0.0,):
        yield np.array([share, 1.0 - share])[-len(rows) :] @ rows


class KnapsackCondition:
    """The condition of one problem; O(K CELLS) once, then O(N CELLS) per trial at most."""

    def __init__(self, problem: BalanceProblem, hot: float) -> None:
        """Nodes outside the band of a load distance of `hot` get the finer grid."""
        self._excesses = Excesses(problem)
        movable = problem.movable & (problem.home >= 0)
        mine = np.bincount(problem.home[movable], problem.load[movable], len(problem.capacity))
        self._movable = mine.astype(np.float64)
        fine: Bools = self._excesses.above(hot) > 0
        self._losses = [LeavingSets(problem, price, fine=fine, listed=False) for price in relative_prices(problem)]

    def refute(self, d: float) -> bool:
        """Whether no plan within the budgets has load distance `d`."""
        if (self._excesses.above(d) > self._movable + self._excesses.slack).any():
            return True
        return any(losses.cover(d).price > 1 + 1e-9 for losses in self._losses)
