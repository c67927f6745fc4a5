"""How to read an agent's ack of a command."""

from trimtab_protocol.messages.commands import Ack, Command, Refusal

ACK_GRACE_S = 2.0
"""How long after a command's deadline its ack may still arrive."""

MAX_DETAIL = 200
"""Characters of an ack's detail that are kept."""

RETRYABLE = frozenset({Refusal.GENERATION, Refusal.NOT_PREPARED, Refusal.OLD_EPOCH})
UNCERTAIN = frozenset(
    {Refusal.GENERATION, Refusal.FAILED, Refusal.COMMIT_REFUSED, Refusal.WORKER_AWAY, Refusal.PRECONDITION}
)
"""Refusals of a release after which the source may no longer be the owner: the reports decide."""


def answers(ack: Ack, command: Command | None) -> bool:
    """Whether the ack answers this command and comes from the agent that received it."""
    return (
        command is not None
        and ack.command_id == command.id
        and ack.host == command.host
        and ack.worker == command.worker
    )


def said(ack: Ack) -> str:
    """The ack in one short line; the journal holds up to a thousand of these in one message."""
    word = ack.refusal if ack.refusal is not None else ack.phase
    return f"{ack.worker} on {ack.host}: {word}" + (f" ({ack.detail[:MAX_DETAIL]})" if ack.detail else "")
