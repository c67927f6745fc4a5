"""Steps of the execution about plans that wait for approval, and about key groups that operators moved."""

from dataclasses import replace

from trimtab_controller.execution.events import IntentsAnswered, PlanDecided, PlanProposed, ProposalDropped
from trimtab_controller.execution.state import HandMoved, Proposal
from trimtab_controller.execution.step import Step
from trimtab_protocol.messages.names import AppId


def propose(step: Step, event: PlanProposed) -> None:
    """Keep a plan until an operator decides about it; it replaces an earlier one of its app."""
    app = event.plan.app
    proposal = Proposal(id=str(step.epoch), plan=event.plan, at=step.now, expires_at=event.expires_at)
    step.set_proposals({**step.execution.proposals, app: proposal})
    step.answered = event.answered


def drop(step: Step, event: ProposalDropped) -> None:
    """End the wait of a plan; a rejected one is kept so long that it does not come again at once."""
    step.answered, step.changed = event.answered, True
    known = step.execution.proposals.get(event.app)
    if known is None or known.id != event.plan:
        return
    if event.rejected_until is None:
        _without(step, event.app)
    else:
        rejected = known.turned_down(event.detail, event.rejected_until)
        step.set_proposals({**step.execution.proposals, event.app: rejected})


def begun(step: Step, event: PlanDecided) -> None:
    """A plan begins: it waits no longer, and its key groups stay where an operator wants them."""
    app = event.plan.app
    if event.id is not None:
        _without(step, app)
    if event.keep_until is not None:
        row_of = {move.key_group: HandMoved(worker=move.target, until=event.keep_until) for move in event.plan.moves}
        step.execution = replace(step.execution, hand_moved={**step.execution.hand_moved, **row_of})
    step.answered = event.answered


def let_go(step: Step) -> None:
    """Forget what need not stay any longer where an operator moved it.  That alone is no reason to publish."""
    known = step.execution.hand_moved
    if step.changed and any(row.until <= step.now for row in known.values()):
        left = {each: row for each, row in known.items() if row.until > step.now}
        step.execution = replace(step.execution, hand_moved=left)


def answer(step: Step, event: IntentsAnswered) -> None:
    """End intents that ask for nothing more."""
    step.answered, step.changed = event.answered, True


def forget(step: Step, app: AppId) -> None:
    """Forget what concerns an app."""
    _without(step, app)
    moved = {each: row for each, row in step.execution.hand_moved.items() if each.app != app}
    step.execution = replace(step.execution, hand_moved=moved)


def _without(step: Step, app: AppId) -> None:
    step.set_proposals({each: row for each, row in step.execution.proposals.items() if each != app})
