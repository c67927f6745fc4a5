"""Reads placements and hand-over records without a consumer group, and writes hand-over records.

Runs on the side loop.  While the broker or the topics are away it retries; the worker keeps the last placement.
"""

import asyncio
import contextlib
import logging
import threading
import time
from collections.abc import Callable
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.errors import KafkaError, KafkaTimeoutError

from trimtab_agent.engines.faust.group.placement_follower import PlacementFollower
from trimtab_agent.engines.faust.group.shared_state import PluginState
from trimtab_agent.engines.faust.transport.client import Connection, for_ever
from trimtab_agent.engines.faust.transport.unreadable import UnreadableRecord, stand_at_unreadable
from trimtab_protocol.messages.codec import decoded, encoded
from trimtab_protocol.messages.decode import BadMessage, Fault
from trimtab_protocol.messages.handover import HandoverRecord
from trimtab_protocol.messages.rate_limit import RateLimit
from trimtab_protocol.signing.envelope import signatures_in

log = logging.getLogger(__name__)

TOPICS_RETRY_S = 5.0
LONG_POLL_MS = 2000
LOAD_POLL_MS = 100
"""Poll time until the placements are loaded.

The log may end with a transaction marker, for which no record is returned, so a long poll would wait in vain.
"""
IDLE_MS = 180_000
"""When the writer closes a connection that stands idle.  Load balancers forget it silently, some after four minutes,
and what is sent on it then waits for `request_timeout_ms`, while nobody owns the key groups."""
WRITE_LIMIT_S = 4.0
"""How long a record may take, for the same reason."""
CLOSE_LIMIT_S = 2.0
"""How long the writer of hand-over records may take to close."""


class Channel:
    """One reader for both topics and one writer.  Callbacks run on the side loop.

    Placements go to the shared state; `on_placement` is called after a new one.  `on_handover` gets the record and its
    Kafka timestamp (epoch seconds).
    """

    def __init__(
        self,
        shared: PluginState,
        connection: Connection,
        *,
        on_placement: Callable[[], None],
        on_handover: Callable[[HandoverRecord, float], None],
    ) -> None:
        self._shared = shared
        self._placement = TopicPartition(shared.topics.placement, 0)
        self._handover = TopicPartition(shared.topics.handover, 0)
        self._connection = connection
        self._on_placement = on_placement
        self._on_handover = on_handover
        self._writer: AIOKafkaProducer | None = None
        self._opening = asyncio.Lock()
        self._complaints = RateLimit(rate=1, burst=100)
        self._missing: frozenset[str] = frozenset()
        self._follower = PlacementFollower(shared)
        self._end = 0
        self._next: int | None = None
        """Offset of the first hand-over record that has not been read; None: the topic's end when a reader starts."""
        self.loaded = threading.Event()
        """Set when all placements published so far have been read, or there is no placement topic."""

    async def run(self) -> None:
        """Read until cancelled."""
        await for_ever(self._read, "cannot read placements and hand-over records, retrying")

    async def publish(self, record: HandoverRecord) -> None:
        """Write a hand-over record; returns when it is in the log.

        Raises KafkaError: the record may or may not be in the log.
        """
        async with self._opening:  # two hand-overs may need the writer for the first time at once
            if self._writer is None:
                self._writer = await self._open()
            writer = self._writer
        place = {"topic": self._handover.topic, "partition": self._handover.partition}
        try:
            async with asyncio.timeout(WRITE_LIMIT_S):
                await writer.send_and_wait(**place, value=encoded(record), key=record.app.encode())
        except (KafkaError, TimeoutError) as error:
            if self._writer is writer:  # the broker would refuse everything after that from an idempotent producer
                self._writer = None
                await _close(writer)
            if isinstance(error, KafkaError):
                raise
            raise KafkaTimeoutError(f"not written within {WRITE_LIMIT_S:g} s") from None

    async def _open(self) -> AIOKafkaProducer:
        idle = {"connections_max_idle_ms": IDLE_MS}
        writer = AIOKafkaProducer(**self._connection, **idle, acks="all", enable_idempotence=True)
        try:
            await writer.start()
        except KafkaError:
            await writer.stop()
            raise
        return writer

    async def close(self) -> None:
        """Close the writer, with a time limit: the broker may be away."""
        if self._writer is not None:
            await _close(self._writer)

    async def _read(self) -> None:
        reader = AIOKafkaConsumer(
            **self._connection,
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            isolation_level="read_committed",  # a placement and its commands are one transaction
            fetch_max_wait_ms=LONG_POLL_MS,
        )
        try:
            await reader.start()
            stand_at_unreadable(reader._fetcher)
            if await self._lacks_topics(reader):
                self.loaded.set()
                await asyncio.sleep(TOPICS_RETRY_S)
                return
            reader.assign([self._placement, self._handover])
            await self._load(reader)
            if self._next is None:  # earlier hand-overs belong to earlier generations
                self._next = (await reader.end_offsets([self._handover]))[self._handover]
            reader.seek(self._handover, self._next)
            while True:
                poll_ms = LOAD_POLL_MS if self._follower.loading else LONG_POLL_MS
                for records in (await reader.getmany(timeout_ms=poll_ms)).values():
                    for record in records:
                        self._dispatch(record)
                if self._follower.loading and await reader.position(self._placement) >= self._end:
                    self._see_end()
                if self._follower.must_read_again(time.monotonic()):
                    await self._load(reader)
        except UnreadableRecord as error:
            if error.tp == self._handover:  # any worker of any app may have written it: nobody waits for it
                self._next = None
                self._shared.refused[Fault.MALFORMED] += 1
            raise
        finally:
            await reader.stop()

    async def _load(self, reader: Any) -> None:
        """Read the placements from the beginning of the topic."""
        self._follower.begin()
        await reader.seek_to_beginning(self._placement)
        self._end = (await reader.end_offsets([self._placement]))[self._placement]

    def _see_end(self) -> None:
        enough, is_new = self._follower.at_end()
        if enough:
            self.loaded.set()
        if is_new:
            self._on_placement()

    async def _lacks_topics(self, reader: Any) -> bool:
        """Whether topics are missing; logs when the set of missing topics changes."""
        before, wanted = self._missing, {self._placement.topic, self._handover.topic}
        self._missing = frozenset(wanted - await reader.topics())
        if self._missing - before:
            names = ", ".join(sorted(self._missing))
            log.warning("missing topics: %s; this worker is not steered until they exist", names)
        elif before and not self._missing:
            log.info("all topics exist now; this worker can be steered")
        return bool(self._missing)

    def _dispatch(self, record: Any) -> None:
        try:
            if record.topic == self._placement.topic:
                signatures = signatures_in(record.headers)
                if self._follower.take(record.offset, record.key, record.value, signatures):
                    self._on_placement()
            else:
                self._next = record.offset + 1
                self._on_handover(self._read_handover(record.value), record.timestamp / 1e3)
        except BadMessage as error:
            if self._complaints.spend(time.monotonic()):  # all are counted, but a flood must not fill the log
                log.warning("%s offset %d ignored: %s: %s", record.topic, record.offset, error.fault, error)

    def _read_handover(self, value: bytes | None) -> HandoverRecord:
        try:
            found = decoded(value, HandoverRecord)
            if found.cluster != self._shared.cluster:
                raise BadMessage(Fault.CLUSTER, "cluster", found.cluster, self._shared.cluster)
        except BadMessage as error:
            self._shared.refused[error.fault] += 1
            raise
        return found


async def _close(writer: AIOKafkaProducer) -> None:
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(CLOSE_LIMIT_S):
            await writer.stop()
