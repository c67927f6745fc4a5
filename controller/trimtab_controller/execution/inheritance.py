"""What a new leader inherits: the journal's last entry, or a hold that says why the journal cannot be trusted.

Journal, placements and commands are written in the same transactions, under increasing epochs.  So the last entry is at
least as new as every placement, command and status, and newer than every other entry.  If it is not, entries were lost
or changed.  Their content could only be guessed, and a wrong guess would give a key group two owners.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from trimtab_controller.execution.journal import JournalEntry, decode_entry
from trimtab_controller.execution.state import Execution
from trimtab_protocol.messages.decode import BadMessage
from trimtab_protocol.messages.names import NO_EPOCH, Epoch


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
