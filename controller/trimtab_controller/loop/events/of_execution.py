"""The events that a step of the execution is: they are published in one transaction with its journal entry."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from trimtab_controller.decider.values.decision import describe_plan
from trimtab_controller.execution.state import (
    Execution,
    Handover,
    HandoverPhase,
    Round,
    ScalingPhase,
    WorkerScaling,
)
from trimtab_controller.loop.events.of_plan import moves_of_round, plan_fields
from trimtab_controller.loop.status_builder import describe_end
from trimtab_controller.plan import Plan
from trimtab_protocol.messages.events import MAX_MOVES, MAX_TEXT, Event, EventKind, EventMove
from trimtab_protocol.messages.names import AppId
from trimtab_protocol.messages.placement import Placement
from trimtab_protocol.wording import counted

TOLD_FAILURES = 20
"""Hand-overs of one plan whose failure is told at once; the end of the plan tells all outcomes."""
NOT_DONE = frozenset({HandoverPhase.FAILED, HandoverPhase.UNRESOLVED})
PHASES = {ScalingPhase.SENT: "begun", ScalingPhase.DONE: "done", ScalingPhase.FAILED: "failed"}


def events_of_step(
    now: float, cluster: str, before: Execution, after: Execution, plans: Mapping[AppId, Plan]
) -> list[Event]:
    """What has changed from one published state to the next; `plans` = those just decided, by app.

    The events have no ids yet.
    """
    found: list[Event] = []
    for app, row in after.rounds.items():
        known = before.rounds.get(app)
        known = known if known and known.plan == row.plan else None
        found += _of_round(now, cluster, known, row, plans.get(app), before.placements.get(app))
    for worker, scaling in after.scalings.items():
        last = before.scalings.get(worker)
        if last is None or (last.command.id, last.phase) != (scaling.command.id, scaling.phase):
            found.append(_of_scaling(now, cluster, scaling))
    for app, size in after.sizes.items():
        changes = before.sizes[app].changes if app in before.sizes else ()
        if size.changes and size.changes[-1] not in changes:
            change = size.changes[-1]
            text = f"{app}: from {change.before} to {counted(change.after, 'worker')}"
            phase, reason = "changed", "out" if change.after > change.before else "in"
            found.append(_event(now, cluster, EventKind.SIZE, phase, text, app=app, reason=reason))
    return found


def _event(now: float, cluster: str, kind: str, phase: str, text: str, **known: Any) -> Event:
    told = text[:MAX_TEXT] or kind
    return Event(id="", cluster=cluster, at=now, kind=kind, phase=phase, text=told, **known)


def _of_round(
    now: float, cluster: str, before: Round | None, row: Round, plan: Plan | None, placement: Placement | None
) -> Iterator[Event]:
    about = _event(now, cluster, EventKind.PLAN, "begun", row.reason, app=row.app, plan=row.plan)
    if before is None:
        yield _begun(about, row, plan, placement)
    elif plan is not None and before.ended_at is None:  # a further loss has added to it
        yield replace(_begun(about, row, plan, placement), phase="extended")
    if row.stopped is not None and (before is None or before.stopped is None):
        yield replace(about, phase="stopped", text=row.stopped[:MAX_TEXT])
    yield from _failures(about, before, row)
    if row.ended_at is not None and (before is None or before.ended_at is None):
        yield replace(
            about,
            phase="ended",
            text=describe_end(row)[:MAX_TEXT],
            before=row.before,
            planned=row.planned,
            lower_bound=row.lower_bound,
            **moves_of_round(row, ended=True),
        )


def _begun(about: Event, row: Round, plan: Plan | None, placement: Placement | None) -> Event:
    """What a plan is, and why; after a takeover only what the journal has of it."""
    shown = replace(about, before=row.before, planned=row.planned, lower_bound=row.lower_bound)
    if plan is None:
        return replace(shown, text=f"{row.app}: {row.reason}"[:MAX_TEXT], **moves_of_round(row, ended=False))
    return replace(shown, text=f"{row.app}: {describe_plan(plan)}"[:MAX_TEXT], **plan_fields(plan, placement))


def _failures(about: Event, before: Round | None, row: Round) -> Iterator[Event]:
    """The hand-overs that have failed in this step."""
    known = {each.id: each.phase for each in before.handovers} if before else {}
    told = sum(phase in NOT_DONE for phase in known.values())
    for each in row.handovers:
        if each.phase in NOT_DONE and known.get(each.id) not in NOT_DONE and told < TOLD_FAILURES:
            told += 1
            yield _failed(about, each)


def _failed(about: Event, handover: Handover) -> Event:
    count = len(handover.key_groups)
    named = str(handover.key_groups[0]) if count == 1 else f"{count} key groups such as {handover.key_groups[0]}"
    why = f": {handover.detail}" if handover.detail else ""
    text = f"{named} from {handover.source} to {handover.target} {handover.phase}{why}"
    moves = tuple(
        EventMove(key_group=each, source=handover.source, target=handover.target, outcome=str(handover.phase))
        for each in handover.key_groups
    )
    return replace(
        about,
        kind=EventKind.MOVE,
        phase="failed",
        text=text[:MAX_TEXT],
        worker=handover.target,
        moves=moves[:MAX_MOVES],
        moves_total=count,
    )


def _of_scaling(now: float, cluster: str, scaling: WorkerScaling) -> Event:
    command = scaling.command
    phase = PHASES[scaling.phase]
    why = f": {scaling.detail}" if scaling.detail else ""
    text = f"{command.kind} of {command.worker} on {command.host} {phase}{why}"
    return _event(
        now,
        cluster,
        EventKind.SCALING,
        phase,
        text,
        app=scaling.of_app,
        worker=command.worker,
        reason=str(command.kind),
    )
