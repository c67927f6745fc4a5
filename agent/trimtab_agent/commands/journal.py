"""The agent's journal: a write-ahead log with one entry per line and a chain of checksums.

A line is a checksum (hex), a space and a JSON object.  The checksum is the CRC-32 of the previous line's checksum and
the object, so a missing, duplicate or misplaced line breaks the chain at its place.  The first line, the head, names
the journal.

- A last line without a line end was being written when the agent died.  Nothing was done because of it, so it is
  cut off.
- Any other break of the chain is damage.
- A missing or empty journal is damage if there was one before: the file `<name>.begun` beside it marks that.
- Whole lines that are cut off at the end of a journal go unnoticed.
"""

import os
import secrets
import zlib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar

from trimtab_agent.commands.events import ENTRIES, ENTRY, Entry
from trimtab_protocol.messages.codec import Text, Wire, chosen, decoded, encoded, tagged
from trimtab_protocol.messages.decode import BadMessage, Fault

COMPACT_AT_BYTES = 4 * 1024 * 1024
OWNER_ONLY = 0o600
MAX_FAULTS = 1000
"""Number of broken lines after which the rest of the agent's journal is not read: little of it would be usable."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """The first line of a journal."""

    WIRE: ClassVar[Wire] = ENTRY

    journal: Annotated[str, Text(16)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Recovered:
    """Content of a journal: its good entries, and one line for each of the first faults."""

    entries: tuple[Entry, ...]
    faults: tuple[str, ...]


class Journal:
    """An open journal.  A failed write raises OSError; then nothing that the entry announces may be done."""

    def __init__(self, path: Path) -> None:
        """Open or create the journal.  Call `recover` before anything else."""
        self._path = path
        self._mark = path.with_name(path.name + ".begun")
        self._checksum = b""
        """Checksum of the last line."""
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, OWNER_ONLY)
        os.fchmod(self._file, OWNER_ONLY)  # also a journal that was restored from a copy
        self._compact_at = COMPACT_AT_BYTES

    def recover(self) -> Recovered:
        """Return the entries so far.

        Cuts off an unfinished last line, copies a damaged journal to `<name>.damaged`, and begins a new journal if
        there is none.  A journal with faults must be rewritten before anything is appended.
        """
        content = self._path.read_bytes()
        whole = content[: content.rfind(b"\n") + 1]
        os.ftruncate(self._file, len(whole))
        os.lseek(self._file, 0, os.SEEK_END)
        lines = whole.splitlines()
        recovered = self._read(lines, rest=content[len(whole) :])
        if recovered.faults and content:
            self._put_aside(content)
        if not lines and not recovered.faults:
            self.rewrite(())
        if not self._mark.exists():
            self._mark.touch(mode=OWNER_ONLY)
            sync_folder(self._path.parent)
        return recovered

    def _read(self, lines: list[bytes], *, rest: bytes) -> Recovered:
        entries: list[Entry] = []
        faults: list[str] = []
        if not lines and self._mark.exists():
            faults.append("there was a journal here, and nothing is left of it")
        for number, line in enumerate(lines, start=1):
            try:
                if number == 1:
                    _check_head(line)
                else:
                    entries.append(decode_line(line, self._checksum))
            except BadMessage as exc:
                faults.append(f"line {number}: {exc}")
                if len(faults) == MAX_FAULTS:
                    faults.append(f"line {number + 1}: found {MAX_FAULTS} broken lines, the rest is not read")
                    return Recovered(entries=tuple(entries), faults=tuple(faults))
            self._checksum = checksum_in(line)
        if _is_whole(rest[:-1], self._checksum):  # not torn: the line is complete, but its line end is another byte
            faults.append(f"line {len(lines) + 1}: found {rest[-1:]!r}, expected its end")
        return Recovered(entries=tuple(entries), faults=tuple(faults))

    def _put_aside(self, content: bytes) -> None:
        aside = self._path.with_name(self._path.name + ".damaged")
        aside.unlink(missing_ok=True)
        descriptor = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, OWNER_ONLY)
        try:
            write_all(descriptor, content)
        finally:
            os.close(descriptor)

    def append(self, entry: Entry, *, durable: bool = True) -> None:
        """Append an entry.  If `durable`, return only when it is on disk."""
        line = encode_line(entry, self._checksum)
        write_all(self._file, line)
        self._checksum = checksum_in(line)
        if durable:
            os.fdatasync(self._file)

    @property
    def is_large(self) -> bool:
        """Whether the journal is so large that it should be rewritten."""
        return os.lseek(self._file, 0, os.SEEK_CUR) > self._compact_at

    def rewrite(self, entries: Iterable[Entry]) -> None:
        """Atomically replace the journal by a new one with these entries."""
        lines = [_head()]
        for entry in entries:
            lines.append(encode_line(entry, checksum_in(lines[-1])))
        fresh = self._path.with_name(self._path.name + ".new")
        descriptor = os.open(fresh, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, OWNER_ONLY)
        write_all(descriptor, b"".join(lines))
        os.fsync(descriptor)
        fresh.replace(self._path)
        sync_folder(self._path.parent)
        os.close(self._file)
        self._file = descriptor
        self._checksum = checksum_in(lines[-1])
        # The kept entries may be large themselves, so the next rewrite waits until the size has doubled.
        self._compact_at = max(COMPACT_AT_BYTES, 2 * os.lseek(descriptor, 0, os.SEEK_CUR))

    def close(self) -> None:
        """Sync the journal to disk and close it."""
        os.fsync(self._file)
        os.close(self._file)


def write_all(descriptor: int, data: bytes) -> None:
    """Write all data.  After a short write (disk nearly full) the next attempt raises the error."""
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


def sync_folder(folder: Path) -> None:
    """Sync a folder, so that a rename in it survives a crash of the machine."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def checksum_in(line: bytes) -> bytes:
    """The checksum at the beginning of a line; the next line's checksum covers it."""
    return line[:8]


def encode_line(entry: Entry, previous: bytes = b"") -> bytes:
    """The line of an entry, with its line end.  `previous` = checksum of the previous line."""
    return _sealed(tagged(entry, "entry", ENTRIES), previous)


def decode_line(line: bytes, previous: bytes = b"") -> Entry:
    """The entry of a line.  `previous` = checksum of the previous line.  Raises BadMessage."""
    return chosen(_unsealed(line, previous), "entry", ENTRIES)


def _is_whole(line: bytes, previous: bytes) -> bool:
    try:
        decode_line(line, previous)
    except BadMessage:
        return False
    return True


def _head() -> bytes:
    """The first line of a journal.  Its random name makes sure that lines of another journal do not fit."""
    return _sealed(encoded(Head(journal=secrets.token_hex(8))), b"")


def _check_head(line: bytes) -> None:
    decoded(_unsealed(line, b""), Head)


def _sealed(body: bytes, previous: bytes) -> bytes:
    return b"%08x %b\n" % (zlib.crc32(body, zlib.crc32(previous)), body)


def _unsealed(line: bytes, previous: bytes) -> bytes:
    checksum, _, body = line.partition(b" ")
    if checksum != b"%08x" % zlib.crc32(body, zlib.crc32(previous)):
        raise BadMessage(Fault.MALFORMED, "", line[:40], "the checksum of this line and of the one before")
    return body
