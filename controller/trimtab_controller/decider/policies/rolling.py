"""Rolling restarts: one host after the other is drained, stopped and started again by its agent.  Pure.

The hosts of one zone follow each other.

While workers differ in topics, tables or operators, nothing may move, so no host can be drained: a new version of the
app may be like that.  Then the workers of the hosts that are left are stopped with their key groups, one at a time,
as in a deployment without Trimtab.

How far a restart is follows from the journal's stops and starts since the operator asked for it, and from the last
window.  Nothing of its own is kept, so that a new leader goes on where its predecessor was.

A worker that is stopped like this ends in order: it commits, and the group gives its key groups to others
until it is back.  Each of these stops and starts pauses the app for a rebalance, and its key groups lack a copy
meanwhile.  So only one worker is away at a time, and the next one waits until everybody runs again.
"""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum, auto

from trimtab_controller.decider.memory.memory import WindowResult
from trimtab_controller.decider.policies.workers import patience_s
from trimtab_controller.decider.values.decision import Restarted, Scaled
from trimtab_controller.decider.values.plan_settings import PlanMode, PlanSettings
from trimtab_controller.decider.values.reasons import NotReady, SkipReason
from trimtab_controller.decider.window.fixed import is_of_differing, versions_differ
from trimtab_controller.execution.budget import PauseBudget
from trimtab_controller.execution.state import Execution, ScalingPhase, owned_by
from trimtab_protocol.messages.commands import CommandKind
from trimtab_protocol.messages.intents import Drain, Intent, RollingRestart
from trimtab_protocol.messages.names import AppId, HostId, WorkerId
from trimtab_protocol.messages.report import Absence, WorkerState
from trimtab_protocol.messages.snapshot import NodeWindow, Snapshot
from trimtab_protocol.wording import first_few

ON_THE_WAY = frozenset({WorkerState.REBALANCING, WorkerState.RECOVERING})
"""What a worker is that will run in a moment."""


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


def to_stop_undrained(
    now: float,
    intents: Iterable[Intent],
    execution: Execution,
    known: WindowResult,
    plans: PlanSettings,
    budget: PauseBudget,
) -> Scaled | None:
    """The next worker of a rolling restart to stop with its key groups; None: there is none, or it has to wait."""
    snapshot = known.snapshot
    if snapshot is None or known.not_ready is not None:
        return None
    for found in restarts(intents, execution, snapshot):
        if found.undrained and waits(now, found, execution, known, plans, budget) is None:
            worker = found.undrained[0]
            host = next(row.host for row in snapshot.nodes if row.worker == worker)
            detail = f"to restart it without a drain, since nothing may move: {found.differ}"
            return Scaled(kind=CommandKind.STOP, worker=worker, host=host, detail=detail, owning=True)
    return None


def waits(
    now: float, found: Restarting, execution: Execution, known: WindowResult, plans: PlanSettings, budget: PauseBudget
) -> str | None:
    """What a rolling restart waits for, and what to do if that does not come; None: it goes on by itself."""
    snapshot = known.snapshot
    if snapshot is None:
        return None
    rows = {row.worker: row for row in snapshot.nodes}
    if found.returning:
        worker = found.returning[0]
        return f"{worker} is not back: {_absence(worker, rows.get(worker), execution)}"
    if found.undrained:
        return (
            _failed(found.undrained[0], snapshot, execution)
            or _others(found, rows, execution, known)
            or _not_allowed(now, found, execution, plans, budget)
        )
    view = known.views.get(found.app)
    if found.draining and isinstance(view, NotReady):
        return f"{first_few(sorted(found.draining))} cannot be emptied yet: {view.reason}: {view.detail}"
    return None


def _absence(worker: WorkerId, row: NodeWindow | None, execution: Execution) -> str:
    """Why a worker that was stopped or started does not count as back."""
    scaling = execution.scalings.get(worker)
    if scaling is not None and scaling.phase is ScalingPhase.FAILED:
        return f"its {scaling.command.kind} failed ({scaling.detail or 'no reason is given'}), and is tried again"
    if row is None:
        return "its host does not report"
    if row.state is not WorkerState.RUNNING:
        return f"it is {row.state}" + (f" ({row.reason})" if row.reason else "")
    if not row.steering and not is_of_differing(row) and row.reason:
        return f"it only reports ({row.reason})"
    return "no whole window shows it yet"


def _failed(worker: WorkerId, snapshot: Snapshot, execution: Execution) -> str | None:
    """Why a worker has not been stopped, until its stop is tried again."""
    scaling = execution.scalings.get(worker)
    if scaling is None or scaling.command.kind is not CommandKind.STOP or scaling.phase is not ScalingPhase.FAILED:
        return None
    if snapshot.start_ms / 1000.0 >= scaling.at + patience_s(scaling):
        return None
    return f"{worker} was not stopped ({scaling.detail or 'no reason is given'}), and is tried again"


def _others(
    found: Restarting, rows: dict[WorkerId, NodeWindow], execution: Execution, known: WindowResult
) -> str | None:
    """Which workers of the app do not run yet: one more would be too many."""
    view = known.views.get(found.app)
    if isinstance(view, NotReady) and view.reason is SkipReason.HOSTS_LOST:
        return f"{view.reason}: {view.detail}"
    busy = sorted(row.worker for row in rows.values() if row.app == found.app and row.state in ON_THE_WAY)
    if busy:
        return f"{first_few(busy)} must run again first: {rows[busy[0]].state}"
    placement = execution.placements.get(found.app)
    away = sorted(worker for worker in known.awaited if placement is not None and owned_by([placement], worker))
    return f"{first_few(away)} must be back first: away, with key groups in the placement" if away else None


def _not_allowed(
    now: float, found: Restarting, execution: Execution, plans: PlanSettings, budget: PauseBudget
) -> str | None:
    """Why nothing may be stopped now."""
    if execution.busy(found.app):
        return f"plan {execution.rounds[found.app].plan} must end first"
    if plans.of(found.app) is PlanMode.DRY_RUN:
        return f"the mode of {found.app} is dry-run, see [plans]"
    use = budget.use(now, execution, found.app)
    if use.holds_changes:
        return f"the disruption budget has no room for a rebalance: {use.text}; {use.change_text}"
    return None
