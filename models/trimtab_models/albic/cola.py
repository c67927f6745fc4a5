"""COLA, the published baseline for collocation (Khandekar et al., Middleware 2009, as Madsen et al. 2017 use it).

COLA partitions the graph of key groups from scratch.  It starts with one partition and repeatedly cuts the heaviest one
in two, with little rate between the halves.  It stops when the partitions, placed heaviest first on the least loaded
node, are balanced to within maxLD.  It ignores the present placement and the budget, so almost all key groups move.  We
differ in this: pinned key groups stay, draining nodes get nothing, and there is no plan if limits would be exceeded.
"""

import heapq

import numpy as np

from trimtab_models.albic.parts import Members, cut, parts_of
from trimtab_models.albic.problem import CollocationProblem
from trimtab_models.balance.bound import lower_bound
from trimtab_models.balance.construct import place_on_least_loaded, place_unplaced
from trimtab_models.balance.evaluate import evaluate
from trimtab_models.balance.problem import UNPLACED, BalanceProblem, Floats, Ints, infeasible
from trimtab_models.balance.result import BalanceResult
from trimtab_models.solving import Infeasible, StopRule

GROWTH = 1.05  # growth of the number of partitions between two assignments


def solve_cola(problem: CollocationProblem, *, stop: StopRule, seed: int) -> BalanceResult | Infeasible:
    """COLA's plan, regardless of the budget; the present placement if limits allow no plan from scratch."""
    if reason := infeasible(problem.balance):
        return Infeasible(reason=reason)
    start = place_unplaced(problem.balance)
    balance = problem.unlimited().balance.tolerating(start)
    bound = lower_bound(balance, evaluate(balance, start).load_distance, stop)
    allocation = _Cola(problem, balance, seed).run(stop)
    if allocation is None or not evaluate(balance, allocation).allowed:
        allocation = start
    return BalanceResult.of(balance, allocation, evaluate(balance, allocation), bound)


class _Cola:
    def __init__(self, problem: CollocationProblem, balance: BalanceProblem, seed: int) -> None:
        self._problem, self._balance, self._seed = problem, balance, seed
        fixed = np.flatnonzero(~balance.movable).tolist()
        self._fixed: list[Members] = [[key_group] for key_group in fixed]
        self._waiting: list[tuple[float, Members]] = []  # heap of partitions that can be cut, heaviest first
        self._single: list[Members] = []
        free = np.flatnonzero(balance.movable).tolist()
        if free:
            self._push(free)

    def run(self, stop: StopRule) -> Ints | None:
        """The first assignment within maxLD, else that of single key groups; None if limits forbid it."""
        allocation, checked = None, 0.0
        enough = int(self._balance.kept.sum())
        while True:
            count = len(self._waiting) + len(self._single)
            if not self._waiting or (count >= enough and count >= GROWTH * checked):
                allocation, checked = self._assigned(), count
                if self._within(allocation) or not self._waiting or stop():
                    return allocation
            _, heaviest = heapq.heappop(self._waiting)
            for part in self._halves(heaviest):
                self._push(part)

    def _push(self, members: Members) -> None:
        if len(members) == 1:
            self._single.append(members)
        else:
            heapq.heappush(self._waiting, (-float(self._balance.load[members].sum()), members))

    def _within(self, allocation: Ints | None) -> bool:
        if allocation is None:
            return False
        return evaluate(self._balance, allocation).load_distance <= self._balance.max_load_distance

    def _assigned(self) -> Ints | None:
        """Partitions heaviest first, each on the least loaded node with room; None if one has no room."""
        parts = parts_of(self._balance, sorted([*self._fixed, *self._single, *(part for _, part in self._waiting)]))
        allocation = np.where(parts.problem.movable, UNPLACED, parts.problem.home)
        heaviest_first = np.argsort(-parts.problem.load, kind="stable")
        refused = place_on_least_loaded(
            parts.problem, allocation, heaviest_first[allocation[heaviest_first] == UNPLACED].tolist()
        )
        return None if refused else parts.expand(allocation)

    def _halves(self, members: Members) -> list[Members]:
        labels = cut(self._balance.load[members], *self._edges(members), 2, self._seed)
        array = np.array(members)
        return [array[labels == label].tolist() for label in (0, 1)]

    def _edges(self, members: Members) -> tuple[Ints, Floats]:
        problem = self._problem
        position = np.full(len(self._balance.load), -1, np.int64)
        position[members] = np.arange(len(members))
        first, second = position[problem.source], position[problem.target]
        inside = (first >= 0) & (second >= 0) & (first != second)
        low, high = np.minimum(first, second)[inside], np.maximum(first, second)[inside]
        keys, at = np.unique(low * len(members) + high, return_inverse=True)
        rate = np.bincount(at, problem.rate[inside], len(keys)).astype(np.float64)
        return np.stack(np.divmod(keys, len(members)), axis=1), rate
