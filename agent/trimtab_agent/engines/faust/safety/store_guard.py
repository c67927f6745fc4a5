"""Ends a worker before a table becomes wrong.

The guard watches the stores and changelogs themselves for four faults, independently of the layers above:

- A write fails, for example on a full disk (patch end-when-state-is-not-written).  Faust lets the exception pass
  through the app's agent like any other: the event counts as done, the agent restarts, and the worker goes on without
  the state that it could not write.
- A changelog record is refused by the broker, for example because it is too large, its topic may not be written, or
  the host's clock is an hour fast (patch end-when-state-is-not-written).  Faust logs a warning and goes on: the state
  is on this disk only, and gone as soon as another worker takes over.
- A changelog record is applied to a partition that is active here (patch end-before-state-is-overwritten).  The worker
  would read back its own older writes and overwrite newer ones.  Faust legitimately does that only to restore, before
  any source is open.
- A table partition is written that belongs to another worker (patch end-before-foreign-state-is-written).  A source
  topic and a table are then not co-partitioned: partitions were added to one of them, or the app's author put them into
  different operators.  Faust compares the partition counts only before the first write of a topic's events to a table,
  and counts the event that fails as done.

After a fault nothing more is committed or sent, and the worker ends.  The group sees a worker that was killed.  Other
workers process its last events again, at most one commit interval of them.
"""

import asyncio
from collections.abc import Callable, Iterable
from typing import Any

from faust.exceptions import PartitionsMismatch
from faust.stores.rocksdb import Store
from faust.streams import current_event
from faust.types import TP

from trimtab_agent.engines.faust.safety.ending import break_off
from trimtab_agent.engines.faust.safety.fence import Fence, Fenced


class StateBreach(Exception):
    """Two workers were about to write one table partition, or one to overwrite it by an older state."""


class StoreGuard:
    """Watches the stores of one app."""

    def __init__(self, app: Any, fence: Fence, on_breach: Callable[[], None]) -> None:
        self._app = app
        self._fence = fence
        self._on_breach = on_breach

    def watch(self) -> None:
        """Start to watch every table of the app."""
        for table in self._app.tables.values():
            store = table.data
            if isinstance(store, Store):
                store._set, store._del = self._write_or_end(store._set), self._write_or_end(store._del)
                store.apply_changelog_batch = self._apply_or_end(
                    table.changelog_topic_name, store.apply_changelog_batch
                )
                topic = table.changelog_topic
                topic._on_published = self._published_or_end(table.changelog_topic_name, topic._on_published)
                if not (table.is_global or table.use_partitioner):
                    table.partition_for_key = self._own_or_end(table.changelog_topic_name, table.partition_for_key)

    def _write_or_end(self, write: Callable[..., None]) -> Callable[..., None]:
        def write_or_end(*arguments: Any) -> None:
            try:
                write(*arguments)
            except AssertionError:  # the app writes outside of an event, which loses nothing
                raise
            except Exception as error:
                self._end("a table cannot be written, this worker ends: %s", error)
                raise

        return write_or_end

    def _published_or_end(self, changelog: str, on_published: Callable[..., None]) -> Callable[..., None]:
        def published_or_end(sent: asyncio.Future[Any], message: Any, **known: Any) -> None:
            on_published(sent, message=message, **known)
            error = None if sent.cancelled() else sent.exception()
            if isinstance(error, Exception) and not isinstance(error, Fenced):
                record = f"{changelog}/{message.message.partition}"
                self._end(f"a record of changelog {record} was not written, this worker ends: %s", error)

        return published_or_end

    def _apply_or_end(self, changelog: str, apply: Callable[..., None]) -> Callable[..., None]:
        def apply_or_end(batch: Iterable[Any], to_key: Any, to_value: Any) -> None:
            # Faust applies a late record of a partition that it has just given away to the table of the record before.
            own = [event for event in batch if event.message.tp.topic == changelog]
            if own and not self._restoring():
                active = self._app.assignor._active_tps
                if touched := sorted({event.message.tp for event in own if event.message.tp in active}):
                    error = StateBreach(f"changelog records for {touched[0]}, which this worker owns and writes")
                    self._on_breach()
                    self._end("state would be overwritten, this worker ends: %s", error)
                    raise error
            apply(own, to_key, to_value)

        return apply_or_end

    def _own_or_end(self, changelog: str, partition_for_key: Callable[[Any], int]) -> Callable[[Any], int]:
        """Faust asks for the partition before it writes a table or its changelog."""

        def own_or_end(key: Any) -> int:
            try:
                partition = partition_for_key(key)
            except PartitionsMismatch as mismatch:
                self._on_breach()
                self._end("a table and its source are not co-partitioned, this worker ends: %s", mismatch)
                raise
            active, source = self._app.assignor._active_tps, current_event().message.tp
            if source in active and TP(changelog, partition) not in active:
                breach = StateBreach(
                    f"{source.topic} is written to a table of {changelog}, but this worker owns partition {partition} "
                    "of the first topic only: give both the same number of partitions, and put them into one operator"
                )
                self._on_breach()
                self._end("a table partition of another worker would be written, this worker ends: %s", breach)
                raise breach
            return partition

        return own_or_end

    def _restoring(self) -> bool:
        """Whether Faust itself is calling, on its own event loop and before it has opened any source."""
        consumer = self._app._consumer
        return asyncio._get_running_loop() is self._app.loop and not (consumer is not None and consumer.is_open)

    def _end(self, complaint: str, error: Exception) -> None:
        """Fence this worker for good and end it.  Callable from any thread."""
        if break_off(self._fence, complaint, error):
            self._app.loop.call_soon_threadsafe(lambda: self._app.add_future(self._app.crash(error)))
