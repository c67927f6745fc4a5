"""Answers to commands: which ones there may be, which are the last, and whether a worker's own fits its command."""

from trimtab_models.messages.commands import Ack, Command, CommandKind, Phase, Refusal
from trimtab_models.messages.decode import BadMessage, Fault

ANSWERS: dict[CommandKind, frozenset[Phase]] = {
    CommandKind.PREPARE: frozenset({Phase.PREPARED, Phase.TOOK, Phase.ABANDONED, Phase.REFUSED, Phase.EXPIRED}),
    CommandKind.RELEASE: frozenset({Phase.RELEASED, Phase.REFUSED, Phase.EXPIRED}),
    CommandKind.ABANDON: frozenset({Phase.ABANDONED, Phase.REFUSED, Phase.EXPIRED}),
    CommandKind.REJOIN: frozenset({Phase.REJOINED, Phase.REFUSED, Phase.EXPIRED}),
    CommandKind.START: frozenset(),
    CommandKind.STOP: frozenset(),
}
"""The phases that a worker may report; of scaling commands the agent itself knows the end."""
ENDS = frozenset(
    {Phase.TOOK, Phase.RELEASED, Phase.ABANDONED, Phase.REJOINED, Phase.STARTED, Phase.STOPPED, Phase.REFUSED}
)
"""Phases after which nothing more comes.  `expired` is not one: a late answer is still the truth and is passed on."""


def answer_to(
    command: Command,
    now: float,
    phase: Phase,
    *,
    refusal: Refusal | None = None,
    detail: str | None = None,
    exit_code: int | None = None,
) -> Ack:
    """The agent's own answer."""
    return Ack(
        cluster=command.cluster,
        command_id=command.id,
        epoch=command.epoch,
        kind=command.kind,
        host=command.host,
        worker=command.worker,
        phase=phase,
        at=now,
        handover=command.handover,
        refusal=refusal,
        detail=detail,
        exit_code=exit_code,
    )


def check_answer(ack: Ack, command: Command) -> None:
    """Raises BadMessage unless a worker may give this answer to its command."""
    if ack.phase is not Phase.ACCEPTED and ack.phase not in ANSWERS[command.kind]:
        raise BadMessage(Fault.RANGE, "phase", ack.phase, f"an answer to {command.kind}")
    found, expected = _identity(ack), _identity(answer_to(command, ack.at, ack.phase, refusal=ack.refusal))
    if found != expected:
        raise BadMessage(Fault.RANGE, "ack", found, f"{expected}, as in the command")


def _identity(ack: Ack) -> tuple[object, ...]:
    return (ack.cluster, ack.command_id, ack.epoch, ack.kind, ack.host, ack.worker, ack.handover)
