"""Who gets which orphan: the greedy matching of the Elastic Allocator, then DynDL's targets within the band."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from trimtab_controller.decider.concerns import FULL_PCT
from trimtab_controller.decider.hosts.hosts import HostsSeen
from trimtab_controller.decider.hosts.resources import LINK, free_disks, sums_of_workers
from trimtab_controller.decider.observing.owned import Floats, OwnedTable
from trimtab_controller.decider.observing.placing import Places, priorities
from trimtab_controller.decider.observing.view import SmoothedView, Worker
from trimtab_controller.decider.orphans.restores import Restores
from trimtab_controller.decider.orphans.targets import Chosen, choose
from trimtab_models.elastic.matching import HEAVY_FROM, NOWHERE, ResourceDemands, match
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


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacedOrphans:
    """`targets` = the next owner of each orphan.  `forced` = those that no worker had room for, or was light enough.

    `busy_pct` = per worker that got some, what is then used of its busiest resource.  `chosen`: what DynDL changed.
    """

    targets: Mapping[KeyGroup, WorkerId]
    forced: tuple[KeyGroup, ...]
    busy_pct: Mapping[WorkerId, float]
    chosen: Chosen | None = None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Orphaned:
    """The orphans of an app; `owners` = the workers that they have lost.

    `inherited` = the demand that each worker will get besides from workers that are away.  `state` = the bytes that
    next owners are to hold; standbys hold what they inherit already.
    """

    table: OwnedTable
    owners: tuple[WorkerId, ...]
    inherited: Mapping[WorkerId, float]
    state: Mapping[WorkerId, float]

    def given(self, targets: Mapping[KeyGroup, WorkerId]) -> "Orphaned":
        """Without those that have a target already, which will get their load."""
        rows = self.table.places_of(targets)
        inherited, state = Counter(self.inherited), Counter(self.state)
        sizes, left = self.table.assumed_state_bytes, np.ones(len(self.table), np.bool_)
        for row, target in zip(rows.tolist(), targets.values(), strict=True):
            if row >= 0:
                left[row] = False
                inherited[target] += float(self.table.load[row])  # type: ignore[assignment]
                state[target] += int(sizes[row])
        return replace(self, table=self.table.only(left), inherited=inherited, state=state)


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
    memory = _memory(view, workers, orphaned)
    with np.errstate(divide="ignore"):
        link = np.array([_link_bytes_s(hosts, worker) for worker in workers])
        per_capacity = [1.0 / worker.capacity for worker in workers]
        per_unit = np.array([per_capacity, FULL_PCT / memory.room, HEAVY_FROM / _disk(view, workers), FULL_PCT / link])
    used = [_asked(view, workers, orphaned, asked_pct), FULL_PCT * memory.share, np.zeros(len(workers))]
    demands = ResourceDemands(
        used=np.array([*used, [_link_pct(hosts, worker) for worker in workers]]),
        demand=np.vstack((table.load, state, state, table.assumed_traffic.max(axis=0))),
        per_unit=per_unit,
        ceiling=np.array([[np.inf], [FULL_PCT], [HEAVY_FROM], [np.inf]]).repeat(len(workers), axis=1),
        spared=_on_disk(table, workers, restores) if per_unit[DISK_ROW].any() else None,
    )
    if view.rules:
        demands = _ruled(demands, Places.of(view.rules, table, [(each.id, each.host, each.zone) for each in workers]))
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


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Memory:
    """`room` (N,) bytes of state that fit on each worker's host, shared by its workers; `share` (N,) used of it."""

    room: Floats
    share: Floats


def _memory(view: SmoothedView, workers: list[Worker], orphaned: Orphaned) -> _Memory:
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
    return _Memory(room=room, share=used / room)
