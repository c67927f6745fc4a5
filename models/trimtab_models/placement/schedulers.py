"""The two schedulers: even (what Storm does) and L/F (locality and fairness).

L/F differs from the paper in this: a pipeline goes to the slot with the fewest instances, not to slot `i mod r`.  With
more pipelines than slots, the paper's own star configuration would otherwise not be fair, as it claims.  In addition,
both skip slots without enough room; what fits nowhere goes where it overloads least.
"""

import heapq
from collections.abc import Iterable, Sequence

from trimtab_models.placement.job import UNPLACED, Amounts, Job

Pipeline = tuple[int, ...]
"""Instances in the order of their operators."""
ROUNDING = 1e-12  # of a slot's capacity: tolerance for sums of floats in different order


def place_evenly(job: Job) -> list[int]:
    """(I,) instance `i` in slot `i mod r`, or in the next one with room."""
    slots = _Slots(job.capacity)
    return [
        slots.put(slots.next_with_room(instance % len(job.slots), demand), demand, 1)
        for instance, demand in enumerate(job.demand[operator] for operator in job.operator_of)
    ]


def place_pipelines(job: Job, pipelines: Sequence[Pipeline]) -> list[int]:
    """(I,) each pipeline in the least loaded slot with room for it; instance by instance if there is none."""
    slots = _Slots(job.capacity)
    placement = [UNPLACED] * len(job.operator_of)
    for pipeline in pipelines:
        demand = _sum(job.demand[job.operator_of[instance]] for instance in pipeline)
        slot = slots.least_loaded(demand)
        if slot is not None:
            slots.put(slot, demand, len(pipeline))
            for instance in pipeline:
                placement[instance] = slot
            continue
        for instance in pipeline:
            demand = job.demand[job.operator_of[instance]]
            slot = slots.least_loaded(demand)
            placement[instance] = slots.put(slots.least_overloaded(demand) if slot is None else slot, demand, 1)
    return placement


def _sum(demands: Iterable[Amounts]) -> Amounts:
    return tuple(map(sum, zip(*demands, strict=True)))


class _Slots:
    """The number of instances in each slot, and what they use."""

    def __init__(self, capacity: Sequence[Amounts]) -> None:
        self._capacity = capacity
        self._used: list[Amounts] = [(0.0,) * len(amounts) for amounts in capacity]
        self._count = [0] * len(capacity)
        self._waiting = [(0, slot) for slot in range(len(capacity))]  # a heap; entries with an old count are ignored

    def put(self, slot: int, demand: Amounts, instances: int) -> int:
        """Add `instances` with this total demand to `slot`; returns the slot."""
        self._used[slot] = _sum((self._used[slot], demand))
        self._count[slot] += instances
        heapq.heappush(self._waiting, (self._count[slot], slot))
        return slot

    def least_loaded(self, demand: Amounts) -> int | None:
        """The first slot with the fewest instances among those with room; None if none has."""
        passed = []
        found = None
        while self._waiting and found is None:
            count, slot = self._waiting[0]
            if count == self._count[slot] and self._fits(slot, demand):
                found = slot
            elif count == self._count[slot]:
                passed.append(heapq.heappop(self._waiting))
            else:
                heapq.heappop(self._waiting)
        for entry in passed:
            heapq.heappush(self._waiting, entry)
        return found

    def next_with_room(self, first: int, demand: Amounts) -> int:
        """`first` or the next slot with room, cyclically; the least overloaded one if none has room."""
        count = len(self._capacity)
        turns = (turn % count for turn in range(first, first + count))
        slot = next((slot for slot in turns if self._fits(slot, demand)), None)
        return self.least_overloaded(demand) if slot is None else slot

    def least_overloaded(self, demand: Amounts) -> int:
        """The slot that `demand` would overload least, relative to its capacity."""
        return min(range(len(self._capacity)), key=lambda slot: self._overload(slot, demand))

    def _fits(self, slot: int, demand: Amounts) -> bool:
        return self._overload(slot, demand) <= ROUNDING

    def _overload(self, slot: int, demand: Amounts) -> float:
        amounts = zip(self._used[slot], demand, self._capacity[slot], strict=True)
        return max(((used + more - limit) / max(limit, 1e-300) for used, more, limit in amounts), default=0.0)


def extract_pipelines(job: Job) -> list[Pipeline]:
    """Every instance in exactly one pipeline, in the paper's order (its Algorithms 3 and 4).

    A pipeline is a connected set of instances with at most one of each operator.  The paper starts at the first
    operator with instances left, walks to its predecessors and successors, takes one instance of each, and repeats.
    Every walk takes one instance of each operator in a connected component, so the same operators form the next
    pipeline until one of them has no more.  A new walk is needed only then.  The pipelines are, for t = 1, 2, ..., the
    connected components of the operators with at least t instances.
    """
    neighbours: list[set[int]] = [set() for _ in job.operators]
    for stream in job.streams:
        neighbours[stream.source].add(stream.target)
        neighbours[stream.target].add(stream.source)
    left = list(job.instances)
    pipelines = []
    for start in range(len(left)):
        while left[start]:
            operators = _component(start, left, neighbours)
            taken = min(left[operator] for operator in operators)
            nexts = [job.first[operator + 1] - left[operator] for operator in operators]
            pipelines += [tuple(instance + turn for instance in nexts) for turn in range(taken)]
            for operator in operators:
                left[operator] -= taken
    return pipelines


def _component(start: int, left: list[int], neighbours: list[set[int]]) -> list[int]:
    """The operators with instances left that are connected to `start` through such operators."""
    found = [start]
    seen = {start}
    for operator in found:  # grows during the loop
        new = [each for each in neighbours[operator] if left[each] and each not in seen]
        seen.update(new)
        found += new
    return sorted(found)
