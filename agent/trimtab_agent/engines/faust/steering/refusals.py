"""Translates the exception of a failed step into the refusal that the controller receives."""

from trimtab_agent.engines.faust.handover.handover import Denied
from trimtab_agent.engines.faust.transport.thread import CommitRefused, GenerationOver
from trimtab_agent.engines.outcomes import Refused
from trimtab_protocol.messages.commands import Refusal


def refused_for(fault: Exception) -> Refused:
    """The outcome to report for an exception of a step."""
    match fault:
        case Denied():
            return Refused(refusal=fault.refusal, detail=fault.detail)
        case CommitRefused():
            return Refused(refusal=Refusal.COMMIT_REFUSED, detail=str(fault))
        case GenerationOver():
            return Refused(refusal=Refusal.GENERATION, detail=str(fault))
        case _:
            return Refused(refusal=Refusal.FAILED, detail=repr(fault))
