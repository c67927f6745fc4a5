"""For how long key groups stood still: at rebalances, and while no worker that reports had them.  Pure.

Plug-ins measure the first.  The second follows from who is away: when a worker vanishes, its key groups count as
without an owner from its last report until others, or a new process of it, report them.  A worker that is back in the
same generation of the consumer group has not paused: its agent was silent, or was restarted.  Whether a worker that
does not report has stopped is known only then, so what is not over yet is not counted yet.  A worker whose agent was
told to end goes on without it: since when it is away is known only if an agent says so.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np

from trimtab_controller.execution.disruption import AppPauses, Cause, Unowned
from trimtab_controller.execution.events import WindowSeen
from trimtab_controller.execution.state import Execution, ScalingPhase
from trimtab_controller.execution.step import Step
from trimtab_protocol.messages.names import AppId, HostId, WorkerId
from trimtab_protocol.messages.report import WorkerState
from trimtab_protocol.messages.snapshot import NodeWindow, Snapshot

FORGOTTEN_S = 86_400.0
"""After so long a worker that is away is forgotten, with what it had."""
COMMANDED_S = 60.0
"""A rebalance within so long of a start or stop that the controller has commanded is taken to follow from it."""


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


def count(step: Step, seen: WindowSeen, pauses: Mapping[AppId, AppPauses]) -> None:
    """Add what the reports of a window say, unless it is counted already: a new leader reads windows again.

    It is published at once where an app has a limit, since the journal has what is counted only then.
    """
    before = step.execution.disruption
    if before.since is None or (before.seen_to is not None and seen.end_s <= before.seen_to):
        return
    found = before
    for app, row in pauses.items():
        if row.key_groups:
            cause, mean_s = cause_of(step.execution, app, seen.start_s), row.measured_s / row.key_groups
            found = found.with_pause(
                app, seen.end_s, key_groups=row.key_groups, paused_s=mean_s, measured=True, cause=cause
            )
        for key_groups, unowned_s in _without_owner(step.execution, app, row.unowned):
            found = found.with_pause(
                app, seen.end_s, key_groups=key_groups, paused_s=unowned_s, measured=False, cause=Cause.LOSSES
            )
    step.changed |= found is not before and step.limits.disruption.limited
    step.count(replace(found, seen_to=seen.end_s))


def cause_of(execution: Execution, app: AppId, start_s: float) -> Cause:
    """Why the consumer group of an app was rebalanced in a window that began at this time."""
    of_app = (each for each in execution.scalings.values() if each.of_app in (None, app))
    commanded = any(each.phase is ScalingPhase.SENT or each.at >= start_s - COMMANDED_S for each in of_app)
    return Cause.STARTS_AND_STOPS if commanded else Cause.REBALANCES


def _without_owner(execution: Execution, app: AppId, rows: Iterable[Unowned]) -> Iterator[tuple[int, float]]:
    """Key groups, and the seconds for which they had no owner, without what the plan after the loss counts."""
    row = execution.rounds.get(app)
    restored_from = row.started_at if row is not None and row.lost else None
    for each in rows:
        until = each.until if restored_from is None or restored_from < each.since else min(each.until, restored_from)
        if until > each.since:
            yield each.key_groups, until - each.since
