"""Remembers when hosts and workers were last seen, so that one that is away is told apart from one that is gone."""

import math
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from trimtab_protocol.messages.names import AppId, HostId, OperatorId, WorkerId
from trimtab_protocol.messages.placement import Placement
from trimtab_protocol.messages.report import WorkerState
from trimtab_protocol.messages.snapshot import NodeWindow, Snapshot

HOST_MEMORY_S = 600.0
"""How long a host that no longer reports counts as lost; after that it counts as gone."""


@dataclass(slots=True)
class Liveness:
    """When hosts and workers were last seen, by the ends of the windows (epoch seconds).

    `ran`: what was last reported of each worker that ran, and when in `ran_at`, while its host counts, for as long or
    until it owns nothing.  `zones`: the zone of each host, while the host counts.
    `since` = when each of these hosts was seen first; those of the first window were always there.  `ended` = those
    whose agents were told to end, and that have not reported since.
    """

    hosts: dict[HostId, float] = field(default_factory=dict)
    since: dict[HostId, float] = field(default_factory=dict)
    ended: frozenset[HostId] = frozenset()
    owners: frozenset[WorkerId] = frozenset()
    absent_since: dict[WorkerId, float] = field(default_factory=dict)
    met: frozenset[WorkerId] = frozenset()
    strangers: dict[WorkerId, float] = field(default_factory=dict)
    ran: dict[WorkerId, NodeWindow] = field(default_factory=dict)
    ran_at: dict[WorkerId, float] = field(default_factory=dict)
    zones: dict[HostId, str] = field(default_factory=dict)

    def observe(self, snapshot: Snapshot, owners: Iterable[WorkerId]) -> None:
        """Note which hosts and workers are there, and which owners in the placement are not."""
        end_s = snapshot.end_ms / 1000.0
        began, reporting = (end_s if self.hosts else -math.inf), {row.host for row in snapshot.hosts}
        self.hosts.update(dict.fromkeys(reporting, end_s))
        self.hosts = {host: seen for host, seen in self.hosts.items() if end_s - seen <= HOST_MEMORY_S}
        self.since = {host: self.since.get(host, began) for host in self.hosts}
        said = frozenset(snapshot.ended)
        self.ended = (said | (self.ended - reporting)) & self.hosts.keys()
        unnamed = {row.host for row in snapshot.hosts if row.zone is None}
        self.zones.update({row.host: row.zone for row in snapshot.hosts if row.zone is not None})
        self.zones = {host: zone for host, zone in self.zones.items() if host in self.hosts.keys() - unnamed}
        here = {row.worker for row in snapshot.nodes if row.state is not WorkerState.AWAY}
        self.owners = frozenset(owners)
        self.absent_since = {worker: self.absent_since.get(worker, end_s) for worker in self.owners - here}
        self.met = (self.met & self.owners) | {row.worker for row in snapshot.nodes}
        self.strangers = {worker: self.strangers.get(worker, end_s) for worker in self.owners - self.met}
        self.ran.update({row.worker: row for row in snapshot.nodes if row.worker in here})
        self.ran_at.update(dict.fromkeys(here, end_s))
        self.ran = {
            worker: row
            for worker, row in self.ran.items()
            if row.host in self.hosts and (worker in self.owners or end_s - self.ran_at[worker] <= HOST_MEMORY_S)
        }
        self.ran_at = {worker: self.ran_at[worker] for worker in self.ran}

    def may_run(self, worker: WorkerId, app: AppId) -> bool:
        """Whether the worker ran this app when it was last seen, or may have: it was never seen."""
        row = self.ran.get(worker)
        return row is None or row.app == app

    def forget(self, app: AppId | None, worker: WorkerId | None, reporting: Collection[HostId]) -> None:
        """Forget an app, a worker, or both; `reporting` = hosts that report."""
        if app is not None:
            self.forget_app(app, reporting)
        if worker is not None:
            self.forget_worker(worker, reporting)

    def forget_app(self, app: AppId, reporting: Collection[HostId]) -> None:
        """Stop waiting for the app's workers, and for silent hosts on which only these ran."""
        self._forget({worker for worker, row in self.ran.items() if row.app == app}, reporting)

    def forget_worker(self, worker: WorkerId, reporting: Collection[HostId]) -> None:
        """Count the worker as gone, and its host too if that is silent and no other worker ran there."""
        self._forget({worker}, reporting)
        if worker in self.owners:
            self.absent_since[worker] = -math.inf
            self.strangers.pop(worker, None)
            self.met |= {worker}

    def _forget(self, workers: set[WorkerId], reporting: Collection[HostId]) -> None:
        left = {self.ran.pop(worker).host for worker in workers & self.ran.keys()}
        silent = left - set(reporting) - {row.host for row in self.ran.values()}
        self.hosts = {host: seen for host, seen in self.hosts.items() if host not in silent}

    def lost_hosts(self, snapshot: Snapshot) -> list[HostId]:
        """Hosts that reported recently and no longer do."""
        return sorted(self.hosts.keys() - {row.host for row in snapshot.hosts})

    def missed_hosts(
        self, snapshot: Snapshot, placements: Mapping[AppId, Placement], maintained: Collection[HostId] = ()
    ) -> list[HostId]:
        """The lost hosts that may come back.  `maintained` = hosts that may be silent.

        Nobody misses a host whose key groups are all reported by others, if its agent said that it ends, or if a new
        host has come for it: pods get new names with every deployment.
        """
        lost = [host for host in self.lost_hosts(snapshot) if host not in maintained]
        if not lost:
            return []
        needed = self._needed(snapshot, placements, frozenset(lost))
        end_s = snapshot.end_ms / 1000.0
        new = sum(end_s - HOST_MEMORY_S < self.since.get(row.host, 0.0) <= end_s for row in snapshot.hosts)
        taken_over = sorted(set(lost) - needed - self.ended, key=lambda host: (self.hosts[host], host))
        return sorted(needed.union(taken_over[new:]))

    def _needed(
        self, snapshot: Snapshot, placements: Mapping[AppId, Placement], lost: frozenset[HostId]
    ) -> set[HostId]:
        """The lost hosts that own key groups in placements which nobody else reports."""
        hosts = {worker: row.host for worker, row in self.ran.items() if row.host in lost}
        running = {row.worker for row in snapshot.nodes if row.state is WorkerState.RUNNING}
        reported: defaultdict[tuple[AppId, OperatorId], set[int]] = defaultdict(set)
        for block in snapshot.blocks if hosts else ():
            ours = [worker in running for worker in block.workers]
            found = (part for part, worker in zip(block.partition, block.worker, strict=True) if ours[worker])
            reported[block.app, block.operator].update(found)
        return {
            hosts[row[0]]
            for app, placement in (placements.items() if hosts else ())
            for operator, rows in placement.owners.items()
            for partition, row in enumerate(rows)
            if row and row[0] in hosts and partition not in reported[app, operator]
        }

    def apps_on(self, hosts: Collection[HostId]) -> set[AppId]:
        """The apps whose workers were last seen on these hosts."""
        return {row.app for row in self.ran.values() if row.app is not None and row.host in hosts}

    def lost_owners(self, end_s: float) -> list[WorkerId]:
        """Owners in the placement that no host has reported yet, not even as away.

        They reveal to a controller that has just started that a host was lost before.
        """
        return sorted(worker for worker, since in self.strangers.items() if end_s - since <= HOST_MEMORY_S)

    def awaited(self, end_s: float, limit_s: float) -> frozenset[WorkerId]:
        """Owners in the placement that have been absent for less than `limit_s`."""
        return frozenset(worker for worker in self.absent_since if not self.gone(worker, end_s, limit_s))

    def gone(self, worker: WorkerId, end_s: float, limit_s: float) -> bool:
        """Whether the worker has been absent for `limit_s` and no longer counts."""
        since = self.absent_since.get(worker)
        return since is not None and end_s - since >= limit_s
