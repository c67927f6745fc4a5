"""What a window of the stream shows the execution: who owns what, the hosts, how far jobs are behind, and pauses.

Of the pauses, plug-ins measure those at rebalances.  The others follow from who is away: when a worker vanishes, its
key groups count as without an owner from its last report until others, or a new process of it, report them.  A worker
that is back in the same generation of the consumer group has not paused: its agent was silent, or was restarted.
Whether a worker that does not report has stopped is known only then, so what is not over yet is not counted yet.  A
worker whose agent was told to end goes on without it: since when it is away is known only if an agent says so.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from trimtab_controller.execution.disruption import AppPauses, Unowned
from trimtab_controller.execution.events import HostReport, WindowSeen
from trimtab_controller.execution.lags import JobWindows
from trimtab_controller.rows import Site, Sites
from trimtab_protocol.messages.names import AppId, HostId, KeyGroup, WorkerId
from trimtab_protocol.messages.report import WorkerState
from trimtab_protocol.messages.snapshot import NodeWindow, Snapshot

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
    owners = (pair for block in snapshot.blocks for pair in block.owners())
    return {key_group: worker for key_group, worker in owners if worker in running}


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


FORGOTTEN_S = 86_400.0
"""After so long a worker that is away is forgotten, with what it had."""


@dataclass(slots=True)
class _Vanished:
    """A worker that does not report any more, and how many of its key groups nobody has taken over.

    `host` and `generation` (of the consumer group) as in its last report.  `missed`: its agent has reported without it.
    `unwatched`: its agent has ended before it, so that nobody knows since when it is away.
    """

    since: float
    key_groups: int
    host: HostId | None
    generation: int | None
    missed: bool = False
    unwatched: bool = False


class PauseTracker:
    """Takes the windows in turn, and remembers which workers had key groups."""

    def __init__(self) -> None:
        self._had: dict[AppId, dict[WorkerId, int]] = {}
        self._last: dict[WorkerId, NodeWindow] = {}
        self._vanished: dict[AppId, dict[WorkerId, _Vanished]] = {}
        self._ended: frozenset[HostId] = frozenset()
        """Hosts whose agents were told to end, and that have not reported since."""
        self._seen_to = 0.0

    def observe(self, snapshot: Snapshot) -> dict[AppId, AppPauses]:
        """What the window adds to the pauses of each app."""
        start_s, end_s = snapshot.start_ms / 1000.0, snapshot.end_ms / 1000.0
        present = {row.worker: row for row in snapshot.nodes if row.state is not WorkerState.AWAY}
        reporting, named = {row.host for row in snapshot.hosts}, {row.worker for row in snapshot.nodes}
        self._ended = frozenset(snapshot.ended) | (self._ended - reporting)
        owned, reported_s = _owned(snapshot)
        expected = _expected(snapshot)
        apps = {app: AppPauses(measured_s=s, key_groups=n) for app, (s, n) in _measured(snapshot).items()}
        for app in self._had.keys() | self._vanished.keys() | owned.keys():
            here = {worker: count for worker, count in owned.get(app, {}).items() if worker in present}
            vanished = self._vanished.setdefault(app, {})
            for worker, count in self._had.get(app, {}).items():
                if worker not in present and worker not in vanished:
                    last = start_s + reported_s[worker] if worker in reported_s else self._seen_to
                    row = self._last.get(worker)
                    vanished[worker] = _Vanished(
                        since=last,
                        key_groups=count,
                        host=row.host if row else None,
                        generation=row.generation if row else None,
                        unwatched=row is not None and row.host in self._ended and worker not in named,
                    )
            for worker, gone in vanished.items():
                if gone.unwatched and gone.host in reporting - self._ended:
                    gone.unwatched, gone.since = False, start_s
                gone.missed |= gone.host in reporting and worker not in present
            rows = (*_returned(vanished, present, here, start_s), *_taken(vanished, here, expected.get(app), start_s))
            if rows:
                apps[app] = replace(apps.get(app, AppPauses()), unowned=rows)
            self._vanished[app] = {
                worker: row
                for worker, row in vanished.items()
                if row.key_groups > 0 and end_s - row.since < FORGOTTEN_S
            }
            self._had[app] = here
        self._had = {app: here for app, here in self._had.items() if here}
        self._vanished = {app: rows for app, rows in self._vanished.items() if rows}
        self._last = {worker: row for worker, row in present.items() if row.app in self._had}
        self._seen_to = end_s
        return apps


def unmeasured(snapshot: Snapshot) -> Mapping[AppId, int]:
    """How many running workers of each app do not say for how long rebalances stop their inputs."""
    running = (row for row in snapshot.nodes if row.app is not None and row.state is WorkerState.RUNNING)
    return Counter(row.app for row in running if row.app is not None and row.paused_s is None)


def _measured(snapshot: Snapshot) -> dict[AppId, tuple[float, int]]:
    """Key-group seconds at the rebalances that ended in the window, and of how many key groups, as far as measured."""
    found: dict[AppId, tuple[float, int]] = {}
    for row in snapshot.nodes:
        if row.app is not None and row.paused_s is not None and row.paused:
            seconds, count = found.get(row.app, (0.0, 0))
            found[row.app] = seconds + row.paused_s, count + row.paused
    return found


def _expected(snapshot: Snapshot) -> dict[AppId, int]:
    """The number of key groups of each app, as far as a worker says so."""
    found = Counter[AppId]()
    for row in snapshot.nodes:
        if row.app is not None and row.operators:
            found[row.app] = max(found[row.app], sum(row.operators.values()))
    return found


def _owned(snapshot: Snapshot) -> tuple[dict[AppId, dict[WorkerId, int]], dict[WorkerId, float]]:
    """Of each app, the key groups per worker; and for how long each worker reported its key groups (s)."""
    counts: dict[AppId, dict[WorkerId, int]] = {}
    reported_s: dict[WorkerId, float] = {}
    for block in snapshot.blocks:
        place = np.frombuffer(block.worker, np.int64)
        longest = np.zeros(len(block.workers))
        np.maximum.at(longest, place, np.frombuffer(block.covered_s))
        of_app = counts.setdefault(block.app, {})
        numbers = np.bincount(place, minlength=len(block.workers)).tolist()
        for worker, number, seconds in zip(block.workers, numbers, longest.tolist(), strict=True):
            of_app[worker] = of_app.get(worker, 0) + number
            reported_s[worker] = max(reported_s.get(worker, 0.0), seconds)
    return counts, reported_s


def _returned(
    vanished: dict[WorkerId, _Vanished],
    present: Mapping[WorkerId, NodeWindow],
    here: dict[WorkerId, int],
    start_s: float,
) -> tuple[Unowned, ...]:
    """What has ended since a worker is back: only if it had to join again, and not if only its reports lacked."""
    found = []
    for worker in list(vanished.keys() & here.keys()):
        row = vanished.pop(worker)
        generations = (row.generation, present[worker].generation)
        if row.missed and None not in generations and generations[0] != generations[1] and start_s > row.since:
            count = min(row.key_groups, here[worker])
            found.append(Unowned(since=row.since, until=start_s, key_groups=count))
    return tuple(found)


def _taken(
    vanished: dict[WorkerId, _Vanished], here: dict[WorkerId, int], expected: int | None, start_s: float
) -> tuple[Unowned, ...]:
    """What has ended since others have taken over: all key groups but so many have an owner that reports."""
    if expected is None or not vanished:
        return ()
    missing = max(0, expected - sum(here.values()))
    taken = sum(row.key_groups for row in vanished.values()) - missing
    found = []
    for row in sorted(vanished.values(), key=lambda row: row.since):
        count = min(row.key_groups, max(0, taken))
        taken -= count
        row.key_groups -= count
        if count and start_s > row.since and not row.unwatched:
            found.append(Unowned(since=row.since, until=start_s, key_groups=count))
    return tuple(found)
