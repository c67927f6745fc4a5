"""Restores tables that lack much of their changelogs by files, which a process of its own writes.

Faust restores record by record in the worker, 8,000 a second, and the app's agents wait meanwhile.  The process reads
beside the job (`changelog_files`); the worker only takes whole files into its databases, in milliseconds.  Standbys,
targets of hand-overs and Faust's own recovery use it.  What it leaves, and everything if it fails, is restored as
before: a database is always exactly its changelog up to its stored offset.
"""

import asyncio
import contextlib
import functools
import logging
import os
import shutil
import sys
import time
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import psutil
from faust.types import TP
from rocksdict import IngestExternalFileOptions

from trimtab_agent.engines import changelog_files
from trimtab_agent.engines.changelog_files import ChangelogPart, FilesRequest, Written
from trimtab_agent.engines.faust.transport.client import Connection, NotPlain, as_plain_data
from trimtab_agent.sampler.readings import find_quotas

log = logging.getLogger(__name__)

MANY_RECORDS = 10_000
"""A table that lacks fewer is restored by the worker itself: Faust needs about a second, the process one to start."""
LOOK_S = 0.5
"""How often it is looked whether anybody still wants the files."""
ROOM_BYTES = 300 << 20
"""Memory that must be free.  The process needs half of it, and where there is none the kernel may end the worker."""
WORKER = "TRIMTAB_WORKER"
"""The variable by which an agent finds a worker's process: it must not find this one after the worker was killed."""
COMPLAINT = 500
"""Characters of what the process says when it fails."""


class Missing(NamedTuple):
    """What a table lacks of its changelog: the offsets from `first` up to `end`, which is not one of them."""

    table: Any
    first: int
    end: int

    @property
    def much(self) -> bool:
        """Whether files are worth it."""
        return self.end - self.first >= MANY_RECORDS


class StoreMessage(NamedTuple):
    """The part of a changelog record that a table's store needs."""

    tp: TP
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None


class StoreEvent(NamedTuple):
    """The part of a Faust event that a table's store needs."""

    message: StoreMessage


Take = Callable[[TP, Written], bool]
"""Takes a file into a database; False if nobody wants it, or what follows it."""
Wanted = Callable[[], Collection[TP]]
"""The changelog partitions whose files somebody still wants."""


class BulkRestore:
    """Runs the process, on any event loop."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def run(self, missing: Mapping[TP, Missing], take: Take, wanted: Wanted) -> None:
        """Have what is missing written, and call `take` for each file, until all is there, or nobody wants more of it.

        What goes wrong is logged; then some of it is still missing.
        """
        left, records, began = set(missing), 0, time.monotonic()
        try:
            request = await self._request(missing)
            async with _started(request) as process:
                async for written in _files(process, lambda: left & set(wanted())):
                    tp = TP(written.topic, written.partition)
                    records += written.records
                    if not take(tp, written) or written.last >= missing[tp].end - 1:
                        left.discard(tp)
        except NotPlain as why:
            log.info("%d changelogs are restored record by record: %s", len(left), why)
        except Exception as fault:  # whatever it is, the worker restores the rest
            log.warning("%d changelogs are restored record by record: %r", len(left), fault)
        finally:
            for tp, each in missing.items():
                shutil.rmtree(_folder(each.table, tp), ignore_errors=True)
        if records:
            text = "restored %d records of %d changelogs by files in %.1f s"
            log.info(text, records, len(missing), time.monotonic() - began)

    async def _request(self, missing: Mapping[TP, Missing]) -> FilesRequest:
        """Make room for the files.  Raises NotPlain, MemoryError, OSError."""
        if (free := _free_memory()) < ROOM_BYTES:
            raise MemoryError(f"{free / 1e6:.0f} MB of memory are free, and {ROOM_BYTES / 1e6:.0f} MB are wanted")
        connection, parts = await as_plain_data(self._connection), []
        for tp, each in sorted(missing.items(), key=lambda item: item[0]):
            folder = _folder(each.table, tp)
            shutil.rmtree(folder, ignore_errors=True)  # of a worker that was killed
            folder.mkdir(parents=True)
            parts.append(
                ChangelogPart(
                    topic=tp.topic,
                    partition=tp.partition,
                    first=each.first,
                    end=each.end,
                    folder=str(folder),
                    offset_key=each.table.data.offset_key.decode(),
                )
            )
        return FilesRequest(connection=connection, parts=tuple(parts))


@contextlib.asynccontextmanager
async def _started(request: FilesRequest) -> AsyncIterator[Process]:
    """The process, while it runs.  It gets no signal of a terminal, and ends with this worker."""
    program = (sys.executable, "-P", "-m", changelog_files.__name__)
    environment = {name: value for name, value in os.environ.items() if name != WORKER}
    process = await asyncio.create_subprocess_exec(
        *program, stdin=PIPE, stdout=PIPE, stderr=PIPE, env=environment, start_new_session=True
    )
    try:
        assert process.stdin is not None
        process.stdin.write(request.encode() + b"\n")
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()


async def _files(process: Process, wanted: Callable[[], Collection[TP]]) -> AsyncIterator[Written]:
    """What the process has written, until nothing is `wanted` any more.  Raises ChildProcessError if it fails."""
    assert process.stdout is not None
    assert process.stderr is not None
    while wanted():
        try:
            async with asyncio.timeout(LOOK_S):
                line = await process.stdout.readline()
        except TimeoutError:
            continue
        if not line:
            said = (await process.stderr.read()).decode(errors="replace").strip()
            raise ChildProcessError(said[-COMPLAINT:] or f"it ended with exit code {await process.wait()}")
        yield Written.decode(line)


def _free_memory() -> float:
    """Bytes that this worker's container, or else the host, has left."""
    free, quota = float(psutil.virtual_memory().available), find_quotas().memory
    used = None if quota is None else quota.memory_used()
    return free if quota is None or used is None else min(free, quota.limit - used)


def _folder(table: Any, tp: TP) -> Path:
    path: Path = table.data.partition_path(tp.partition)
    return path.with_name(f"{path.name}.incoming")


def take_in(table: Any, tp: TP, written: Written) -> None:
    """Take a file into an open database, which has its changelog up to the file.  Raises Exception, as rocksdict."""
    options = IngestExternalFileOptions()
    options.set_move_files(True)
    table.data._dbs[tp.partition].ingest_external_file([written.file], options)
    # What watches the table sees that it has changed: windows are found anew, and no table may change that is written.
    offset = StoreMessage(tp, tp.partition, written.last, table.data.offset_key, str(written.last).encode())
    table.apply_changelog_batch([StoreEvent(offset)])


class FilesFirst:
    """Lets Faust's recovery begin when files have brought its tables near the end of their changelogs.

    Faust must not be kept in the rebalance itself: no other member could go on.
    """

    def __init__(self, app: Any, bulk: BulkRestore, ends: Mapping[TP, int]) -> None:
        """`ends` = where changelogs end, as far as the broker has said it when their databases were opened."""
        self._app = app
        self._ends = ends
        self._bulk = bulk
        self._restoring: asyncio.Future[Any] | None = None
        self._revoked: set[TP] = set()
        """Since Faust's recovery began last."""
        recovery = app.tables.recovery
        self._recover: Callable[..., Awaitable[None]] = recovery.on_rebalance
        recovery.on_rebalance = self.on_rebalance

    async def on_rebalance(
        self, assigned: set[TP], revoked: set[TP], newly_assigned: set[TP], generation_id: int = 0
    ) -> None:
        """Begin to restore the tables of a generation; databases are open."""
        if self._restoring is not None:
            self._restoring.cancel()
            await asyncio.wait([self._restoring])
            self._restoring = None
        self._revoked |= revoked
        recover = functools.partial(self._recover_now, assigned, newly_assigned, generation_id)
        if missing := self._missing():
            self._restoring = self._app.add_future(self._restore(missing, generation_id, recover))
        else:
            await recover()

    async def _recover_now(self, assigned: set[TP], newly_assigned: set[TP], generation_id: int) -> None:
        revoked, self._revoked = self._revoked, set()
        await self._recover(assigned, revoked, newly_assigned, generation_id)

    def _missing(self) -> dict[TP, Missing]:
        """What the databases of own partitions lack, of those that lack much."""
        changelogs = self._app.tables._changelogs
        tables = {
            tp: table
            for tp in self._app.assignor.assigned_actives()
            if (table := changelogs.get(tp.topic)) is not None and tp.partition in table.data._dbs
        }
        found = {tp: Missing(table, _next_offset(table, tp), self._ends.get(tp) or 0) for tp, table in tables.items()}
        return {tp: each for tp, each in found.items() if each.much}

    async def _restore(
        self, missing: Mapping[TP, Missing], generation_id: int, recover: Callable[[], Awaitable[None]]
    ) -> None:
        def wanted() -> Collection[TP]:
            if self._app.should_stop or self._app.consumer_generation_id != generation_id:
                return ()
            return [tp for tp, each in missing.items() if tp.partition in each.table.data._dbs]

        def take(tp: TP, written: Written) -> bool:
            table = missing[tp].table
            if tp not in wanted() or written.first != _next_offset(table, tp):
                return False
            take_in(table, tp, written)
            return True

        await self._bulk.run(missing, take, wanted)
        await recover()


def _next_offset(table: Any, tp: TP) -> int:
    """The first offset that an open database lacks."""
    at = table.persisted_offset(tp)
    return 0 if at is None else int(at) + 1
