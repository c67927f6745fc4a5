"""Rolling restarts: one host after the other is drained, stopped and started again by its agent.  Pure.

The hosts of one zone follow each other.

While workers differ in topics, tables or operators, nothing may move, so no host can be drained: a new version of the
app may be like that.  Then the workers of the hosts that are left are stopped with their key groups, one at a time, as
in a deployment without Trimtab (`undrained.py`).

How far a restart is follows from the journal's stops and starts since the operator asked for it, and from the last
window.  Nothing of its own is kept, so that a new leader goes on where its predecessor was.
"""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum, auto

from trimtab_controller.decider.decision import Restarted
from trimtab_controller.decider.observing.fixed import is_of_differing, versions_differ
from trimtab_controller.execution.state import Execution, ScalingPhase
from trimtab_protocol.messages.commands import CommandKind
from trimtab_protocol.messages.intents import Drain, Intent, RollingRestart
from trimtab_protocol.messages.names import AppId, HostId, WorkerId
from trimtab_protocol.messages.report import Absence, WorkerState
from trimtab_protocol.messages.snapshot import NodeWindow, Snapshot
from trimtab_protocol.wording import first_few


class RestartStage(Enum):
    """How far the restart of a worker is."""

    SKIPPED = auto()  # its agent cannot start it, it runs another app now, or it is to stay off
    TO_DO = auto()
    STOPPING = auto()  # the command is sent, or has failed
    STARTING = auto()  # it is stopped, or started and not yet back
    DONE = auto()


@dataclass(frozen=True, slots=True, kw_only=True)
class Restarting:
    """How far the rolling restart of an app is.  `host` = whose workers are restarted now; None: none, or not known.

    `draining` = the workers of that host that are emptied and stopped next; `undrained` = those that are stopped with
    their key groups, because the workers differ (`differ` says how); `to_do` includes both.  `returning` = workers that
    are stopped, or started and not yet back.
    """

    intent: RollingRestart
    host: HostId | None
    draining: frozenset[WorkerId]
    to_do: tuple[WorkerId, ...]
    done: tuple[WorkerId, ...]
    skipped: tuple[WorkerId, ...]
    undrained: tuple[WorkerId, ...] = ()
    returning: tuple[WorkerId, ...] = ()
    differ: str | None = None

    @property
    def app(self) -> AppId:
        """The app whose workers are restarted."""
        return self.intent.app


def restarts(intents: Iterable[Intent], execution: Execution, snapshot: Snapshot | None) -> tuple[Restarting, ...]:
    """The rolling restarts that operators want, by what the last window shows."""
    if snapshot is None:
        return ()
    intents = tuple(intents)
    off = frozenset(each.worker for each in intents if isinstance(each, Drain))
    wanted = (each for each in intents if isinstance(each, RollingRestart))
    return tuple(_progress(each, execution, snapshot, off) for each in wanted)


def draining(intents: Iterable[Intent], execution: Execution, snapshot: Snapshot | None) -> frozenset[WorkerId]:
    """The workers to empty and stop: those that operators drain or restart, and those that leave for an app's size."""
    intents = tuple(intents)
    drained = (each.worker for each in intents if isinstance(each, Drain))
    return execution.leaving.union(drained, *(each.draining for each in restarts(intents, execution, snapshot)))


def restarted(intents: Iterable[Intent], execution: Execution, snapshot: Snapshot | None) -> Restarted | None:
    """The end of a rolling restart whose workers have all been restarted."""
    for each in restarts(intents, execution, snapshot):
        if not each.to_do and len(each.done) + len(each.skipped) == len(each.intent.workers):
            skipped = f"; left out: {first_few(each.skipped)}" if each.skipped else ""
            detail = f"restarted {len(each.done)} of {len(each.intent.workers)} workers{skipped}"
            if each.differ is not None:
                detail += f"; but {each.differ}: install one version on all hosts, and restart them again"
            return Restarted(app=each.app, detail=detail, answered=(each.intent.key,))
    return None


def _progress(intent: RollingRestart, execution: Execution, snapshot: Snapshot, off: frozenset[WorkerId]) -> Restarting:
    """`off` = workers that operators drain: nobody waits for these."""
    rows = {row.worker: row for row in snapshot.nodes}
    stages = {worker: _stage(worker, intent, rows.get(worker), execution, snapshot) for worker in intent.workers}
    stages |= {
        worker: RestartStage.SKIPPED
        for worker in intent.workers
        if worker in off and stages[worker] is not RestartStage.DONE
    }
    hosts: defaultdict[HostId, list[WorkerId]] = defaultdict(list)
    for worker in sorted(stages):
        if worker in rows and stages[worker] in (RestartStage.TO_DO, RestartStage.STOPPING, RestartStage.STARTING):
            hosts[rows[worker].host].append(worker)
    zones = {row.host: row.zone or "" for row in snapshot.hosts}
    in_order = sorted(hosts, key=lambda host: (zones.get(host, ""), host))  # one zone after the other
    begun = [host for host in in_order if any(stages[worker] is not RestartStage.TO_DO for worker in hosts[host])]
    lost = any(
        worker not in rows and stages[worker] in (RestartStage.STOPPING, RestartStage.STARTING) for worker in stages
    )
    # A worker that was stopped and of which no host reports is not back yet: the next host has to wait for it.
    host = next(iter(begun), None if lost else next(iter(in_order), None))
    members = hosts[host] if host is not None else []
    left = [worker for worker in members if stages[worker] in (RestartStage.TO_DO, RestartStage.STOPPING)]
    differ = versions_differ(intent.app, snapshot.nodes)
    return Restarting(
        intent=intent,
        host=host,
        draining=frozenset(left if differ is None else ()),
        to_do=tuple(
            worker for worker in intent.workers if stages[worker] not in (RestartStage.DONE, RestartStage.SKIPPED)
        ),
        done=tuple(worker for worker in intent.workers if stages[worker] is RestartStage.DONE),
        skipped=tuple(worker for worker in intent.workers if stages[worker] is RestartStage.SKIPPED),
        undrained=tuple(left if differ is not None else ()),
        returning=tuple(worker for worker in intent.workers if stages[worker] is RestartStage.STARTING),
        differ=differ,
    )


def _stage(
    worker: WorkerId, intent: RollingRestart, row: NodeWindow | None, execution: Execution, snapshot: Snapshot
) -> RestartStage:
    scaling = execution.scalings.get(worker)
    if scaling is None or scaling.at < intent.at:
        if scaling is not None and scaling.stopped and row is not None and row.absence is Absence.STOPPED:
            return (
                RestartStage.STARTING
            )  # dated by a fast clock: it was stopped for this restart, and must not stay off
        known = row is not None and (row.declared != intent.app or row.app not in (None, intent.app))
        return RestartStage.SKIPPED if known else RestartStage.TO_DO
    if scaling.of_app is not None and scaling.command.kind is CommandKind.STOP:
        return RestartStage.SKIPPED  # it has left, so that the app is smaller
    if scaling.command.kind is CommandKind.STOP:
        return RestartStage.STARTING if scaling.phase is ScalingPhase.DONE else RestartStage.STOPPING
    seen_since = snapshot.start_ms / 1000.0 >= scaling.at
    return (
        RestartStage.DONE
        if scaling.phase is ScalingPhase.DONE and _is_back(row) and seen_since
        else RestartStage.STARTING
    )


def _is_back(row: NodeWindow | None) -> bool:
    """Whether a worker that was restarted does what it can: where workers differ, none is steered."""
    if row is None or row.state is not WorkerState.RUNNING or not row.complete:
        return False
    return row.steering or is_of_differing(row)
