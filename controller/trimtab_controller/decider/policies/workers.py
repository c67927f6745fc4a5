"""Workers to stop since they were drained, and to start since they may run again.  Pure functions.

Stops and starts wait for room in the disruption budget, as plans do: each of them rebalances the consumer group,
which pauses all key groups of the app.
"""

from collections.abc import Iterable, Iterator, Mapping

from trimtab_controller.decider.memory.memory import WindowResult
from trimtab_controller.decider.values.decision import Scaled, SizeVerdict
from trimtab_controller.decider.values.reasons import Concern, ConcernKind, NotReady
from trimtab_controller.decider.window.view import AppView, SmoothedView
from trimtab_controller.execution.budget import PauseBudget
from trimtab_controller.execution.state import Execution, ScalingPhase, WorkerScaling, owned_by
from trimtab_protocol.messages.commands import CommandKind, Refusal
from trimtab_protocol.messages.intents import Drain, Intent, RollingRestart
from trimtab_protocol.messages.names import AppId, WorkerId
from trimtab_protocol.messages.report import WorkerState
from trimtab_protocol.messages.snapshot import Snapshot
from trimtab_protocol.wording import counted, time_span

SCALING_PATIENCE_S = 60.0
"""How long the reports may take to show a stop or start before it is commanded again, the first two times."""
LONGEST_PATIENCE_S = 3600.0
"""How long at most, after it has doubled with each further time."""
FINAL = frozenset({Refusal.NOT_CONFIGURED, Refusal.UNKNOWN_WORKER})
"""An agent's refusals of a start that stay the same until its configuration changes."""


def patience_s(scaling: WorkerScaling) -> float:
    """How long to wait before a stop or start is commanded once more."""
    return min(LONGEST_PATIENCE_S, SCALING_PATIENCE_S * 2.0 ** max(0, min(scaling.times, 32) - 2))


def to_start(
    now: float, execution: Execution, draining: frozenset[WorkerId], known: WindowResult, intents: Iterable[Intent]
) -> Scaled | None:
    """Start a worker that the controller stopped and that nobody keeps off: its drain has ended, or it is restarted.

    It waits until the host reports; a failed start is repeated while it does, unless the agent can never start it.
    `intents` in force say why.
    """
    restarting = {worker for each in intents if isinstance(each, RollingRestart) for worker in each.workers}
    snapshot = known.snapshot
    startable = {row.worker for row in snapshot.nodes if row.declared is not None} if snapshot is not None else set()
    for worker, scaling in execution.scalings.items():
        if scaling.of_app is not None or scaling.command.host not in known.hosts or worker in draining:
            continue  # a start that nobody hears holds up others until it expires
        if scaling.refusal in FINAL and worker not in startable:
            continue
        failed = scaling.command.kind is CommandKind.START and scaling.phase is ScalingPhase.FAILED
        if scaling.stopped or (failed and now >= scaling.at + patience_s(scaling)):
            again = scaling.command.owning or worker in restarting
            detail = "it was stopped to be restarted" if again else "it was drained and stopped, and may run again"
            detail = "it could not be started before" if failed else detail
            return Scaled(kind=CommandKind.START, worker=worker, host=scaling.command.host, detail=detail)
    return None


def is_to_start_soon(before: Execution, after: Execution) -> bool:
    """Whether a worker has just been stopped that may be started again at once: its key groups wait for it."""
    ended = (each for worker, each in after.scalings.items() if each.stopped and each != before.scalings.get(worker))
    return any(each.command.owning for each in ended)


def to_stop(view: AppView, execution: Execution, draining: frozenset[WorkerId]) -> Scaled | None:
    """Stop a drained worker that owns nothing of its app in reports and placement.

    A placement of another app that still names it does not count: a worker runs one app, and nobody may run that one
    any more.  `draining` = the workers to empty now; some of those of the view may have been stopped and started since.
    """
    placed = [placement for app, placement in execution.placements.items() if app == view.app]
    for worker in view.workers:
        leaves = worker.draining and worker.id in draining
        if not leaves or view.owned_by(worker.id) or owned_by(placed, worker.id):
            continue
        scaling = execution.scalings.get(worker.id)
        stop = scaling is not None and scaling.command.kind is CommandKind.STOP
        if scaling is None or not stop or view.start_s >= scaling.at + patience_s(scaling):
            app = view.app if worker.id in execution.leaving else None
            detail = "it has been drained"
            return Scaled(kind=CommandKind.STOP, worker=worker.id, host=worker.host, detail=detail, app=app)
    return None


def drain_concerns(
    execution: Execution, snapshot: Snapshot, draining: frozenset[WorkerId], intents: Iterable[Intent]
) -> Iterator[Concern]:
    """A concern for each drained worker that was stopped three times or more, and that still runs."""
    since = {each.worker: each.at for each in intents if isinstance(each, Drain)}
    end_s = snapshot.end_ms / 1000.0
    for row in snapshot.nodes:
        scaling = execution.scalings.get(row.worker)
        if scaling is None or scaling.command.kind is not CommandKind.STOP or scaling.times < 3:
            continue
        if row.worker not in draining or row.app is None or row.state is WorkerState.AWAY:
            continue
        for_s = f" for {time_span(end_s - since[row.worker])}" if row.worker in since else ""
        if scaling.phase is ScalingPhase.FAILED:
            said = f"has not been stopped in {counted(scaling.times, 'attempt')} ({scaling.detail})"
        else:
            starts = scaling.times - (snapshot.start_ms / 1000.0 < scaling.at)  # the last one is not shown yet
            said = f"something has started it {counted(starts, 'time')}: undrain it or disable its unit"
        wait_s = scaling.at + patience_s(scaling) - end_s
        detail = f"{row.worker} is drained{for_s}, and {said}; it is stopped again in {time_span(wait_s)}"
        yield Concern(kind=ConcernKind.DRAINED_RUNS, app=row.app, workers=(row.worker,), detail=detail)


def held_changes(
    now: float, budget: PauseBudget, execution: Execution, verdicts: Mapping[AppId, SizeVerdict]
) -> dict[AppId, str]:
    """The apps whose change of size is due and waits for room in the budget, and what the budget says."""
    due = (app for app, verdict in verdicts.items() if verdict.due and not verdict.urgent)
    uses = ((app, budget.use(now, execution, app)) for app in due)
    return {
        app: f"the disruption budget has no room for a rebalance: {use.text}; {use.change_text}"
        for app, use in uses
        if use.holds_changes
    }


def budget_concerns(
    now: float,
    budget: PauseBudget,
    execution: Execution,
    views: Mapping[AppId, SmoothedView | NotReady],
    draining: frozenset[WorkerId],
) -> Iterator[Concern]:
    """A concern for each app whose budget has no room for one more key group, or for the stop of a drained worker."""
    for app, view in sorted(views.items()):
        use = budget.use(now, execution, app)
        stop = to_stop(view, execution, draining) if use.holds_changes and isinstance(view, SmoothedView) else None
        workers: tuple[WorkerId, ...] = ()
        if use.fits == 0:
            detail = f"nothing moves, except after a loss: {use.text}; {use.room_text()}"
        elif stop is not None:
            workers = (stop.worker,)
            detail = f"{stop.worker} is drained and cannot stop: no room for a rebalance: {use.text}; {use.change_text}"
        else:
            continue
        yield Concern(kind=ConcernKind.DISRUPTION_BUDGET, app=app, workers=workers, detail=detail)
