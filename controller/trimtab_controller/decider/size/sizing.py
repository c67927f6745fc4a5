"""How many workers an app needs for a multiple of its present input, by type of worker.  Pure.

The capacity model is that of `trimtab_models.sizing` (Nasiri et al., arXiv 2001.10308): an operator needs a cost per
input, and a fixed one on each worker; here every worker runs every operator, and its process needs something beyond
that.  All inputs are taken to grow alike.  The model divides the load evenly, so the answer is raised until the key
groups, which are indivisible, fit too: heaviest first, each to the least loaded worker.  Memory, disks and links of
hosts may need more workers than the CPU does: `size/resources.py`.

What plans are made around needs workers like the rest: the key groups of fixed workers count with what is known of
them last.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from trimtab_controller.decider.decision import PoolWorker
from trimtab_controller.decider.hosts.headroom import Capacity, times_placed
from trimtab_controller.decider.hosts.resources import CPU
from trimtab_controller.decider.hosts.speeds import OperatorCost, TypeName
from trimtab_controller.decider.observing.owned import PERCENT_PER_CORE, Floats
from trimtab_controller.decider.observing.view import SmoothedView
from trimtab_controller.decider.size.resources import (
    MAX_WORKERS,
    ResourceNeed,
    demands_of,
    need_of,
    parts_of,
    shares_of,
    together,
)
from trimtab_models.sizing.problem import SizingProblem, max_rate
from trimtab_protocol.messages.names import AppId, HostId, WorkerId

TARGET = 0.7
"""Share of its capacity that a worker is to use."""


class CannotSizeError(Exception):
    """Something that is needed is not known; the message says what."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerType:
    """Workers of a capacity (cores) on hosts of a type, of `speed` relative to the reference."""

    host_type: TypeName
    capacity: float
    speed: float

    def __str__(self) -> str:
        return f"{self.host_type or 'no type named'}, {self.capacity:g} cores"


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerNeed:
    """What an app needs if all its workers are of one type: how many `workers`, None = no number is enough, `why`.

    `utilisation` = mean share of their capacity that they then use; `present` = workers of this type that run now,
    `pool` = further ones that could be started.  `resources` = how many each resource needs by itself, and
    `bottleneck` the one that needs most.  `at_least`: something was not measured, so more may be needed.
    """

    type: WorkerType
    workers: int | None
    utilisation: float | None
    present: int
    pool: int
    why: str = ""
    resources: tuple[ResourceNeed, ...] = ()
    bottleneck: str = CPU
    at_least: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizing:
    """The answer for an app at `rate` times its present input, with no worker above `target` of its capacity.

    `state` = times the present state, `standbys` of each key group; None = unknown.  `fixed` = the workers that take no
    part in plans: what they own counts with what is known of it last.
    """

    app: AppId
    rate: float
    state: float
    standbys: int | None
    target: float
    present: int
    needs: tuple[WorkerNeed, ...]
    fixed: tuple[WorkerId, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What is asked: `rate` times the input, `state` times the state, and up to which share each worker is used.

    `target` of its CPU, `max_disk` of the disk, `max_link` of the link of its host.
    """

    rate: float
    state: float = 1.0
    target: float = TARGET
    max_disk: float = 1.0
    max_link: float = 1.0


def size_of(
    view: SmoothedView,
    capacity: Capacity,
    pool: tuple[PoolWorker, ...],
    wanted: Wanted,
    followed: Mapping[WorkerId, float] | None = None,
) -> Sizing:
    """How many workers of each type an app has or could have.  Raises CannotSizeError.

    `followed` = bytes of state that each worker follows; None = unknown.
    """
    fixed, view = tuple(each.id for each in view.fixed), _whole(view, capacity)
    if not len(view.owned) or not float(view.owned.load.sum()) > 0:
        raise CannotSizeError(f"{view.app} has no load that could be multiplied")
    hosts = [worker.host for worker in view.workers]
    all_hosts = [*hosts, *(each.host for each in pool)]
    counted = _types(capacity, view, pool)
    present = tuple(capacity.costs.type_of(host) for host in hosts)
    needs = []
    for each, (running, startable) in sorted(counted.items(), key=lambda item: str(item[0])):
        problem = _problem(view, capacity, each, present)
        need = _need(view, problem, each, wanted.rate, wanted.target, running, startable)
        its_hosts = _hosts_of(capacity, each, view, pool)
        here = Counter(host for host in all_hosts if host in its_hosts)
        needs.append(_with_resources(need, view, capacity, problem, here, followed, wanted))
    return Sizing(
        app=view.app,
        rate=wanted.rate,
        state=wanted.state,
        standbys=view.standbys,
        target=wanted.target,
        present=len(view.workers),
        needs=tuple(needs),
        fixed=fixed,
    )


def _whole(view: SmoothedView, capacity: Capacity) -> SmoothedView:
    """The view with what plans are made around: all key groups, and of the fixed workers those that run."""
    running = (each.worker for each in view.fixed if each.worker is not None and each.id in capacity.seen.workers)
    whole = view.owned.joined(view.kept_table)
    return replace(view, workers=(*view.workers, *running), key_groups=whole, fixed=(), kept=())


def _with_resources(
    need: WorkerNeed,
    view: SmoothedView,
    capacity: Capacity,
    problem: SizingProblem,
    hosts: Mapping[HostId, int],
    followed: Mapping[WorkerId, float] | None,
    wanted: Wanted,
) -> WorkerNeed:
    """The need, by the memory, disks and links of these hosts too; so many workers of the app are on each."""
    demands = demands_of(view, wanted.rate, wanted.state)
    limits = {"max_disk": wanted.max_disk, "max_link": wanted.max_link}
    parts = parts_of(view, capacity.seen, hosts, followed, **limits)
    cpu = ResourceNeed(resource=CPU, workers=need.workers, share=need.utilisation, why=need.why)
    found = (cpu, *(need_of(view, each, parts[each.resource]) for each in demands))
    enough = [each for each in found if each.workers is not None]
    refused = next((each for each in found if each.why), None)
    most = max(enough, key=lambda each: (each.workers or 0, each.share or 0.0), default=cpu)
    need = replace(need, resources=found, at_least=any(each.missing for each in found))
    if refused is not None or most.workers is None:
        its = refused or cpu
        return replace(need, workers=None, utilisation=None, why=its.why, bottleneck=its.resource)
    load, room = _percent(view, need.type, wanted.rate), _room(problem, wanted.target)
    items = np.zeros(demands[0].pieces.shape[1])
    items[: len(load)] = load / room
    workers = together(np.array([items, *shares_of(demands, parts)]), most.workers)
    if workers is None:
        why = f"the resources each fit by themselves, but no placement of all together was found from {most.workers} on"
        return replace(need, workers=None, utilisation=None, why=why, bottleneck=most.resource)
    used = (float(load.sum()) / workers + _fixed_pct(problem)) / 100.0
    return replace(need, workers=workers, utilisation=used, bottleneck=most.resource)


def _types(capacity: Capacity, view: SmoothedView, pool: tuple[PoolWorker, ...]) -> dict[WorkerType, tuple[int, int]]:
    """The types of workers, with the number of those that run and of those that could be started."""
    found: dict[WorkerType, tuple[int, int]] = {}

    def count(host: HostId, cores: float, *, running: bool) -> None:
        its = _type(capacity, host, cores)
        before = found.get(its, (0, 0))
        found[its] = (before[0] + running, before[1] + (not running))

    for worker in view.workers:
        asked = capacity.seen.workers.get(worker.id)
        if asked is None:
            raise CannotSizeError(f"{worker.id} has not been measured")
        count(worker.host, asked.capacity, running=True)
    for each in pool:
        count(each.host, each.capacity, running=False)
    return found


def _hosts_of(
    capacity: Capacity, its: WorkerType, view: SmoothedView, pool: tuple[PoolWorker, ...]
) -> frozenset[HostId]:
    """The hosts with workers of a type."""
    asked = capacity.seen.workers
    found = {worker.host for worker in view.workers if _type(capacity, worker.host, asked[worker.id].capacity) == its}
    return frozenset(found | {each.host for each in pool if _type(capacity, each.host, each.capacity) == its})


def _type(capacity: Capacity, host: HostId, cores: float) -> WorkerType:
    seen = capacity.seen.hosts.get(host)
    return WorkerType(host_type=capacity.costs.type_of(host), capacity=cores, speed=1.0 if seen is None else seen.speed)


def _problem(view: SmoothedView, capacity: Capacity, its: WorkerType, present: tuple[TypeName, ...]) -> SizingProblem:
    """The sizing problem of one worker of this type; a rate of 1 is the present input."""
    table, costs = view.owned, capacity.costs
    loads = np.bincount(table.operator, table.load, len(table.operators))
    per_rate, per_worker = [], []
    for operator, load in zip(table.operators, loads.tolist(), strict=True):
        fixed = sum(
            _fixed(costs.costs.get((view.app, operator, name)), costs.speeds.get(name, 1.0)) for name in present
        )
        cost = costs.costs.get((view.app, operator, its.host_type))
        per_rate.append(max(0.0, load - fixed) / its.speed)
        per_worker.append(_fixed(cost, 1.0))
    process = costs.process_of(view.app, its.host_type)
    if process is None:
        known = [costs.process_of(view.app, name) for name in sorted(set(present))]
        process = max((each for each in known if each is not None), default=None)
    if process is None:
        raise CannotSizeError(f"what a worker of {view.app} needs beyond its key groups has not been measured yet")
    share = PERCENT_PER_CORE * its.capacity / 100.0
    return SizingProblem(
        operators=(*table.operators, "process"),
        machines=(str(its),),
        relative=np.array([1.0] * len(per_rate) + [0.0]),
        per_rate=np.array([*per_rate, 0.0]).reshape(1, -1, 1) / share,
        per_instance=np.array([*per_worker, process]).reshape(1, -1, 1) / share,
        capacity=np.full((1, 1), 100.0),
        source_rate=1.0,
    )


def _fixed(cost: OperatorCost | None, speed: float) -> float:
    return 0.0 if cost is None else speed * cost.fixed


def _need(
    view: SmoothedView,
    problem: SizingProblem,
    its: WorkerType,
    rate: float,
    target: float,
    running: int,
    startable: int,
) -> WorkerNeed:
    fixed, room = _fixed_pct(problem), _room(problem, target)
    load = _percent(view, its, rate)
    heaviest = int(load.argmax())
    why, workers = "", None
    if room <= 0:
        why = f"a worker needs {fixed:.0f} % of its capacity before it handles any input"
    elif load[heaviest] > room:
        key_group = view.owned[heaviest].key_group
        why = f"key group {key_group} alone asks for {load[heaviest]:.0f} % of such a worker, which has {room:.0f} %"
    else:
        workers = _enough(problem, load, room, rate, target)
        why = "" if workers else f"more than {MAX_WORKERS} workers would be needed"
    used = None if workers is None else (float(load.sum()) / workers + fixed) / 100.0
    return WorkerNeed(type=its, workers=workers, utilisation=used, present=running, pool=startable, why=why)


def _fixed_pct(problem: SizingProblem) -> float:
    """What a worker uses before it handles any input, in percent of its capacity."""
    return float(problem.per_instance[0, :, 0].sum())


def _room(problem: SizingProblem, target: float) -> float:
    """What a worker has for key groups, in percent of its capacity."""
    return target * 100.0 - _fixed_pct(problem)


def _percent(view: SmoothedView, its: WorkerType, rate: float) -> Floats:
    """(K,) the load of each key group, in percent of such a worker."""
    return rate * view.owned.load / (its.speed * its.capacity)


def _enough(problem: SizingProblem, load: Floats, room: float, rate: float, target: float) -> int | None:
    """The least number of workers that carry the load by the model, and whose key groups fit."""
    low, high = 0, 1
    while high < MAX_WORKERS and not _carries(problem, high, rate, target):
        low, high = high, min(MAX_WORKERS, 2 * high)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if _carries(problem, middle, rate, target) else (middle, high)
    for workers in range(high, MAX_WORKERS + 1):
        if times_placed(load, np.full(workers, room)) >= 1.0 - 1e-9:
            return workers
        if workers >= len(load):
            break
    return None


def _carries(problem: SizingProblem, workers: int, rate: float, target: float) -> bool:
    """Whether that many workers, each of which runs an instance of every operator, carry the rate."""
    instances = np.ones((len(problem.operators), workers), np.int64)
    many = SizingProblem(
        operators=problem.operators,
        machines=tuple(map(str, range(workers))),
        relative=problem.relative,
        per_rate=np.repeat(problem.per_rate, workers, axis=2),
        per_instance=np.repeat(problem.per_instance, workers, axis=2),
        capacity=np.full((1, workers), 100.0 * target),
        source_rate=1.0,
    )
    return max_rate(many, instances) >= rate * (1 - 1e-9)
