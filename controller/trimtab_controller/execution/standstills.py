"""Counts what the reports of a window say of pauses: at rebalances, and while key groups had no owner.  Pure."""

from collections.abc import Iterable, Iterator
from dataclasses import replace

from trimtab_controller.execution.disruption import Cause, Unowned
from trimtab_controller.execution.events import PausesSeen
from trimtab_controller.execution.state import Execution, ScalingPhase
from trimtab_controller.execution.step import Step
from trimtab_protocol.messages.names import AppId

COMMANDED_S = 60.0
"""A rebalance within so long of a start or stop that the controller has commanded is taken to follow from it."""


def count(step: Step, seen: PausesSeen) -> None:
    """Add what the reports of a window say, unless it is counted already: a new leader reads windows again.

    It is published at once where an app has a limit, since the journal has what is counted only then.
    """
    before = step.execution.disruption
    if before.since is None or (before.seen_to is not None and seen.end_s <= before.seen_to):
        return
    found = before
    for app, row in seen.apps.items():
        if row.key_groups:
            cause, mean_s = cause_of(step.execution, app, seen.start_s), row.measured_s / row.key_groups
            found = found.with_pause(
                app, seen.end_s, key_groups=row.key_groups, paused_s=mean_s, measured=True, cause=cause
            )
        for key_groups, unowned_s in _without_owner(step.execution, app, row.unowned):
            found = found.with_pause(
                app, seen.end_s, key_groups=key_groups, paused_s=unowned_s, measured=False, cause=Cause.LOSSES
            )
    step.changed |= found is not before and step.limits.disruption.limited
    step.count(replace(found, seen_to=seen.end_s))


def cause_of(execution: Execution, app: AppId, start_s: float) -> Cause:
    """Why the consumer group of an app was rebalanced in a window that began at this time."""
    of_app = (each for each in execution.scalings.values() if each.of_app in (None, app))
    commanded = any(each.phase is ScalingPhase.SENT or each.at >= start_s - COMMANDED_S for each in of_app)
    return Cause.STARTS_AND_STOPS if commanded else Cause.REBALANCES


def _without_owner(execution: Execution, app: AppId, rows: Iterable[Unowned]) -> Iterator[tuple[int, float]]:
    """Key groups, and the seconds for which they had no owner, without what the plan after the loss counts."""
    row = execution.rounds.get(app)
    restored_from = row.started_at if row is not None and row.lost else None
    for each in rows:
        until = each.until if restored_from is None or restored_from < each.since else min(each.until, restored_from)
        if until > each.since:
            yield each.key_groups, until - each.since
