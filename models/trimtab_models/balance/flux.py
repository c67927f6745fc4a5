"""Flux, the published baseline (Shah et al., ICDE 2003, as described by Madsen et al. 2017, section 5).

Flux sorts the nodes by load.  It moves the largest key group that lowers the variance from the first node to the last,
then from the second to the second last, and so on up to the middle pair.  Then it sorts again, until the budget is
spent.  We differ in this: draining nodes receive nothing, limits and pins are kept, and a key group moves at most once.
With unequal capacities, the variance weighs each node's load in percent by its capacity (a move of load w from x to y
pp then lowers it iff w (1/c_i + 1/c_j) < 2 (x - y)).
"""

from bisect import bisect_left

import numpy as np

from trimtab_models.balance.evaluate import slack
from trimtab_models.balance.problem import Floats, Ints, Problem
from trimtab_models.solving.stop import Stop


def flux(problem: Problem, start: Ints, stop: Stop) -> Ints:
    """(K,) the plan of Flux from `start`, in which every key group is placed."""
    return _Flux(problem, start).run(stop)


class _Flux:
    def __init__(self, problem: Problem, start: Ints) -> None:
        self._problem = problem
        self._allocation = start.copy()
        self._loads: Floats = problem.node_loads(start) / problem.capacity
        self._used = problem.usages(start)
        self._limit = problem.limit + slack(problem)
        self._left = problem.allowances.copy()
        candidates = np.flatnonzero(problem.movable & (problem.load > 0))
        candidates = candidates[np.lexsort((problem.load[candidates], start[candidates]))]
        ends = np.cumsum(np.bincount(start[candidates], minlength=len(problem.capacity)))
        placed_prices = problem.prices[:, candidates]
        self._least = placed_prices.min(axis=1, initial=np.inf)  # with less than this left, nothing more can move
        self._ascending = [part.tolist() for part in np.split(candidates, ends[:-1])] if len(ends) else []
        self._weights = [problem.load[part].tolist() for part in self._ascending]

    def run(self, stop: Stop) -> Ints:
        kept = self._problem.kept
        while not stop() and (self._left >= self._least).all():
            descending = np.argsort(-self._loads, kind="stable")
            rank = np.argsort(descending)
            moved = False
            for source, target in zip(descending.tolist(), descending[kept[descending]][::-1].tolist(), strict=False):
                if rank[source] >= rank[target] or stop():
                    break
                if (self._left < self._least).any():
                    break
                moved |= self._move_largest(source, target)
            if not moved:
                break
        return self._allocation

    def _move_largest(self, source: int, target: int) -> bool:
        capacity = self._problem.capacity
        gap = 2 * (self._loads[source] - self._loads[target]) / (1 / capacity[source] + 1 / capacity[target])
        key_groups, weights = self._ascending[source], self._weights[source]
        for position in range(bisect_left(weights, gap) - 1, -1, -1):
            key_group = key_groups[position]
            used = self._used[:, target] + self._problem.usage_on(key_group, target)
            price = self._problem.prices[:, key_group]
            if not self._problem.may(key_group, target):
                continue
            if (used > self._limit[:, target]).any() or (price > self._left).any():
                continue
            del key_groups[position], weights[position]
            self._allocation[key_group] = target
            self._left -= price
            self._used[:, target] = used
            self._used[:, source] -= self._problem.usage_on(key_group, source)
            self._loads[source] -= self._problem.load[key_group] / capacity[source]
            self._loads[target] += self._problem.load[key_group] / capacity[target]
            return True
        return False
