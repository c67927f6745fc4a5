"""The workers that agents can start for an app: those that do not run (its pool), and those that do.  Pure."""

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from trimtab_controller.decider.concerns import Concern, ConcernKind
from trimtab_controller.decider.decision import PoolWorker
from trimtab_controller.decider.hosts.hosts import LEAST_SHARE, HostTracker
from trimtab_controller.decider.observing.view import SmoothedView
from trimtab_protocol.messages.names import AppId, WorkerId
from trimtab_protocol.messages.report import Absence
from trimtab_protocol.messages.snapshot import NodeWindow, Snapshot
from trimtab_protocol.wording import first_few

SHARE_DIGITS = 1
"""Of the share of its capacity that a worker would have: noise does not change the order of the pool."""


def startable(snapshot: Snapshot, draining: frozenset[WorkerId]) -> dict[AppId, tuple[PoolWorker, ...]]:
    """The pool of each app, in order of the workers' names.

    Workers that crashed are not in it, nor are those that operators drain, because they are to stay off.
    """
    pools: defaultdict[AppId, list[PoolWorker]] = defaultdict(list)
    for row in sorted(snapshot.nodes, key=lambda row: row.worker):
        if row.absence is Absence.STOPPED and row.declared is not None and row.worker not in draining:
            pools[row.declared].append(PoolWorker(worker=row.worker, host=row.host, capacity=row.capacity))
    return {app: tuple(workers) for app, workers in sorted(pools.items())}


def helps(worker: PoolWorker) -> bool:
    """Whether its host has CPU left for it."""
    return worker.gain >= LEAST_SHARE * worker.capacity


def with_gains(pool: Sequence[PoolWorker], view: SmoothedView, hosts: HostTracker) -> tuple[PoolWorker, ...]:
    """The pool with what each worker adds to the app; those first that would have the most of their capacity."""
    added = hosts.added_to(view, [(each.host, each.capacity) for each in pool])
    found = [replace(each, adds=adds) for each, adds in zip(pool, added, strict=True)]
    return tuple(sorted(found, key=lambda each: -round(each.gain / each.capacity, SHARE_DIGITS)))


def restartable(snapshot: Snapshot) -> frozenset[WorkerId]:
    """The workers that run the app for which their agents can start them again."""
    return frozenset(row.worker for row in snapshot.nodes if row.app is not None and row.app == row.declared)


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
