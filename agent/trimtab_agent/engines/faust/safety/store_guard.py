"""Watches the stores and changelogs of an app's tables: nothing wrong is written, and nothing unread counts as done.

The guard works at the stores and changelogs themselves, independently of the layers above.

Three faults are the app's, like any exception of its agents.  Nothing is written, and the worker goes on:

- A late write: the key group of the event has left this worker, or is just leaving (patch late-write-refused).  A task
  that has kept its event, for example.  The new owner would lose what it has written.
- A record that Kafka can never take (patch impossible-record-refused): `SteeredProducer.send_soon` looks at sizes and
  types.
- A table partition is written by an event of an in-memory channel, or by nobody's event, and is another worker's, or
  just leaving.

The key None of a table has a name on the disk, and gets the same one in the changelog (patch key-none-kept).  Kafka
takes no record without a key there: Faust would log a warning, and the state would be on one disk only.

A changelog record that the broker refuses for good makes its partition stand still: `refused.py`.

After four others nothing more is committed or sent, and the worker ends:

- A read or write fails, for example on a full disk or at a damaged file (patch end-when-state-fails).  Faust lets the
  exception pass through the app's agent like any other: the event counts as done, the agent restarts, and the worker
  goes on without the state that it could not read or write.  What is damaged is restored at the next start.
- A changelog record is not written for another reason (patch end-when-state-fails).  Faust logs a warning and goes on:
  the state is on this disk only, and gone as soon as another worker takes over.
- A changelog record is applied to a partition that is active here (patch end-before-state-is-overwritten).  The worker
  would read back its own older writes and overwrite newer ones.  Faust legitimately does that only to restore, before
  any source is open.
- An event of this worker writes or reads a table partition of another one
  (patch end-before-foreign-state-is-written).  A source topic and a table are then not co-partitioned: partitions were
  added to one of them, or the app's author put them into different operators.  Faust compares the partition counts only
  before the first write of a topic's events to a table, and counts the event that fails as done.  It has all topics
  with the same number of partitions on one worker, so a read goes elsewhere only with operators; it would find nothing.

The group sees a worker that was killed.  Other workers process its last events again, at most one commit interval.
"""

import asyncio
import functools
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, MutableMapping
from typing import Any

from faust.exceptions import PartitionsMismatch
from faust.stores.rocksdb import Store
from faust.streams import current_event
from faust.types import TP

from trimtab_agent.engines.faust.safety.damaged import DAMAGED, UNREADABLE, found_by, mark, replace_damaged
from trimtab_agent.engines.faust.safety.fence import Fence, WorkerFenced, break_off
from trimtab_agent.engines.faust.safety.placed_keys import PlacedKeys
from trimtab_agent.engines.faust.safety.refused import RefusedRecords, refusal
from trimtab_agent.engines.faust.safety.troubles import Repeated, Tell, Trouble


class StateBreach(Exception):
    """Two workers were about to write one table partition, or one to overwrite it by an older state."""


class LateWrite(Exception):
    """A table was written after its key group had left this worker; nothing of it was kept."""


class ImpossibleRecord(ValueError):
    """A record that Kafka takes from nobody; nothing of it was written."""


class StoreGuard:
    """Watches the stores of one app."""

    def __init__(self, app: Any, fence: Fence, *, on_breach: Callable[[], None], tell: Tell) -> None:
        self._app = app
        self._fence = fence
        self._on_breach = on_breach
        self._tables: dict[Any, tuple[Any, str]] = {}
        """By changelog topic, with the name of that."""
        self.placed: defaultdict[str, PlacedKeys] = defaultdict(PlacedKeys)
        """By changelog topic, what the writes show to the router."""
        self.refused = RefusedRecords(app, fence, tell)
        self.late_writes = Repeated(Trouble.LATE_WRITE, tell)
        self._lost_outputs = Repeated(Trouble.OUTPUTS_LOST, tell)

    def watch(self) -> None:
        """Start to watch every table of the app."""
        for table in self._app.tables.values():
            store = table.data
            if isinstance(store, Store):
                self._watch_store(table, store)
                self._watch_changelog(table)
                # Faust's own sends the records of all keys before it writes the first, so an error leaves half of it.
                table.update = functools.partial(MutableMapping.update, table)
                table.clear = store._clear  # raises NotImplementedError, as Faust's own does after many tombstones

    def _watch_store(self, table: Any, store: Any) -> None:
        replace_damaged(store)
        for name in ("_get", "_contains"):
            setattr(store, name, self._read_own(table, self._get_or_end(store, getattr(store, name))))
        store.persisted_offset = self._get_or_end(store, store.persisted_offset)
        # A full disk stops a standby, but ends no worker.
        store.set_persisted_offset = self._do_or_end(store, store.set_persisted_offset)
        for name in ("_visible_keys", "_visible_items"):
            setattr(store, name, self._read_all_or_end(store, getattr(store, name)))
        apply = self._do_or_end(store, store.apply_changelog_batch)
        store.apply_changelog_batch = self._apply_or_end(table, apply)
        write, delete = store._set, store._del
        anywhere = table.is_global or table.use_partitioner

        def delete_own(key: bytes) -> None:
            # Faust deletes in the partition that was read last, or in all, also in those that others own.
            event = None if anywhere else current_event()
            if event is None:
                delete(key)
            else:
                self._refuse_late(table, event.message, key)
                store._db_for_partition(event.message.partition).delete(key)

        def write_own(key: bytes, value: bytes | None) -> None:
            if not anywhere and (event := current_event()) is not None:
                self._refuse_late(table, event.message, key)
            if value is None:  # as its changelog has it
                delete_own(key)
            else:
                write(key, value)

        store._set, store._del = self._write_or_end(store, write_own), self._write_or_end(store, delete_own)

    def _watch_changelog(self, table: Any) -> None:
        topic = table.changelog_topic
        self._tables[topic] = table, table.changelog_topic_name
        topic._on_published = self._published_or_end(table, topic._on_published)
        partition_for_key = table.partition_for_key

        def partition_or_end(key: Any) -> Any:
            try:
                return partition_for_key(key)
            except PartitionsMismatch as mismatch:
                self._on_breach()
                self._end("a table and its source are not co-partitioned, this worker ends: %s", mismatch)
                raise

        table.partition_for_key = partition_or_end

    # ---- what the app writes

    def let_pass(self, future: Any) -> bool:
        """Look at a record before it is buffered, and before the local table is written; whether it is a changelog's.

        Raises LateWrite, TypeError for a key None that no table can have, Fenced, and StateBreach, after which the
        worker ends.
        """
        record = future.message
        if (found := self._tables.get(record.channel)) is None:
            return False
        table, changelog = found
        event = current_event()
        message = future.cause = None if event is None else event.message
        tp = changelog, record.partition  # quicker than a TP, and equal to it
        if not (table.is_global or table.use_partitioner):
            self._refuse_late(table, message, record.key)
            leaving = message is None and self._app._consumer.is_leaving(record.partition)
            if leaving or tp not in self._app.assignor._active_tps:
                self._refuse_foreign(table, message, TP(*tp), record.key)
        if record.key is None:
            record = future.message = record._replace(key=table.data._encode_key(None))
        if message is not None and message.tp.topic is not None:
            placed = self.placed[changelog]
            placed.written(record.key, message.key, message.partition, windowed=table.window is not None)
        if self.refused.waiting:
            self.refused.written(TP(*tp), record.key)
        return True

    def _refuse_late(self, table: Any, message: Any, key: Any) -> None:
        """Raises LateWrite if the event's key group has left."""
        if message is not None and self._app._consumer.is_late(message):
            raise self._late(f"table {table.name}, key {key!r:.60}{of_event(message)}")
        if self._fence.lost or self._fence.broken:
            raise WorkerFenced(f"table {table.name}: this worker has lost its membership, or its state is broken")

    def _refuse_foreign(self, table: Any, message: Any, tp: TP, key: Any) -> None:
        """Raises StateBreach, after which the worker ends; LateWrite where no source partition is of this worker."""
        if message is None or message.tp.topic is None:
            raise self._late(f"table {table.name}, key {key!r:.60}: {tp.topic}/{tp.partition} is not of this worker")
        if self._app._consumer.has_begun:
            self._breach(
                "a table partition of another worker would be written, this worker ends: %s",
                f"{message.tp} is written to a table of {tp.topic}",
                tp,
            )

    def _breach(self, complaint: str, what: str, tp: TP) -> None:
        breach = StateBreach(
            f"{what}, but this worker owns partition {tp.partition} of the first topic only: "
            "give both the same number of partitions, and put them into one operator"
        )
        self._on_breach()
        self._end(complaint, breach)
        raise breach

    def _late(self, what: str) -> LateWrite:
        self.late_writes.seen("late writes were refused", what)
        return LateWrite(f"a late write is refused: {what}. The key group has left this worker")

    def outputs_lost(self, topic: str, partition: int | None, error: BaseException, keys: Collection[Any]) -> None:
        """The broker has refused records; what is no changelog's is lost, as without the plug-in."""
        if topic not in self._app.tables.changelog_topics:
            where = topic if partition is None else f"{topic}/{partition}"
            why = refusal(error) or "the topic is not there"
            detail = f"Kafka refuses {where} ({why}), first key {next(iter(keys), None)!r:.40}"
            self._lost_outputs.seen("outputs are lost", detail, len(keys))

    def _published_or_end(self, table: Any, on_published: Callable[..., None]) -> Callable[..., None]:
        changelog = table.changelog_topic_name

        def published_or_end(sent: asyncio.Future[Any], message: Any, **known: Any) -> None:
            on_published(sent, message=message, **known)
            error = None if sent.cancelled() else sent.exception()
            record = message.message
            if error is None:
                if self.refused.waiting:
                    self.refused.written(TP(changelog, record.partition), record.key)
            elif isinstance(error, Exception) and not isinstance(error, WorkerFenced) and not self._fence.broken:
                if (why := refusal(error)) is not None:
                    message.exception()  # nobody else asks for it, and asyncio would complain
                    self.refused.refuse(table, message, why)
                else:
                    where = f"{changelog}/{record.partition}"
                    self._end(f"a record of changelog {where} was not written, this worker ends: %s", error)

        return published_or_end

    # ---- local tables

    def _write_or_end(self, store: Any, write: Callable[..., None]) -> Callable[..., None]:
        def write_or_end(*arguments: Any) -> None:
            try:
                write(*arguments)
            except (AssertionError, TypeError, ValueError, LateWrite, WorkerFenced):  # the app's: no event, not bytes
                raise
            except Exception as error:
                self._set_aside(store, error)
                self._end("a table cannot be written, this worker ends: %s", error)
                raise

        return write_or_end

    def _read_own(self, table: Any, get: Callable[[Any], Any]) -> Callable[[Any], Any]:
        if table.is_global or table.use_partitioner:
            return get
        changelog, assignor = table.changelog_topic_name, self._app.assignor

        def read_own(key: Any) -> Any:
            event = current_event()
            if event is not None and (changelog, event.message.partition) not in assignor._active_tps:
                self._refuse_foreign_read(event.message, TP(changelog, event.message.partition))
            return get(key)

        return read_own

    def _refuse_foreign_read(self, message: Any, tp: TP) -> None:
        """Raises StateBreach, after which the worker ends, where stock Faust would have the partition here.

        It assigns all topics with the same number of partitions together; operators that the app names may not.
        """
        consumer = self._app._consumer
        if message.tp.topic is None or consumer.is_late(message) or not consumer.has_begun:
            return
        count = consumer.thread.partition_count
        if count(message.tp.topic) == count(tp.topic):
            self._breach(
                "a table partition of another worker would be read, this worker ends: %s",
                f"an event of {message.tp} reads a table of {tp.topic}",
                tp,
            )

    def _get_or_end(self, store: Any, get: Callable[[Any], Any]) -> Callable[[Any], Any]:
        def get_or_end(key: Any) -> Any:
            try:
                return get(key)
            except Exception as error:
                self._end_if(store, error, DAMAGED, UNREADABLE)
                raise

        return get_or_end

    def _do_or_end(self, store: Any, do: Callable[..., None]) -> Callable[..., None]:
        def do_or_end(*arguments: Any, **options: Any) -> None:
            try:
                do(*arguments, **options)
            except Exception as error:
                self._end_if(store, error, DAMAGED)
                raise

        return do_or_end

    def _read_all_or_end(self, store: Any, read: Callable[[Any], Iterator[Any]]) -> Callable[[Any], Iterator[Any]]:
        """rocksdict's iterators end at what they cannot read, as if nothing came after it."""

        def read_all_or_end(database: Any) -> Iterator[Any]:
            last = None
            try:
                for last in read(database):
                    yield last
                at = database.iter()
                if last is None:
                    at.seek_to_first()
                else:
                    at.seek(last if isinstance(last, bytes) else last[0])
                    at.next()
                at.status()
            except Exception as error:
                self._end_if(store, error, DAMAGED, UNREADABLE)
                raise

        return read_all_or_end

    def _end_if(self, store: Any, error: Exception, *faults: str) -> None:
        if str(error).startswith(faults):  # rocksdict raises Exception itself
            self._set_aside(store, error)
            self._end("a table cannot be read, this worker ends: %s", error)

    @staticmethod
    def _set_aside(store: Any, error: Exception) -> None:
        if str(error).startswith(DAMAGED):
            for path in found_by(error, store):
                mark(path)

    def _apply_or_end(self, table: Any, apply: Callable[..., None]) -> Callable[..., None]:
        changelog = table.changelog_topic_name

        def apply_or_end(batch: Iterable[Any], to_key: Any, to_value: Any) -> None:
            # Faust applies a late record of a partition that it has just given away to the table of the record before.
            # A record without a key is no state; it would hold up all others.
            own = [each for each in batch if each.message.tp.topic == changelog and each.message.key is not None]
            # Each worker reads all of a global table, for which Faust calls all partitions active everywhere.
            if own and not (table.is_global or self._restoring()):
                active = self._app.assignor._active_tps
                if touched := sorted({event.message.tp for event in own if event.message.tp in active}):
                    error = StateBreach(f"changelog records for {touched[0]}, which this worker owns and writes")
                    self._on_breach()
                    self._end("state would be overwritten, this worker ends: %s", error)
                    raise error
            apply(own, to_key, to_value)

        return apply_or_end

    def _restoring(self) -> bool:
        """Whether Faust itself is calling, on its own event loop and before it has opened any source."""
        consumer = self._app._consumer
        return asyncio._get_running_loop() is self._app.loop and not (consumer is not None and consumer.is_open)

    def _end(self, complaint: str, error: Exception) -> None:
        """Fence this worker for good and end it.  Callable from any thread."""
        if break_off(self._fence, complaint, error):
            self._app.loop.call_soon_threadsafe(lambda: self._app.add_future(self._app.crash(error)))


def of_event(message: Any) -> str:
    """Which event a complaint is about, to be put behind it; empty if it is none of a log."""
    if message is None or message.tp.topic is None:
        return ""
    return f", event {message.tp.topic}/{message.tp.partition} offset {message.offset}"
