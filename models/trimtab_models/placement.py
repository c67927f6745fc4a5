"""Initial placement: even, L/F, or the better of both.

Source: Son, Moon, "Locality/Fairness-Aware Job Scheduling in Distributed Stream Processing Engines", Electronics 9(11),
2020, 1857.  L/F can be worse than even when there are more pipelines than slots.  *Auto* therefore compares the plans
by the objective, cohesion - coupling.  In case of a tie, the plan with fewer remote senders wins (cohesion does not
count them), then even.

The placement problem: a job's operators with their numbers of instances, and the slots that they may use.

Instances are numbered operator by operator (`PO1#0, PO1#1, ..., PO2#0, ...`), slots in the order in which schedulers
use them.  A *placement* is a list: instance -> slot.

Evaluates a placement: the paper's cohesion and coupling, and the senders that use the network.

Closeness is 1 / distance; the distance is 1 within a slot and 40 across slots (0.25 ms to memory, 10 ms over the
network).  Instances of one operator in one slot are equivalent, so everything is counted per operator and slot.

The two schedulers: even (what Storm does) and L/F (locality and fairness).

L/F differs from the paper in this: a pipeline goes to the slot with the fewest instances, not to slot `i mod r`.  With
more pipelines than slots, the paper's own star configuration would otherwise not be fair, as it claims.
"""

import heapq
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from functools import partial
from itertools import accumulate
from typing import Any

from trimtab_models.instances.reading import parsed_instance
from trimtab_models.instances.topology import Slot, Topology, topological_order
from trimtab_models.solving import Infeasible, PlanDocument, PlanStatus, SolveMethod, StopRule

FAR = 40
Pipeline = tuple[int, ...]
"""Instances in the order of their operators."""
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
    """The input of a scheduler."""

    operators: tuple[str, ...]
    instances: tuple[int, ...]
    streams: tuple[OperatorStream, ...]
    order: tuple[int, ...]  # of operators, senders first
    slots: tuple[Slot, ...]
    first: tuple[int, ...] = field(init=False)  # (O + 1) index of each operator's first instance
    operator_of: tuple[int, ...] = field(init=False)  # per instance

    def __post_init__(self) -> None:
        object.__setattr__(self, "first", tuple(accumulate(self.instances, initial=0)))
        owners = (operator for operator, count in enumerate(self.instances) for _ in range(count))
        object.__setattr__(self, "operator_of", tuple(owners))

    def name(self, instance: int) -> str:
        """The name of an instance, such as `PO1#0`."""
        operator = self.operator_of[instance]
        return f"{self.operators[operator]}#{instance - self.first[operator]}"


def job_of(topology: Topology, *, rates: Sequence[float] | None = None) -> Job:
    """The job of `topology`.

    `rates` (tuples/s per edge), which the paper does not have, weight the edges such that the average sender on the
    average edge has weight 1.
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
    )


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
    """Cohesion should be high, all others low."""

    cohesion: float
    coupling: float
    remote_senders: int
    slots_used: int


def score(job: Job, placement: Sequence[int]) -> PlacementScore:
    """The score of `placement`."""
    spread = _spread(job, placement)
    return PlacementScore(
        cohesion=_cohesion(job, spread),
        coupling=_coupling(spread),
        remote_senders=_remote_senders(job, spread),
        slots_used=len(set(placement)),
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


def place_evenly(job: Job) -> list[int]:
    """(I,) instance `i` in slot `i mod r`."""
    return [instance % len(job.slots) for instance in range(len(job.operator_of))]


def place_pipelines(job: Job, pipelines: Sequence[Pipeline]) -> list[int]:
    """(I,) each pipeline in the slot with the fewest instances, the first of several."""
    placement = [0] * len(job.operator_of)
    waiting = [(0, slot) for slot in range(len(job.slots))]
    for pipeline in pipelines:
        count, slot = waiting[0]
        heapq.heapreplace(waiting, (count + len(pipeline), slot))
        for instance in pipeline:
            placement[instance] = slot
    return placement


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


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacementParams:
    """`schedulers` = those to choose from."""

    schedulers: tuple[Scheduler, ...] = (Scheduler.EVEN, Scheduler.LF)


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
    scores = {scheduler: score(job, plan.placement) for scheduler, plan in plans.items()}
    values = {scheduler: _objective(each) for scheduler, each in scores.items()}
    best = max(plans, key=lambda each: (values[each], -scores[each].remote_senders))
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
    if scheduler is Scheduler.EVEN:
        return _Plan(placement=place_evenly(job), pipelines=_singles(job))
    pipelines = extract_pipelines(job)
    return _Plan(placement=place_pipelines(job, pipelines), pipelines=pipelines)


def _singles(job: Job) -> list[Pipeline]:
    return [(instance,) for instance in range(len(job.operator_of))]


def _objective(score: PlacementScore) -> float:
    return round(score.cohesion - score.coupling, ndigits=9)  # makes ties exact


def _bound(job: Job) -> float:
    """Upper bound: every sender beside a receiver, and the instances of each operator in as many slots as possible."""
    cohesion = sum(stream.weight * job.instances[stream.source] for stream in job.streams)
    alone = [count if count <= len(job.slots) else len(job.slots) - 1 for count in job.instances]
    return cohesion - sum(count - each + each / FAR for count, each in zip(job.instances, alone, strict=True))


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

    return SolveMethod(
        read=partial(parsed_instance, kind=Topology),
        solve=planned,
        text=TEXTS[scheduler],
        result=PLACEMENT_RESULT,
        timed=False,
    )


METHODS: Mapping[str, SolveMethod] = {scheduler.value: _method(scheduler) for scheduler in TEXTS}
