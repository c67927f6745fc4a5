"""Writes parts of changelogs into sorted files that RocksDB takes in whole: a process of its own, beside the worker.

    python -m trimtab_agent.engines.changelog_files

A worker that has much to restore starts it, writes a `FilesRequest` to its standard input, and leaves that open.  The
process answers with one line for each file, and ends when all is written, or when its input is closed.  It opens no
database.

A file has the last value of each key, and the offset up to which it goes.  So a database that has taken in some files,
in their order, is exactly its changelog up to its offset, and the rest can be restored in any other way.
"""

import asyncio
import inspect
import json
import os
import sys
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.abc import AbstractTokenProvider
from aiokafka.helpers import create_ssl_context
from rocksdict import BlockBasedOptions, Options, SstFileWriter

NICE = 10
"""The job goes first."""
BUDGET_BYTES = 64 << 20
"""Keys and values that are gathered, of all changelogs together: with more, the largest part becomes a file."""
ENTRY_BYTES = 100
"""What Python needs for an entry beside the bytes of its key and value."""
READ_AT_ONCE = 20_000
"""Records that are gathered before positions are looked at."""
FETCH_BYTES = 4 << 20
"""Of a changelog partition in one answer of a broker."""
FETCH_WAIT_MS = 100
"""How long a broker waits for records at the end of a changelog."""
STALL_S = 60.0
"""It gives up when it has come no further for so long."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangelogPart:
    """What is to be read of a changelog partition."""

    topic: str
    partition: int
    first: int
    """The first offset that is missing."""
    end: int
    """The offset after the last one."""
    folder: str
    """Where the files go; on the disk of the database, and empty."""
    offset_key: str
    """The key under which the database keeps its offset."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FilesRequest:
    """What the process is asked for."""

    connection: Mapping[str, Any]
    """Settings of an aiokafka client that are plain data; `tls` = its files, `token` = one that is valid now."""
    parts: tuple[ChangelogPart, ...]

    def encode(self) -> bytes:
        """One line."""
        return json.dumps(
            {"connection": dict(self.connection), "parts": [asdict(each) for each in self.parts]}
        ).encode()

    @classmethod
    def decode(cls, line: bytes) -> "FilesRequest":
        """The opposite of `encode`."""
        document = json.loads(line)
        return cls(connection=document["connection"], parts=tuple(ChangelogPart(**each) for each in document["parts"]))


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """A file that is whole and on the disk."""

    topic: str
    partition: int
    first: int
    last: int
    """The offset up to which it goes."""
    records: int
    file: str

    def encode(self) -> str:
        """One line."""
        return json.dumps(asdict(self))

    @classmethod
    def decode(cls, line: bytes) -> "Written":
        """The opposite of `encode`."""
        return cls(**json.loads(line))


@dataclass(slots=True)
class Gathered:
    """What was read of a part since its last file."""

    part: ChangelogPart
    first: int
    last: int
    entries: dict[bytes, bytes | None] = field(default_factory=dict)
    records: int = 0
    read_bytes: int = 0

    @classmethod
    def of(cls, part: ChangelogPart) -> "Gathered":
        """Nothing yet."""
        return cls(part, part.first, part.first - 1)

    @property
    def bytes(self) -> int:
        """What the entries need, about: the records that were read may have had the same keys."""
        return self.read_bytes * len(self.entries) // max(1, self.records)

    def add(self, records: Iterable[Any]) -> None:
        """Records in their order; one without a key is no state.  Raises ValueError for offsets from before."""
        for record in records:
            if record.offset < self.part.first:
                raise ValueError(f"found offset {record.offset}, expected {self.part.first}: its end was lost")
            if record.key is not None:
                self.entries[record.key] = record.value
                self.records += 1
                self.read_bytes += len(record.key) + len(record.value or b"") + ENTRY_BYTES

    def write(self) -> Written:
        """Write a file, and begin the next one."""
        name = Path(self.part.folder, f"{self.first:020d}-{self.last:020d}.sst")
        write_file(name, self.entries, self.part.offset_key.encode(), self.last)
        written = Written(
            topic=self.part.topic,
            partition=self.part.partition,
            first=self.first,
            last=self.last,
            records=self.records,
            file=str(name),
        )
        self.first, self.entries, self.records, self.read_bytes = self.last + 1, {}, 0, 0
        return written


def write_file(name: Path, entries: Mapping[bytes, bytes | None], offset_key: bytes, last: int) -> None:
    """Write a sorted file with these entries (None: the key is deleted) and the offset, and sync it.

    It has its name only when it is whole.  Raises Exception, as rocksdict does: the disk is full.
    """
    table = BlockBasedOptions()
    table.set_bloom_filter(3, block_based=True)
    options = Options(raw_mode=True)
    options.set_block_based_table_factory(table)
    part = name.with_suffix(".part")
    writer = SstFileWriter(options)
    writer.open(str(part))
    for key, value in sorted({**entries, offset_key: str(last).encode()}.items()):
        if value is None:
            del writer[key]
        else:
            writer[key] = value
    writer.finish()
    part.rename(name)


async def write_files(consumer: Any, parts: Iterable[ChangelogPart], tell: Callable[[Written], None]) -> None:
    """Read all parts with this consumer, and tell of each file.  Raises TimeoutError when it comes no further.

    How far a part is, is the consumer's position and not its last record: a changelog may end with offsets that are no
    records.
    """
    gathered = {TopicPartition(part.topic, part.partition): Gathered.of(part) for part in parts}
    consumer.assign(list(gathered))
    for tp, each in gathered.items():
        consumer.seek(tp, each.first)
    loop, getmany = asyncio.get_running_loop(), inspect.unwrap(consumer.getmany)  # OpenTelemetry traces each record
    moved_at = loop.time()
    while gathered:
        batches = await getmany(timeout_ms=FETCH_WAIT_MS, max_records=READ_AT_ONCE)
        for tp, records in batches.items():
            if tp in gathered:
                gathered[tp].add(records)
        for tp, each in list(gathered.items()):
            position = await consumer.position(tp)
            if position > each.last + 1:
                each.last, moved_at = position - 1, loop.time()
            if each.last >= each.part.end - 1:
                consumer.pause(tp)
                del gathered[tp]
                tell(each.write())
        if sum(each.bytes for each in gathered.values()) > BUDGET_BYTES:
            tell(max(gathered.values(), key=lambda each: each.bytes).write())
        if loop.time() - moved_at > STALL_S:
            behind = {f"{tp.topic}/{tp.partition}": each.last for tp, each in gathered.items()}
            raise TimeoutError(f"nothing came for {STALL_S:g} s; read up to {behind}")


class GivenToken(AbstractTokenProvider):  # type: ignore[misc]
    """The token that the worker had."""

    def __init__(self, token: str, extensions: Mapping[str, str]) -> None:
        self._token = token
        self._extensions = extensions

    async def token(self) -> str:
        """The token."""
        return self._token

    def extensions(self) -> dict[str, str]:
        """What the broker asks for beside the token."""
        return dict(self._extensions)


def client_settings(connection: Mapping[str, Any]) -> dict[str, Any]:
    """Settings of an aiokafka client, from those of a request."""
    settings = dict(connection)
    if (tls := settings.pop("tls", None)) is not None:
        settings["ssl_context"] = create_ssl_context(cafile=tls["ca"], certfile=tls["certificate"], keyfile=tls["key"])
    if (token := settings.pop("token", None)) is not None:
        settings["sasl_oauth_token_provider"] = GivenToken(token["value"], token["extensions"])
    return settings


async def serve(request: FilesRequest) -> None:
    """Do what is asked for.  Raises KafkaError, OSError, and what rocksdict raises."""
    consumer = AIOKafkaConsumer(
        **client_settings(request.connection),
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        isolation_level="read_committed",
        max_partition_fetch_bytes=FETCH_BYTES,
        fetch_max_wait_ms=FETCH_WAIT_MS,
    )
    try:
        await consumer.start()
        await write_files(consumer, request.parts, lambda written: print(written.encode(), flush=True))
    finally:
        await consumer.stop()


def main() -> int:
    """Read a request, and end with its input."""
    os.nice(NICE)
    request = FilesRequest.decode(sys.stdin.buffer.readline())

    def end_with_input() -> None:
        sys.stdin.buffer.read()
        os._exit(1)

    threading.Thread(target=end_with_input, daemon=True).start()
    try:
        asyncio.run(serve(request))
    except Exception as error:  # whatever it is, the worker says it, and restores what is left in another way
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
