"""Changes of the number of workers of an app, as steps of the execution.

They are in the journal, not among the operators' intents: it is written in the transaction of the commands, and only by
the controller that leads.  So a successor goes on with a scale-in, and what an operator drains is told apart from it.
"""

from collections.abc import Collection, Mapping
from dataclasses import replace

from trimtab_controller.execution import scalings
from trimtab_controller.execution.events import ResizeWanted, ScalingWanted
from trimtab_controller.execution.state import AppSize
from trimtab_controller.execution.step import Step
from trimtab_protocol.messages.commands import CommandKind
from trimtab_protocol.messages.names import AppId, WorkerId

KEPT_S = 3600.0
"""How long a change of an app's size is kept; the last one always is."""
MAX_CHANGES = 100
"""Kept changes of an app's size."""


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
        recent = [change for change in changes if change.at > step.now - KEPT_S]
        changes = (*recent[1 - MAX_CHANGES :], wanted.change)
    _put(step, wanted.app, AppSize(leaving=leaving, changes=changes))
    for worker, host in wanted.start.items():
        start = ScalingWanted(kind=CommandKind.START, worker=worker, host=host, app=wanted.app)
        scalings.command_scaling(step, start)


def left(step: Step, workers: Collection[WorkerId]) -> None:
    """These workers have been stopped, or are gone: nobody drains them any more."""
    for app, size in step.execution.sizes.items():
        leaving = tuple(worker for worker in size.leaving if worker not in workers)
        if leaving != size.leaving:
            _put(step, app, replace(size, leaving=leaving))


def forget(step: Step, app: AppId) -> None:
    """Forget an app that is gone for good."""
    _set(step, {name: size for name, size in step.execution.sizes.items() if name != app})


def _put(step: Step, app: AppId, size: AppSize) -> None:
    _set(step, {**step.execution.sizes, app: size})


def _set(step: Step, sizes: Mapping[AppId, AppSize]) -> None:
    said = {app: size for app, size in sizes.items() if size != AppSize()}
    step.execution = replace(step.execution, sizes=said)
    step.changed = True
