"""GMA, the greedy matching algorithm of the Elastic Allocator, for any number of resources.

Source: "Elastic Allocator: An Adaptive Task Scheduler for Streaming Query in the Cloud", IEEE SOSE 2014, algorithm 1.
Items are placed by descending demand.  Each goes to a node that keeps all its resources at or below the threshold, and
of these to the one with the most even utilisations afterwards: the least sum over resources of the population standard
deviation over nodes.  The rest (items that fit nowhere, and all items when the operations are spent) is spread evenly
over the nodes that are light by then.  We differ in this: the paper's text takes the first node that improves the
objective.  With its other objective, total utilisation, that is first-fit packing and contradicts the paper's figure 5.

Utilisations and thresholds are in percent of a node's capacity.
"""

import heapq
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum

import numpy as np

from trimtab_models.balance.problem import Bools, Floats, Ints
from trimtab_models.solving import StopRule
from trimtab_models.spared import Spared, usage_on

LIGHT_BELOW, HEAVY_FROM = 40.0, 80.0
ROUNDING = 1e-9  # percent
NOWHERE = -1


class NodeLevel(Enum):
    """How busy a node is, by its busiest resource: [0, 40), [40, 80), [80, inf) percent."""

    LIGHT = "light"
    MODERATE = "moderate"
    HEAVY = "heavy"


def level_of(utilisation: float) -> NodeLevel:
    """The level of a node with this utilisation of its busiest resource, in percent."""
    if utilisation < LIGHT_BELOW:
        return NodeLevel.LIGHT
    return NodeLevel.MODERATE if utilisation < HEAVY_FROM else NodeLevel.HEAVY


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ResourceDemands:
    """K items to place on N nodes with R resources.

    An item adds `demand * per_unit` percent, less what is `spared` of its demand on that node; `per_unit` is 0 for an
    unlimited resource, infinite for one that the node does not have.  No placement exceeds `ceiling`.  Placing item k
    costs `prices[:, k]` of the budgets `allowances`.
    """

    used: Floats  # (R, N) percent, used by everything that stays
    demand: Floats  # (R, K)
    per_unit: Floats  # (R, N)
    ceiling: Floats  # (R, N) percent
    prices: Floats = field(default_factory=lambda: np.zeros((0, 0)))  # (B, K)
    allowances: Floats = field(default_factory=lambda: np.zeros(0))  # (B,)
    spared: Spared | None = None

    def added(self, item: int) -> Floats:
        """(R, N) percent that `item` adds to each node."""
        demand = usage_on(self.demand, self.spared, [item], np.arange(self.used.shape[1]))
        return np.multiply(demand, self.per_unit, where=demand > 0, out=np.zeros_like(self.used))

    def together(self, items: Ints, nodes: Ints) -> Floats:
        """(R, N) percent used once these items are on these nodes."""
        busy = self.used.copy()
        demand = usage_on(self.demand, self.spared, items, nodes)
        np.add.at(busy.T, nodes, (demand * self.per_unit[:, nodes]).T)
        return busy


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Matched:
    """`node` (K,) = node of each item; NOWHERE if it is `refused` (no room, no light node) or too expensive."""

    node: Ints
    refused: tuple[int, ...]
    rest: tuple[int, ...]  # items spread over light nodes, not placed by the objective
    operations: int  # number of trials of an item on a node


def match(demands: ResourceDemands, *, threshold: float, operations: int, stop: StopRule) -> Matched:
    """Place every item if possible.  Takes the first of equal nodes, so the same demands give the same plan."""
    matching = _Matching(demands, threshold)
    nodes = demands.used.shape[1]
    percent = np.where(np.isfinite(demands.per_unit), demands.per_unit, 0).mean(axis=1) if nodes else np.zeros(0)
    size = (demands.demand * percent[:, None]).max(axis=0, initial=0.0)
    waiting = np.argsort(-size, kind="stable").tolist()
    put = matching.by_heap() or matching.place
    spent = 0
    for position, item in enumerate(waiting):
        if spent + nodes > operations or stop():
            matching.left += waiting[position:]
            break
        spent += nodes
        put(item)
    return matching.settle_rest(spent)


class _Matching:
    def __init__(self, demands: ResourceDemands, threshold: float) -> None:
        self._demands = demands
        self._threshold = threshold + ROUNDING
        self._used = demands.used.copy()
        self._node = np.full(demands.demand.shape[1], NOWHERE, np.int64)
        self._received = np.zeros(demands.used.shape[1], np.int64)
        self._purse = demands.allowances.copy()
        self.left: list[int] = []
        counted: Bools = (demands.per_unit > 0) & np.isfinite(demands.per_unit)
        count = np.maximum(1, counted.sum(axis=1, keepdims=True))
        middle = np.where(counted, self._used, 0).sum(axis=1, keepdims=True) / count
        away = np.where(counted, self._used - middle, 0)
        # keeps squares of huge loads finite
        self._scale = np.maximum(max(1.0, threshold), np.abs(away).max(axis=1, initial=0.0, keepdims=True))
        self._counted = counted
        self._share = 1 / count
        self._away = away / self._scale  # centred, so that differences of squares keep precision
        self._total = self._away.sum(axis=1, keepdims=True)
        self._squares = (self._away**2).sum(axis=1, keepdims=True)

    def by_heap(self) -> Callable[[int], None] | None:
        """`place` in logarithmic time, where all nodes differ in one resource at most, and in that by its use alone.

        Then the most even utilisations follow from the least used node.  None where that does not hold.
        """
        per_unit = self._demands.per_unit
        rows = np.flatnonzero(self._counted.any(axis=1))
        if len(self._purse) or len(rows) > 1 or not np.isfinite(per_unit).all() or self._demands.spared is not None:
            return None
        row = int(rows[0]) if len(rows) else 0
        if not per_unit.size or (per_unit[row] != per_unit[row, 0]).any():
            return None
        fit = (np.delete(self._used, row, axis=0) <= self._threshold).all(axis=0)
        heap = [(float(self._used[row, node]), 0, node) for node in np.flatnonzero(fit).tolist()]
        heapq.heapify(heap)
        added = (self._demands.demand[row] * per_unit[row, 0]).tolist()

        def place(item: int) -> None:
            if added[item] == 0.0:  # the last ones: any node is as good, and they are spread by number
                self.place(item)
                return
            if not heap or heap[0][0] + added[item] > self._threshold:
                self.left.append(item)
                return
            used, received, node = heap[0]
            heapq.heapreplace(heap, (used + added[item], received + 1, node))
            self._node[item] = node
            self._received[node] += 1
            self._used[row, node] += added[item]

        return place

    def place(self, item: int) -> None:
        """Put `item` on the best node under the threshold, or leave it for the rest."""
        if not self._affordable(item):
            return
        added = self._demands.added(item)
        feasible = (self._used + added <= self._threshold).all(axis=0)
        if not feasible.any():
            self.left.append(item)
            return
        deviation = np.where(feasible, self._deviation(added), np.inf)
        best = np.flatnonzero(deviation <= deviation.min() * (1 + 1e-12) + 1e-12)
        self._put(item, int(best[self._received[best].argmin()]), added)  # spreads items without load too

    def _deviation(self, added: Floats) -> Floats:
        """(N,) the sum over resources of the standard deviation after putting the item on each node."""
        more = np.divide(added, self._scale, where=self._counted, out=np.zeros_like(added))
        squares = self._squares + more * (2 * self._away + more)
        variance = squares * self._share - ((self._total + more) * self._share) ** 2
        deviation: Floats = (self._scale * np.sqrt(np.maximum(0, variance))).sum(axis=0)
        return deviation

    def settle_rest(self, operations: int) -> Matched:
        """Put the rest on the nodes that are light now, each on the one that is least busy then."""
        light = np.flatnonzero(self._used.max(axis=0, initial=0.0) < LIGHT_BELOW)
        refused, rest = [], []
        for item in self.left:
            if not self._affordable(item):
                continue
            added = self._demands.added(item)
            after = (self._used + added)[:, light]
            room = (after <= np.maximum(self._demands.ceiling, self._used)[:, light] + ROUNDING).all(axis=0)
            if not room.any():
                refused.append(item)
                continue
            busy = self._used[:, light].max(axis=0, initial=0.0)
            self._put(item, int(light[np.where(room, busy, np.inf).argmin()]), added)
            rest.append(item)
        return Matched(node=self._node, refused=tuple(refused), rest=tuple(rest), operations=operations)

    def _affordable(self, item: int) -> bool:
        return not len(self._purse) or bool((self._demands.prices[:, item] <= self._purse).all())

    def _put(self, item: int, node: int, added: Floats) -> None:
        self._node[item] = node
        self._received[node] += 1
        self._used[:, node] += added[:, node]
        more = np.where(self._counted[:, node], added[:, node] / self._scale[:, 0], 0)
        self._squares[:, 0] += more * (2 * self._away[:, node] + more)
        self._total[:, 0] += more
        self._away[:, node] += more
        if len(self._purse):
            self._purse -= self._demands.prices[:, item]
