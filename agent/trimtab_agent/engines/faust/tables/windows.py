"""Expiry of windowed tables: each window is closed once, by the owner of its partition (patch windows-closed-once).

The databases say which windows are open; what is in memory is an index of them, made anew from the database when a
partition arrives.  So a window that was restored or taken over is closed like any other, however old it is.  A closed
window is deleted in the owner's database and in the changelog in one step, before the next event.  Standbys and later
owners know by this that it is closed.

When a window expires is Faust's rule, by the clock.  But while a partition gets events of the past (a backfill, or a
backlog), the time of its newest window counts instead.  By the clock all its windows would have expired before their
first event, and each look would close what the next event opens again.  Windows that have yet to begin say nothing of
the time: some client's clock is wrong.
"""

import asyncio
import logging
import math
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from faust.types import TP

from trimtab_agent.engines.faust.group.ownership import Ownership
from trimtab_agent.engines.faust.measure.meter import Metered, meter_of
from trimtab_agent.engines.faust.safety.fence import uptime
from trimtab_agent.engines.faust.tables.own_partitions import OwnPartitions
from trimtab_agent.engines.faust.waiting import in_own_thread

log = logging.getLogger(__name__)

Range = tuple[float, float]
"""Start and end of a window in epoch seconds."""
Windowed = tuple[Any, Range]
"""A key as the app wrote it, and its window."""

MAX_CLOSED_REMEMBERED = 50_000
"""Closed windows per table that are not reported again if a late event opens them once more."""


def close_each_once(app: Any, ownership: Ownership, own: Mapping[str, OwnPartitions]) -> None:
    """Let Faust's cleanup of windowed tables use this module; `own` by changelog.  Call it once, with all tables."""
    for table in app.tables.values():
        if table._should_expire_keys() and table.changelog_topic_name in own:
            Expiry(app, ownership, table, own[table.changelog_topic_name])


class OpenWindows:
    """The windows of one partition that are not closed."""

    def __init__(self) -> None:
        self.keys: defaultdict[Range, set[Windowed | bytes]] = defaultdict(set)
        """Keys written here, and raw keys found in the database; one window may be in it as both."""
        self.newest = 0.0
        """The end of the newest window so far."""
        self.written = True
        """Whether the partition has been written since the last look, or has just arrived."""
        self.awaited: dict[TP, int] = {}
        """By source partition, the offset up to which events waited at the last look."""
        self.applied = 0
        """How often a changelog was applied to the database."""
        self.indexed: int | None = None
        """The value of `applied` when the database was indexed last."""

    @property
    def complete(self) -> bool:
        """Whether all windows in the database are known."""
        return self.indexed == self.applied

    def add(self, key: Windowed | bytes, window: Range) -> None:
        """Note an open window."""
        self.keys[window].add(key)
        self.newest = max(self.newest, window[1])

    def index(self, found: Iterable[tuple[bytes, Range]], applied: int) -> None:
        """Note what is in the database; `applied` = how often a changelog was applied to it before it was read."""
        for raw, window in found:
            self.add(raw, window)
        self.indexed = applied

    def time_at_look(self, clock: float, *, caught_up: bool) -> float:
        """The time by which windows expire, at most `clock` (epoch seconds).

        The newest window has ended long ago only while events of the past are processed.  They stand at its start at
        least.
        """
        written, self.written = self.written, False
        start, end = max((window for window in self.keys if window[0] <= clock), default=(clock, clock))
        return start if (written or not caught_up) and end < clock else clock


class Newest:
    """The end of each partition's newest window, which is what Faust takes for the time of its stream."""

    def __init__(self, of: Callable[[int], float]) -> None:
        self._of = of

    def __getitem__(self, partition: int) -> float:
        return self._of(partition)


class Expiry:
    """Closes the windows of one table."""

    def __init__(self, app: Any, ownership: Ownership, table: Any, own: OwnPartitions) -> None:
        self._app = app
        self._ownership = ownership
        self._table = table
        self._own = own
        self._open: defaultdict[int, OpenWindows] = defaultdict(OpenWindows)
        self._closed: dict[tuple[int, bytes], None] = {}
        self._apply = table.apply_changelog_batch
        table._maybe_set_key_ttl, table._maybe_del_key_ttl = self._written, self._deleted
        table._del_old_keys, table.apply_changelog_batch = self.close_expired, self._applied
        table._partition_latest_timestamp = Newest(self._newest)

    # ---- what is open

    def _written(self, key: Windowed, partition: int) -> None:
        windows = self._open[partition]
        windows.add(key, key[1])
        windows.written = True

    def _deleted(self, key: Windowed, partition: int) -> None:
        self._open[partition].keys.get(key[1], set()).discard(key)

    def _applied(self, batch: Iterable[Any]) -> None:
        """Apply a changelog: the index of a partition that is restored is out of date.  Called from any thread."""
        events = list(batch)
        self._apply(events)
        for partition in {event.message.partition for event in events}:
            if (windows := self._open.get(partition)) is not None:
                windows.applied += 1
                windows.written = True

    def _newest(self, partition: int) -> float:
        windows = self._open[partition]
        if not windows.complete:  # the partition has just arrived: the app must not see an older time than before
            windows.index(self._stored(partition), windows.applied)
        return windows.newest

    def _stored(self, partition: int) -> list[tuple[bytes, Range]]:
        """Raw key and window of each row in a database."""
        store, found, strange = self._table.data, [], []
        database = store._dbs.get(partition)
        for raw in () if database is None else store._visible_keys(database):
            try:
                _, (start, end) = self._decoded(raw)
                found.append((raw, (float(start), float(end))))
            except Exception:  # one strange row must not keep the others open
                strange.append(raw)
        if strange:
            name, first = self._table.name, strange[0]
            log.warning("%s: %d rows of partition %d have no window, as %r", name, len(strange), partition, first)
        return found

    def _decoded(self, raw: bytes) -> Any:
        return self._app.serializers.loads_key(None, raw, serializer=self._table.key_serializer)

    def _key(self, raw: bytes) -> Windowed:
        """The key as the app wrote it.  JSON knows no tuples, and the table's key type is that of the part in front."""
        table, serializers = self._table, self._app.serializers
        key, window = self._decoded(raw)
        part = serializers.dumps_key(None, key, serializer=table.key_serializer)
        loaded = serializers.loads_key(table.key_type, part, serializer=table.key_serializer)
        return _with_tuples(loaded), _with_tuples(window)

    # ---- closing

    async def close_expired(self) -> None:
        """Close all windows that have expired in partitions that this worker owns."""
        clock, store = time.time(), self._table.data
        owned = {partition for partition in store._dbs if self._ownership.is_active(self._tp(partition))}
        for partition in self._open.keys() - owned:
            del self._open[partition]
        for partition in sorted(owned):
            windows = self._open[partition]
            if not self._may_close(partition):
                windows.written = True  # nothing can be written now, so silence says nothing about the input
                continue
            caught_up = self._caught_up(partition, windows)
            if windows.complete or await self._indexed(partition, windows):
                await self._close_expired_of(partition, windows, windows.time_at_look(clock, caught_up=caught_up))

    def _caught_up(self, partition: int, windows: OpenWindows) -> bool:
        """Whether the events that waited at the last look are processed; not if that is unknown."""
        consumer, before, caught_up = self._app._consumer, windows.awaited, True
        windows.awaited = {}
        for tp in self._sources(partition):
            waiting, end = consumer.backlog(tp), consumer.log_end(tp)
            if waiting is None or end is None:
                caught_up = False
                continue
            windows.awaited[tp] = end
            caught_up &= waiting == 0 or consumer.next_offset(tp) >= before.get(tp, math.inf)
        return caught_up

    async def _indexed(self, partition: int, windows: OpenWindows) -> bool:
        """Index a database in a thread; False if it cannot be read, as when it is closed meanwhile."""
        applied = windows.applied
        try:
            windows.index(await in_own_thread(self._stored, partition), applied)
        except Exception as fault:  # rocksdict raises Exception itself; damage ends the worker where it is found
            log.warning("%s: the windows of partition %d are looked for again: %r", self._table.name, partition, fault)
            return False
        return True

    async def _close_expired_of(self, partition: int, windows: OpenWindows, now: float) -> None:
        meter = meter_of(self._app)
        for window in sorted(window for window in windows.keys if self._table.window.stale(window[1], now)):
            for key in list(windows.keys[window]):
                closing = self._close(partition, key)
                if not await (closing if meter is None else Metered(closing, meter, partition=self._tp(partition))):
                    windows.written = True
                    return
                windows.keys[window].discard(key)
                await asyncio.sleep(0)  # events are processed in between
            if not windows.keys[window]:
                del windows.keys[window]

    async def _close(self, partition: int, known: Windowed | bytes) -> bool:
        """Close one window; False if this worker may not.  A hand-over or rebalance waits for its end, as for events'.

        The app is told first.  After a crash in between, the next owner tells it again.
        """
        if not self._may_close(partition):
            return False
        table, consumer = self._table, self._app._consumer
        raw = known if isinstance(known, bytes) else table.data._encode_key(known)
        with self._own.only(partition):
            value = table.data._get(raw)
        if value is None:
            return True
        this = object()
        consumer.closing_windows[this] = self._sources(partition)
        try:
            if (partition, raw) not in self._closed:
                await self._tell_app(known, value)
            if this not in consumer.closing_windows or consumer.fence.closed(uptime()):
                return False
            table.send_changelog(partition, raw, None, value_serializer="raw")
            with self._own.only(partition):
                table.data._del(raw)
        finally:
            consumer.closing_windows.pop(this, None)
        self._closed[partition, raw] = None
        if len(self._closed) > MAX_CLOSED_REMEMBERED:
            del self._closed[next(iter(self._closed))]
        return True

    async def _tell_app(self, known: Windowed | bytes, value: bytes) -> None:
        """Call `on_window_close`.  Like an event that fails, a window of which it fails counts as done."""
        try:
            key = self._key(known) if isinstance(known, bytes) else known
            await self._table.on_window_close(key, self._table.data._decode_value(value))
        except Exception:
            log.exception("%s: on_window_close has failed for %r; the window is closed", self._table.name, known)

    def _may_close(self, partition: int) -> bool:
        """Whether this worker owns the partition and is not about to give it away."""
        consumer = self._app._consumer
        return (
            consumer is not None
            and consumer.is_open
            and not consumer.fence.closed(uptime())
            and self._ownership.is_active(self._tp(partition))
            and self._sources(partition).isdisjoint(consumer.blocked)
        )

    def _tp(self, partition: int) -> TP:
        return TP(self._table.changelog_topic_name, partition)

    def _sources(self, partition: int) -> frozenset[TP]:
        key_group = self._ownership.key_group_of(*self._tp(partition))
        return frozenset() if key_group is None else frozenset(self._ownership.sources([key_group]))


def _with_tuples(value: Any) -> Any:
    return tuple(map(_with_tuples, value)) if isinstance(value, list) else value
