"""Answers to commands: the phases that are allowed, the phases that end a command, and a check of workers' acks."""

from trimtab_protocol.messages.commands import Ack, Command, CommandKind, Phase
from trimtab_protocol.messages.decode import BadMessage, Fault

ANSWERS: dict[CommandKind, frozenset[Phase]] = {
    CommandKind.PREPARE: frozenset({Phase.PREPARED, Phase.TOOK, Phase.ABANDONED, Phase.REFUSED, Phase.EXPIRED}),
    CommandKind.RELEASE: frozenset({Phase.RELEASED, Phase.REFUSED, Phase.EXPIRED}),
    CommandKind.ABANDON: frozenset({Phase.ABANDONED, Phase.REFUSED, Phase.EXPIRED}),
    CommandKind.REJOIN: frozenset({Phase.REJOINED, Phase.REFUSED, Phase.EXPIRED}),
    CommandKind.START: frozenset(),
    CommandKind.STOP: frozenset(),
}
"""The phases that a worker may report.  The agent itself reports the end of scaling commands."""
ENDS = frozenset(
    {Phase.TOOK, Phase.RELEASED, Phase.ABANDONED, Phase.REJOINED, Phase.STARTED, Phase.STOPPED, Phase.REFUSED}
)
"""Phases that end a command.  `expired` does not: a late answer is still true and is passed on."""


def check_answer(ack: Ack, command: Command) -> None:
    """Raises BadMessage unless a worker may answer this command with this ack."""
    if ack.phase is not Phase.ACCEPTED and ack.phase not in ANSWERS[command.kind]:
        raise BadMessage(Fault.RANGE, "phase", ack.phase, f"an answer to {command.kind}")
    found, expected = _identity(ack), _identity(Ack.to(command, ack.phase, at=ack.at, refusal=ack.refusal))
    if found != expected:
        raise BadMessage(Fault.RANGE, "ack", found, f"{expected}, as in the command")


def _identity(ack: Ack) -> tuple[object, ...]:
    return (ack.cluster, ack.command_id, ack.epoch, ack.kind, ack.host, ack.worker, ack.handover)
