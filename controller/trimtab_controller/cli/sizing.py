"""How many workers an app needs for a multiple of its present input, by type of worker.  Pure.

The capacity model is that of `trimtab_models.sizing` (Nasiri et al., arXiv 2001.10308): an operator needs a cost per
input, and a fixed one on each worker; here every worker runs every operator, and its process needs something beyond
that.  All inputs are taken to grow alike.  The model divides the load evenly, so the answer is raised until the key
groups, which are indivisible, fit too: heaviest first, each to the least loaded worker.  Memory, disks and links of
hosts may need more workers than the CPU does.

What plans are made around needs workers like the rest: the key groups of fixed workers count with what is known of
them last.

A worker's part of its host is what the host has for the app's key groups, divided by the app's workers that run or
could be started there; of the hosts of a type the least part counts.  What other processes use stays, and so does
traffic that belongs to no key group.  Traffic grows with the input.  State does not, unless the caller says so: most
apps have as many keys at twice the rate.  Each standby has the state once more.

What has not been measured is named, and never counts as nothing: a resource of which a part is missing is needed at
least as stated.
"""

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from trimtab_controller.decider.memory.headroom import MAX_CELLS, Capacity, times_placed
from trimtab_controller.decider.memory.hosts import Host, HostsSeen
from trimtab_controller.decider.memory.speeds import OperatorCost, TypeName
from trimtab_controller.decider.values.decision import PoolWorker
from trimtab_controller.decider.window.owned import PERCENT_PER_CORE, Floats, OwnedTable
from trimtab_controller.decider.window.resources import CPU, DISK, LINK, MEMORY, sums_of_workers
from trimtab_controller.decider.window.view import SmoothedView
from trimtab_models.sizing.problem import SizingProblem, max_rate
from trimtab_protocol.messages.names import AppId, HostId, WorkerId
from trimtab_protocol.wording import first_few

MAX_WORKERS = 10_000
"""Workers that `trimtab size` goes up to."""
MAX_MORE = 50
"""By how many workers the answer is raised at most so that all resources fit together."""
MEGABYTE = 1e6

TARGET = 0.7
"""Share of its capacity that a worker is to use."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceNeed:
    """How many workers a resource needs; None = unknown, or no number is enough, as `why` says.

    `share` = what each of them then uses of its part, on average.  `missing` = what has not been measured: without it
    `workers` is the least number, or unknown.
    """

    resource: str
    workers: int | None
    share: float | None = None
    missing: str = ""
    why: str = ""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ResourceDemand:
    """What items need of a resource; `pieces` (J, I) = of each of its amounts, such as received and sent.

    An item is a key group, or a standby of one.  `missing` = what is not measured of it.
    """

    resource: str
    pieces: Floats
    missing: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerParts:
    """What a worker has of a resource, of each of its amounts; None = unknown, and `missing` says why."""

    rooms: tuple[float, ...] | None
    missing: str = ""


def demands_of(view: SmoothedView, rate: float, state: float) -> list[ResourceDemand]:
    """What all key groups and their standbys need at `rate` times the input and `state` times the state."""
    table = view.owned
    copies = 1 + (view.standbys or 0)
    size = np.tile(state * table.assumed_state_bytes.astype(np.float64), copies)
    unknown = _named(table, table.state_bytes < 0, "state")
    if view.standbys is None:
        unknown = "; ".join(filter(None, [unknown, "agents do not say how many standbys the app wants"]))
    traffic = np.zeros((2, copies * len(table)))
    traffic[:, : len(table)] = rate * table.assumed_traffic
    lacking = _named(table, np.logical_or.reduce(np.isnan(table.traffic)), "traffic")
    return [
        ResourceDemand(resource=MEMORY, pieces=size[None], missing=unknown),
        ResourceDemand(resource=DISK, pieces=size[None], missing=unknown),
        ResourceDemand(resource=LINK, pieces=traffic, missing=lacking),
    ]


def _named(table: OwnedTable, unknown: NDArray[np.bool_], what: str) -> str:
    """The operators of which nothing is known; where something is, the largest stands in for the rest."""
    known = np.bincount(table.operator, ~unknown, len(table.operators)) > 0
    here = np.bincount(table.operator, minlength=len(table.operators)) > 0
    names = [name for name, its, any_ in zip(table.operators, known, here, strict=True) if any_ and not its]
    return f"the {what} of {first_few(names)} has not been measured" if names else ""


def parts_of(
    view: SmoothedView,
    seen: HostsSeen,
    workers: Mapping[HostId, int],
    followed: Mapping[WorkerId, float] | None,
    *,
    max_disk: float,
    max_link: float,
) -> dict[str, WorkerParts]:
    """What a worker has on hosts with so many `workers` of the app; `followed` = bytes that each follows, if known."""
    table = view.owned
    of_worker = sums_of_workers(table, [table.assumed_state_bytes, *table.assumed_traffic])
    found: dict[str, list[tuple[float, ...] | None]] = {MEMORY: [], DISK: [], LINK: []}
    for name, count in sorted(workers.items()):
        host, here = seen.hosts.get(name), [worker.id for worker in view.workers if worker.host == name]
        ours = sum((of_worker[each] for each in here if each in of_worker), np.zeros(3))
        held = (
            None
            if followed is None and here
            else float(ours[0]) + sum((followed or {}).get(each, 0.0) for each in here)
        )
        rooms = _rooms(host, held, (float(ours[1]), float(ours[2])), max_disk, max_link)
        for resource, room in rooms.items():
            found[resource].append(None if room is None else tuple(each / count for each in room))
    return {resource: _least(resource, rooms, followed is None) for resource, rooms in found.items()}


def _rooms(
    host: Host | None, held: float | None, traffic: tuple[float, float], max_disk: float, max_link: float
) -> dict[str, tuple[float, ...] | None]:
    """What a host has for the app; None = unknown."""
    memory = None if host is None else host.free_memory
    disk = math.inf if host is None else host.free_disk(max_disk)
    link = (math.inf, math.inf) if host is None else host.free_link(max_link)
    return {
        MEMORY: None if memory is None or held is None else (memory + held,),
        DISK: None if math.isinf(disk) or held is None else (disk + held,),
        LINK: None if any(map(math.isinf, link)) else tuple(a + b for a, b in zip(link, traffic, strict=True)),
    }


def _least(resource: str, rooms: Sequence[tuple[float, ...] | None], unfollowed: bool) -> WorkerParts:
    known = [room for room in rooms if room is not None]
    if known:
        return WorkerParts(rooms=tuple(map(min, zip(*known, strict=True))))
    if unfollowed and resource in (MEMORY, DISK):
        return WorkerParts(rooms=None, missing="what standbys hold is not known")
    return WorkerParts(rooms=None, missing=f"no host of the type reports its {resource}")


def need_of(view: SmoothedView, demand: ResourceDemand, parts: WorkerParts) -> ResourceNeed:
    """How many workers a resource needs by itself."""
    missing = "; ".join(filter(None, [demand.missing, parts.missing]))
    if parts.rooms is None or (demand.missing and not demand.pieces.any()):
        return ResourceNeed(resource=demand.resource, workers=None, missing=missing)
    fewest, share = 1, 0.0
    for amounts, room in zip(demand.pieces, parts.rooms, strict=True):
        largest = int(amounts.argmax())
        if amounts[largest] > room:
            key_group = view.owned[largest % len(view.owned)].key_group
            why = f"key group {key_group} alone needs {_shown(amounts[largest], demand.resource)}, and such a worker "
            return ResourceNeed(
                resource=demand.resource,
                workers=None,
                missing=missing,
                why=why + f"has {_shown(room, demand.resource)}",
            )
        count = _fewest(amounts, room)
        if count is None:
            why = f"more than {MAX_WORKERS} workers would be needed"
            return ResourceNeed(resource=demand.resource, workers=None, missing=missing, why=why)
        fewest = max(fewest, count)
    for amounts, room in zip(demand.pieces, parts.rooms, strict=True):
        share = max(share, float(amounts.sum()) / fewest / room if room > 0 else 0.0)
    return ResourceNeed(resource=demand.resource, workers=fewest, share=share, missing=missing)


def _shown(amount: float, resource: str) -> str:
    size = f"{amount / MEGABYTE:.1f} MB" if amount >= MEGABYTE else f"{amount:,.0f} bytes"
    return f"{size}{'/s' if resource == LINK else ''} of {resource}"


def _fewest(amounts: Floats, room: float) -> int | None:
    """The least number of workers found that takes these pieces; None = more than MAX_WORKERS."""
    total = float(amounts.sum())
    if not total > 0:
        return 1
    for workers in range(max(1, math.ceil(total / room * (1 - 1e-9))), MAX_WORKERS + 1):
        if workers >= len(amounts) or times_placed(amounts, np.full(workers, room)) >= 1.0 - 1e-9:
            return workers
    return None


def together(shares: Floats, workers: int) -> int | None:
    """The least number of workers found, from `workers` on, that take all items; None = not within MAX_MORE more.

    `shares` (J, I) = of a worker's part, what each item takes of each amount.  Items go, the largest share first, to
    the worker that is then used least.  For very many items each amount is left to itself.
    """
    if len(shares) < 2 or shares.shape[1] * workers > MAX_CELLS:
        return workers
    order = np.argsort(-shares.max(axis=0), kind="stable").tolist()
    return next((count for count in range(workers, workers + MAX_MORE + 1) if _takes(shares, order, count)), None)


def _takes(shares: Floats, order: Sequence[int], workers: int) -> bool:
    used = np.zeros((workers, len(shares)))
    for item in order:
        after = (used + shares[:, item]).max(axis=1)
        place = int(after.argmin())
        if after[place] > 1.0 + 1e-9:
            return False
        used[place] += shares[:, item]
    return True


def shares_of(demands: Sequence[ResourceDemand], parts: Mapping[str, WorkerParts]) -> Iterator[Floats]:
    """(I,) per amount of each known resource, what items take of a worker's part."""
    for demand in demands:
        for amounts, room in zip(demand.pieces, parts[demand.resource].rooms or (), strict=False):
            if amounts.any():
                yield amounts / room


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
        per_rate=np.array([*per_rate, 0.0]).reshape(-1, 1) / share,
        per_instance=np.array([*per_worker, process]).reshape(-1, 1) / share,
        capacity=np.full(1, 100.0),
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
    return float(problem.per_instance[:, 0].sum())


def _room(problem: SizingProblem, target: float) -> float:
    """What a worker has for key groups, in percent of its capacity."""
    return target * 100.0 - _fixed_pct(problem)


def _percent(view: SmoothedView, its: WorkerType, rate: float) -> Floats:
    """(K,) the load of each key group, in percent of such a worker."""
    return rate * view.owned.load / (its.speed * its.capacity)


def _enough(problem: SizingProblem, load: Floats, room: float, rate: float, target: float) -> int | None:
    """The least number of workers that carry the load by the model, and whose key groups fit."""
    one_each = np.ones((len(problem.operators), 1), np.int64)
    carried = max_rate(replace(problem, capacity=np.full(1, 100.0 * target)), one_each)  # by one worker of several
    needed = rate * (1 - 1e-9) / carried if carried > 0 else math.inf
    least = max(1, math.ceil(min(needed, MAX_WORKERS)))
    for workers in range(least, MAX_WORKERS + 1):
        if times_placed(load, np.full(workers, room)) >= 1.0 - 1e-9:
            return workers
        if workers >= len(load):
            break
    return None
