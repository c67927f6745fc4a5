"""How far jobs are behind, and by how much more than the plan in flight found them.  Pure.

The lag of an app is its backlog in seconds of its processing rate.  A job that stops processing has the rate that it
had before, since a backlog divided by nothing says nothing.  An unknown backlog is an unknown lag.

A plan is often made because a job falls behind, so only what comes on top counts: the *growth* is the lag less what the
windows before the plan let expect, which is the lag then, and as much more as it grew by.

A restore disturbs the worker that restores, and a few slow workers hardly show in the lag of a large app.  So each
worker that receives key groups counts by itself, too.  It inherits what waits for them, so it may be as far behind as
their old workers would be.  A worker that reported whole windows before the plan and does not now is *silent*: a
worker that is kept from its work is kept from reporting, too.
"""

from collections import defaultdict, deque
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from trimtab_controller.execution.state import Round
from trimtab_protocol.messages.codec import UNKNOWN
from trimtab_protocol.messages.key_group_table import KeyGroupBlock
from trimtab_protocol.messages.names import AppId, OperatorId, WorkerId
from trimtab_protocol.messages.report import WorkerState
from trimtab_protocol.messages.snapshot import Snapshot

Floats = NDArray[np.float64]

KEPT = 4
"""Windows per app that show the trend before a plan."""
OLDEST_S = 120.0
"""A window that ended so long before a plan began says nothing about that time."""
WHOLE_SHARE = 0.9
"""A worker has reported all of a window if its samples cover so much of it, as for hosts in the stream."""
NEWEST_SHARE = 0.2
"""Weight of the newest window in the usual rate of a key group: a job that stops keeps nearly the rate it had."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitingInputs:
    """Inputs that wait at the end of a window, and how many were processed per second in it; None = unknown."""

    backlog: float | None
    rate: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class JobWindow:
    """An app in a window: all of it, and each worker.

    The rate of a worker is what its key groups usually process, and its backlog is without the input that each of them
    may be processing.  `measured` = the workers that have reported all of the window, `idle` = those of them that own
    no key group, so that nothing waits there.
    """

    whole: WaitingInputs
    workers: Mapping[WorkerId, WaitingInputs] = field(default_factory=dict)
    measured: frozenset[WorkerId] = frozenset()
    idle: frozenset[WorkerId] = frozenset()


class JobWindows:
    """Takes the windows in turn, and remembers how much each key group usually processes."""

    def __init__(self) -> None:
        self._usual: dict[tuple[AppId, OperatorId], Floats] = {}

    def observe(self, snapshot: Snapshot) -> dict[AppId, JobWindow]:
        """The backlog and rate of each app and its workers; unknown where they are so of one key group."""
        whole: dict[AppId, Floats] = {}
        workers: dict[AppId, dict[WorkerId, Floats]] = {}
        covered_s: dict[tuple[AppId, WorkerId], float] = defaultdict(float)
        self._usual = {(each.app, each.operator): self._usual_rates(each) for each in snapshot.blocks}
        for block in snapshot.blocks:
            backlog, rate = (_known(column) for column in (np.frombuffer(block.backlog, np.int64), block.tuples_in_s))
            whole[block.app] = whole.get(block.app, np.zeros(2)) + np.array([backlog.sum(), rate.sum()])
            usual = self._usual[block.app, block.operator][np.frombuffer(block.partition, np.int64)]
            of_app = workers.setdefault(block.app, {})
            sums = _sums(block, np.maximum(backlog - 1.0, 0.0), usual)
            longest = np.zeros(len(block.workers))
            np.maximum.at(longest, np.frombuffer(block.worker, np.int64), np.frombuffer(block.covered_s))
            for worker, found, seconds in zip(block.workers, sums.T, longest.tolist(), strict=True):
                of_app[worker] = of_app.get(worker, np.zeros(2)) + found
                covered_s[block.app, worker] = max(covered_s[block.app, worker], seconds)
        measured = _measured(snapshot, covered_s)
        return {
            app: JobWindow(
                whole=_waiting(sums),
                workers={each: _waiting(row) for each, row in workers[app].items()},
                measured=frozenset(measured[app]),
                idle=frozenset(measured[app].difference(workers[app])),
            )
            for app, sums in whole.items()
        }

    def _usual_rates(self, block: KeyGroupBlock) -> Floats:
        """The usual rate of each partition of an operator, with this window; NaN = unknown."""
        partition = np.frombuffer(block.partition, np.int64)
        usual = np.full(int(partition.max()) + 1, np.nan)
        if (before := self._usual.get((block.app, block.operator))) is not None:
            shared = min(len(before), len(usual))
            usual[:shared] = before[:shared]
        old, new = usual[partition], _known(block.tuples_in_s)
        usual[partition] = np.where(np.isnan(new), old, np.where(np.isnan(old), new, old + NEWEST_SHARE * (new - old)))
        return usual


def _known(column: object) -> Floats:
    """The values of a column; NaN = unknown."""
    values = np.asarray(column)
    return np.where(values == UNKNOWN, np.nan, values.astype(np.float64))


def _sums(block: KeyGroupBlock, *columns: Floats) -> Floats:
    """The sums of the columns (rows) by worker (columns) of an operator; NaN = unknown of one of its key groups."""
    place = np.frombuffer(block.worker, np.int64)
    return np.array([np.bincount(place, weights=column, minlength=len(block.workers)) for column in columns])


def _measured(snapshot: Snapshot, covered_s: dict[tuple[AppId, WorkerId], float]) -> dict[AppId, set[WorkerId]]:
    """The workers of each app that have reported all of the window.

    One whose samples are incomplete has, if those of one of its key groups cover the window.
    """
    least_s = WHOLE_SHARE * (snapshot.end_ms - snapshot.start_ms) / 1000.0
    found: dict[AppId, set[WorkerId]] = defaultdict(set)
    for node in snapshot.nodes:
        if node.app is None or node.state is not WorkerState.RUNNING or node.covered_s < least_s:
            continue
        if node.complete or covered_s.get((node.app, node.worker), 0.0) >= least_s:
            found[node.app].add(node.worker)
    return found


def _waiting(sums: Floats) -> WaitingInputs:
    backlog, rate = (None if np.isnan(value) else float(value) for value in sums)
    return WaitingInputs(backlog=backlog, rate=rate)


@dataclass(frozen=True, slots=True, kw_only=True)
class Lag:
    """How far an app is behind at the end of a window, in seconds; None = unknown.

    `grown_s` = growth since the plan in flight began, of the app or of `worst`, the worker that has grown most of those
    that receive key groups; None also without such a plan.  `falling`: it is less than in the window before.
    `workers_s` = of each worker of which it is known, `targets_s` = growth of those that receive key groups.  `silent`
    = workers of the plan that have not reported all of this window, but did so before.  `whole`: everything is known.
    `idle` = workers without key groups.
    """

    lag_s: float | None
    grown_s: float | None = None
    falling: bool = False
    workers_s: Mapping[WorkerId, float] = field(default_factory=dict)
    targets_s: Mapping[WorkerId, float] = field(default_factory=dict)
    worst: WorkerId | None = None
    silent: tuple[WorkerId, ...] = ()
    whole: bool = False
    idle: frozenset[WorkerId] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class Base:
    """What an app's plan found: the lag at `at` (epoch seconds), and by how much it grew per second then.

    `idle` = workers that owned nothing then; they are not in `workers_s`.
    """

    plan: str
    at: float
    lag_s: float
    trend: float
    workers_s: Mapping[WorkerId, float]
    trends: Mapping[WorkerId, float] = field(default_factory=dict)
    idle: frozenset[WorkerId] = frozenset()

    @property
    def found_s(self) -> dict[WorkerId, float]:
        """How far each worker was behind, as far as known; nothing waited at those that owned nothing."""
        return {**dict.fromkeys(self.idle, 0.0), **self.workers_s}

    def expected_s(self, at: float) -> float:
        """The lag that the job would have without the plan."""
        return self.lag_s + self.trend * max(0.0, at - self.at)

    def expected_of(self, workers: Iterable[WorkerId], at: float) -> float | None:
        """The largest lag that one of these workers would have without the plan; None: it is known of none."""
        since_s = max(0.0, at - self.at)
        known = [each for each in workers if each in self.workers_s]
        return max((self.workers_s[each] + self.trends.get(each, 0.0) * since_s for each in known), default=None)


class Lags:
    """Follows the apps from window to window; apps that no window shows are forgotten."""

    def __init__(self) -> None:
        self._before: dict[AppId, deque[tuple[float, Lag]]] = {}
        self._rates: dict[AppId, float] = {}
        self._worker_rates: dict[tuple[AppId, WorkerId], float] = {}
        self._measured: dict[AppId, frozenset[WorkerId]] = {}
        self.bases: dict[AppId, Base] = {}

    def observe(self, end_s: float, jobs: Mapping[AppId, JobWindow], in_flight: Iterable[Round]) -> dict[AppId, Lag]:
        """The lags in a window that ended at `end_s`; `in_flight` = the plans in flight."""
        rounds = {row.app: row for row in in_flight}
        self._forget(jobs, rounds)
        found = {}
        for app, job in jobs.items():
            row = rounds.get(app)
            lag = self._lag(app, job, busy=row is not None)
            known = self._before.setdefault(app, deque(maxlen=KEPT))
            lag = self._beside_base(app, end_s, lag, row, known)
            if row is None:
                self._measured[app] = job.measured
            else:
                lag = self._with_silent(lag, row, job.measured)
            if lag.lag_s is not None:
                known.append((end_s, lag))
            found[app] = lag
        return found

    def _beside_base(
        self, app: AppId, end_s: float, lag: Lag, row: Round | None, known: Collection[tuple[float, Lag]]
    ) -> Lag:
        """The lag with what has grown since the plan began."""
        before = list(known)[-1][1] if known else None
        grown_s = self._grown(app, end_s, lag, row, known)
        targets_s = self._targets(app, end_s, lag, row)
        worst = max(targets_s, key=lambda each: targets_s[each], default=None)
        if worst is not None and (grown_s is None or targets_s[worst] > grown_s):
            was = None if before is None else before.workers_s.get(worst)
            falling = was is not None and lag.workers_s[worst] < was
            grown_s = targets_s[worst]
        else:
            was, worst = (None if before is None else before.lag_s), None
            falling = lag.lag_s is not None and was is not None and lag.lag_s < was
        return replace(lag, grown_s=grown_s, falling=falling, targets_s=targets_s, worst=worst)

    def _with_silent(self, lag: Lag, row: Round, measured: frozenset[WorkerId]) -> Lag:
        """The lag with the workers of the plan that have fallen silent, and whether all of it is known."""
        begun = {end for each in row.handovers if each.attempt for end in (each.source, each.target)}
        silent = tuple(sorted((begun & self._measured.get(row.app, frozenset())) - measured))
        return replace(lag, silent=silent, whole=lag.lag_s is not None and begun <= measured)

    def _forget(self, jobs: Mapping[AppId, JobWindow], rounds: Mapping[AppId, Round]) -> None:
        self._before = {app: known for app, known in self._before.items() if app in jobs}
        self._rates = {app: rate for app, rate in self._rates.items() if app in jobs}
        self._measured = {app: workers for app, workers in self._measured.items() if app in jobs}
        here = {(app, worker) for app, job in jobs.items() for worker in job.workers}
        self._worker_rates = {key: rate for key, rate in self._worker_rates.items() if key in here}
        self.bases = {app: base for app, base in self.bases.items() if app in rounds and rounds[app].plan == base.plan}

    def _lag(self, app: AppId, job: JobWindow, *, busy: bool) -> Lag:
        rate = job.whole.rate
        before = self._rates.get(app)
        if rate is not None and (before is None or not busy):
            self._rates[app] = rate if rate > 0.0 or before is None else before
        workers = {}
        for worker, row in job.workers.items():
            last = self._worker_rates.get((app, worker))
            if row.rate:
                self._worker_rates[app, worker] = last = row.rate
            if (lag_s := _seconds(row.backlog, last)) is not None:
                workers[worker] = lag_s
        lag_s = _seconds(job.whole.backlog, max(rate or 0.0, before or 0.0))
        return Lag(lag_s=lag_s, workers_s=workers, idle=job.idle)

    def _grown(
        self, app: AppId, end_s: float, lag: Lag, row: Round | None, known: Iterable[tuple[float, Lag]]
    ) -> float | None:
        """By how much more the job is behind than expected when its plan began."""
        if row is None or lag.lag_s is None:
            return None
        if app not in self.bases:
            earlier = [(at, each) for at, each in known if row.started_at - OLDEST_S <= at <= row.started_at]
            self.bases[app] = _base(row, earlier) or Base(
                plan=row.plan, at=end_s, lag_s=lag.lag_s, trend=0.0, workers_s=lag.workers_s, idle=lag.idle
            )
        return lag.lag_s - self.bases[app].expected_s(end_s)

    def _targets(self, app: AppId, end_s: float, lag: Lag, row: Round | None) -> dict[WorkerId, float]:
        """By how much more each worker that receives key groups is behind than expected, as far as known."""
        base = self.bases.get(app)
        if row is None or base is None:
            return {}
        ends: dict[WorkerId, set[WorkerId]] = {}
        for each in row.handovers if not row.lost else ():
            if each.attempt:
                ends.setdefault(each.target, {each.target}).add(each.source)
        found = {}
        for target, workers in ends.items():
            expected_s = base.expected_of(workers, end_s)
            if target in lag.workers_s and expected_s is not None:
                found[target] = lag.workers_s[target] - expected_s
        return found


def _seconds(backlog: float | None, rate: float | None) -> float | None:
    if backlog is None or rate is None:
        return None
    return 0.0 if backlog <= 0.0 else backlog / rate if rate > 0.0 else None


def _base(row: Round, earlier: list[tuple[float, Lag]]) -> Base | None:
    """What the windows before a plan show; None if there are none."""
    if not earlier:
        return None
    (first_at, first), (at, last) = earlier[0], earlier[-1]

    def trend(before_s: float | None, after_s: float | None) -> float:
        rise_s = (after_s or 0.0) - (before_s or 0.0)
        return max(0.0, rise_s / (at - first_at)) if at > first_at else 0.0

    both = last.workers_s.keys() & first.workers_s.keys()
    return Base(
        plan=row.plan,
        at=at,
        lag_s=last.lag_s or 0.0,
        trend=trend(first.lag_s, last.lag_s),
        workers_s=last.workers_s,
        trends={each: trend(first.workers_s[each], last.workers_s[each]) for each in both},
        idle=last.idle,
    )
