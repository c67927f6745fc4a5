"""Hosts that run out of CPU, memory, disk or link.

A worker within its capacity says nothing of its host: four workers with a core each may share two cores, and others may
fill its memory.  So each host is compared with its limits: all of its CPU, as it is asked for; `MEMORY_PCT` of its
memory; and of disk and link what plans fill at most.  What is not known is over no limit.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType

from trimtab_controller.decider.concerns import FULL_PCT, WINDOWS, Concern, ConcernKind
from trimtab_controller.decider.hosts.hosts import Host, HostsSeen
from trimtab_controller.decider.hosts.resources import CPU, DISK, LINK, MEMORY
from trimtab_controller.decider.observing.demand import WorkerDemand
from trimtab_protocol.messages.names import AppId, HostId, WorkerId
from trimtab_protocol.messages.report import WorkerState
from trimtab_protocol.messages.snapshot import NodeWindow, Snapshot
from trimtab_protocol.wording import first_few

MEMORY_PCT = 90.0
"""Of a host's memory; the page cache counts as free.  Above it little is left for state that grows."""

Over = Mapping[tuple[HostId, str], float]
"""Percent used of each resource of a host that is over its limit."""


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
