"""Memory of the command machine: commands with their answers, processes, and the highest epoch.

The journal holds the same: `restore` takes its entries, `entries` returns them.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import assert_never

from trimtab_agent.commands.command_checks import FUTURE_LIMIT_S
from trimtab_agent.commands.events import (
    Acked,
    Admitted,
    Damaged,
    Delivered,
    Entry,
    EpochSeen,
    KeptNoted,
    KeptWorker,
    Position,
    ProcessId,
    ProcessNoted,
)
from trimtab_protocol.messages.commands import Ack, Command, CommandKind, Phase
from trimtab_protocol.messages.decode import BadMessage, Fault
from trimtab_protocol.messages.names import NO_EPOCH, CommandId, Epoch, WorkerId

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
REMEMBER_S = 3600.0
"""How long after its deadline a command is remembered, to answer repeats."""
SCALINGS = (CommandKind.START, CommandKind.STOP)
MAX_REMEMBERED = 2_000
"""Number of commands whose answers the agent keeps for repeats."""


def check_answer(ack: Ack, command: Command) -> None:
    """Raises BadMessage unless a worker may answer this command with this ack."""
    if ack.phase is not Phase.ACCEPTED and ack.phase not in ANSWERS[command.kind]:
        raise BadMessage(Fault.RANGE, "phase", ack.phase, f"an answer to {command.kind}")
    found, expected = _identity(ack), _identity(Ack.to(command, ack.phase, at=ack.at, refusal=ack.refusal))
    if found != expected:
        raise BadMessage(Fault.RANGE, "ack", found, f"{expected}, as in the command")


def _identity(ack: Ack) -> tuple[object, ...]:
    return (ack.cluster, ack.command_id, ack.epoch, ack.kind, ack.host, ack.worker, ack.handover)


@dataclass(slots=True)
class CommandRecord:
    """A command, its answers in order, and the phases whose acks the broker has not stored yet."""

    command: Command
    acks: dict[Phase, Ack]
    undelivered: set[Phase]

    def note(self, ack: Ack) -> None:
        """Note a further answer."""
        self.acks[ack.phase] = ack
        self.undelivered.add(ack.phase)

    @property
    def last(self) -> Ack:
        """The answer that a repeat gets."""
        return next(reversed(self.acks.values()))

    @property
    def ended(self) -> bool:
        """Whether no further answer can follow."""
        return not ENDS.isdisjoint(self.acks)

    @property
    def open(self) -> bool:
        """Whether the command is accepted and not ended."""
        return Phase.ACCEPTED in self.acks and not self.ended

    @property
    def unanswered(self) -> bool:
        """Whether the command is accepted and has no further answer."""
        return self.last.phase is Phase.ACCEPTED


@dataclass(slots=True)
class CommandLedger:
    """What the machine remembers.

    `processes`: those that the agent started or is stopping.  `kept`: workers that it keeps running.  `damaged_at`: the
    journal was damaged then, so the records of commands issued until then may be lost.
    """

    records: dict[CommandId, CommandRecord] = field(default_factory=dict)
    processes: dict[WorkerId, ProcessId] = field(default_factory=dict)
    kept: dict[WorkerId, KeptWorker] = field(default_factory=dict)
    highest_epoch: Epoch = NO_EPOCH
    damaged_at: float | None = None

    def restore(self, entries: Iterable[Entry]) -> None:
        """Apply the entries of a journal, in order."""
        for entry in entries:
            match entry:
                case Admitted():
                    self.remember(entry.command, entry.ack)
                case Acked():
                    if record := self.records.get(entry.ack.command_id):
                        record.note(entry.ack)
                    if (entry.ack.kind, entry.ack.phase) == (CommandKind.START, Phase.REFUSED):
                        self.note_kept(entry.ack.worker, None)
                case Delivered():
                    if record := self.records.get(entry.command_id):
                        record.undelivered.discard(entry.phase)
                case ProcessNoted():
                    self.note_process(entry.worker, entry.process)
                case KeptNoted():
                    self.note_kept(entry.worker, entry.kept)
                case EpochSeen():
                    self.highest_epoch = max(self.highest_epoch, entry.epoch)
                case Damaged():
                    self.damaged_at = max(self.damaged_at or 0.0, entry.at)
                case Position():
                    pass  # used by the reader of commands
                case _:
                    assert_never(entry)

    def entries(self) -> Iterator[Entry]:
        """The entries of a journal that restores this ledger."""
        yield EpochSeen(epoch=self.highest_epoch)
        if self.damaged_at is not None:
            yield Damaged(at=self.damaged_at)
        for worker, process in self.processes.items():
            yield ProcessNoted(worker=worker, process=process)
        for command_id, record in self.records.items():
            first, *later = record.acks.values()
            yield Admitted(command=record.command, ack=first)
            for ack in later:
                yield Acked(ack=ack)
            for phase in record.acks:
                if phase not in record.undelivered:
                    yield Delivered(command_id=command_id, phase=phase)
        scaled = (record.command.worker for record in self.records.values() if record.command.kind in SCALINGS)
        for worker in dict.fromkeys((*self.kept, *scaled)):
            yield KeptNoted(worker=worker, kept=self.kept.get(worker))  # after the commands: what became of them

    def remember(self, command: Command, ack: Ack) -> None:
        """Remember a command and its first answer.  Beyond the limit, drop the oldest ended command first.

        A worker that the command starts is kept, with no crash counted; one that it stops is no longer kept.
        """
        self.records[command.id] = CommandRecord(command, {ack.phase: ack}, {ack.phase})
        kept = self.kept.get(command.worker)
        match command.kind, ack.phase:
            case CommandKind.START, Phase.ACCEPTED:
                self.kept[command.worker] = KeptWorker(at=ack.at)
            case CommandKind.START, Phase.STARTED if kept is not None:
                self.kept[command.worker] = KeptWorker(at=kept.at)
            case CommandKind.STOP, Phase.ACCEPTED | Phase.STOPPED:
                self.note_kept(command.worker, None)
            case _:
                pass
        if command.issued_at <= ack.at + FUTURE_LIMIT_S:
            self.highest_epoch = max(self.highest_epoch, command.epoch)
        if len(self.records) > MAX_REMEMBERED:
            ended = (command_id for command_id, record in self.records.items() if record.ended)
            self.records.pop(next(ended, next(iter(self.records))))

    def note_process(self, worker: WorkerId, process: ProcessId | None) -> None:
        """Note the process of a worker; None: it has ended."""
        if process is None:
            self.processes.pop(worker, None)
        else:
            self.processes[worker] = process

    def note_kept(self, worker: WorkerId, kept: KeptWorker | None) -> None:
        """Note what is known of a worker that the agent keeps running; None: it no longer does."""
        if kept is None:
            self.kept.pop(worker, None)
        else:
            self.kept[worker] = kept

    def open_of(self, worker: WorkerId, *kinds: CommandKind) -> list[CommandRecord]:
        """A worker's commands that are under way, of these kinds (of any kind if none is given)."""
        return [
            record
            for record in self.records.values()
            if record.command.worker == worker and record.open and (not kinds or record.command.kind in kinds)
        ]

    def stopping(self) -> frozenset[WorkerId]:
        """The workers that are being stopped."""
        return frozenset(record.command.worker for record in self.open_kind(CommandKind.STOP))

    def open_kind(self, kind: CommandKind) -> list[CommandRecord]:
        """The commands of a kind that are under way."""
        return [record for record in self.records.values() if record.command.kind is kind and record.open]

    def forget(self, now: float) -> None:
        """Drop commands that are long past their deadline and whose acks are all delivered."""
        for command_id, record in list(self.records.items()):
            if record.command.deadline + REMEMBER_S < now and not record.undelivered:
                del self.records[command_id]
