"""The journal on disk: one entry per line, each with a checksum, on disk before what it speaks of is done.

A line is the CRC-32 (hex) of a JSON object, a space, the object.  A last line without its end was being written when
the agent died: nothing was done because of it, it is cut off.  Any other bad line is damage: its entry is lost.
"""

import os
import zlib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, assert_never

from trimtab_agent.commands.events import (
    Acked,
    Admitted,
    Damaged,
    Delivered,
    Entry,
    EpochSeen,
    Position,
    ProcessId,
    ProcessNoted,
)
from trimtab_models.messages.commands import Phase, read_ack, read_command
from trimtab_models.messages.decode import BadMessage, Fault, Fields, encode, parse
from trimtab_models.messages.names import CommandId, WorkerId, decode_epoch

VERSION = 1
COMPACT_AT_BYTES = 4 * 1024 * 1024
OWNER_ONLY = 0o600


@dataclass(frozen=True, slots=True, kw_only=True)
class Recovered:
    """What was read from a journal: its good entries, and one line per fault."""

    entries: tuple[Entry, ...]
    faults: tuple[str, ...]


class Journal:
    """An open journal.  Every write fault is an OSError: then nothing that follows may be done."""

    def __init__(self, path: Path) -> None:
        """Open or create it; call `recover` before anything else."""
        self._path = path
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, OWNER_ONLY)
        os.fchmod(self._file, OWNER_ONLY)  # also one that was put back from a copy
        self._compact_at = COMPACT_AT_BYTES

    def recover(self) -> Recovered:
        """The entries so far; cuts an unfinished last line, puts a damaged journal aside as `<name>.damaged`."""
        content = self._path.read_bytes()
        whole = content[: content.rfind(b"\n") + 1]
        os.ftruncate(self._file, len(whole))
        os.lseek(self._file, 0, os.SEEK_END)
        entries: list[Entry] = []
        faults: list[str] = []
        for number, line in enumerate(whole.splitlines(), start=1):
            try:
                entries.append(decode_line(line))
            except BadMessage as exc:
                faults.append(f"line {number}: {exc}")
        if faults:
            self._put_aside(content)
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
        """Add an entry; `durable` returns when it is on disk."""
        write_all(self._file, encode_line(entry))
        if durable:
            os.fdatasync(self._file)

    @property
    def is_large(self) -> bool:
        """Whether it is time to write it anew."""
        return os.lseek(self._file, 0, os.SEEK_CUR) > self._compact_at

    def rewrite(self, entries: Iterable[Entry]) -> None:
        """Replace the whole content, or nothing of it."""
        fresh = self._path.with_name(self._path.name + ".new")
        descriptor = os.open(fresh, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, OWNER_ONLY)
        write_all(descriptor, b"".join(map(encode_line, entries)))
        os.fsync(descriptor)
        fresh.replace(self._path)
        sync_folder(self._path.parent)
        os.close(self._file)
        self._file = descriptor
        # what must be kept may itself be large: then wait for as much again
        self._compact_at = max(COMPACT_AT_BYTES, 2 * os.lseek(descriptor, 0, os.SEEK_CUR))

    def close(self) -> None:
        """Put everything on disk and close it."""
        os.fsync(self._file)
        os.close(self._file)


def write_all(descriptor: int, data: bytes) -> None:
    """Write all of it; a short write (disk nearly full) is followed by the error."""
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


def sync_folder(folder: Path) -> None:
    """Make a rename in the folder survive a crash of the machine."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def encode_line(entry: Entry) -> bytes:
    """The line of an entry, with its end."""
    body = encode({"v": VERSION, **_document(entry)})
    return b"%08x %b\n" % (zlib.crc32(body), body)


def decode_line(line: bytes) -> Entry:
    """The entry of a line; raises BadMessage."""
    checksum, _, body = line.partition(b" ")
    if checksum != b"%08x" % zlib.crc32(body):
        raise BadMessage(Fault.MALFORMED, "", line[:40], "a line with its checksum")
    fields = parse(body, version=VERSION)
    entry = _read(fields.text("entry"), fields)
    fields.done()
    return entry


def _document(entry: Entry) -> dict[str, Any]:
    match entry:
        case Admitted():
            return {"entry": "admitted", "command": entry.command.document(), "ack": entry.ack.document()}
        case Acked():
            return {"entry": "acked", "ack": entry.ack.document()}
        case Delivered():
            return {"entry": "delivered", "command_id": entry.command_id, "phase": entry.phase}
        case ProcessNoted():
            process = entry.process
            known = {"pid": process.pid, "created": process.created} if process else None
            return {"entry": "process", "worker": entry.worker, "process": known}
        case EpochSeen():
            return {"entry": "epoch", "epoch": list(entry.epoch)}
        case Damaged():
            return {"entry": "damaged", "at": entry.at}
        case Position():
            place = {"kafka_cluster": entry.kafka_cluster, "partition": entry.partition, "offset": entry.offset}
            return {"entry": "position", **place}
        case _:
            assert_never(entry)


def _read(kind: str, fields: Fields) -> Entry:
    match kind:
        case "admitted":
            return Admitted(command=read_command(_nested(fields, "command")), ack=read_ack(_nested(fields, "ack")))
        case "acked":
            return Acked(ack=read_ack(_nested(fields, "ack")))
        case "delivered":
            command_id = CommandId(fields.text("command_id", limit=64))
            return Delivered(command_id=command_id, phase=fields.choice("phase", Phase))
        case "process":
            worker = WorkerId(fields.name("worker"))
            return ProcessNoted(worker=worker, process=fields.optional("process", lambda n: _process(fields.fields(n))))
        case "epoch":
            return EpochSeen(epoch=decode_epoch(fields.take("epoch"), "epoch"))
        case "damaged":
            return Damaged(at=fields.number("at"))
        case "position":
            return Position(
                kafka_cluster=fields.text("kafka_cluster"),
                partition=fields.integer("partition"),
                offset=fields.integer("offset"),
            )
        case _:
            raise BadMessage(Fault.RANGE, "entry", kind, "a kind of entry")


def _process(fields: Fields) -> ProcessId:
    process = ProcessId(pid=fields.integer("pid", low=1), created=fields.number("created"))
    fields.done()
    return process


def _nested(fields: Fields, name: str) -> Fields:
    """A message inside an entry, its version read."""
    inner = fields.fields(name)
    inner.integer("v", low=1, high=1)
    return inner
