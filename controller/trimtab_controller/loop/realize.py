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
from trimtab_protocol.messages.codec import copied


def realizing(decision: Decision) -> executing.Event | None:
    """The event; None for a decision to do nothing.  Most have what it needs under the same names."""
    match decision:
        case Planned():
            return copied(executing.PlanDecided, decision)
        case Proposed():
            return copied(executing.PlanProposed, decision)
        case ProposalEnded():
            return copied(executing.ProposalDropped, decision)
        case IntentRefused() | Restarted() | MaintenanceEnded():
            return copied(executing.IntentsAnswered, decision)
        case Adopted():
            return copied(executing.PlacementWanted, decision)
        case StandbysPlaced():
            return copied(executing.StandbysWanted, decision)
        case PlanEnded(app=app, lost=lost, detail=detail):
            return executing.StopWanted(app=app, reason=detail, lost=lost)
        case Scaled():
            return copied(executing.ScalingWanted, decision)
        case Resized():
            return resizing(decision)
        case Forgotten():
            return copied(executing.ForgetWanted, decision)
        case Skip():
            return None
    assert_never(decision)


def resizing(found: Resized) -> executing.ResizeWanted:
    """The event that changes the size of an app."""
    return copied(executing.ResizeWanted, found, start={row.worker: row.host for row in found.start})
