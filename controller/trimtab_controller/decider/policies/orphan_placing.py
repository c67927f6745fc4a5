"""Who gets which orphan: the greedy matching of the Elastic Allocator, then DynDL's targets within the band.

The Elastic Allocator levels what is asked of workers.  Within the band in which nothing moves anyway, another target
is as good for the load, and may be better for the restore: its host has less to restore, restores faster, or has a
copy of the state on its disk.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from trimtab_controller.decider.memory.hosts import HostsSeen
from trimtab_controller.decider.memory.orphans import Orphaned
from trimtab_controller.decider.window.concerns import FULL_PCT
from trimtab_controller.decider.window.owned import Floats, OwnedTable
from trimtab_controller.decider.window.placing import Places, priorities
from trimtab_controller.decider.window.resources import LINK, free_disks, sums_of_workers
from trimtab_controller.decider.window.restores import TARGET_OPERATIONS, Restores
from trimtab_controller.decider.window.view import SmoothedView, Worker
from trimtab_models.dyndl.problem import Ints
from trimtab_models.dyndl.targets import (
    OnlineRestore,
    TargetsProblem,
    choose_online,
    choose_targets,
    makespan_of,
    targets_bound,
)
from trimtab_models.elastic.matching import HEAVY_FROM, NOWHERE, ROUNDING, ResourceDemands, match
from trimtab_models.solving import Never
from trimtab_models.spared import Spared
from trimtab_protocol.messages.names import HostId, KeyGroup, WorkerId

OPERATIONS = 500_000
"""Trials of a key group on a worker in one decision; what is left then is spread evenly over light workers."""
RESOURCES, DISK_ROW = 4, 2
"""CPU, memory, disk and link of a worker; which one is the disk."""
BARRED_PCT = 1e6
"""What a key group takes of a worker that a rule keeps it off, in percent."""
MOST_AT_ONCE = 5_000
"""Orphans that one decision places, those with the highest demand first; it then takes under a tenth of a second."""
MOST_SCHEDULED = 1_000
"""Orphans whose restores are scheduled, and for which DynDL may choose targets: each step of a plan is journalled with
all its hand-overs.  More of them are named at once, and restore in no order."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Chosen:
    """`node` (K,) = the worker of each key group; seconds until all are warm, there and with the given targets.

    No targets take less than `lower_bound_s`, whatever the loads.
    """

    node: Ints
    seconds: float
    given_s: float
    lower_bound_s: float


def choose(
    table: OwnedTable, workers: Sequence[Worker], demands: ResourceDemands, node: Ints, restores: Restores
) -> Chosen:
    """Other targets than `node` where all are warm sooner, and the use of workers stays within the band."""
    problem = _problem(table, workers, demands, node, restores)
    unit_s = restores.learned.unit_s
    before = makespan_of(problem, node)
    if len(table) == 1:
        worker = np.array([choose_online(_single(problem, workers, restores))])
        if makespan_of(problem, worker) > before:
            worker = node
    else:
        worker = choose_targets(problem, stop=Never(), operations=TARGET_OPERATIONS).worker
    after = makespan_of(problem, worker)
    return Chosen(
        node=worker,
        seconds=after * unit_s,
        given_s=before * unit_s,
        lower_bound_s=min(targets_bound(problem), after) * unit_s,
    )


def _problem(
    table: OwnedTable, workers: Sequence[Worker], demands: ResourceDemands, node: Ints, restores: Restores
) -> TargetsProblem:
    learned, held = restores.learned, restores.held
    hosts = sorted({worker.host for worker in workers})
    server = {host: place for place, host in enumerate(hosts)}
    places = {worker.id: place for place, worker in enumerate(workers)}
    sizes = table.assumed_state_bytes
    least, most = _limits(demands, node, restores.band)
    pace = np.array([restores.pace(host) for host in hosts])
    begun = np.array([sum(map(learned.size, restores.running.get(host, ()))) for host in hosts])
    return TargetsProblem(
        server=np.array([server[worker.host] for worker in workers], np.int64),
        size=np.array([learned.size(float(size)) for size in sizes]),
        less=[
            {
                places[name]: learned.size(share * float(size))
                for name, share in held.lacking(key_group).items()
                if name in places
            }
            for key_group, size in zip(table.owners, sizes.tolist(), strict=True)
        ],
        pace=pace,
        alone=np.array([learned.cost(host).at(1) for host in hosts]),
        running=begun * pace,
        demand=demands.demand,
        per_unit=demands.per_unit,
        used=demands.used,
        least=least,
        most=most,
        given=node,
        spared=demands.spared,
    )


def _limits(demands: ResourceDemands, node: Ints, band: float) -> tuple[Floats, Floats]:
    """How little and how much of each resource of a worker may be used: its CPU is the first one."""
    busy = demands.together(np.arange(len(node)), node)
    capacity = 1.0 / demands.per_unit[0]
    mean = float((busy[0] * capacity).sum() / capacity.sum())
    least, most = np.full_like(busy, -np.inf), np.full_like(busy, HEAVY_FROM)
    least[0], most[0] = mean - band, min(HEAVY_FROM, mean + band)
    return np.minimum(least, busy), np.maximum(most, busy)


def _single(problem: TargetsProblem, workers: Sequence[Worker], restores: Restores) -> OnlineRestore:
    """The only restore of a problem, as DynDLOn sees it."""
    hosts = sorted({worker.host for worker in workers})
    beside = np.array([len(restores.running.get(host, ())) for host in hosts], np.int64)
    free = np.array([restores.slots(host) for host in hosts]) > beside
    after = problem.used + problem.added([0], np.arange(len(workers)))
    most = np.maximum(problem.most, problem.used)
    given = int(problem.given[0])
    free_to_leave = bool((problem.used[:, given] >= problem.least[:, given] - ROUNDING).all())
    return OnlineRestore(
        server=problem.server,
        size=float(problem.size[0]),
        less=problem.less[0],
        costs=[restores.learned.cost(host) for host in hosts],
        free_in=np.where(free, 0.0, problem.running),
        beside=beside,
        allowed=(after <= most + ROUNDING).all(axis=0) & (free_to_leave | (np.arange(len(workers)) == given)),
        preferred=dict(enumerate(after[0].tolist())),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacedOrphans:
    """`targets` = the next owner of each orphan.  `forced` = those that no worker had room for, or was light enough.

    `busy_pct` = per worker that got some, what is then used of its busiest resource.  `chosen`: what DynDL changed.
    """

    targets: Mapping[KeyGroup, WorkerId]
    forced: tuple[KeyGroup, ...]
    busy_pct: Mapping[WorkerId, float]
    chosen: Chosen | None = None


def place_orphans(
    view: SmoothedView,
    orphaned: Orphaned,
    hosts: HostsSeen,
    asked_pct: Mapping[WorkerId, float],
    *,
    operations: int,
    restores: Restores | None = None,
) -> PlacedOrphans | None:
    """The next owner of each orphan, or of the MOST_AT_ONCE with the highest demand; None if no worker can take any.

    Rules hold for key groups as far as a worker is there that they allow.

    Resources are a worker's CPU, as it is asked for (`asked_pct`, or the loads of its key groups where that is not
    known), its part of the memory for state and of the free disk on its host, and the host's link: of what key groups
    receive and send, the larger counts.  `operations` limits the time: trials of a key group on a worker.  `restores`:
    a copy on a disk writes there only what it lacks, and DynDL may choose other targets, so that all are warm sooner.
    """
    workers = [worker for worker in view.workers if not worker.draining]
    if not workers:
        return None
    table = _first(view, orphaned.table)
    state = table.assumed_state_bytes.astype(np.float64)
    memory, held = _memory(view, workers, orphaned)
    with np.errstate(divide="ignore"):
        link = np.array([_link_bytes_s(hosts, worker) for worker in workers])
        per_capacity = [1.0 / worker.capacity for worker in workers]
        per_unit = np.array([per_capacity, FULL_PCT / memory, HEAVY_FROM / _disk(view, workers), FULL_PCT / link])
    used = [_asked(view, workers, orphaned, asked_pct), FULL_PCT * held, np.zeros(len(workers))]
    demands = ResourceDemands(
        used=np.array([*used, [_link_pct(hosts, worker) for worker in workers]]),
        demand=np.vstack((table.load, state, state, table.assumed_traffic.max(axis=0))),
        per_unit=per_unit,
        ceiling=np.array([[np.inf], [FULL_PCT], [HEAVY_FROM], [np.inf]]).repeat(len(workers), axis=1),
        spared=_on_disk(table, workers, restores) if per_unit[DISK_ROW].any() else None,
    )
    if view.rules:
        demands = _ruled(demands, Places.of(view.rules, table, [each.site for each in workers]))
    matched = match(demands, threshold=HEAVY_FROM, operations=operations, stop=Never())
    node = matched.node.copy()
    given = np.flatnonzero(node != NOWHERE)
    busy = demands.together(given, node[given])
    for item in sorted(matched.refused, key=lambda item: -float(table.load[item])):
        after = busy + demands.added(item)
        node[item] = int(after.max(axis=0).argmin())
        busy[:, node[item]] = after[:, node[item]]
    scheduled = restores is not None and len(table) <= MOST_SCHEDULED
    chosen = choose(table, workers, demands, node, restores) if restores is not None and scheduled else None
    if chosen is not None:
        node = chosen.node
        busy = demands.together(np.arange(len(node)), node)
    names = list(table.owners)
    top = busy.max(axis=0)
    return PlacedOrphans(
        targets={name: workers[place].id for name, place in zip(names, node.tolist(), strict=True)},
        forced=tuple(names[item] for item in matched.refused),
        busy_pct={workers[place].id: float(top[place]) for place in sorted(set(node.tolist()))},
        chosen=chosen,
    )


def _ruled(demands: ResourceDemands, where: Places) -> ResourceDemands:
    """The demands with rules as further resources, of which barred workers have next to nothing.

    Key groups without an allowed worker go to any: an outage would be worse.
    """
    classes = np.flatnonzero(where.allowed.any(axis=1))
    shape = len(classes), demands.used.shape[1]
    spared = demands.spared
    if spared is not None:
        amount = np.concatenate((spared.amount, np.zeros((len(classes), len(spared.node)))))
        spared = Spared(key_group=spared.key_group, node=spared.node, amount=amount, size=spared.size)
    return replace(
        demands,
        used=np.concatenate((demands.used, np.zeros(shape))),
        demand=np.concatenate((demands.demand, where.class_of == classes[:, None])),
        per_unit=np.concatenate((demands.per_unit, np.where(where.allowed[classes], 0.0, BARRED_PCT))),
        ceiling=np.concatenate((demands.ceiling, np.full(shape, HEAVY_FROM))),
        spared=spared,
    )


def _first(view: SmoothedView, table: OwnedTable) -> OwnedTable:
    """Those with the highest priority, and of these the heaviest."""
    if len(table) <= MOST_AT_ONCE:
        return table
    chosen = np.zeros(len(table), np.bool_)
    before = priorities(view.rules, table)
    keys = (-table.load,) if before is None else (-table.load, -before)
    chosen[np.lexsort(keys)[:MOST_AT_ONCE]] = True
    return table.only(chosen)


def _asked(
    view: SmoothedView, workers: list[Worker], orphaned: Orphaned, asked_pct: Mapping[WorkerId, float]
) -> Floats:
    """(N,) percent of the capacity with which it counts that is asked of each worker: also for its fixed use, and for
    what it will inherit.
    """
    own, found = view.owned.loads_of_workers(), []
    for worker in workers:
        inherited = orphaned.inherited.get(worker.id, 0.0) / worker.capacity
        asked = asked_pct.get(worker.id, 0.0) / worker.share
        found.append(max(own.get(worker.id, 0.0) / worker.capacity, asked) + inherited)
    return np.array(found)


def _link_pct(hosts: HostsSeen, worker: Worker) -> float:
    host = hosts.hosts.get(worker.host)
    return 0.0 if host is None else host.used.get(LINK, 0.0)


def _link_bytes_s(hosts: HostsSeen, worker: Worker) -> float:
    """What the link carries each way; infinite = unknown."""
    host = hosts.hosts.get(worker.host)
    return np.inf if host is None else host.window.link_bytes_s or np.inf


def _disk(view: SmoothedView, workers: list[Worker]) -> Floats:
    """(N,) bytes that still fit on the disk of each worker's host, shared by its workers; infinite = unknown.

    At this much the worker counts as heavy.
    """
    on_host, free = Counter(worker.host for worker in view.workers), free_disks(view)
    return np.array([max(1.0, free.get(worker.host, np.inf) / on_host[worker.host]) for worker in workers])


def _on_disk(table: OwnedTable, workers: list[Worker], restores: Restores | None) -> Spared | None:
    """What copies on the disks of these workers need not write."""
    if restores is None:
        return None
    places = {worker.id: place for place, worker in enumerate(workers)}
    pairs = [
        (row, places[name], (1.0 - share) * size)
        for row, (key_group, size) in enumerate(zip(table.owners, table.assumed_state_bytes.tolist(), strict=True))
        for name, share in restores.held.on_disk.get(key_group, {}).items()
        if name in places
    ]
    rows, nodes, sizes = (
        (np.array(each) for each in zip(*pairs, strict=True)) if pairs else (np.zeros(0, np.int64),) * 3
    )
    amount = np.zeros((RESOURCES, len(rows)))
    amount[DISK_ROW] = sizes
    return Spared.of(rows, nodes, amount, (len(table), len(workers)))


def _memory(view: SmoothedView, workers: list[Worker], orphaned: Orphaned) -> tuple[Floats, Floats]:
    """(N,) bytes of state that fit on each worker's host, shared by its workers; and the share (N,) used of it."""
    on_host = Counter(worker.host for worker in view.workers)
    owned = view.owned
    held = sums_of_workers(owned, [owned.assumed_state_bytes])
    of_worker = Counter({worker: int(sums[0]) for worker, sums in held.items()})
    of_worker.update(orphaned.state)
    of_host: Counter[HostId] = Counter()
    for worker in view.workers:
        of_host[worker.host] += of_worker[worker.id]
    rooms = [view.rooms[worker.host].memory if worker.host in view.rooms else np.inf for worker in workers]
    room = np.array([max(1.0, each / on_host[worker.host]) for each, worker in zip(rooms, workers, strict=True)])
    used = np.array([of_host[worker.host] / on_host[worker.host] for worker in workers])
    return room, used / room
