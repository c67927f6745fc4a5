"""Initial placement: even, L/F, or the better of both.

Source: Son, Moon, "Locality/Fairness-Aware Job Scheduling in Distributed Stream Processing Engines", Electronics 9(11),
2020, 1857.  L/F can be worse than even when there are more pipelines than slots.  *Auto* therefore compares the plans
(and the running placement, if there is one) by the objective

    cohesion - coupling - move_price * instances that move,

after the number of overloaded slots.  In case of a tie, the plan with fewer remote senders wins (cohesion does not
count them), then the running placement, then even.
"""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from trimtab_models.placement.job import UNPLACED, Job
from trimtab_models.placement.metrics import FAR, PlacementScore, score
from trimtab_models.placement.schedulers import Pipeline, extract_pipelines, place_evenly, place_pipelines
from trimtab_models.solving.outcome import Infeasible, PlanStatus
from trimtab_models.solving.stop import StopRule


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
