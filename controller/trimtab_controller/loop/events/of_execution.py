"""The events that a step of the execution is: they are published in one transaction with its journal entry.

An event of a plan tells its moves with their reasons, the loads of workers, and what one more move would bring.  Plans
that wait for an operator's approval have events too.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from trimtab_controller.decider.values.decision import ProposalEnded, ProposalOutcome, describe_plan
from trimtab_controller.execution.state import (
    Execution,
    Handover,
    HandoverPhase,
    Proposal,
    Round,
    ScalingPhase,
    WorkerScaling,
)
from trimtab_controller.loop.status_builder import describe_end
from trimtab_controller.plan import Move, Plan, PlanWhy
from trimtab_protocol.messages.events import (
    MAX_LOADS,
    MAX_MOVES,
    MAX_TEXT,
    Event,
    EventKind,
    EventLoad,
    EventMove,
    event_of,
)
from trimtab_protocol.messages.names import AppId, WorkerId
from trimtab_protocol.messages.placement import Placement
from trimtab_protocol.wording import counted

# --- plans, and proposals ---------------------------------------------------------------------------------------------


CHANGED_PP = 0.01
WAITS = "waits for approval: "
"""How the text of a plan that waits begins."""


def plan_fields(plan: Plan, placement: Placement | None) -> dict[str, Any]:
    """The fields of the event with which a plan begins; `placement` = the one that it changes."""
    why = plan.why
    return {
        "reason": str(plan.reason),
        "moves": tuple(_move(plan, place, move, placement) for place, move in enumerate(plan.moves[:MAX_MOVES])),
        "moves_total": len(plan.moves),
        **(_why_fields(why) if why else {}),
    }


def _move(plan: Plan, place: int, move: Move, placement: Placement | None) -> EventMove:
    standbys = placement.of(move.key_group.operator, move.key_group.partition)[1:] if placement else ()
    return EventMove(
        key_group=move.key_group,
        source=move.source,
        target=move.target,
        why=str(plan.why.reasons[place]) if plan.why else "loss" if plan.lost else None,
        warm="standby" if move.target in standbys else None if move.lacking_bytes is None else "copy",
        load_pct=_rounded(plan.why.loads[place]) if plan.why else None,
    )


def _why_fields(why: PlanWhy) -> dict[str, Any]:
    return {"mean_load": _rounded(why.mean_load), "loads": _changed_loads(why)}


def _changed_loads(why: PlanWhy) -> tuple[EventLoad, ...]:
    """The workers whose load the plan changes, by name; of very many those that change most."""
    change = {worker: abs(why.after[worker] - load) for worker, load in why.before.items()}
    names = sorted((name for name in change if change[name] > CHANGED_PP), key=lambda name: -change[name])[:MAX_LOADS]
    return tuple(
        EventLoad(worker=name, before=_rounded(why.before[name]), planned=_rounded(why.after[name]))
        for name in sorted(names)
    )


def measured_loads(why: PlanWhy | None, measured: Mapping[WorkerId, float]) -> tuple[EventLoad, ...]:
    """The measured loads of the workers that a plan changed; of all workers, by name, if the plan is not known."""
    told = _changed_loads(why) if why else tuple(EventLoad(worker=name) for name in sorted(measured)[:MAX_LOADS])
    return tuple(
        replace(row, measured=_rounded(measured[row.worker]) if row.worker in measured else None) for row in told
    )


def moves_of_round(row: Round, *, ended: bool) -> dict[str, Any]:
    """The moves of a round, as its hand-overs have them; with their outcomes once it has `ended`."""
    moves = [
        EventMove(
            key_group=key_group,
            source=each.source,
            target=each.target,
            outcome=str(each.phase) if ended else None,
            pause_s=each.pause_s if ended else None,
        )
        for each in row.handovers
        for key_group in each.key_groups
    ]
    return {"moves": tuple(moves[:MAX_MOVES]), "moves_total": len(moves)}


def _rounded(value: float) -> float:
    return max(0.0, round(value, 3))


def proposals_of_step(
    now: float,
    cluster: str,
    before: Execution,
    after: Execution,
    plans: Mapping[AppId, Plan],
    ended: Mapping[str, ProposalEnded],
) -> list[Event]:
    """What has changed from one published state to the next; `plans` = those just decided, `ended` by plan.

    The events have no ids yet.
    """
    return [*_proposed(now, cluster, before, after, plans), *_no_longer_proposed(now, cluster, before, after, ended)]


def _proposal_event(now: float, cluster: str, row: Proposal, phase: str, text: str) -> Event:
    return event_of(now, cluster, EventKind.PLAN, phase, text, app=row.app, plan=row.id)


def _proposed(
    now: float, cluster: str, before: Execution, after: Execution, plans: Mapping[AppId, Plan]
) -> Iterator[Event]:
    for app, row in after.proposals.items():
        known = before.proposals.get(app)
        if known is None or known.id != row.id:
            plan = plans.get(app, row.plan)
            yield replace(
                _proposal_event(now, cluster, row, "proposed", f"{WAITS}{describe_plan(plan)}"),
                before=plan.before,
                planned=plan.planned,
                lower_bound=plan.lower_bound,
                **plan_fields(plan, after.placements.get(app)),
            )


def _no_longer_proposed(
    now: float, cluster: str, before: Execution, after: Execution, ended: Mapping[str, ProposalEnded]
) -> Iterator[Event]:
    for app, row in before.proposals.items():
        now_row = after.proposals.get(app)
        kept = now_row if now_row is not None and now_row.id == row.id else None
        if not row.waits or (kept is not None and kept.waits):
            continue
        if kept is not None and kept.rejected is not None:
            yield _proposal_event(now, cluster, row, str(ProposalOutcome.REJECTED), kept.rejected)
        elif (found := ended.get(row.id)) is not None:
            yield _proposal_event(now, cluster, row, str(found.outcome), found.detail)


# --- steps ------------------------------------------------------------------------------------------------------------


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
            found.append(event_of(now, cluster, EventKind.SIZE, phase, text, app=app, reason=reason))
    return found


def _of_round(
    now: float, cluster: str, before: Round | None, row: Round, plan: Plan | None, placement: Placement | None
) -> Iterator[Event]:
    about = event_of(now, cluster, EventKind.PLAN, "begun", row.reason, app=row.app, plan=row.plan)
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
    return event_of(
        now,
        cluster,
        EventKind.SCALING,
        phase,
        text,
        app=scaling.of_app,
        worker=command.worker,
        reason=str(command.kind),
    )
