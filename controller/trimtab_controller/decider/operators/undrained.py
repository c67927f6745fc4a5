"""Rolling restarts while the workers of an app differ: what is stopped with its key groups, and what stands in the way.

Pure.  A worker that is stopped like this ends in order: it commits, and the group gives its key groups to others
until it is back.  Each of these stops and starts pauses the app for a rebalance, and its key groups lack a copy
meanwhile.  So only one worker is away at a time, and the next one waits until everybody runs again.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from trimtab_controller.decider.decision import Scaled
from trimtab_controller.decider.drained import patience_s
from trimtab_controller.decider.known import WindowResult
from trimtab_controller.decider.observing.fixed import is_of_differing
from trimtab_controller.decider.observing.view import NotReady
from trimtab_controller.decider.operators.modes import PlanMode, PlanSettings
from trimtab_controller.decider.operators.rolling import Restarting, restarts
from trimtab_controller.decider.reasons import SkipReason
from trimtab_controller.execution.budget import PauseBudget
from trimtab_controller.execution.state import Execution, ScalingPhase, owned_by
from trimtab_protocol.messages.commands import CommandKind
from trimtab_protocol.messages.intents import Intent
from trimtab_protocol.messages.names import WorkerId
from trimtab_protocol.messages.report import WorkerState
from trimtab_protocol.messages.snapshot import NodeWindow, Snapshot
from trimtab_protocol.wording import first_few

ON_THE_WAY = frozenset({WorkerState.REBALANCING, WorkerState.RECOVERING})
"""What a worker is that will run in a moment."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Allowed:
    """What else decides whether a worker may be stopped."""

    plans: PlanSettings
    budget: PauseBudget


def to_stop_undrained(
    now: float, intents: Iterable[Intent], execution: Execution, known: WindowResult, allowed: Allowed
) -> Scaled | None:
    """The next worker of a rolling restart to stop with its key groups; None: there is none, or it has to wait."""
    snapshot = known.snapshot
    if snapshot is None or known.not_ready is not None:
        return None
    for found in restarts(intents, execution, snapshot):
        if found.undrained and waits(now, found, execution, known, allowed) is None:
            worker = found.undrained[0]
            host = next(row.host for row in snapshot.nodes if row.worker == worker)
            detail = f"to restart it without a drain, since nothing may move: {found.differ}"
            return Scaled(kind=CommandKind.STOP, worker=worker, host=host, detail=detail, owning=True)
    return None


def waits(now: float, found: Restarting, execution: Execution, known: WindowResult, allowed: Allowed) -> str | None:
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
            or _not_allowed(now, found, execution, allowed)
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


def _not_allowed(now: float, found: Restarting, execution: Execution, allowed: Allowed) -> str | None:
    """Why nothing may be stopped now."""
    if execution.busy(found.app):
        return f"plan {execution.rounds[found.app].plan} must end first"
    if allowed.plans.of(found.app) is PlanMode.DRY_RUN:
        return f"the mode of {found.app} is dry-run, see [plans]"
    use = allowed.budget.use(now, execution, found.app)
    if use.holds_changes:
        return f"the disruption budget has no room for a rebalance: {use.text}; {use.change_text}"
    return None
