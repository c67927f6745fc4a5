"""Pace: how fast the plans of an app go, by how the job bears them and by the bytes that restores may read.  Pure.

Two numbers for each app, and for each worker that receives key groups whether it has to rest:

- *Hand-overs* in flight: additive increase, multiplicative decrease.  A hand-over whose key groups paused for too long
  halves the number, and so does a window in which the job has fallen too far behind since its plan began and does not
  catch up.  As many calm hand-overs as are in flight raise it by one, but not while the job is behind.
- *Restores* among them: a plan begins slowly, with one restore on a host and a few in all.  They load disks and links
  long before anything pauses.  The number is doubled by each window that shows the job calm, until the job suffers for
  the first time, which halves both numbers.  After that such a window raises it by one.  The window must be whole, and
  have begun after the last change, with as many restores in flight: what is not known raises nothing.
- A worker that is too far behind, or is silent (`lags.py`), *rests*: no further restore begins on it until a window
  shows that it has caught up, but for `RESTS_WINDOWS` at most.

Hand-overs that were released before a number was halved say nothing of the new one, nor does a window that ended
before.  Nothing of this is journalled: a new leader begins a plan slowly again.

Bytes per second of restores are limited for a host.  Each restore runs as fast as its host can.  So the limit holds on
average: a restore of B bytes puts off the next one by B / limit seconds (a leaky bucket, as the generic cell rate
algorithm counts it).  What has nothing to restore, because its worker is a standby, begins at once.

Restores after a loss are not counted and wait for nobody: the key groups pause until they are done, so each second that
a limit saves the others is one more of an outage.  Nothing of this is journalled either: a new leader counts from what
restores when it begins.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from trimtab_controller.execution.events import ExecutionLimits, PaceChanged, WindowSeen
from trimtab_controller.execution.lags import Lag
from trimtab_controller.execution.state import ENDED, IN_FLIGHT, Handover, HandoverPhase, Round
from trimtab_protocol.messages.names import AppId, HostId, WorkerId

CALM_SHARE = 0.5
"""A job that is behind by no more than this share of the limit is calm."""
RESTS_WINDOWS = 3.0
"""For so many windows a worker that is behind or silent rests at most: a drain, or a plan without a guard, goes on."""


@dataclass(slots=True)
class _Restores:
    """How many restores of a plan may be in flight; `changed_at` = since when (epoch seconds).

    `suffered`: since the plan began.  `resting` = until when workers get no further restore (epoch seconds).
    """

    plan: str
    number: int
    changed_at: float
    suffered: bool = False
    resting: dict[WorkerId, float] = field(default_factory=dict)


class PlanPace:
    """The numbers for each app; an app of which nothing is known has the limits of the configuration."""

    def __init__(self, limits: ExecutionLimits, taken_over: Iterable[Round] = ()) -> None:
        """`taken_over` = plans in flight that another leader began: nobody knows how their jobs bear them."""
        self._limits = limits
        careful = max(1.0, limits.handovers_in_flight / 2.0)
        self._numbers: dict[AppId, float] = {row.app: careful for row in taken_over}
        self._halved_at: dict[AppId, float] = {}
        self._behind: set[AppId] = set()
        self._restores: dict[AppId, _Restores] = {}

    def begin(self, now: float, rounds: Iterable[Round]) -> None:
        """Begin the plans in flight that are new slowly, and forget those that have ended.

        What a lost worker owned pauses already: its restores begin at once.
        """
        paced = {row.app: row for row in rounds if not row.lost}
        for app, row in paced.items():
            known = self._restores.get(app)
            if known is None or known.plan != row.plan:
                self._restores[app] = _Restores(plan=row.plan, number=self.first(row), changed_at=now)
        self._restores = {app: each for app, each in self._restores.items() if app in paced}

    def forget(self, app: AppId) -> None:
        """The app is gone: one of its name begins anew."""
        self._behind.discard(app)
        for each in (self._numbers, self._halved_at, self._restores):
            each.pop(app, None)

    def first(self, row: Round) -> int:
        """How many restores of a plan may be in flight at first."""
        hosts = {each.target_host for each in row.handovers if each.restores and each.phase not in ENDED}
        return first_restores(self._limits, len(hosts))

    def of(self, app: AppId) -> int:
        """How many hand-overs of the app may be in flight."""
        return int(self._numbers.get(app, self._limits.handovers_in_flight))

    def is_lowest(self, app: AppId) -> bool:
        """Whether the app cannot be slowed any more: one hand-over is in flight at a time."""
        return self.of(app) == 1

    def restores(self, app: AppId) -> int:
        """How many of them may be such whose targets have something to restore."""
        known = self._restores.get(app)
        return self.of(app) if known is None else min(known.number, self.of(app))

    def is_slowed(self, app: AppId) -> bool:
        """Whether fewer restores may be in flight than the configuration allows."""
        return self.restores(app) < self._limits.handovers_in_flight

    def rests(self, now: float, app: AppId, worker: WorkerId) -> bool:
        """Whether no restore may begin on this worker now."""
        known = self._restores.get(app)
        return known is not None and now < known.resting.get(worker, now)

    def next_at(self, now: float) -> float | None:
        """When the next worker has rested long enough (epoch seconds); None: none rests."""
        times = (until for each in self._restores.values() for until in each.resting.values())
        return min((until for until in times if until > now), default=None)

    def observe(self, now: float, handover: Handover) -> PaceChanged | None:
        """Learn from a hand-over that has ended; the change that follows.  An unknown pause says nothing."""
        if handover.pause_s is None or handover.release is None:
            return None
        app, before = handover.app, self.of(handover.app)
        if handover.pause_s > self._limits.max_pause_s:
            if handover.release.issued_at <= self._halved_at.get(app, 0.0):
                return None
            self._halve(now, app, before)
        elif app in self._numbers and app not in self._behind:
            self._numbers[app] += 1.0 / self._numbers[app]
            if self._numbers[app] >= self._limits.handovers_in_flight:
                del self._numbers[app]
                self._halved_at.pop(app, None)
        after = self.of(app)
        if after == before:
            return None
        return PaceChanged(app=app, before=before, after=after, pause_s=handover.pause_s)

    def see_window(self, now: float, app: AppId, seen: WindowSeen, lag: Lag, row: Round | None) -> PaceChanged | None:
        """Learn from a window; `row` = the plan in flight.  What is unknown says nothing."""
        limit, grown_s = self._limits.max_lag_s, lag.grown_s
        self._rest(now, app, seen, lag)
        if lag.silent or (grown_s is not None and grown_s > CALM_SHARE * limit):
            self._behind.add(app)
        elif row is None or grown_s is not None:
            self._behind.discard(app)
        suffers = bool(lag.silent) or (grown_s is not None and grown_s > limit and not lag.falling)
        if not suffers:
            self._raise(now, app, seen, lag, row)
            return None
        if seen.end_s <= self._halved_at.get(app, 0.0):
            return None
        before, in_flight = self.of(app), _count(row, restores=False)
        self._halve(now, app, min(before, max(1, in_flight)))  # from what there is: a high limit holds nothing back
        after = self.of(app)
        if after == before:
            return None
        lag_s = grown_s if grown_s is not None and grown_s > limit else None
        worker = lag.worst if lag_s is not None else lag.silent[0]
        return PaceChanged(app=app, before=before, after=after, lag_s=lag_s, worker=worker)

    def _rest(self, now: float, app: AppId, seen: WindowSeen, lag: Lag) -> None:
        """Let the workers rest that are behind or silent, and no others."""
        if (known := self._restores.get(app)) is None:
            return
        behind = {each for each, grown_s in lag.targets_s.items() if grown_s > self._limits.max_lag_s}
        until = now + RESTS_WINDOWS * (seen.end_s - seen.start_s)
        known.resting = {each: known.resting.get(each, until) for each in sorted(behind.union(lag.silent))}

    def begun(self, app: AppId, worker: WorkerId) -> None:
        """A restore begins on this worker: it may rest again after it."""
        if (known := self._restores.get(app)) is not None:
            known.resting.pop(worker, None)

    def _raise(self, now: float, app: AppId, seen: WindowSeen, lag: Lag, row: Round | None) -> None:
        """Allow more restores, if the window shows that the job is calm with as many as are allowed."""
        known = self._restores.get(app)
        if known is None or lag.grown_s is None or not lag.whole or app in self._behind:
            return
        if seen.start_s < known.changed_at or 2 * _count(row, restores=True) <= known.number:
            return
        wanted = known.number + 1 if known.suffered else 2 * known.number
        known.number, known.changed_at = min(self._limits.handovers_in_flight, wanted), now

    def _halve(self, now: float, app: AppId, number: int) -> None:
        self._numbers[app] = max(1.0, number // 2)
        self._halved_at[app] = now
        if (known := self._restores.get(app)) is not None:
            known.number = max(1, min(known.number // 2, self.of(app)))
            known.changed_at, known.suffered = now, True


def first_restores(limits: ExecutionLimits, hosts: int) -> int:
    """How many restores of a plan may be in flight at first, if so many hosts have something to restore."""
    if limits.restores_at_first >= limits.handovers_in_flight:
        return limits.handovers_in_flight
    return max(1, min(limits.restores_at_first, hosts))


def slow_start_s(
    limits: ExecutionLimits, work: float, hosts: int, speed: Callable[[int], float], window_s: float
) -> float:
    """Seconds that a plan takes longer because it begins slowly, if every window shows the job calm.

    `speed` = how much of `work` is done per second with so many restores in flight.  The number doubles after every
    second window: one is under way when it changes, the next one counts.
    """
    full, number = limits.handovers_in_flight, first_restores(limits, hosts)
    left, took_s = work, 0.0
    while number < full and left > speed(number) * 2.0 * window_s:
        left -= speed(number) * 2.0 * window_s
        took_s += 2.0 * window_s
        number = min(full, 2 * number)
    return max(0.0, took_s + left / speed(number) - work / speed(full))


def share_of_host(number: int, hosts: int) -> int:
    """How many restores each of so many hosts may run, so that they share the number evenly; at least one."""
    return max(1, -(-number // max(1, hosts)))


def _count(row: Round | None, *, restores: bool) -> int:
    """How many hand-overs of a plan are in flight; `restores`: only those with something to restore."""
    rows = () if row is None else row.handovers
    return sum(each.phase in IN_FLIGHT and (each.restores or not restores) for each in rows)


# --- bytes per second of restores -------------------------------------------------------------------------------------


class RestoreRate:
    """When restores may begin, by what began before."""

    def __init__(self, limits: ExecutionLimits, taken_over: Iterable[Round] = ()) -> None:
        """`taken_over` = plans in flight that another leader began."""
        self._of_host = limits.restore_host_bytes_s
        self._free_at: dict[HostId, float] = {}
        for row in taken_over:
            for each in row.handovers if not row.lost else ():
                if each.phase is HandoverPhase.PREPARING:
                    self.take(each.since, {each.target_host: each.to_restore()})

    def free_at(self, hosts: Iterable[HostId]) -> float:
        """When the next restore on all of these hosts may begin (epoch seconds)."""
        return max([0.0, *(self._free_at.get(host, 0.0) for host in hosts)])

    def take(self, now: float, lacking: Mapping[HostId, float]) -> None:
        """Restores begin; `lacking` = bytes that each host has to restore."""
        self._free_at = {host: at for host, at in self._free_at.items() if at > now}
        for host, count in lacking.items():
            if self._of_host is not None and count > 0:
                self._free_at[host] = max(now, self._free_at.get(host, 0.0)) + count / self._of_host

    def next_at(self, waiting: Iterable[tuple[Round, Handover]], now: float) -> float | None:
        """When the next hand-over that waits only for the limit may begin; None if none does."""
        if self._of_host is None:
            return None
        times = (self.free_at([each.target_host]) for row, each in waiting if self.holds(now, row, each))
        return min(times, default=None)

    def holds(self, now: float, row: Round, handover: Handover) -> bool:
        """Whether the limit holds this hand-over back."""
        if row.lost or not handover.restores:
            return False
        return self.free_at([handover.target_host]) > now


def limited_s(limits: ExecutionLimits, lacking: Mapping[HostId, Iterable[int]], *, all_of_it: bool) -> float:
    """Seconds that restores of these bytes take at least because of the limit; on each host they begin one by one.

    `all_of_it` False: without the largest, which may be the last one to begin, for a bound.
    """
    if limits.restore_host_bytes_s is None:
        return 0.0
    sizes = [list(rows) for rows in lacking.values()]
    most = max((sum(each) - (0 if all_of_it else max(each, default=0)) for each in sizes), default=0)
    return most / limits.restore_host_bytes_s
