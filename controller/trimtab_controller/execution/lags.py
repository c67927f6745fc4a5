"""How far jobs are behind, and by how much more than the plan in flight found them.  Pure.

The lag of an app is its backlog in seconds of its processing rate.  A job that stops processing has the rate that it
had before, since a backlog divided by nothing says nothing.  An unknown backlog is an unknown lag.

A plan is often made because a job falls behind, so only what comes on top counts: the *growth* is the lag less what the
windows before the plan let expect, which is the lag then, and as much more as it grew by.
"""

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from trimtab_controller.execution.state import Round
from trimtab_protocol.messages.names import AppId, WorkerId

KEPT = 4
"""Windows per app that show the trend before a plan."""
OLDEST_S = 120.0
"""A window that ended so long before a plan began says nothing about that time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """Inputs that wait at the end of a window, and how many were processed per second in it; None = unknown."""

    backlog: float | None
    rate: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class JobWindow:
    """An app in a window: all of it, and each worker."""

    whole: Waiting
    workers: Mapping[WorkerId, Waiting] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Lag:
    """How far an app is behind at the end of a window, in seconds; None = unknown.

    `grown_s` = growth since the plan in flight began; None also without such a plan.  `falling`: it is less than in the
    window before.  `workers_s` = of each worker of which it is known.
    """

    lag_s: float | None
    grown_s: float | None = None
    falling: bool = False
    workers_s: Mapping[WorkerId, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Base:
    """What an app's plan found: the lag at `at` (epoch seconds), and by how much it grew per second then."""

    plan: str
    at: float
    lag_s: float
    trend: float
    workers_s: Mapping[WorkerId, float]

    def expected_s(self, at: float) -> float:
        """The lag that the job would have without the plan."""
        return self.lag_s + self.trend * max(0.0, at - self.at)


class Lags:
    """Follows the apps from window to window; apps that no window shows are forgotten."""

    def __init__(self) -> None:
        self._before: dict[AppId, deque[tuple[float, Lag]]] = {}
        self._rates: dict[AppId, float] = {}
        self._worker_rates: dict[tuple[AppId, WorkerId], float] = {}
        self.bases: dict[AppId, Base] = {}

    def see(self, end_s: float, jobs: Mapping[AppId, JobWindow], in_flight: Iterable[Round]) -> dict[AppId, Lag]:
        """The lags in a window that ended at `end_s`; `in_flight` = the plans in flight."""
        rounds = {row.app: row for row in in_flight}
        self._forget(jobs, rounds)
        found = {}
        for app, job in jobs.items():
            lag = self._lag(app, job, busy=app in rounds)
            known = self._before.setdefault(app, deque(maxlen=KEPT))
            if lag.lag_s is not None:
                last = known[-1][1].lag_s if known else None
                falling = last is not None and lag.lag_s < last
                grown_s = self._grown(app, end_s, lag, rounds.get(app), known)
                lag = Lag(lag_s=lag.lag_s, grown_s=grown_s, falling=falling, workers_s=lag.workers_s)
                known.append((end_s, lag))
            found[app] = lag
        return found

    def _forget(self, jobs: Mapping[AppId, JobWindow], rounds: Mapping[AppId, Round]) -> None:
        self._before = {app: known for app, known in self._before.items() if app in jobs}
        self._rates = {app: rate for app, rate in self._rates.items() if app in jobs}
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
        return Lag(lag_s=_seconds(job.whole.backlog, max(rate or 0.0, before or 0.0)), workers_s=workers)

    def _grown(
        self, app: AppId, end_s: float, lag: Lag, row: Round | None, known: Iterable[tuple[float, Lag]]
    ) -> float | None:
        """By how much more the job is behind than expected when its plan began."""
        if row is None or lag.lag_s is None:
            return None
        if app not in self.bases:
            earlier = [(at, each) for at, each in known if row.started_at - OLDEST_S <= at <= row.started_at]
            self.bases[app] = _base(row, earlier) or Base(
                plan=row.plan, at=end_s, lag_s=lag.lag_s, trend=0.0, workers_s=lag.workers_s
            )
        return lag.lag_s - self.bases[app].expected_s(end_s)


def _seconds(backlog: float | None, rate: float | None) -> float | None:
    if backlog is None or rate is None:
        return None
    return 0.0 if backlog <= 0.0 else backlog / rate if rate > 0.0 else None


def _base(row: Round, earlier: list[tuple[float, Lag]]) -> Base | None:
    """What the windows before a plan show; None if there are none."""
    if not earlier:
        return None
    (first_at, first), (at, last) = earlier[0], earlier[-1]
    rise = (last.lag_s or 0.0) - (first.lag_s or 0.0)
    trend = max(0.0, rise / (at - first_at)) if at > first_at else 0.0
    return Base(plan=row.plan, at=at, lag_s=last.lag_s or 0.0, trend=trend, workers_s=last.workers_s)
