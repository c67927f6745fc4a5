"""The journal entry: the execution state without placements, and the offsets up to which acks were read.

Each entry holds the whole state, so a new leader needs only the last one; its epoch is its place in the sequence.  It
ends with a checksum of the rest, since a changed digit could otherwise still be a valid state.

A new leader inherits the last entry, or a hold that says why the journal cannot be trusted.  Journal, placements and
commands are written in the same transactions, under increasing epochs.  So the last entry is at least as new as every
placement, command and status, and newer than every other entry.  If it is not, entries were lost or changed.  Their
content could only be guessed, and a wrong guess would give a key group two owners.
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Annotated, ClassVar

from trimtab_controller.execution.disruption import Disruption, Seconds
from trimtab_controller.execution.state import (
    MAX_ROWS,
    AppSize,
    Execution,
    GuardStop,
    HandMoved,
    Proposal,
    Round,
    WorkerScaling,
)
from trimtab_protocol.messages.codec import MAX_INTEGER, Inline, Most, Range, Wire, converted, encoded, versioned
from trimtab_protocol.messages.decode import BadMessage, Fault
from trimtab_protocol.messages.names import NO_EPOCH, AppId, Epoch, KeyGroupName, WorkerId

VERSION = 2
KEY = b"execution"
Offset = tuple[Annotated[int, Range(0, 2**31)], Annotated[int, Range(0, MAX_INTEGER)]]


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalEntry:
    """`execution` has no placements; `acks_read` = next offset of each partition of the acks topic."""

    execution: Execution
    acks_read: Mapping[int, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SizeRecord:
    """The size of one app in the journal."""

    app: AppId
    size: Annotated[AppSize, Inline()]


@dataclass(frozen=True, slots=True, kw_only=True)
class EntryRecord:
    """An entry as it is written: arrays in the place of mappings.

    `round` = the newest round, `rounds` those of further apps; `acks_read` has rows of partition and offset,
    `hand_moved` rows of key group, worker, and until when it stays there (epoch seconds).
    """

    WIRE: ClassVar = Wire(version=VERSION)

    generation: int
    number: int
    acks_read: Annotated[tuple[Offset, ...], Most(1000)]
    round: Round | None = None
    rounds: Annotated[tuple[Round, ...], Most(MAX_ROWS)] = ()
    scalings: Annotated[tuple[WorkerScaling, ...], Most(MAX_ROWS)]
    sizes: Annotated[tuple[SizeRecord, ...], Most(MAX_ROWS)] = ()
    proposals: Annotated[tuple[Proposal, ...], Most(MAX_ROWS)] = ()
    hand_moved: Annotated[tuple[tuple[KeyGroupName, WorkerId, Seconds], ...], Most(MAX_ROWS)] = ()
    disruption: Disruption = Disruption()  # noqa: RUF009 - frozen
    guarded: Annotated[tuple[GuardStop, ...], Most(MAX_ROWS)] = ()

    def __post_init__(self) -> None:
        apps = [row.app for row in self._all_rounds]
        if len(set(apps)) < len(apps):
            raise BadMessage(Fault.RANGE, "rounds", "several of one app", "at most one round of each app")

    @property
    def _all_rounds(self) -> tuple[Round, ...]:
        return (*self.rounds, *(() if self.round is None else (self.round,)))

    @classmethod
    def of(cls, entry: JournalEntry) -> "EntryRecord":
        """The record of an entry."""
        execution = entry.execution
        rounds = sorted(execution.rounds.values(), key=lambda row: (row.ended_at is None, row.started_at))
        return cls(
            generation=execution.generation,
            number=execution.number,
            acks_read=tuple(sorted(entry.acks_read.items())),
            round=rounds[-1] if rounds else None,
            rounds=tuple(rounds[:-1]),
            scalings=tuple(execution.scalings.values()),
            sizes=tuple(SizeRecord(app, size) for app, size in execution.sizes.items()),
            proposals=tuple(execution.proposals.values()),
            hand_moved=tuple((key_group, row.worker, row.until) for key_group, row in execution.hand_moved.items()),
            disruption=execution.disruption,
            guarded=tuple(execution.guarded.values()),
        )

    @property
    def entry(self) -> JournalEntry:
        """The entry of this record."""
        execution = Execution(
            generation=self.generation,
            number=self.number,
            rounds={row.app: row for row in self._all_rounds},
            scalings={row.command.worker: row for row in self.scalings},
            sizes={row.app: row.size for row in self.sizes},
            proposals={row.app: row for row in self.proposals},
            hand_moved={
                key_group: HandMoved(worker=worker, until=until) for key_group, worker, until in self.hand_moved
            },
            disruption=self.disruption,
            guarded={row.app: row for row in self.guarded},
        )
        return JournalEntry(execution=execution, acks_read=dict(self.acks_read))


def encode_entry(entry: JournalEntry) -> bytes:
    """The entry in its wire form."""
    body = encoded(EntryRecord.of(entry))
    return body[:-1] + _seal(body)


def decode_entry(payload: bytes | None) -> JournalEntry:
    """Decode an entry; raises BadMessage."""
    document = versioned(payload, EntryRecord)
    _check_seal(payload or b"")
    return converted(document, EntryRecord).entry


def _seal(body: bytes) -> bytes:
    """The checksum as last member of the object `body`; it replaces the closing brace."""
    return b',"sha256":"%s"}' % hashlib.sha256(body).hexdigest().encode()


def _check_seal(payload: bytes) -> None:
    """Raise BadMessage if the entry does not end with the checksum of the rest."""
    size = len(_seal(b""))
    found, expected = payload[-size:], _seal(payload[:-size] + b"}")
    if found != expected:
        raise BadMessage(Fault.MALFORMED, "sha256", found, f"the checksum {expected[11:19].decode()}...")


# --- what a new leader inherits ---------------------------------------------------------------------------------------


class Flaw(StrEnum):
    """What is wrong with the journal."""

    MISSING = "missing"  # no entry, though something was published
    CORRUPTED = "corrupted"  # the last entry cannot be read, or its checksum is wrong
    TRUNCATED = "truncated"  # something newer than the last entry was published
    DISORDERED = "disordered"  # an older entry follows a newer one
    PLACEMENT = "placement"  # the journal is intact, but a placement that it refers to is not


@dataclass(frozen=True, slots=True, kw_only=True)
class Hold:
    """The controller decides nothing, because of a flaw.  `newest` = the newest epoch known to have been used."""

    flaw: Flaw
    detail: str
    newest: Epoch

    @property
    def id(self) -> str:
        """Identifies this hold, so that an operator accepts this one and no later one."""
        return hashlib.sha256(f"{self.flaw}: {self.detail}: {self.newest}".encode()).hexdigest()[:16]

    @property
    def reason(self) -> str:
        """The reason for status and log."""
        return f"the journal cannot be trusted ({self.flaw}): {self.detail}"


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalRecord:
    """One record of the journal.  `found` is its entry or its error; None: the entry was deleted."""

    offset: int
    found: JournalEntry | BadMessage | None


def read_record(offset: int, value: bytes | None) -> JournalRecord:
    """Decode a record of the journal's topic."""
    if value is None:
        return JournalRecord(offset=offset, found=None)
    try:
        return JournalRecord(offset=offset, found=decode_entry(value))
    except BadMessage as error:
        return JournalRecord(offset=offset, found=error)


def inherit(journal: Sequence[JournalRecord], published: Epoch) -> JournalEntry | Hold:
    """The last entry of the journal, if it can be trusted.

    `journal` is oldest first; `published` = the newest epoch of placements and status.
    """
    entries = [record.found for record in journal if isinstance(record.found, JournalEntry)]
    newest = max([published, *(entry.execution.epoch for entry in entries)])

    def hold(flaw: Flaw, detail: str) -> Hold:
        return Hold(flaw=flaw, detail=detail, newest=newest)

    if not journal or journal[-1].found is None:
        if newest == NO_EPOCH:
            return JournalEntry(execution=Execution(generation=0))
        return hold(Flaw.MISSING, f"it has no entry, but {newest} was published")
    last = journal[-1].found
    if isinstance(last, BadMessage):
        return hold(Flaw.CORRUPTED, f"at offset {journal[-1].offset}: {last}"[:1000])
    epoch = last.execution.epoch
    if epoch < published:
        return hold(Flaw.TRUNCATED, f"it ends with {epoch}, but {published} was published")
    if epoch < newest:
        return hold(Flaw.DISORDERED, f"{epoch} at offset {journal[-1].offset} follows {newest}")
    return last
