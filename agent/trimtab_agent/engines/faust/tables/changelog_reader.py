"""Applies changelogs to the warm standby tables of key groups that this worker does not own.

Faust's own standby goes through the drain loop record by record and delays the worker's source events while it catches
up.  This reader has its own consumer, without a group, on the side loop.  What a table lacks more than a little of its
changelog, it gets by files first.

How far a table is, is the reader's position and not its last record.  A changelog may end with offsets that are no
records: the marker at the end of a transaction, a transaction that was aborted, records that compaction or retention
has removed.  Aborted records are not applied.

A changelog that has lost its end (an unclean election, a broker's disk) is read from its start by aiokafka, and the
offsets of the table say nothing any more.  It is not followed further, and whoever follows it again sees what is left.
"""

import asyncio
import contextlib
import functools
import inspect
import math
import threading
import time
from collections.abc import Callable, Collection, Iterable
from typing import Any

from aiokafka import AIOKafkaConsumer, TopicPartition
from faust.types import TP

from trimtab_agent.engines.changelog_files import Written
from trimtab_agent.engines.faust.tables.bulk_restore import BulkRestore, Missing, StoreEvent, StoreMessage, take_in
from trimtab_agent.engines.faust.transport.client import Connection, for_ever
from trimtab_agent.engines.faust.transport.unreadable import stand_at_unreadable

CHUNK_RECORDS = 500
"""Largest number of records applied at once under the lock: takes a few milliseconds."""
IDLE_S = 0.1
"""Pause while there is nothing to follow, and after each read at the end of all that is followed.  Each read takes the
interpreter away from the app's agents, and costs about as much for one record as for a hundred."""


class ChangelogReader:
    """Follows changelog partitions and keeps the last offset applied to each local table."""

    def __init__(
        self, connection: Connection, bulk: BulkRestore, on_shorter: Callable[[], None] = lambda: None
    ) -> None:
        """`on_shorter` is called in the side loop's thread after a changelog was found to have lost its end."""
        self._connection = connection
        self._bulk = bulk
        self._on_shorter = on_shorter
        self._missing: dict[TP, Missing] = {}
        """What files are to bring; these partitions are not read meanwhile."""
        self._lacking = asyncio.Event()
        """Set when there may be some of it."""
        self._applied: dict[TP, int] = {}
        self._until: dict[TP, int] = {}
        """Where changelogs ended when following them began, of tables that have not got so far."""
        self._tables: dict[TP, Any] = {}
        self._changed = False
        self._first: frozenset[TP] = frozenset()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._hurry = asyncio.Event()
        """Set while hand-overs wait for last records."""
        self._busy = 0.0, 0.0
        """Records, and the seconds that reading and applying them took; older ones count less."""
        self._lock = threading.Lock()
        self.records = 0
        """Number of records applied since the start."""

    @property
    def followed(self) -> frozenset[TP]:
        """The changelog partitions that are followed."""
        with self._lock:
            return frozenset(self._applied)

    @property
    def warm(self) -> frozenset[TP]:
        """Those whose tables have had all that was there when following began; from then on they only follow."""
        with self._lock:
            return frozenset(self._applied.keys() - self._until.keys())

    def applied(self, tp: TP) -> int | None:
        """The offset up to which the table has everything; None = not followed."""
        return self._applied.get(tp)

    @property
    def records_s(self) -> float:
        """Records per second that it reads and applies while there are some; 0 before the first."""
        records, seconds = self._busy
        return records / seconds if seconds else 0.0

    def follow(self, tp: TP, table: Any, applied: int, end: int = 0) -> None:
        """Apply all records after offset `applied` to `table`; `end` = where the changelog ends, if it lacks some."""
        with self._lock:
            self._tables[tp], self._applied[tp], self._changed = table, applied, True
            if applied < end - 1:
                self._until[tp] = end
            if (missing := Missing(table, applied + 1, end)).much:
                self._missing[tp] = missing
                self._tell(self._lacking.set)

    def leave(self, tps: Iterable[TP]) -> None:
        """Stop following.  After the return nothing more is written to the tables of these partitions."""
        with self._lock:
            for tp in tps:
                self._tables.pop(tp, None)
                self._missing.pop(tp, None)
                self._until.pop(tp, None)
                if self._applied.pop(tp, None) is not None:
                    self._changed = True

    def prefer(self, tps: Iterable[TP]) -> None:
        """Read these partitions alone until `prefer_no_more`: their hand-over waits for their last records."""
        self._first |= frozenset(tps)
        self._tell_hurry()

    def prefer_no_more(self, tps: Iterable[TP]) -> None:
        """Read these partitions like all others."""
        self._first -= frozenset(tps)
        self._tell_hurry()

    def _tell_hurry(self) -> None:
        self._tell(self._hurry.set if self._first else self._hurry.clear)

    def _tell(self, change: Callable[[], None]) -> None:
        """Change an event from any thread: it belongs to one loop."""
        if self._loop is not None:
            with contextlib.suppress(RuntimeError):  # the loop has just been closed
                self._loop.call_soon_threadsafe(change)

    async def run(self) -> None:
        """Follow until cancelled.  Runs on the side loop."""
        self._loop = asyncio.get_running_loop()
        self._lacking.set()
        try:
            await asyncio.gather(
                for_ever(self._follow, "cannot read changelogs for standby tables, retrying"),
                for_ever(self._restore, "cannot restore standby tables by files, retrying"),
            )
        finally:
            self._loop = None

    async def _follow(self) -> None:
        reader = AIOKafkaConsumer(
            **self._connection,
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            fetch_max_wait_ms=100,
            isolation_level="read_committed",
        )
        try:
            await reader.start()
            stand_at_unreadable(reader._fetcher)
            getmany = inspect.unwrap(reader.getmany)  # OpenTelemetry makes a span of each record
            self._changed = True
            following = False
            while True:
                if self._changed:
                    following = self._assign(reader)
                if not following:
                    await asyncio.sleep(IDLE_S)
                    continue
                first = [TopicPartition(*tp) for tp in self._first & self._read_now()]
                began = time.monotonic()
                batches = await getmany(*first, timeout_ms=50, max_records=CHUNK_RECORDS)
                for tp, records in batches.items():
                    self._apply(TP(*tp), records)
                self._count(sum(map(len, batches.values())), time.monotonic() - began)
                if self._advance(reader):
                    await self._rest()
        finally:
            await reader.stop()

    async def _restore(self) -> None:
        """Let files bring what tables lack.  What is left when that ends, the reader reads."""
        while True:
            await self._lacking.wait()
            self._lacking.clear()
            with self._lock:
                missing = dict(self._missing)
            if not missing:
                continue
            wanted = functools.partial(self._still_missing, missing)
            await self._bulk.run(missing, functools.partial(self._take_in, wanted), wanted)
            with self._lock:
                for tp in wanted():
                    del self._missing[tp]
                self._changed = True

    def _still_missing(self, missing: dict[TP, Missing]) -> list[TP]:
        return [tp for tp, each in missing.items() if self._missing.get(tp) is each]

    def _take_in(self, wanted: Callable[[], list[TP]], tp: TP, written: Written) -> bool:
        with self._lock:
            if tp not in wanted() or written.first != self._applied[tp] + 1:
                return False
            take_in(self._tables[tp], tp, written)
            self._applied[tp] = written.last
            self.records += written.records
            # A hand-over may count on a table that lacks little: what is left is read at once, and not waited for.
            if not self._missing[tp]._replace(first=written.last + 1).much:
                del self._missing[tp]
                self._changed = True
            return True

    def _read_now(self) -> frozenset[TP]:
        with self._lock:
            return frozenset(self._applied.keys() - self._missing.keys())

    def _count(self, records: int, seconds: float) -> None:
        if records:
            before, took_s = self._busy
            self._busy = 0.9 * before + records, 0.9 * took_s + seconds

    def _advance(self, reader: Any) -> bool:
        """Note the reader's positions; returns whether it has read all that the broker had when it last answered.

        `_apply` has applied all records before a position, unless something has changed since the last seek.
        """
        at_end, shorter = True, list[TP]()
        with self._lock:
            if self._changed:
                return False
            for tp, applied in self._applied.items():
                if tp in self._missing:
                    continue
                state = reader._subscription.subscription.assignment.state_value(TopicPartition(*tp))
                if not state.has_valid_position:
                    continue
                if state.position <= applied:  # it was out of range
                    shorter.append(tp)
                    continue
                self._applied[tp] = state.position - 1
                if state.position >= self._until.get(tp, math.inf):
                    del self._until[tp]
                at_end &= state.position >= (state.lso or 0)
        if shorter:
            self.leave(shorter)
            self._on_shorter()
        return at_end

    async def _rest(self) -> None:
        """Let records gather, unless a hand-over waits for them."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(IDLE_S):
                await self._hurry.wait()

    def _assign(self, reader: Any) -> bool:
        with self._lock:
            positions = {tp: applied for tp, applied in self._applied.items() if tp not in self._missing}
            self._changed = False
        reader.unsubscribe()
        if positions:
            reader.assign([TopicPartition(*tp) for tp in positions])
            for tp, applied in positions.items():
                reader.seek(TopicPartition(*tp), applied + 1)
        return bool(positions)

    def _apply(self, tp: TP, records: Collection[Any]) -> None:
        with self._lock:
            applied = self._applied.get(tp)
            if applied is None or self._changed:  # changed: read before a seek, so there may be a gap
                return
            fresh = [record for record in records if record.offset > applied]
            if fresh:
                self._tables[tp].apply_changelog_batch(
                    [StoreEvent(StoreMessage(tp, tp.partition, r.offset, r.key, r.value)) for r in fresh]
                )
                self._applied[tp] = fresh[-1].offset
                self.records += len(fresh)
