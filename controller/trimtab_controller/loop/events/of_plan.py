"""What an event tells of a plan: its moves with their reasons, the loads of workers, what one more move would bring.

Also the events of plans that wait for an operator's approval.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from trimtab_controller.decider.memory.predictions import MeasuredMove
from trimtab_controller.decider.values.decision import ProposalEnded, ProposalOutcome, describe_plan
from trimtab_controller.execution.state import Execution, Proposal, Round
from trimtab_controller.plan import Move, Plan, PlanWhy
from trimtab_protocol.messages.events import (
    MAX_LOADS,
    MAX_MOVES,
    MAX_TEXT,
    Event,
    EventKind,
    EventLoad,
    EventMove,
    EventNext,
)
from trimtab_protocol.messages.names import AppId, WorkerId
from trimtab_protocol.messages.placement import Placement

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
    following = why.next
    return {
        "mean_load": _rounded(why.mean_load),
        "loads": _changed_loads(why),
        "next": EventNext(
            key_group=following.key_group,
            source=following.source,
            target=following.target,
            load_distance=_rounded(following.load_distance),
        )
        if following
        else None,
    }


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


def moves_measured(moves: Sequence[MeasuredMove]) -> tuple[EventMove, ...]:
    """What a window has shown of the moves of a round."""
    return tuple(
        EventMove(
            key_group=each.key_group,
            source=each.source,
            target=each.target,
            measured_pct=None if each.load_pct is None else _rounded(each.load_pct),
            paid=each.paid,
        )
        for each in moves[:MAX_MOVES]
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
    return [*_begun(now, cluster, before, after, plans), *_ended(now, cluster, before, after, ended)]


def _event(now: float, cluster: str, row: Proposal, phase: str, text: str) -> Event:
    text = text[:MAX_TEXT]
    return Event(id="", cluster=cluster, at=now, kind=EventKind.PLAN, phase=phase, text=text, app=row.app, plan=row.id)


def _begun(
    now: float, cluster: str, before: Execution, after: Execution, plans: Mapping[AppId, Plan]
) -> Iterator[Event]:
    for app, row in after.proposals.items():
        known = before.proposals.get(app)
        if known is None or known.id != row.id:
            plan = plans.get(app, row.plan)
            yield replace(
                _event(now, cluster, row, "proposed", f"{WAITS}{describe_plan(plan)}"),
                before=plan.before,
                planned=plan.planned,
                lower_bound=plan.lower_bound,
                **plan_fields(plan, after.placements.get(app)),
            )


def _ended(
    now: float, cluster: str, before: Execution, after: Execution, ended: Mapping[str, ProposalEnded]
) -> Iterator[Event]:
    for app, row in before.proposals.items():
        now_row = after.proposals.get(app)
        kept = now_row if now_row is not None and now_row.id == row.id else None
        if not row.waits or (kept is not None and kept.waits):
            continue
        if kept is not None and kept.rejected is not None:
            yield _event(now, cluster, row, str(ProposalOutcome.REJECTED), kept.rejected)
        elif (found := ended.get(row.id)) is not None:
            yield _event(now, cluster, row, str(found.outcome), found.detail)
