"""Workers to stop since they were drained, and to start since they may run again.  Pure functions."""

from collections.abc import Iterable

from trimtab_controller.decider.decision import Scaled
from trimtab_controller.decider.observing.view import AppView
from trimtab_controller.execution.state import Execution, ScalingPhase, owned_by
from trimtab_protocol.messages.commands import CommandKind
from trimtab_protocol.messages.intents import Intent, RollingRestart
from trimtab_protocol.messages.names import HostId, WorkerId

SCALING_PATIENCE_S = 60.0
"""How long the reports may take to show a stop or start before it is commanded again."""


def to_start(
    now: float,
    execution: Execution,
    draining: frozenset[WorkerId],
    hosts: frozenset[HostId],
    intents: Iterable[Intent],
) -> Scaled | None:
    """Start a worker that the controller stopped and that nobody keeps off: its drain has ended, or it is restarted.

    It waits until the host reports; a failed start is repeated while it does.  `intents` in force say why.
    """
    restarting = {worker for each in intents if isinstance(each, RollingRestart) for worker in each.workers}
    for worker, scaling in execution.scalings.items():
        if scaling.of_app is not None or scaling.command.host not in hosts or worker in draining:
            continue  # a start that nobody hears holds up the whole cluster until it expires
        failed = scaling.command.kind is CommandKind.START and scaling.phase is ScalingPhase.FAILED
        if scaling.stopped or (failed and now >= scaling.at + SCALING_PATIENCE_S):
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
    """Stop a drained worker that owns nothing in reports and placements; a repeated stop waits SCALING_PATIENCE_S.

    `draining` = the workers to empty now; some of those of the view may have been stopped and started since.
    """
    for worker in view.workers:
        if (
            not worker.draining
            or worker.id not in draining
            or view.owned_by(worker.id)
            or owned_by(execution.placements.values(), worker.id)
        ):
            continue
        scaling = execution.scalings.get(worker.id)
        stop = scaling is not None and scaling.command.kind is CommandKind.STOP
        if scaling is None or not stop or view.start_s >= scaling.at + SCALING_PATIENCE_S:
            app = view.app if worker.id in execution.leaving else None
            detail = "it has been drained"
            return Scaled(kind=CommandKind.STOP, worker=worker.id, host=worker.host, detail=detail, app=app)
    return None
