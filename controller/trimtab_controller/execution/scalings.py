"""Stops and starts of workers, and changes of the number of workers of an app, as steps of the execution.

The changes are in the journal, not among the operators' intents: it is written in the transaction of the commands, and
only by the controller that leads.  So a successor goes on with a scale-in, and what an operator drains is told apart
from it.
"""

from collections.abc import Collection, Mapping
from dataclasses import replace
from functools import partial

from trimtab_controller.execution.events import ResizeWanted, ScalingWanted
from trimtab_controller.execution.handovers import ACK_GRACE_S, said
from trimtab_controller.execution.state import AppSize, ScalingPhase, WorkerScaling, without_standby
from trimtab_controller.execution.step import Step
from trimtab_protocol.messages.commands import Ack, Command, CommandKind, Phase
from trimtab_protocol.messages.names import AppId, WorkerId

IN_A_ROW_S = 4 * 3600.0
"""A stop or start that follows the last one of its kind within this time counts as its repetition."""
CHANGES_KEPT_S = 3600.0
"""How long a change of an app's size is kept; the last one always is."""
MAX_CHANGES = 100
"""Kept changes of an app's size."""


def command_scaling(step: Step, wanted: ScalingWanted) -> None:
    """Stop or start a worker.  One that is stopped empty is no longer a standby."""
    command = Command(
        cluster=step.cluster,
        kind=wanted.kind,
        epoch=step.epoch,
        host=wanted.host,
        worker=wanted.worker,
        app=wanted.app,
        issued_at=step.now,
        deadline=step.now + step.limits.prepare_timeout_s,
        owning=wanted.owning,
    )
    step.commands.append(command)
    last = step.execution.scalings.get(wanted.worker)
    again = last is not None and last.command.kind is wanted.kind and step.now - last.at < IN_A_ROW_S
    times = last.times + 1 if last is not None and again else 1
    step.scale(WorkerScaling(command=command, phase=ScalingPhase.SENT, at=step.now, times=times))
    if wanted.kind is CommandKind.STOP and not wanted.owning:
        for placement in step.execution.placements.values():
            step.owners.update(without_standby(placement, wanted.worker))


def forget(step: Step, worker: WorkerId) -> None:
    """Forget a worker that is gone for good: do not start it again, and do not use it as a standby."""
    kept = {name: scaling for name, scaling in step.execution.scalings.items() if name != worker}
    step.execution = replace(step.execution, scalings=kept)
    for placement in step.execution.placements.values():
        step.owners.update(without_standby(placement, worker))


def hear(step: Step, scaling: WorkerScaling, ack: Ack) -> None:
    """Apply an agent's ack; a late one corrects an assumed failure."""
    if scaling.phase is ScalingPhase.DONE:
        return
    outcome = partial(replace, scaling, at=step.now)
    match ack.phase:
        case Phase.STOPPED | Phase.STARTED:
            code = None if ack.exit_code is None else f"exit code {ack.exit_code}"
            step.scale(outcome(phase=ScalingPhase.DONE, detail=code))
        case Phase.REFUSED | Phase.EXPIRED if scaling.phase is ScalingPhase.SENT:
            step.scale(outcome(phase=ScalingPhase.FAILED, detail=said(ack), refusal=ack.refusal))
        case _:
            pass


def give_up_at(scaling: WorkerScaling) -> float | None:
    """When its ack is overdue (epoch seconds); None if no ack is awaited."""
    return scaling.command.deadline + ACK_GRACE_S if scaling.phase is ScalingPhase.SENT else None


def time_out(step: Step, scaling: WorkerScaling) -> None:
    """Give up waiting for an ack."""
    step.scale(replace(scaling, phase=ScalingPhase.FAILED, at=step.now, detail="no answer in time"))


# --- the number of workers of an app ----------------------------------------------------------------------------------


def resize(step: Step, wanted: ResizeWanted) -> None:
    """Start workers, begin to drain some, or keep some that were to leave."""
    step.answered, step.changed = wanted.answered, True
    if wanted.app is None:
        return
    size = step.execution.sizes.get(wanted.app, AppSize())
    back = {*wanted.keep, *wanted.start}
    leaving = tuple(worker for worker in dict.fromkeys((*size.leaving, *wanted.drain)) if worker not in back)
    changes = size.changes
    if wanted.change is not None:
        recent = [change for change in changes if change.at > step.now - CHANGES_KEPT_S]
        changes = (*recent[1 - MAX_CHANGES :], wanted.change)
    _put(step, wanted.app, AppSize(leaving=leaving, changes=changes))
    for worker, host in wanted.start.items():
        start = ScalingWanted(kind=CommandKind.START, worker=worker, host=host, app=wanted.app)
        command_scaling(step, start)


def left(step: Step, workers: Collection[WorkerId]) -> None:
    """These workers have been stopped, or are gone: nobody drains them any more."""
    for app, size in step.execution.sizes.items():
        leaving = tuple(worker for worker in size.leaving if worker not in workers)
        if leaving != size.leaving:
            _put(step, app, replace(size, leaving=leaving))


def forget_app(step: Step, app: AppId) -> None:
    """Forget an app that is gone for good."""
    _set(step, {name: size for name, size in step.execution.sizes.items() if name != app})


def _put(step: Step, app: AppId, size: AppSize) -> None:
    _set(step, {**step.execution.sizes, app: size})


def _set(step: Step, sizes: Mapping[AppId, AppSize]) -> None:
    said = {app: size for app, size in sizes.items() if size != AppSize()}
    step.execution = replace(step.execution, sizes=said)
    step.changed = True
