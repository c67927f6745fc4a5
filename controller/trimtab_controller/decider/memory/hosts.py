"""Hosts: what they have, what else runs on them, and what is left for the key groups of an app.

The workers of a host share its cores.  What its other processes use (the host's CPU minus its workers') is not there
for them.  It counts up to OTHERS_SHARE of the cores only: on a full host the kernel divides the CPU, and the workers
get their part.

What an app's workers may use for their key groups on a host, its *room*, is

    available cores - demand of all other workers there - fixed use of the app's own workers

Where the capacities of these workers together are more than the first two leave, each counts with its *share* of it.
So a worker with half a core to itself is as loaded by a quarter of a core as one with a whole core by a half.  A
share changes only by SHARE_STEP or more, so that noise in what others use moves nothing.  The memory of a host has
room for as much more state as is free, its disk for as much as is free up to `max_disk`, and its link for as many
more bytes per second as are free up to `max_link`, each way.

CPU is counted in *reference cores*: what the same work would take on a host of speed 1 (`speeds.py`).

`FullHosts` follows those that run out.  A worker within its capacity says nothing of its host: four workers with a
core each may share two cores, and others may fill its memory.  So each host is compared with its limits: all of its
CPU, as it is asked for; `MEMORY_PCT` of its memory; and of disk and link what plans fill at most.  What is not known
is over no limit.
"""

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from statistics import median
from types import MappingProxyType

import numpy as np

from trimtab_controller.decider.memory.speeds import CostBook
from trimtab_controller.decider.values.reasons import Concern, ConcernKind
from trimtab_controller.decider.window.concerns import WINDOWS
from trimtab_controller.decider.window.demand import WindowDemands, WorkerDemand
from trimtab_controller.decider.window.owned import PERCENT_PER_CORE, OwnedTable
from trimtab_controller.decider.window.resources import (
    CPU,
    DISK,
    FULL_PCT,
    LINK,
    MEMORY,
    sums_of_workers,
    with_less_disk,
)
from trimtab_controller.decider.window.view import (
    AppView,
    DemandView,
    FixedWorker,
    MeasuredView,
    Room,
    SmoothedView,
    Worker,
)
from trimtab_controller.execution.state import ENDED, Handover, Round
from trimtab_controller.rows import row_after
from trimtab_protocol.messages.names import AppId, HostId, KeyGroup, WorkerId
from trimtab_protocol.messages.report import WorkerState
from trimtab_protocol.messages.snapshot import HostWindow, NodeWindow, Snapshot
from trimtab_protocol.wording import first_few

OTHERS_SHARE = 0.5
"""Share of a host's cores up to which processes that are not workers count."""
LEAST_SHARE = 0.1
"""A worker counts with at least this share of its capacity, however full its host is."""
SHARE_STEP = 0.05
"""By how much the share of a worker must differ to be changed."""

MEMORY_PCT = 90.0
"""Of a host's memory; the page cache counts as free.  Above it little is left for state that grows."""

Over = Mapping[tuple[HostId, str], float]
"""Percent used of each resource of a host that is over its limit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SmoothedUse:
    """What is asked of a worker, smoothed, in percent of a core of its host: by its key groups, and its fixed use.

    `capacity` in cores of its host.
    """

    host: HostId
    capacity: float
    key_groups: float
    fixed: float

    @property
    def total(self) -> float:
        """Both together."""
        return self.key_groups + self.fixed


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """A host in the last window; None = unknown.

    `cores` it may use, `others` = cores that processes other than workers use (smoothed), `speed` of a core relative to
    the reference, `asked` = cores that its workers are asked for.
    """

    id: HostId
    window: HostWindow
    others: float | None
    speed: float
    asked: float

    @property
    def available(self) -> float | None:
        """Cores for workers."""
        cores = self.window.cores
        if not cores:  # 0 = unknown, as in `HostWindow.used_pct`
            return None
        return max(cores - (self.others or 0.0), (1.0 - OTHERS_SHARE) * cores)

    @property
    def free_memory(self) -> float | None:
        """Bytes."""
        used, limit = self.window.memory_bytes, self.window.memory_limit_bytes
        return None if used is None or limit is None else max(0.0, float(limit - used))

    def free_disk(self, most: float) -> float:
        """Bytes that can be written until the share `most` of the disk is used; infinite = unknown."""
        total, free = self.window.disk_total_bytes, self.window.disk_free_bytes
        return math.inf if not total or free is None else max(0.0, free - (1.0 - most) * total)

    def free_link(self, most: float) -> tuple[float, float]:
        """Bytes per second that it can receive and send besides, up to `most` of its link; infinite = unknown."""
        window = self.window
        if not window.link_bytes_s:
            return math.inf, math.inf
        limit = most * window.link_bytes_s
        rates = (window.received_bytes_s, window.sent_bytes_s)
        return tuple(math.inf if rate is None else max(0.0, limit - rate) for rate in rates)  # type: ignore[return-value]

    @property
    def used(self) -> dict[str, float]:
        """Percent used of each resource, where it is known; CPU as it is asked for."""
        window, found = self.window, dict[str, float]()
        if window.cores:
            found[CPU] = FULL_PCT * (self.asked + (self.others or 0.0)) / window.cores
        if window.memory_bytes is not None and window.memory_limit_bytes:
            found[MEMORY] = FULL_PCT * window.memory_bytes / window.memory_limit_bytes
        rates = [rate for rate in (window.received_bytes_s, window.sent_bytes_s) if rate is not None]
        if window.link_bytes_s and rates:
            found[LINK] = FULL_PCT * max(rates) / window.link_bytes_s
        if window.disk_free_bytes is not None and window.disk_total_bytes:
            found[DISK] = FULL_PCT * (1.0 - window.disk_free_bytes / window.disk_total_bytes)
        return found

    @property
    def bottleneck(self) -> str | None:
        """The resource of which most is used, and how much, in words."""
        used = self.used
        most = max(used, key=lambda name: used[name], default=None)
        return None if most is None else f"{most} {used[most]:.0f} %"


@dataclass(frozen=True, slots=True, kw_only=True)
class HostsSeen:
    """All hosts of the last window, and what is asked of all workers on them."""

    hosts: Mapping[HostId, Host] = field(default_factory=dict)
    workers: Mapping[WorkerId, SmoothedUse] = field(default_factory=dict)


class HostTracker:
    """Follows what is used on hosts over the windows, and puts it into views."""

    def __init__(self, smoothing: float, *, max_disk: float = 1.0, max_link: float = 1.0) -> None:
        """`max_disk`, `max_link` = share of a disk, or of a link each way, that plans fill at most."""
        self._smoothing = smoothing
        self._max_disk, self._max_link = max_disk, max_link
        self._others: dict[HostId, float] = {}
        self._shares: dict[WorkerId, float] = {}
        self.costs = CostBook()
        self.seen = HostsSeen()

    def observe(self, snapshot: Snapshot, demands: Mapping[WorkerId, WorkerDemand]) -> frozenset[HostId]:
        """Learn from a window; returns the hosts whose speed has changed, and so the unit of the loads there."""
        changed, speeds = self.costs.observe(snapshot), self.costs.of_hosts()
        running = [row for row in snapshot.nodes if row.state is not WorkerState.AWAY]
        asked = {row.worker: self._asked(row, demands.get(row.worker)) for row in running}
        on_host: defaultdict[HostId, list[NodeWindow]] = defaultdict(list)
        for row in running:
            on_host[row.host].append(row)
        others = {row.host: self._used_by_others(row, on_host[row.host]) for row in snapshot.hosts}
        self._others = {host: used for host, used in others.items() if used is not None}
        self._shares = {worker: share for worker, share in self._shares.items() if worker in asked}
        self.seen = HostsSeen(
            workers=asked,
            hosts={
                row.host: Host(
                    id=row.host,
                    window=row,
                    others=others[row.host],
                    speed=speeds.get(row.host, 1.0),
                    asked=sum(asked[each.worker].total for each in on_host[row.host]) / PERCENT_PER_CORE,
                )
                for row in snapshot.hosts
            },
        )
        return changed

    def _asked(self, row: NodeWindow, demand: WorkerDemand | None) -> SmoothedUse:
        """The smoothed demand; while it is unknown the last known one, or else the capacity."""
        before = self.seen.workers.get(row.worker)
        before = before if before is not None and before.host == row.host else None
        if demand is None or demand.key_groups_pct is None or demand.fixed_pct is None:
            return before or SmoothedUse(
                host=row.host, capacity=row.capacity, key_groups=PERCENT_PER_CORE * row.capacity, fixed=0.0
            )
        key_groups, fixed = row.capacity * demand.key_groups_pct, row.capacity * demand.fixed_pct
        if before is not None:
            key_groups, fixed = self._smoothed(before.key_groups, key_groups), self._smoothed(before.fixed, fixed)
        return SmoothedUse(host=row.host, capacity=row.capacity, key_groups=key_groups, fixed=fixed)

    def _used_by_others(self, row: HostWindow, workers: Iterable[NodeWindow]) -> float | None:
        """Cores used by processes that are not workers; while it is unknown, as last known."""
        before, used = self._others.get(row.host), row.cpu
        cpu = [worker.cpu for worker in workers]
        if used is None or any(each is None for each in cpu):
            return before
        now = max(0.0, used - sum(each for each in cpu if each is not None))
        return now if before is None else self._smoothed(before, now)

    def _smoothed(self, before: float, now: float) -> float:
        return before + self._smoothing * (now - before)

    def of_view(self, view: MeasuredView, demands: WindowDemands) -> DemandView:
        """What an app asks for, in reference cores, with the workers' shares of their hosts, and the rooms."""
        scaled = _in_reference(view, demands, self.seen.hosts)
        on_host: defaultdict[HostId, list[Worker]] = defaultdict(list)
        for worker in view.workers:
            on_host[worker.host].append(worker)
        table, rooms, shares = view.owned, dict[HostId, Room](), dict[WorkerId, float]()
        held = sums_of_workers(table, [table.assumed_state_bytes, *table.assumed_traffic])
        for name, workers in on_host.items():
            host = self.seen.hosts.get(name)
            if host is None:
                continue
            left = self._left(host, workers)
            fixed = sum(max(0.0, each.fixed) for each in self._asked_of(workers))
            ours = sum((held[each.id] for each in workers if each.id in held), np.zeros(3))
            memory = math.inf if host.free_memory is None else host.free_memory
            memory, received, sent = (np.array([memory, *host.free_link(self._max_link)]) + ours).tolist()
            disk = host.free_disk(self._max_disk) + float(ours[0])
            cpu = host.speed * max(0.0, left - fixed)
            rooms[name] = Room(cpu=cpu, memory=memory, disk=disk, received=received, sent=sent)
            share = left / (PERCENT_PER_CORE * sum(each.capacity for each in workers))
            shares |= {worker.id: self._share(worker.id, share) for worker in workers}
        shared = (_with_share(each, shares.get(each.id, 1.0)) for each in scaled.workers)
        return DemandView.of(scaled, workers=tuple(shared), rooms=rooms, fixed_use=self._fixed_use(view, demands))

    def _fixed_use(self, view: MeasuredView, demands: WindowDemands) -> float | None:
        """The median, since single workers are noisy."""
        hosts, known = self.seen.hosts, demands.workers
        found = [
            hosts[worker.host].speed * use.fixed
            for worker in view.all_workers
            if (use := self.seen.workers.get(worker.id)) is not None
            and worker.host in hosts
            and worker.id in known
            and known[worker.id].fixed_pct is not None
        ]
        return max(0.0, median(found)) if found else None

    def added_to(self, view: AppView, further: Iterable[tuple[HostId, float]]) -> list[float | None]:
        """Reference cores that the app would have more with each of these further workers (host, capacity), in turn.

        None = the cores of the host are unknown.
        """
        found: list[float | None] = []
        counted: dict[HostId, float] = {}
        for name, capacity in further:
            host, here = self.seen.hosts.get(name), [worker for worker in view.workers if worker.host == name]
            if host is None or host.available is None:
                found.append(None)
                continue
            left = self._left(host, here) / PERCENT_PER_CORE
            staying = self._asked_of(worker for worker in here if not worker.draining)
            before = counted.setdefault(name, sum(each.capacity for each in staying))
            counted[name] = before + capacity
            found.append(host.speed * (min(before + capacity, left) - min(before, left)))
        return found

    def _asked_of(self, workers: Iterable[Worker]) -> list[SmoothedUse]:
        found = (self.seen.workers.get(worker.id) for worker in workers)
        return [each for each in found if each is not None]

    def _left(self, host: Host, ours: Iterable[Worker]) -> float:
        """Percent of a core that the other workers on the host leave; infinite = its cores are unknown."""
        if host.available is None:
            return math.inf
        others = PERCENT_PER_CORE * host.asked - sum(each.total for each in self._asked_of(ours))
        return max(0.0, PERCENT_PER_CORE * host.available - max(0.0, others))

    def _share(self, worker: WorkerId, share: float) -> float:
        """The share of its capacity with which a worker counts, if its host has `share` for it."""
        share, before = min(1.0, max(LEAST_SHARE, share)), self._shares.get(worker, 1.0)
        self._shares[worker] = share if abs(share - before) >= SHARE_STEP else before
        return self._shares[worker]


def _with_share(worker: Worker, share: float) -> Worker:
    return replace(worker, capacity=worker.capacity * share, share=share)


def _in_reference(view: MeasuredView, demands: WindowDemands, hosts: Mapping[HostId, Host]) -> MeasuredView:
    """The view with demand for load, and loads and capacities in reference cores."""
    view = replace(view, key_groups=demands.of_table(view.owned), kept=demands.of_table(view.kept_table))
    speed = {host: each.speed for host, each in hosts.items() if each.speed != 1.0}
    if not speed:
        return view
    of_worker = {worker.id: speed.get(worker.host, 1.0) for worker in view.workers}
    of_worker |= {each.id: speed.get(each.worker.host, 1.0) for each in view.fixed if each.worker is not None}

    def scaled(worker: Worker) -> Worker:
        return replace(worker, capacity=worker.capacity * speed.get(worker.host, 1.0))

    return replace(
        view,
        workers=tuple(map(scaled, view.workers)),
        fixed=tuple(_scaled_fixed(each, speed) for each in view.fixed),
        key_groups=_scaled_table(view.owned, of_worker),
        kept=_scaled_table(view.kept_table, of_worker),
    )


def _scaled_fixed(fixed: FixedWorker, speed: Mapping[HostId, float]) -> FixedWorker:
    worker = fixed.worker
    if worker is None:
        return fixed
    return replace(fixed, worker=replace(worker, capacity=worker.capacity * speed.get(worker.host, 1.0)))


def _scaled_table(table: OwnedTable, speed: Mapping[WorkerId, float]) -> OwnedTable:
    if not len(table):
        return table
    return table.with_load(table.load * np.array([speed.get(name, 1.0) for name in table.workers])[table.owner])


def with_arrivals(
    view: SmoothedView, rounds: Iterable[Round], views: Mapping[AppId, object], promised: Mapping[HostId, float]
) -> SmoothedView:
    """The view with less room where plans of other apps, now in flight, bring load.

    `promised` = bytes on the disk of each host that standbys are about to write.
    """
    rooms = dict(with_less_disk(view, promised).rooms)
    for row in rounds:
        other = views.get(row.app)
        if row.app == view.app or not isinstance(other, DemandView):
            continue
        for handover in row.handovers:
            room = rooms.get(handover.target_host)
            if handover.phase in ENDED or room is None:
                continue
            held = 0.0 if handover.has_copy else _state_of(other, handover.key_groups)
            written = held if handover.lacking_bytes is None else min(held, handover.lacking_bytes)
            room = rooms[handover.target_host] = replace(room, disk=max(0.0, room.disk - written))
            within = handover.source_host == handover.target_host and not row.lost
            if within and held:  # afterwards its memory is free, but for what the source goes on following
                held = _state_of(other, _followed(other, handover)) if other.memory_stays else 0.0
            room = rooms[handover.target_host] = replace(room, memory=max(0.0, room.memory - held))
            if within:
                continue  # it needs nothing else
            places = other.owned.places_of(handover.key_groups)
            known = places[places >= 0]
            load, (received, sent) = other.owned.load[known].sum(), other.owned.assumed_traffic[:, known].sum(axis=1)
            rooms[handover.target_host] = replace(
                room,
                cpu=max(0.0, room.cpu - float(load)),
                received=max(0.0, room.received - float(received)),
                sent=max(0.0, room.sent - float(sent)),
            )
    return replace(view, rooms=rooms)


def _followed(view: AppView, handover: Handover) -> list[KeyGroup]:
    """The key groups of which the source will be a standby."""
    source, target = handover.source, handover.target
    rows = zip(handover.key_groups, handover.previous, strict=True)
    return [each for each, row in rows if source in row_after(row, source, target, view.sites)]


def _state_of(view: AppView, key_groups: Iterable[KeyGroup]) -> float:
    """Bytes of the state of these key groups, as far as the view has them."""
    places = view.owned.places_of(key_groups)
    return float(view.owned.assumed_state_bytes[places[places >= 0]].sum())


class FullHosts:
    """Follows over the windows which hosts are over a limit."""

    def __init__(self, *, max_disk: float = 1.0, max_link: float = 1.0) -> None:
        """`max_disk`, `max_link` = share of a disk, or of a link each way, that plans fill at most."""
        self._limits = {
            CPU: FULL_PCT,
            MEMORY: MEMORY_PCT,
            DISK: FULL_PCT * max_disk,
            LINK: FULL_PCT * max_link,
        }
        self._over: Over = {}
        self._windows: Mapping[tuple[HostId, str], int] = {}
        self._apps: Mapping[HostId, Mapping[AppId, tuple[WorkerId, ...]]] = {}
        self._end_ms = 0

    def observe(
        self,
        snapshot: Snapshot,
        seen: HostsSeen,
        demands: Mapping[WorkerId, WorkerDemand] = MappingProxyType({}),
    ) -> None:
        """Take a window.  The counts begin anew after a gap of more than one window."""
        follows = snapshot.start_ms - self._end_ms <= snapshot.end_ms - snapshot.start_ms
        before = self._windows if follows else {}
        on_host: defaultdict[HostId, list[NodeWindow]] = defaultdict(list)
        for row in snapshot.nodes:
            if row.state is not WorkerState.AWAY:
                on_host[row.host].append(row)
        self._over = {
            (name, resource): pct
            for name, host in seen.hosts.items()
            for resource, pct in _used(host, on_host[name], demands).items()
            if pct > self._limits[resource]
        }
        self._windows = {each: before.get(each, 0) + 1 for each in self._over}
        self._apps = {name: _by_app(rows) for name, rows in on_host.items()}
        self._end_ms = snapshot.end_ms

    @property
    def concerns(self) -> Iterator[Concern]:
        """One for each app with workers on hosts that have been over a limit for several windows."""
        full: defaultdict[HostId, list[str]] = defaultdict(list)
        for (host, resource), windows in sorted(self._windows.items()):
            if windows >= WINDOWS:
                full[host].append(_told(resource, self._over[host, resource]))
        for app in sorted({app for host in full for app in self._apps.get(host, ())}):
            hosts = [host for host in full if app in self._apps.get(host, ())]
            said = first_few((f"{host}: {', '.join(full[host])}" for host in hosts), len(hosts))
            yield Concern(
                kind=ConcernKind.HOST_FULL,
                app=app,
                workers=tuple(sorted(worker for host in hosts for worker in self._apps[host][app])),
                detail=f"{said}; for {WINDOWS} windows or longer",
            )


def _used(host: Host, workers: Iterable[NodeWindow], demands: Mapping[WorkerId, WorkerDemand]) -> dict[str, float]:
    """Percent used of each resource, where it is known; CPU as it is asked for now."""
    found = {resource: pct for resource, pct in host.used.items() if resource != CPU}
    asked = [_asked(row, demands.get(row.worker)) for row in workers]
    cores, available = host.window.cores, host.available
    if cores and available is not None and None not in asked:
        found[CPU] = FULL_PCT * (sum(each for each in asked if each is not None) + cores - available) / cores
    return found


def _asked(row: NodeWindow, demand: WorkerDemand | None) -> float | None:
    """Cores that a worker is asked for, or uses where that is unknown; None = unknown."""
    pct = None if demand is None else demand.pct
    return row.cpu if pct is None else row.capacity * pct / FULL_PCT


def _by_app(rows: Iterable[NodeWindow]) -> dict[AppId, tuple[WorkerId, ...]]:
    found: defaultdict[AppId, list[WorkerId]] = defaultdict(list)
    for row in rows:
        if row.app is not None:
            found[row.app].append(row.worker)
    return {app: tuple(workers) for app, workers in found.items()}


def _told(resource: str, pct: float) -> str:
    return f"{pct:.0f} % of its CPU is asked for" if resource == CPU else f"{resource} {pct:.0f} % used"
