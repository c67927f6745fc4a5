"""Initial placement: even, L/F, or the better of both.

Source: Son, Moon, "Locality/Fairness-Aware Job Scheduling in Distributed Stream Processing Engines", Electronics 9(11),
2020, 1857.  L/F can be worse than even when there are more pipelines than slots.  *Auto* therefore compares the plans
(and the running placement, if there is one) by the objective

    cohesion - coupling - move_price * instances that move,

after the number of overloaded slots.  In case of a tie, the plan with fewer remote senders wins (cohesion does not
count them), then the running placement, then even.

The placement problem: a job's operators with their numbers of instances, and the slots that they may use.

Instances are numbered operator by operator (`PO1#0, PO1#1, ..., PO2#0, ...`), slots in the order in which schedulers
use them.  A *placement* is a list: instance -> slot.

Evaluates a placement: the paper's cohesion and coupling, and the senders that use the network.

Closeness is 1 / distance; the distance is 1 within a slot and 40 across slots (0.25 ms to memory, 10 ms over the
network).  Instances of one operator in one slot are equivalent, so everything is counted per operator and slot.

The two schedulers: even (what Storm does) and L/F (locality and fairness).

L/F differs from the paper in this: a pipeline goes to the slot with the fewest instances, not to slot `i mod r`.  With
more pipelines than slots, the paper's own star configuration would otherwise not be fair, as it claims.  In addition,
both skip slots without enough room; what fits nowhere goes where it overloads least.
"""

import heapq
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from itertools import accumulate
from typing import Any

from trimtab_models.instances.topology import Slot, Topology, parse_topology, topological_order
from trimtab_models.solving import Infeasible, PlanDocument, PlanStatus, SolveMethod, StopRule

Amounts = tuple[float, ...]
"""One number per resource, in an order chosen by the caller."""

UNPLACED = -1
FAR = 40
Pipeline = tuple[int, ...]
"""Instances in the order of their operators."""
ROUNDING = 1e-12  # of a slot's capacity: tolerance for sums of floats in different order
PLACEMENT_RESULT = {
    "method": "The method that made the plan.",
    "assignment": "Instance, as `operator#number`, to its slot: `node` and `port`.",
    "cohesion": "How close each instance is to its nearest receiver, summed up; high is good.",
    "coupling": "How close instances of one operator are to each other, summed up; low is good.",
    "remote_senders": "Instances that receive tuples and send, not by key, to no instance of their own slot.",
    "slots_used": "Slots with at least one instance.",
    "pipelines": "The groups of instances that were assigned as a whole.",
}
"""Key of a plan -> what it says."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorStream:
    """An edge between operators (by position); `weight` = value of the closeness of one sender, 1 in the paper."""

    source: int
    target: int
    keyed: bool
    weight: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """The input of a scheduler.

    `demand` (per operator, for one instance) and `capacity` (per slot) are amounts of the same resources; the paper has
    none.  `running` = present slot of each instance, UNPLACED if its slot is gone; None before the first start.
    """

    operators: tuple[str, ...]
    instances: tuple[int, ...]
    streams: tuple[OperatorStream, ...]
    order: tuple[int, ...]  # of operators, senders first
    slots: tuple[Slot, ...]
    demand: tuple[Amounts, ...]
    capacity: tuple[Amounts, ...]
    running: tuple[int, ...] | None = None
    first: tuple[int, ...] = field(init=False)  # (O + 1) index of each operator's first instance
    operator_of: tuple[int, ...] = field(init=False)  # per instance

    def __post_init__(self) -> None:
        object.__setattr__(self, "first", tuple(accumulate(self.instances, initial=0)))
        owners = (operator for operator, count in enumerate(self.instances) for _ in range(count))
        object.__setattr__(self, "operator_of", tuple(owners))
        if self.running is not None and len(self.running) != len(self.operator_of):
            raise ValueError("running must name a slot, or UNPLACED, for every instance")
        widths = {len(amounts) for amounts in (*self.demand, *self.capacity)}
        if len(self.demand) != len(self.operators) or len(self.capacity) != len(self.slots) or len(widths) > 1:
            raise ValueError("every operator needs its demand and every slot its capacity of the same resources")

    def name(self, instance: int) -> str:
        """The name of an instance, such as `PO1#0`."""
        operator = self.operator_of[instance]
        return f"{self.operators[operator]}#{instance - self.first[operator]}"


def job_of(
    topology: Topology,
    *,
    rates: Sequence[float] | None = None,
    demand: Sequence[Amounts] | None = None,
    capacity: Mapping[Slot, Amounts] | None = None,
    running: Mapping[str, Slot] | None = None,
) -> Job:
    """The job of `topology`, with further input that the paper does not have.

    `rates` (tuples/s per edge) weight the edges such that the average sender on the average edge has weight 1; `demand`
    per operator, `capacity` per slot; `running` = instance name -> slot, missing = unplaced.
    """
    ids = tuple(operator.id for operator in topology.operators)
    at = {id_: position for position, id_ in enumerate(ids)}
    instances = tuple(operator.instances for operator in topology.operators)
    slots = sort_slots(topology.slots)[: topology.slots_wanted]
    weights = [1.0] * len(topology.edges)
    if rates is not None and sum(rates) > 0:
        senders = [instances[at[edge.source]] for edge in topology.edges]
        scale = sum(senders) / sum(rates)
        weights = [scale * rate / count for rate, count in zip(rates, senders, strict=True)]
    return Job(
        operators=ids,
        instances=instances,
        streams=tuple(
            OperatorStream(source=at[edge.source], target=at[edge.target], keyed=edge.keyed, weight=weight)
            for edge, weight in zip(topology.edges, weights, strict=True)
        ),
        order=tuple(at[id_] for id_ in topological_order(ids, topology.edges)),
        slots=tuple(slots),
        demand=tuple(demand) if demand is not None else ((),) * len(ids),
        capacity=tuple(capacity[slot] for slot in slots) if capacity is not None else ((),) * len(slots),
        running=None if running is None else _slots_of(running, ids, instances, slots),
    )


def _slots_of(
    running: Mapping[str, Slot], ids: Sequence[str], instances: Sequence[int], slots: Sequence[Slot]
) -> tuple[int, ...]:
    at: dict[Slot | None, int] = {slot: position for position, slot in enumerate(slots)}
    names = (f"{id_}#{number}" for id_, count in zip(ids, instances, strict=True) for number in range(count))
    return tuple(at.get(running.get(name), UNPLACED) for name in names)


def sort_slots(slots: Sequence[Slot]) -> list[Slot]:
    """The paper's Algorithm 1: in each round one slot of every node, nodes with most slots first, ports ascending."""
    ports: defaultdict[str, list[Slot]] = defaultdict(list)
    for slot in sorted(slots):
        ports[slot.node].append(slot)
    rank = {node: at for at, node in enumerate(sorted(ports, key=lambda node: (-len(ports[node]), node)))}
    turns = [(turn, rank[node], slot) for node, group in ports.items() for turn, slot in enumerate(group)]
    return [slot for _, _, slot in sorted(turns)]


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacementScore:
    """Cohesion should be high, all others low; `moved` is 0 if nothing runs yet, `overloaded` without limits."""

    cohesion: float
    coupling: float
    remote_senders: int
    slots_used: int
    moved: int
    overloaded: int


def score(job: Job, placement: Sequence[int]) -> PlacementScore:
    """The score of `placement`."""
    spread = _spread(job, placement)
    return PlacementScore(
        cohesion=_cohesion(job, spread),
        coupling=_coupling(spread),
        remote_senders=_remote_senders(job, spread),
        slots_used=len(set(placement)),
        moved=sum(now not in (UNPLACED, then) for now, then in zip(job.running or (), placement, strict=False)),
        overloaded=len(overloaded_slots(job, placement)),
    )


def _spread(job: Job, placement: Sequence[int]) -> list[Counter[int]]:
    """Per operator, the number of instances in each slot."""
    return [Counter(placement[job.first[at] : job.first[at + 1]]) for at in range(len(job.operators))]


def _cohesion(job: Job, spread: Sequence[Counter[int]]) -> float:
    """Sum over senders and their edges: closeness to the closest receiver, times the weight of the edge."""
    near = far = 0.0
    for stream in job.streams:
        beside = sum(count for slot, count in spread[stream.source].items() if slot in spread[stream.target])
        near += stream.weight * beside
        far += stream.weight * (job.instances[stream.source] - beside)
    return near + far / FAR


def _coupling(spread: Sequence[Counter[int]]) -> float:
    """Sum over instances: closeness to the closest other instance of the operator; 1/40 for a single instance."""
    near = sum(count for counts in spread for count in counts.values() if count > 1)
    far = sum(count == 1 for counts in spread for count in counts.values())
    return near + far / FAR


def _remote_senders(job: Job, spread: Sequence[Counter[int]]) -> int:
    """Number of instances that receive tuples and have an unkeyed edge without a receiver in their own slot.

    A sender with receivers in its slot sends only to those; all others send to all receivers.  Therefore all receivers
    in the slot of an active sender are active, and an operator with one remote sender is active in all its slots.
    """
    outgoing: list[list[tuple[int, bool]]] = [[] for _ in job.operators]
    fed = {stream.target for stream in job.streams}
    for stream in job.streams:
        outgoing[stream.source].append((stream.target, stream.keyed))
    receiving: list[set[int]] = [set() if at in fed else set(counts) for at, counts in enumerate(spread)]
    senders = 0
    for operator in job.order:
        remote: set[int] = set()
        for target, keyed in outgoing[operator]:
            lonely = receiving[operator] - spread[target].keys()
            if not keyed:
                remote |= lonely
            everywhere = lonely or (keyed and receiving[operator])
            receiving[target] |= spread[target].keys() if everywhere else receiving[operator]
        senders += sum(spread[operator][slot] for slot in remote)
    return senders


def overloaded_slots(job: Job, placement: Sequence[int]) -> list[int]:
    """Slots whose instances demand more of a resource than the slot has."""
    if not job.slots or not job.capacity[0]:
        return []
    used = [[0.0] * len(amounts) for amounts in job.capacity]
    for instance, slot in enumerate(placement):
        for resource, amount in enumerate(job.demand[job.operator_of[instance]]):
            used[slot][resource] += amount
    return [
        slot
        for slot, capacity in enumerate(job.capacity)
        if any(amount > limit * (1 + 1e-12) for amount, limit in zip(used[slot], capacity, strict=True))
    ]


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


class Scheduler(Enum):
    """Which scheduler made the plan."""

    EVEN = "even"
    LF = "lf"
    RUNNING = "running"


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacementParams:
    """`schedulers` = those to choose from; `move_price` = price per instance that must move, in units of closeness."""

    schedulers: tuple[Scheduler, ...] = (Scheduler.EVEN, Scheduler.LF)
    move_price: float = 1.0


AUTO = PlacementParams()


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacementResult:
    """`placement` = instance -> slot; `pipelines` = units that `scheduler` assigned (even: single instances).

    `bound` = upper bound on the objective of all placements; `scores` = scores of all compared plans.
    """

    status: PlanStatus
    scheduler: Scheduler
    placement: tuple[int, ...]
    pipelines: tuple[Pipeline, ...]
    score: PlacementScore
    objective: float
    bound: float
    scores: Mapping[Scheduler, PlacementScore]

    @property
    def gap(self) -> float:
        """Bound - objective: how far the plan is from the optimum at most, in units of closeness."""
        return max(0.0, self.bound - self.objective)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Plan:
    placement: list[int]
    pipelines: list[Pipeline]


def solve(job: Job, *, stop: StopRule, seed: int, params: PlacementParams = AUTO) -> PlacementResult | Infeasible:
    """The best plan by the objective.  Both schedulers are fast and deterministic: `stop` and `seed` have no effect."""
    if not job.slots:
        return Infeasible(reason="there is no slot")
    plans = {scheduler: _plan(job, scheduler) for scheduler in params.schedulers}
    if job.running is not None and UNPLACED not in job.running:
        plans = {Scheduler.RUNNING: _Plan(placement=list(job.running), pipelines=_singles(job))} | plans
    scores = {scheduler: score(job, plan.placement) for scheduler, plan in plans.items()}
    values = {scheduler: _objective(each, params) for scheduler, each in scores.items()}
    best = max(plans, key=lambda each: (-scores[each].overloaded, values[each], -scores[each].remote_senders))
    bound = _bound(job)
    return PlacementResult(
        status=PlanStatus.OPTIMAL if values[best] >= bound - 1e-9 else PlanStatus.FEASIBLE,
        scheduler=best,
        placement=tuple(plans[best].placement),
        pipelines=tuple(plans[best].pipelines),
        score=scores[best],
        objective=values[best],
        bound=max(bound, values[best]),
        scores=scores,
    )


def _plan(job: Job, scheduler: Scheduler) -> _Plan:
    pipelines = extract_pipelines(job) if scheduler is Scheduler.LF else _singles(job)
    placement = place_pipelines(job, pipelines) if scheduler is Scheduler.LF else place_evenly(job)
    if job.running is not None:
        placement, numbers = keep_running(job, placement)
        pipelines = [tuple(numbers[instance] for instance in pipeline) for pipeline in pipelines]
    return _Plan(placement=placement, pipelines=pipelines)


def _singles(job: Job) -> list[Pipeline]:
    return [(instance,) for instance in range(len(job.operator_of))]


def _objective(score: PlacementScore, params: PlacementParams) -> float:
    return round(score.cohesion - score.coupling - params.move_price * score.moved, ndigits=9)  # makes ties exact


def _bound(job: Job) -> float:
    """Upper bound: every sender beside a receiver, and the instances of each operator in as many slots as possible."""
    cohesion = sum(stream.weight * job.instances[stream.source] for stream in job.streams)
    alone = [count if count <= len(job.slots) else len(job.slots) - 1 for count in job.instances]
    return cohesion - sum(count - each + each / FAR for count, each in zip(job.instances, alone, strict=True))


def keep_running(job: Job, placement: Sequence[int]) -> tuple[list[int], list[int]]:
    """`placement` renamed towards `job.running`, and the new number of every instance.  O(operators * slots^2).

    Slots of equal capacity are interchangeable, and so are instances of one operator.  Exchanging them changes neither
    cohesion nor coupling, but as many running instances as possible stay where they are, which saves restarts.
    """
    assert job.running is not None
    slots = _rename_slots(job, placement, job.running)
    wanted = [slots[slot] for slot in placement]
    numbers: list[int] = []
    for first, end in zip(job.first, job.first[1:], strict=False):
        numbers += _rename_instances(wanted, job.running, first, end)
    renamed = [0] * len(wanted)
    for instance, number in enumerate(numbers):
        renamed[number] = wanted[instance]
    return renamed, numbers


def _rename_slots(job: Job, placement: Sequence[int], running: Sequence[int]) -> list[int]:
    """Slot -> slot of equal capacity; greedy, pairs with most instances in common first."""
    common: Counter[tuple[int, int]] = Counter()
    for first, end in zip(job.first, job.first[1:], strict=False):
        now = Counter(slot for slot in running[first:end] if slot >= 0)
        for slot, count in Counter(placement[first:end]).items():
            for other, there in now.items():
                if job.capacity[slot] == job.capacity[other]:
                    common[slot, other] += min(count, there)
    names: dict[int, int] = {}
    for (slot, other), _ in sorted(common.items(), key=lambda pair: (-pair[1], pair[0][0] != pair[0][1], pair[0])):
        if slot not in names and other not in names.values():
            names[slot] = other
    taken = set(names.values())
    free: defaultdict[tuple[float, ...], list[int]] = defaultdict(list)
    for slot, capacity in enumerate(job.capacity):
        if slot not in taken:
            free[capacity].append(slot)
    return [names[slot] if slot in names else free[job.capacity[slot]].pop(0) for slot in range(len(job.slots))]


def _rename_instances(wanted: Sequence[int], running: Sequence[int], first: int, end: int) -> list[int]:
    """New slots for the instances of one operator: an instance stays in its slot if the plan uses that slot."""
    here: defaultdict[int, list[int]] = defaultdict(list)
    for instance in range(first, end):
        here[running[instance]].append(instance)
    kept = {instance: here[wanted[instance]].pop(0) for instance in range(first, end) if here[wanted[instance]]}
    others = iter(sorted(set(range(first, end)) - set(kept.values())))
    return [kept[instance] if instance in kept else next(others) for instance in range(first, end)]


TEXTS = {
    Scheduler.EVEN: "First placement: deals the instances out to the slots in turn, as Storm's default scheduler does.",
    Scheduler.LF: "First placement: puts instances that exchange tuples into one slot, and fills slots evenly (L/F).",
}


def encode_placement(job: Job, result: PlacementResult, *, method: str) -> dict[str, Any]:
    """The result document of the file contract."""
    slots = [{"node": slot.node, "port": slot.port} for slot in job.slots]
    return {
        "method": method,
        "assignment": {job.name(instance): slots[slot] for instance, slot in enumerate(result.placement)},
        "cohesion": result.score.cohesion,
        "coupling": result.score.coupling,
        "remote_senders": result.score.remote_senders,
        "slots_used": result.score.slots_used,
        "pipelines": [[job.name(instance) for instance in pipeline] for pipeline in result.pipelines],
    }


def _method(scheduler: Scheduler) -> SolveMethod:
    def planned(topology: Topology, stop: StopRule, seed: int) -> PlanDocument | Infeasible:
        if topology.slots and topology.slots_wanted == 0:
            free = len(topology.slots)
            return Infeasible(reason=f"$.slots_wanted is 0, expected at least 1: no slot may be used, {free} are free")
        job = job_of(topology)
        result = solve(job, stop=stop, seed=seed, params=PlacementParams(schedulers=(scheduler,)))
        if isinstance(result, Infeasible):
            return result
        return PlanDocument(document=encode_placement(job, result, method=scheduler.value))

    return SolveMethod(read=parse_topology, solve=planned, text=TEXTS[scheduler], result=PLACEMENT_RESULT, timed=False)


METHODS: Mapping[str, SolveMethod] = {scheduler.value: _method(scheduler) for scheduler in TEXTS}
