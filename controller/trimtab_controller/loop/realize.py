"""From a decision to the event that makes the execution carry it out.  Pure."""

from typing import assert_never

from trimtab_controller.decider.values.decision import (
    Adopted,
    Decision,
    Forgotten,
    IntentRefused,
    MaintenanceEnded,
    PlanEnded,
    Planned,
    ProposalEnded,
    Proposed,
    Resized,
    Restarted,
    Scaled,
    Skip,
    StandbysPlaced,
)
from trimtab_controller.execution import events as executing


def realizing(decision: Decision) -> executing.Event | None:
    """The event; None for a decision to do nothing."""
    match decision:
        case Planned(plan=plan, standbys=rows, lacking=lacking):
            return executing.PlanDecided(
                plan=plan,
                standbys=rows,
                lacking=lacking,
                id=decision.id,
                keep_until=decision.keep_until,
                answered=decision.answered,
            )
        case Proposed(plan=plan, expires_at=expires_at):
            return executing.PlanProposed(plan=plan, expires_at=expires_at)
        case ProposalEnded():
            return executing.ProposalDropped(
                app=decision.app,
                plan=decision.plan,
                detail=decision.detail,
                rejected_until=decision.rejected_until,
                answered=decision.answered,
            )
        case IntentRefused(answered=answered) | Restarted(answered=answered) | MaintenanceEnded(answered=answered):
            return executing.IntentsAnswered(answered=answered)
        case Adopted(app=app, owners=owners, standbys=rows, lacking=lacking):
            return executing.PlacementWanted(app=app, owners=owners, standbys=rows, lacking=lacking)
        case StandbysPlaced(app=app, rows=rows, lacking=lacking):
            return executing.StandbysWanted(app=app, rows=rows, lacking=lacking)
        case PlanEnded(app=app, lost=lost, detail=detail):
            return executing.StopWanted(app=app, reason=detail, lost=lost)
        case Scaled(kind=kind, worker=worker, host=host, app=app, owning=owning):
            return executing.ScalingWanted(kind=kind, worker=worker, host=host, app=app, owning=owning)
        case Resized():
            return resizing(decision)
        case Forgotten(answered=answered, app=app, worker=gone):
            return executing.ForgetWanted(answered=answered, app=app, worker=gone)
        case Skip():
            return None
    assert_never(decision)


def resizing(found: Resized) -> executing.ResizeWanted:
    """The event that changes the size of an app."""
    return executing.ResizeWanted(
        app=found.app,
        start={row.worker: row.host for row in found.start},
        drain=found.drain,
        keep=found.keep,
        change=found.change,
        answered=found.answered,
    )
