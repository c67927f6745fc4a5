"""Changelog records that Kafka refuses, and goes on to refuse whoever sends them (patch stand-at-refused-record).

Another worker would not fare better, nor would this one after a restart: it ends nobody.  The partition of the event
that wrote the record stands still, and all others go on.  Nothing is committed beyond that event.  The record is sent
again from time to time, because an operator may have removed the cause (granted the right, raised the limit); then the
partition goes on, and nothing was counted twice.  If the key group is restored elsewhere, or here after a rebalance,
the event is processed again, and its record is refused again.

An operator who gives a record up makes the file that the log names.  The table then keeps the value that its changelog
has, and the event counts as done.
"""

import asyncio
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiokafka.errors
from aiokafka.errors import BrokerResponseError
from faust.types import TP
from faust.types.tuples import FutureMessage

from trimtab_agent.engines.faust.safety.damaged import mark, unmark
from trimtab_agent.engines.faust.safety.fence import Fence
from trimtab_agent.engines.faust.safety.troubles import Tell, Trouble
from trimtab_protocol.messages.decode import printable

log = logging.getLogger(__name__)

REFUSALS: Mapping[int, str] = {
    10: "it is larger than max.message.bytes",
    17: "the topic's name is invalid",
    18: "it is larger than a segment",
    29: "the app may not write this topic",
    31: "the app may not write to this cluster",
    32: "its time is too far from the broker's",
    44: "a policy of the broker forbids it",
    87: "the broker calls it invalid",
}
"""Codes with which a broker refuses a batch and writes nothing of it, whoever sends it, in words."""
SOON_S = 1.0
"""After how long a refused record is sent again for the first time: alone, as others of its batch may be at fault."""
LATER_S = 30.0
"""The longest time between two tries; it doubles from one to the next."""
LONGEST_NAME = 200
"""Characters of a topic in the name of a file, which may have 255; topics may have 249."""
LOOK_S = 0.5
"""How often the file is looked for with which an operator gives a record up."""


class InvalidRecordError(BrokerResponseError):  # type: ignore[misc]
    """INVALID_RECORD, which aiokafka has no name for."""

    errno = 87
    message = "INVALID_RECORD"
    description = "The broker has refused a record, for example one without a key on a compacted topic."


aiokafka.errors.kafka_errors[InvalidRecordError.errno] = InvalidRecordError


@dataclass(frozen=True, slots=True, kw_only=True)
class RefusedRecord:
    """A record that was refused, and the event that wrote it; `tp` None: an event that is in no log."""

    record: Any
    database: Path
    tp: TP | None
    offset: int
    why: str


def refusal(error: BaseException | None) -> str | None:
    """Why a broker refuses a record for good; None if it does not, or may take it another time."""
    while error is not None:
        if (known := REFUSALS.get(getattr(error, "errno", -1))) is not None:
            return f"{type(error).__name__.removesuffix('Error')}: {known}"
        error = error.__cause__
    return None


class RefusedRecords:
    """The refused records of one worker, the newest of each key."""

    def __init__(self, app: Any, fence: Fence, tell: Tell) -> None:
        self._app = app
        self._fence = fence
        self._tell = tell
        self.waiting: dict[tuple[TP, bytes], RefusedRecord] = {}
        """By changelog partition and key."""
        self._stood: dict[TP, int] = {}
        """Where partitions stood when the group left a generation: what came after it there would be done once more."""
        self._task: asyncio.Future[None] | None = None
        self._told: frozenset[str] = frozenset()

    def refuse(self, table: Any, future: Any, why: str) -> None:
        """The broker has refused this record of a table: hold what comes after its event."""
        record, message = future.message, future.cause
        changelog = TP(table.changelog_topic_name, record.partition)
        if isinstance(message, _RecordEvent) and (changelog, record.key) not in self.waiting:
            return  # sent again just before the group has left the generation
        while (origin := getattr(message, "cause", None)) is not None:  # what skipped the broker is read again with it
            message = origin
        in_log = message is not None and message.offset >= 0
        found = RefusedRecord(
            record=record,
            database=table.data.partition_path(record.partition),
            tp=TP(*message.tp) if in_log else None,  # it is aiokafka's own type
            offset=message.offset if in_log else -1,
            why=why,
        )
        self.waiting[changelog, record.key] = found
        mark(found.database)
        if found.tp is not None:
            self._app.consumer.hold(found.tp, found.offset)
        self._look_after()

    def delivered(self, tp: TP, offset: int) -> None:
        """Let nothing follow an event at which its partition stood, until it is known whether it stands again."""
        if self._stood.get(tp) == offset:
            self._app.consumer.hold(TP(*tp), offset)  # it is aiokafka's own type
            self._look_after()

    def _look_after(self) -> None:
        if self._task is None:
            self._task = asyncio.ensure_future(self._send_again())

    def written(self, changelog: TP, key: bytes) -> None:
        """A record of this key is written, or about to be: an older one that was refused must not follow it."""
        found = self.waiting.pop((changelog, key), None)
        if found is not None and not any(other.database == found.database for other in self.waiting.values()):
            unmark(found.database)

    def leave(self) -> None:
        """The group leaves its generation: whoever owns the key groups next processes their events again.

        The databases here have values that their changelogs lack: they are closed, and replaced when opened next.
        """
        recovery = self._app.tables.recovery
        for changelog, _ in self.waiting:
            database = self._app.tables._changelogs[changelog.topic].data._dbs.pop(changelog.partition, None)
            if database is not None:
                database.close()
            recovery.revoke(changelog)  # or Faust would restore from where the closed database was
        for found in sorted(self.waiting.values(), key=lambda each: -each.offset):  # the first one remains
            if found.tp is not None:
                self._stood[found.tp] = found.offset
        self.waiting.clear()
        if self._task is not None:
            self._task.cancel()
            self._task = None
        self._say()

    async def _send_again(self) -> None:
        consumer, wait_s = self._app.consumer, SOON_S
        try:
            while (self.waiting or consumer.held) and not (self._fence.over or self._app.should_stop):
                if await self._given_up_within(wait_s):
                    return
                await self._app.producer.flush()
                for key, found in list(self.waiting.items()):
                    if self.waiting.get(key) is found:
                        future = FutureMessage(found.record)
                        future.cause = _RecordEvent(found.tp, found.offset)
                        self._app.producer.buffer.put(future)  # its event is over: nobody asks whether it is late
                        await self._app.producer.flush()
                wait_s = min(2 * wait_s, LATER_S)
                waiting = {found.tp for found in self.waiting.values()}
                for tp in consumer.held - waiting:
                    log.warning("%s goes on: Kafka has taken the refused records of it", _name(tp))
                    await consumer.go_on(tp)
                self._say()
        except asyncio.CancelledError:
            raise
        except Exception:
            if not self._app.should_stop:
                log.exception("what Kafka has refused is sent again only after a rebalance")
        finally:
            if self._task is asyncio.current_task():
                self._task = None

    async def _given_up_within(self, wait_s: float) -> bool:
        """Wait, and keep what is held so; True if an operator has given records up, which ends the generation."""
        consumer, loop = self._app.consumer, asyncio.get_running_loop()
        deadline = loop.time() + wait_s
        while loop.time() < deadline:
            await consumer.keep_held()
            given_up = [found for found in self.waiting.values() if found.tp is not None and self._file(found).exists()]
            for found in given_up:
                log.warning("%s offset %d: its record is given up", _name(found.tp), found.offset)
                self._file(found).unlink(missing_ok=True)
                consumer.count_as_done(found.tp)
            if given_up:  # at a rebalance Faust restores the table, which now has a value that its changelog lacks
                await consumer.thread.run(consumer.thread.request_rejoin)
                return True
            await asyncio.sleep(LOOK_S)
        return False

    def _file(self, found: RefusedRecord) -> Path:
        assert found.tp is not None
        topic = found.tp.topic[-LONGEST_NAME:]
        return found.database.parent / f"give-up-{topic}-{found.tp.partition}-{found.offset}"

    def _say(self) -> None:
        """Tell what stands, and log it when it is new."""
        lines = {self._line(changelog, key, found): found for (changelog, key), found in self.waiting.items()}
        for line in lines.keys() - self._told:
            found = lines[line]
            way_out = "" if found.tp is None else f"; to give this record up: touch '{self._file(found)}'"
            log.error("%s. It is sent again from time to time, and all other partitions go on%s", line, way_out)
        if self._told or lines:
            self._tell(Trouble.STANDS, min(lines, default=None, key=str))
        self._told = frozenset(lines)

    @staticmethod
    def _line(changelog: TP, key: bytes, found: RefusedRecord) -> str:
        where = "" if found.tp is None else f"it stands at {_name(found.tp)} offset {found.offset}: "
        told = f"{where}Kafka refuses key {key[:40]!r} of {_name(changelog)} ({found.why})"
        return printable(told)[:200]


@dataclass(frozen=True, slots=True)
class _RecordEvent:
    """What a record that is sent again knows of its event."""

    tp: TP | None
    offset: int


def _name(tp: TP) -> str:
    return f"{tp.topic}/{tp.partition}"
