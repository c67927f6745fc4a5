"""Plans that wait for an operator's approval: which ones do, whether they still fit, and what operators say of them.

A plan fits as long as its key groups are where they were, its targets can take them, and it leads to about the load
distance that was shown.  If that changes by more than the band, it is withdrawn, and the app is solved again.
"""

from collections.abc import Iterable
from dataclasses import replace

from trimtab_controller.decider.policies.explain import SingleMoves, why_of
from trimtab_controller.decider.policies.moves import VALID_S, is_too_late, kind_of, plan_of, wish_for
from trimtab_controller.decider.values.decision import (
    IntentRefused,
    Planned,
    ProposalEnded,
    ProposalOutcome,
    Proposed,
    Skip,
    describe_plan,
)
from trimtab_controller.decider.values.plan_settings import PlanMode, PlanSettings
from trimtab_controller.decider.values.reasons import SkipReason
from trimtab_controller.decider.window.resources import filled_by
from trimtab_controller.decider.window.rules import broken_by
from trimtab_controller.decider.window.view import PlannableView
from trimtab_controller.execution.state import Execution, Proposal
from trimtab_controller.plan import PlanReason, PlanWhy
from trimtab_protocol.messages.intents import Approve, Intent, MoveKeyGroups, Reject
from trimtab_protocol.messages.names import AppId, WorkerId
from trimtab_protocol.wording import first_few


def as_mode_says(now: float, planned: Planned, settings: PlanSettings) -> Planned | Proposed | Skip:
    """The plan, or that it waits, or that it is only shown."""
    plan = planned.plan
    match settings.of(plan.app):
        case PlanMode.DRY_RUN:
            return shown_only(plan.app, describe_plan(plan))
        case PlanMode.APPROVE if plan.reason.may_wait:
            return Proposed(plan=plan, expires_at=now + settings.approval_s)
    return planned


def shown_only(app: AppId, text: str) -> Skip:
    """What is not done because the mode of the app is dry-run."""
    return Skip(reason=SkipReason.DRY_RUN, detail=f"{app}: mode dry-run, not carried out: {text}", app=app)


def answer_to(
    now: float, intents: Iterable[Intent], execution: Execution, settings: PlanSettings
) -> ProposalEnded | IntentRefused | None:
    """The answer to what operators say that needs no look at the cluster, and the end of what has waited too long."""
    said, known = tuple(intents), {row.id: row for row in execution.proposals.values()}
    for row in known.values():
        if now >= row.expires_at:
            detail = _why_expired(row, said) if row.waits else "its rejection has ended"
            return ended(row, ProposalOutcome.EXPIRED, detail, said)
    for intent in said:
        match intent:
            case Reject(plan=name) if name in known and known[name].waits:
                detail = f"by {intent.by}: {intent.reason}"
                return ended(known[name], ProposalOutcome.REJECTED, detail, said, until=now + settings.approval_s)
            case Reject(plan=name) | Approve(plan=name) if name not in known or not known[name].waits:
                what = "reject" if isinstance(intent, Reject) else "approve"
                return IntentRefused(what=what, detail=f"no plan {name} waits for approval", answered=(intent.key,))
            case MoveKeyGroups() if settings.of(intent.app) is PlanMode.DRY_RUN:
                detail = f"{intent.app}: its mode is dry-run, so nothing moves"
                return IntentRefused(what=str(kind_of(intent)), detail=detail, answered=(intent.key,), app=intent.app)
            case MoveKeyGroups() if is_too_late(now, intent, execution.rounds.get(intent.app)):
                detail = f"{intent.app}: it could not begin within {VALID_S:.0f} s"
                return IntentRefused(what=str(kind_of(intent)), detail=detail, answered=(intent.key,), app=intent.app)
    return None


def _why_expired(row: Proposal, intents: Iterable[Intent]) -> str:
    """Why a plan has waited in vain: nobody has said anything, or it could not begin in time."""
    approved = next((each for each in intents if isinstance(each, Approve) and each.plan == row.id), None)
    if approved is None:
        return "nobody has decided about it"
    return f"{approved.by} has approved it, but it could not begin in time"


def ended(
    row: Proposal, outcome: ProposalOutcome, detail: str, intents: Iterable[Intent], *, until: float | None = None
) -> ProposalEnded:
    """The end of a plan's wait, with what operators have said of it."""
    said = tuple(each.key for each in intents if isinstance(each, Approve | Reject) and each.plan == row.id)
    return ProposalEnded(app=row.app, plan=row.id, outcome=outcome, detail=detail, rejected_until=until, answered=said)


def wanted_by_operators(
    now: float,
    view: PlannableView,
    waiting: Proposal | None,
    intents: Iterable[Intent],
    settings: PlanSettings,
    *,
    band: float,
) -> Planned | ProposalEnded | IntentRefused | Skip | None:
    """What operators want to be done about an app, or what becomes of a plan that waits, by the newest window.

    Such a plan holds up neither their moves nor their drains.  `band` in pp.
    """
    said = tuple(intents)
    if (wish := wish_for(view.app, said)) is not None:
        return plan_of(now, view, wish, settings.keep_moved_s)
    if waiting is None or view.to_empty:
        return None
    why = misfit(waiting, view, band=band)
    if settings.of(waiting.app) is not PlanMode.APPROVE:
        why = f"the mode of the app is {settings.of(waiting.app)} now"
    if why is not None:
        return ended(waiting, ProposalOutcome.WITHDRAWN, why, said)
    if not waiting.waits:
        detail = f"{waiting.app}: plan {waiting.id} was rejected {waiting.rejected}"
        return Skip(reason=SkipReason.REJECTED, detail=detail, app=waiting.app)
    approval = next((each for each in said if isinstance(each, Approve) and each.plan == waiting.id), None)
    if approval is None:
        detail = f"{waiting.app}: plan {waiting.id} waits for approval: {describe_plan(waiting.plan)}"
        return Skip(reason=SkipReason.AWAITING_APPROVAL, detail=detail, app=waiting.app)
    # Workers may run on other hosts by now.  Why each key group moves is not in the journal.
    plan = replace(waiting.plan, hosts=view.hosts, why=_why_now(waiting, view))
    return Planned(plan=plan, id=waiting.id, answered=(approval.key,))


def _why_now(row: Proposal, view: PlannableView) -> PlanWhy:
    """Why each key group moves, by the present loads."""
    places = view.owned.places_of(move.key_group for move in row.plan.moves).tolist()
    moves: dict[int, WorkerId] = {place: move.target for place, move in zip(places, row.plan.moves, strict=True)}
    return why_of(view, moves, row.plan.reason, filled_by(view, moves))


def misfit(row: Proposal, view: PlannableView, *, band: float) -> str | None:
    """Why a plan that waits does not fit any more; None if it does."""
    table, plan = view.owned, row.plan
    places = table.places_of(move.key_group for move in plan.moves).tolist()
    gone = [
        str(move.key_group)
        for move, place in zip(plan.moves, places, strict=True)
        if place < 0 or table.workers[table.owner[place]] != move.source
    ]
    if gone:
        return f"{first_few(gone)} cannot be moved from where it was"
    free = {worker.id for worker in view.workers if not worker.draining}
    if away := sorted({move.target for move in plan.moves} - free):
        return f"{first_few(away)} takes no key groups now"
    moves: dict[int, WorkerId] = {place: move.target for place, move in zip(places, plan.moves, strict=True)}
    if against := broken_by(view, moves):
        return against
    filled = filled_by(view, moves)
    if over := [each for each in filled if each.overfills]:
        return f"it would overfill {first_few(over)}"
    if plan.reason is PlanReason.FIRST:
        return None  # it is not made for the loads
    now, after = SingleMoves(view).load_distance, SingleMoves(view, moves, filled).load_distance
    if now is None or after is None:
        return "every worker is being drained"
    if row.waits and plan.reason is PlanReason.LOAD_DISTANCE and now <= band:
        return f"the load distance is inside the band without it ({now:.1f} <= {band:.1f})"
    if abs(after - plan.planned) > band:
        return f"the loads have changed: it would lead to a load distance of {after:.1f}, not {plan.planned:.1f}"
    return None
