"""Concerns: conditions that an operator should know of while balancing continues.

These are workers over their capacity, growing backlogs and blocked key groups.  Full hosts (`memory/hosts.py`), missed
predictions (`memory/predictions.py`), plans that the guard has ended (`policies/moves.py`) and losses that would
overload a worker (`memory/standbys.py`), or did (`policies/next_owners.py`), are added to them.

The capacity of a worker is compared with the CPU of its process and with the demand for it, not with the sum of its key
groups' loads.  The sum is smaller: rounds of the network belong to no key group, and in calm windows they are two
thirds of the process.  The process of a saturated worker cannot use more than its capacity; the demand can exceed it.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

import numpy as np

from trimtab_controller.decider.values.reasons import Concern, ConcernKind
from trimtab_controller.decider.window.demand import Blocked, WorkerDemand
from trimtab_protocol.messages.codec import UNKNOWN
from trimtab_protocol.messages.names import AppId, WorkerId
from trimtab_protocol.messages.report import Absence, WorkerState
from trimtab_protocol.messages.snapshot import NodeWindow, Snapshot
from trimtab_protocol.wording import first_few

WINDOWS = 3
"""Number of windows in a row after which a worker over its capacity, or a growing backlog, is reported."""
FULL_PCT = 100.0
"""Load of a full worker, in percent of its capacity."""
WAITING_SHARE = 0.2
"""Share of the time from which it is said of a worker with a growing backlog that it waits for a core."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Growth:
    """A backlog (inputs that wait): its size now, and `before` it began to grow, `windows` windows ago."""

    now: int
    before: int
    windows: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerUse:
    """How much of its capacity a worker used in the last window.

    `used_pct` is the use by its process, `load_pct` the sum of its key groups' loads: both in percent of the capacity,
    None = unknown.  `demand_pct` is what is asked of it in all.  `inputs_s` is the number of inputs taken per second.
    `over` counts the windows in a row in which use or demand exceeded the capacity, judged by `load_pct` where
    `used_pct` is unknown.  `waiting`: see `WorkerSample`.
    """

    app: AppId | None
    used_pct: float | None
    load_pct: float | None
    demand_pct: float | None = None
    inputs_s: float | None = 0.0
    over: int = 0
    backlog: Growth | None = None
    blocked: Blocked | None = None
    waiting: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterUse:
    """The use of all workers up to a window.

    `backlogs` has the apps in which every key group reports its backlog.
    """

    end_ms: int = 0
    window_s: float = 0.0
    workers: Mapping[WorkerId, WorkerUse] = field(default_factory=dict)
    backlogs: Mapping[AppId, Growth] = field(default_factory=dict)

    @property
    def over_capacity(self) -> frozenset[WorkerId]:
        """The workers that have used, or been asked for, more than their capacity for several windows."""
        return frozenset(worker for worker, worker_use in self.workers.items() if worker_use.over >= WINDOWS)


NO_USE = ClusterUse()


@dataclass(slots=True)
class _Parts:
    """Sums over the key groups of a worker or of an app; None = unknown for at least one of them."""

    cores: float | None = 0.0
    inputs_s: float | None = 0.0
    backlog: float | None = 0.0

    def add(self, cores: float, inputs_s: float, backlog: float) -> None:
        """Add further sums; NaN = unknown."""
        self.cores = _sum(self.cores, cores)
        self.inputs_s = _sum(self.inputs_s, inputs_s)
        self.backlog = _sum(self.backlog, backlog)


def _sum(total: float | None, more: float) -> float | None:
    return None if total is None or np.isnan(more) else total + more


def follow_use(
    snapshot: Snapshot, before: ClusterUse = NO_USE, demands: Mapping[WorkerId, WorkerDemand] = MappingProxyType({})
) -> ClusterUse:
    """The use of capacity after this window.  The counts restart after a gap of more than one window."""
    window_ms = snapshot.end_ms - snapshot.start_ms
    known = before if snapshot.start_ms - before.end_ms <= window_ms else NO_USE
    workers, apps = _parts(snapshot)
    return ClusterUse(
        end_ms=snapshot.end_ms,
        window_s=window_ms / 1000.0,
        workers={
            row.worker: _worker_use(
                row, workers.get(row.worker, _Parts()), demands.get(row.worker), known.workers.get(row.worker)
            )
            for row in snapshot.nodes
            if row.state is WorkerState.RUNNING
        },
        backlogs={
            app: growth
            for app, parts in apps.items()
            if (growth := _grown(parts.backlog, known.backlogs.get(app))) is not None
        },
    )


def _parts(snapshot: Snapshot) -> tuple[dict[WorkerId, _Parts], dict[AppId, _Parts]]:
    workers: dict[WorkerId, _Parts] = {}
    apps: dict[AppId, _Parts] = {}
    for block in snapshot.blocks:
        place = np.frombuffer(block.worker, np.int64)
        columns = (np.frombuffer(block.cpu), np.frombuffer(block.tuples_in_s), np.frombuffer(block.backlog, np.int64))
        known = [np.where(column == UNKNOWN, np.nan, column) for column in columns]
        sums = np.array([np.bincount(place, weights=column, minlength=len(block.workers)) for column in known])
        for worker, found in zip(block.workers, sums.T.tolist(), strict=True):
            workers.setdefault(worker, _Parts()).add(*found)
        apps.setdefault(block.app, _Parts()).add(*sums.sum(axis=1).tolist())
    return workers, apps


def _worker_use(row: NodeWindow, parts: _Parts, demand: WorkerDemand | None, before: WorkerUse | None) -> WorkerUse:
    used_pct = None if row.cpu is None else 100.0 * row.cpu / row.capacity
    load_pct = None if parts.cores is None else 100.0 * parts.cores / row.capacity
    demand_pct = None if demand is None else demand.pct
    held = max(
        (pct for pct in (load_pct if used_pct is None else used_pct, demand_pct) if pct is not None), default=0.0
    )
    return WorkerUse(
        app=row.app,
        used_pct=used_pct,
        load_pct=load_pct,
        demand_pct=demand_pct,
        inputs_s=parts.inputs_s,
        over=(before.over if before else 0) + 1 if held > 100.0 else 0,
        backlog=_grown(parts.backlog, before.backlog if before else None),
        blocked=None if demand is None else demand.blocked,
        waiting=row.waiting,
    )


def _grown(backlog: float | None, before: Growth | None) -> Growth | None:
    if backlog is None:
        return None
    now = round(backlog)
    if before is None or now <= before.now:
        return Growth(now=now, before=now)
    return Growth(now=now, before=before.before, windows=before.windows + 1)


def concerns_of(use: ClusterUse) -> tuple[Concern, ...]:
    """The concerns, by app: first the workers over their capacity, then the growing backlogs and what is blocked."""
    return (*_over_capacity(use), *_backlogs(use), *_blocked(use))


def name_concerns(snapshot: Snapshot) -> Iterator[Concern]:
    """A concern for each app with workers that a second host claims to run."""
    claimed: dict[AppId, list[NodeWindow]] = {}
    for row in snapshot.nodes:
        if row.claimed_by and row.app is not None:
            claimed.setdefault(row.app, []).append(row)
    for app, rows in sorted(claimed.items()):
        said = (f"{row.worker} runs on {row.host}, and {first_few(row.claimed_by)} also claims it" for row in rows)
        workers = tuple(row.worker for row in rows)
        detail = f"{first_few(said, len(rows))}; the claim does not count"
        yield Concern(kind=ConcernKind.WORKER_TWICE, app=app, workers=workers, detail=detail)


def _over_capacity(use: ClusterUse) -> Iterator[Concern]:
    for app, workers in _by_app(use, use.over_capacity):
        said = (_use_text(worker, use.workers[worker]) for worker in workers)
        detail = f"{first_few(said, len(workers))}; for {WINDOWS} windows or longer"
        yield Concern(kind=ConcernKind.OVER_CAPACITY, app=app, workers=workers, detail=detail)


def _use_text(worker: WorkerId, worker_use: WorkerUse) -> str:
    used = "?" if worker_use.used_pct is None else f"{worker_use.used_pct:.0f}"
    load = "?" if worker_use.load_pct is None else f"{worker_use.load_pct:.0f}"
    text = f"{worker} uses {used} % of its capacity, its key groups {load} %"
    asked = worker_use.demand_pct
    return (
        text if asked is None or asked <= max(100.0, worker_use.used_pct or 0.0) else f"{text}, {asked:.0f} % is asked"
    )


def _backlogs(use: ClusterUse) -> Iterator[Concern]:
    """Backlogs that grew in each of several windows, together by more than the inputs processed in one window.

    Those of blocked key groups are told by their own concern.
    """
    blocked = {worker for worker, worker_use in use.workers.items() if worker_use.blocked is not None}
    growing = {
        worker
        for worker, worker_use in use.workers.items()
        if worker not in blocked and _is_growing(worker_use.backlog, worker_use.inputs_s, use.window_s)
    }
    inputs_s: dict[AppId | None, float | None] = {}
    for worker_use in use.workers.values():
        so_far, more = inputs_s.get(worker_use.app, 0.0), worker_use.inputs_s
        inputs_s[worker_use.app] = None if so_far is None or more is None else so_far + more
    of_apps = {
        app for app, growth in use.backlogs.items() if _is_growing(growth, inputs_s.get(app, 0.0), use.window_s)
    } - {use.workers[worker].app for worker in blocked}
    named = dict(_by_app(use, growing))
    for app in sorted(named.keys() | of_apps):
        workers = named.get(app, ())
        said = [_waiting_at(worker, use.workers[worker], use.window_s) for worker in workers]
        if app in of_apps:
            said.insert(0, f"{_waiting(use.backlogs[app], use.window_s)} in all")
        yield Concern(kind=ConcernKind.BACKLOG_GROWS, app=app, workers=workers, detail=first_few(said))


def _blocked(use: ClusterUse) -> Iterator[Concern]:
    found = {worker: worker_use.blocked for worker, worker_use in use.workers.items() if worker_use.blocked is not None}
    for app, workers in _by_app(use, found):
        said = (_blocked_text(worker, use.workers[worker], found[worker]) for worker in workers)
        yield Concern(kind=ConcernKind.BLOCKED, app=app, workers=workers, detail=first_few(said, len(workers)))


def _blocked_text(worker: WorkerId, worker_use: WorkerUse, blocked: Blocked) -> str:
    used = "?" if worker_use.used_pct is None else f"{worker_use.used_pct:.0f}"
    waiting = f"{blocked.backlog:,} inputs of {blocked.count} key groups wait at {worker}"
    return f"{waiting}, which uses {used} % of its capacity: {first_few(blocked.first, blocked.count)}"


def _is_growing(growth: Growth | None, inputs_s: float | None, window_s: float) -> bool:
    """Whether a backlog has grown by more than is worked off in a window; not, if that is unknown."""
    if growth is None or inputs_s is None or growth.windows < WINDOWS:
        return False
    return growth.now - growth.before > inputs_s * window_s


def _waiting_at(worker: WorkerId, worker_use: WorkerUse, window_s: float) -> str:
    text, share = f"{_waiting(worker_use.backlog, window_s)} at {worker}", worker_use.waiting
    if share is None or share < WAITING_SHARE:
        return text
    return f"{text}, which waits for a core {100.0 * share:.0f} % of the time"


def _waiting(growth: Growth | None, window_s: float) -> str:
    assert growth is not None
    return (
        f"{growth.now:,} inputs wait ({growth.now - growth.before:,} more than {growth.windows * window_s:.0f} s ago)"
    )


def _by_app(use: ClusterUse, workers: Iterable[WorkerId]) -> Iterator[tuple[AppId, tuple[WorkerId, ...]]]:
    found: dict[AppId, list[WorkerId]] = {}
    for worker in sorted(workers):
        app = use.workers[worker].app
        if app is not None:
            found.setdefault(app, []).append(worker)
    yield from ((app, tuple(found[app])) for app in sorted(found))


def crash_concerns(
    snapshot: Snapshot, ran: Mapping[WorkerId, AppId | None], off: Collection[WorkerId] = ()
) -> tuple[Concern, ...]:
    """A concern for each app with workers that crashed and that their agents no longer start.

    `ran`: which app a worker was last seen to run; it counts for workers that are not declared for one.
    `off` = those that are to stay off, since their hosts are in maintenance.
    """
    crashed: defaultdict[AppId, list[NodeWindow]] = defaultdict(list)
    for row in sorted(snapshot.nodes, key=lambda row: row.worker):
        app = row.declared or ran.get(row.worker)
        if row.absence is Absence.CRASHED and app is not None and row.worker not in off:
            crashed[app].append(row)
    return tuple(
        Concern(
            kind=ConcernKind.WORKER_CRASHES,
            app=app,
            workers=tuple(row.worker for row in rows),
            detail=first_few(f"{row.worker} on {row.host} {row.reason or 'crashed'}" for row in rows),
        )
        for app, rows in sorted(crashed.items())
    )
