"""Reads a window of the stream for the execution: who owns what, the hosts, how far jobs are behind, and pauses."""

from collections.abc import Mapping

from trimtab_controller.execution.events import HostReport, WindowSeen
from trimtab_controller.execution.lags import JobWindows
from trimtab_controller.execution.pauses import PauseTracker
from trimtab_controller.rows import Site, Sites
from trimtab_protocol.messages.names import HostId, KeyGroup, WorkerId
from trimtab_protocol.messages.report import WorkerState
from trimtab_protocol.messages.snapshot import Snapshot

KEPT_S = 60.0
"""So long after a worker was seen last, its place is forgotten: it may be lost, and what it follows with it."""


class WindowReader:
    """Takes the windows in turn, and remembers what the next ones are compared with."""

    def __init__(self, max_link: float) -> None:
        """`max_link` = share of a link, each way, that may be filled."""
        self._max_link = max_link
        self._jobs = JobWindows()
        self._pauses = PauseTracker()

    def read(self, snapshot: Snapshot, *, owners: bool) -> WindowSeen:
        """What a window shows; with the `owners` of key groups, which nobody asks for without a plan in flight."""
        return WindowSeen(
            start_s=snapshot.start_ms / 1000.0,
            end_s=snapshot.end_ms / 1000.0,
            owners=ownership(snapshot) if owners else None,
            hosts=host_reports(snapshot, self._max_link),
            sites=sites_of(snapshot),
            jobs=self._jobs.observe(snapshot),
            pauses=self._pauses.observe(snapshot),
        )


def ownership(snapshot: Snapshot) -> dict[KeyGroup, WorkerId]:
    """The owner of each key group, as reported by the running workers."""
    running = {row.worker for row in snapshot.nodes if row.state is WorkerState.RUNNING}
    return {
        KeyGroup(block.app, block.operator, partition): block.workers[worker]
        for block in snapshot.blocks
        for partition, worker in zip(block.partition, block.worker, strict=True)
        if block.workers[worker] in running
    }


def host_reports(snapshot: Snapshot, max_link: float) -> dict[HostId, HostReport]:
    """What a window shows of hosts; `max_link` = share of a link that may be filled."""
    return {
        row.host: HostReport(
            cores=row.cores,
            link_bytes_s=None if row.link_bytes_s is None else max_link * row.link_bytes_s,
            received_bytes_s=row.received_bytes_s,
        )
        for row in snapshot.hosts
    }


def sites_of(snapshot: Snapshot) -> Mapping[WorkerId, Site]:
    """Where the workers run that are there."""
    zones = {row.host: row.zone for row in snapshot.hosts}
    return {
        row.worker: Site(host=row.host, zone=zones.get(row.host))
        for row in snapshot.nodes
        if row.state is not WorkerState.AWAY
    }


class SeenSites:
    """Follows the workers from window to window.  `known` = where those are that were seen lately."""

    def __init__(self) -> None:
        self._seen: dict[WorkerId, tuple[float, Site]] = {}
        self.known: Sites = {}

    def observe(self, start_s: float, sites: Sites) -> None:
        """A window that began at `start_s` (epoch seconds) shows these workers."""
        self._seen.update((worker, (start_s, site)) for worker, site in sites.items())
        self._seen = {worker: row for worker, row in self._seen.items() if row[0] >= start_s - KEPT_S}
        self.known = {worker: site for worker, (_, site) in self._seen.items()}
