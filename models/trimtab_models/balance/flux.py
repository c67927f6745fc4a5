"""Flux, the published baseline (Shah et al., ICDE 2003, as described by Madsen et al. 2017, section 5).

Flux sorts the nodes by load.  It moves the largest key group that lowers the variance from the first node to the last,
then from the second to the second last, and so on up to the middle pair.  Then it sorts again, until the budget is
spent.  We differ in this: draining nodes receive nothing, limits and pins are kept, and a key group moves at most once.
With unequal capacities, the variance weighs each node's load in percent by its capacity (a move of load w from x to y
pp then lowers it iff w (1/c_i + 1/c_j) < 2 (x - y)).
"""

from bisect import bisect_left
from itertools import pairwise

import numpy as np

from trimtab_models.balance.evaluate import slack
from trimtab_models.balance.losses import by_node
from trimtab_models.balance.problem import BalanceProblem, Floats, Ints
from trimtab_models.solving import StopRule

MOST_BUDGETS = 2  # migrations and bytes


def flux(problem: BalanceProblem, start: Ints, stop: StopRule) -> Ints:
    """(K,) the plan of Flux from `start`, in which every key group is placed."""
    return _Flux(problem, start).run(stop)


class _Flux:
    def __init__(self, problem: BalanceProblem, start: Ints) -> None:
        self._problem = problem
        self._allocation = start.copy()
        self._loads: Floats = problem.node_loads(start) / problem.capacity
        self._used = problem.usages(start)
        self._limit = problem.limit + slack(problem)
        self._free = problem.allowed is None and not len(problem.limit)  # then a budget alone keeps a key group
        candidates = np.flatnonzero(problem.movable & (problem.load > 0))
        candidates = candidates[by_node(start[candidates], problem.load[candidates])]
        prices = np.zeros((MOST_BUDGETS, len(candidates)))
        prices[: len(problem.prices)] = problem.prices[:, candidates]
        self._left = [*problem.allowances.tolist(), np.inf, np.inf][:MOST_BUDGETS]
        self._least = prices.min(axis=1, initial=np.inf).tolist()  # with less than this left, nothing more can move
        ends = np.cumsum(np.bincount(start[candidates], minlength=len(problem.capacity))).tolist()
        parts = [slice(first, end) for first, end in pairwise([0, *ends])]
        self._ascending, self._weights, *self._prices = (
            [row[part] for part in parts]
            for row in (candidates.tolist(), problem.load[candidates].tolist(), *prices.tolist())
        )

    def run(self, stop: StopRule) -> Ints:
        kept, capacity = self._problem.kept, self._problem.capacity
        while not stop() and not self._is_spent():
            descending = np.argsort(-self._loads, kind="stable")
            targets = descending[kept[descending]][::-1]
            sources = descending[: len(targets)]
            rank = np.argsort(descending)
            pairs = np.logical_and.accumulate(rank[sources] < rank[targets[: len(sources)]]).sum()
            source, target = sources[:pairs], targets[:pairs]  # each node once: no move changes another's gap
            gaps = (self._loads[source] - self._loads[target]) / (0.5 / capacity[source] + 0.5 / capacity[target])
            moved = False
            for one, other, gap in zip(source.tolist(), target.tolist(), gaps.tolist(), strict=True):
                if stop() or self._is_spent():
                    break
                moved |= self._move_largest(one, other, gap)
            if not moved:
                break
        return self._allocation

    def _is_spent(self) -> bool:
        return any(left < least for left, least in zip(self._left, self._least, strict=True))

    def _move_largest(self, source: int, target: int, gap: float) -> bool:
        """Move the largest key group of `source` with a load below `gap` that may move; returns whether one does."""
        weights, (first_prices, second_prices) = self._weights[source], (prices[source] for prices in self._prices)
        first_left, second_left = self._left
        for position in range(bisect_left(weights, gap) - 1, -1, -1):
            if first_prices[position] > first_left or second_prices[position] > second_left:
                continue
            key_group = self._ascending[source][position]
            if not self._free and not self._fits(key_group, target):
                continue
            self._move(key_group, source, target)
            self._left = [first_left - first_prices[position], second_left - second_prices[position]]
            for row in (self._ascending, self._weights, *self._prices):
                del row[source][position]
            return True
        return False

    def _fits(self, key_group: int, target: int) -> bool:
        if not self._problem.may(key_group, target):
            return False
        used = self._used[:, target] + self._problem.usage_on(key_group, target)
        return not (used > self._limit[:, target]).any()

    def _move(self, key_group: int, source: int, target: int) -> None:
        problem = self._problem
        self._allocation[key_group] = target
        if len(problem.limit):
            self._used[:, target] += problem.usage_on(key_group, target)
            self._used[:, source] -= problem.usage_on(key_group, source)
        self._loads[source] -= problem.load[key_group] / problem.capacity[source]
        self._loads[target] += problem.load[key_group] / problem.capacity[target]
