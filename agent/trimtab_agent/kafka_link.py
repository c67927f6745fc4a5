"""The agent's Kafka clients: a thread that reads commands, a producer for reports and acks.

There is no consumer group.  The next offset is in the agent's own journal, so the agent loses no command if the broker
forgets offsets.  While the broker is away both clients retry with back-off, then continue where they were.
"""

import asyncio
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from confluent_kafka import (
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, TopicDescription

from trimtab_agent.commands.events import Position
from trimtab_process.backoff import Backoff
from trimtab_process.kafka_errors import NO_TOPIC_YET, UNKNOWN_TOPIC, ConnectionFaults, error_word
from trimtab_process.offsets import first_since
from trimtab_process.toml_files import BadConfiguration
from trimtab_process.topic_identity import COMPARE_EVERY_S, TopicIds, describe_topics
from trimtab_protocol.messages.decode import MAX_MESSAGE_BYTES, BadMessage
from trimtab_protocol.settings.kafka import ONE_AT_A_TIME, KafkaSettings, for_librdkafka
from trimtab_protocol.signing.envelope import Envelope, headers_in, signatures_in

POLL_S = 0.25
REQUEST_LIMIT_S = 5.0
"""How long the broker may take to answer a request of the agent."""
BACKOFF = Backoff((0.5, 1.0, 2.0, 3.0))
"""Pauses between attempts to reach the broker."""
DELIVERY_LIMIT_S = 30.0
"""How long a record waits for the broker.  When the broker is back, the agent sends the waiting reports at once, at
most one per second of this limit.  The stream accepts that many of a host (10 per second of a window).  Older reports
would belong to windows published long ago.
"""
LOOK_BACK_S = 600.0
"""How far back the agent reads commands at its first start, so that commands before their deadline are not lost."""
MAX_UNHANDLED = 100
"""Largest number of commands that are read but not yet handled."""
REFUSALS = frozenset({KafkaError._AUTHENTICATION, KafkaError._SSL})
"""The login or the certificate is refused: no broker that comes back mends that."""
AWAY = frozenset({KafkaError._ALL_BROKERS_DOWN, KafkaError._RESOLVE, KafkaError._AUTHENTICATION})
"""Errors after which no broker is in reach."""


class LinkHandler(Protocol):
    """Receives events of the link, on the event loop's thread."""

    def command_read(self, record: Envelope, position: Position) -> None:
        """A record of the commands topic was read; `position` is the one after it."""

    def broker_changed(self, *, there: bool, detail: str) -> None:
        """The broker went away or came back."""

    def reader_failed(self, fault: Exception) -> None:
        """Reading failed because of a fault of the agent.  No more commands are read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkSettings:
    """How to reach Kafka, and what to read."""

    kafka: KafkaSettings
    commands_topic: str


def check_client(kafka: KafkaSettings, path: Path) -> None:
    """Raises BadConfiguration for settings at `path` that the Kafka client does not know, or files it cannot use."""
    try:
        Consumer({**for_librdkafka(kafka), "group.id": "check", "log_level": 0}).close()
    except KafkaException as exc:
        raise BadConfiguration(f"{path}: kafka: {exc.args[0].str()}") from exc


class KafkaLink:
    """Reads commands in its own thread.  Call `produce` on the event loop's thread."""

    def __init__(
        self, settings: LinkSettings, handler: LinkHandler, loop: asyncio.AbstractEventLoop, start: list[Position]
    ) -> None:
        self._topic = settings.commands_topic
        self._handler = handler
        self._loop = loop
        self._known = {(position.topic_id, position.partition): position.offset for position in start}
        self._ids = TopicIds()
        self._faults = ConnectionFaults()
        self._there: bool | None = None
        self._refused = False
        """Whether it was told, since the broker went away, that the login or the certificate is refused."""
        self._hears = False
        """Whether commands are being read, as far as known.  If not, a delivered report does not mean "connected"."""
        self._stop = threading.Event()
        self._room = threading.Semaphore(MAX_UNHANDLED)
        shared = {
            **for_librdkafka(settings.kafka),
            "log_level": 0,  # the producer's errors arrive through error_cb; librdkafka's own log has another format
            "reconnect.backoff.max.ms": 2_000,
            "socket.keepalive.enable": True,
        }
        self._producer = Producer(
            {
                **shared,
                **ONE_AT_A_TIME,
                "error_cb": self._note_error,  # of one client only: two would briefly contradict each other
                "acks": "all",
                "enable.idempotence": True,
                "compression.type": "lz4",
                "linger.ms": 5,
                "message.timeout.ms": round(DELIVERY_LIMIT_S * 1000),
                "message.max.bytes": MAX_MESSAGE_BYTES + 100_000,
                "queue.buffering.max.kbytes": 5 * MAX_MESSAGE_BYTES // 1024,
            }
        )
        self._reading = {
            **shared,
            "group.id": "trimtab-agent",  # the client requires a name; no group is joined, no offset committed
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "auto.offset.reset": "error",
            "isolation.level": "read_committed",
            "queued.max.messages.kbytes": 1024,
        }
        self._admin = AdminClient(shared)
        self._thread = threading.Thread(target=self._run, name="kafka", daemon=True)

    def start(self) -> None:
        """Start reading and delivering."""
        self._thread.start()

    def stop(self, limit_s: float) -> None:
        """Deliver what can be delivered within half of the limit, then stop reading."""
        self._producer.flush(limit_s / 2)
        self._stop.set()
        self._thread.join(limit_s / 2)

    def produce(
        self,
        topic: str,
        key: str,
        payload: bytes,
        done: Callable[[str | None], None],
        headers: Sequence[tuple[str, bytes]] = (),
        partition: int | None = None,
    ) -> None:
        """Send a record, to the partition of its key unless one is given.

        `done` is called later, on the event loop's thread, with None or the error as one word.
        """

        def delivered(error: KafkaError | None, _: Message) -> None:
            if error is None and self._hears:
                self._note_state(there=True, detail="delivered")
            self._call(done, None if error is None else error_word(error))

        try:
            told: dict[str, Any] = {"headers": list(headers)} if headers else {}
            if partition is not None:
                told["partition"] = partition
            self._producer.produce(topic, value=payload, key=key.encode(), on_delivery=delivered, **told)
        except BufferError:
            self._loop.call_soon(done, "queue_full")
        except KafkaException as exc:
            self._loop.call_soon(done, error_word(exc.args[0]))

    # --- the thread

    def _run(self) -> None:
        try:
            while (consumer := self._connect()) is not None:
                self._read(consumer)
                consumer.close()
        except Exception as exc:  # otherwise an agent that reads no commands would look healthy
            self._call(self._handler.reader_failed, exc)

    def _connect(self) -> Consumer | None:
        """A consumer at the positions where reading begins.  Retries until they are known; None after `stop`."""
        self._hears = False
        failures = 0
        consumer = None
        while not self._stop.is_set():
            try:
                consumer = consumer or Consumer(self._reading)
                places = self._find_places(consumer)
            except KafkaException as exc:
                failures += 1
                self._producer.poll(0)  # what its connections have met says more than that a request has timed out
                missing = exc.args[0].code() in UNKNOWN_TOPIC
                told = f"{self._topic}: {NO_TOPIC_YET}" if missing else self._faults.explain(exc)
                detail = f"{told}; the next attempt is in at most {BACKOFF.longest_s:g} s"
                self._note_state(there=False, detail=detail)
                self._stop.wait(BACKOFF.after(failures))
            else:
                consumer.assign(places)
                self._producer.poll(0)  # report the producer's earlier errors first
                offsets = ",".join(f"{place.partition}:{place.offset}" for place in places)
                self._hears = True
                self._note_state(there=True, detail=f"reading {self._topic} from {offsets}")
                return consumer
        return None

    def _find_places(self, consumer: Consumer) -> list[TopicPartition]:
        topic = self._describe_topic()
        if not topic.partitions:
            raise KafkaException(KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART, f"{self._topic} has no partitions"))
        self._ids.note(self._topic, topic)
        return [self._find_place(consumer, partition.id) for partition in topic.partitions]

    def _find_place(self, consumer: Consumer, partition: int) -> TopicPartition:
        known = self._known.get((self._ids[self._topic], partition))
        if known is not None:
            return TopicPartition(self._topic, partition, known)
        since = time.time() - LOOK_BACK_S
        [place] = first_since(consumer, self._topic, [partition], since, limit_s=REQUEST_LIMIT_S)
        return place

    def _read(self, consumer: Consumer) -> None:
        """Pass on records until `stop`, or until positions and permissions must be looked up again."""
        look_at = time.monotonic() + COMPARE_EVERY_S
        while not self._stop.is_set():
            self._producer.poll(0)
            message = consumer.poll(POLL_S)
            error = None if message is None else message.error()
            if message is not None and error is None:
                self._hears = True
                self._pass_on(message)
                look_at = time.monotonic() + COMPARE_EVERY_S
            elif error is not None and error.code() == KafkaError._AUTO_OFFSET_RESET:
                self._known.clear()
                return  # the topic was re-created, or the agent was away for longer than its retention
            elif error is not None and error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
                self._hears = False
                self._note_state(there=False, detail=error.str())
            elif time.monotonic() > look_at:
                if not self._hears or self._is_recreated():
                    return
                look_at = time.monotonic() + COMPARE_EVERY_S

    def _is_recreated(self) -> bool:
        """Whether the topic was re-created under the same name; the consumer would never read the new one."""
        try:
            return self._ids.is_recreated(self._topic, self._describe_topic())
        except KafkaException:
            return False  # broker or topic is away, so there is nothing to read now

    def _describe_topic(self) -> TopicDescription:
        """The broker's description of the commands topic.  Raises KafkaException, also if there is no such topic."""
        [found] = describe_topics(self._admin, [self._topic], REQUEST_LIMIT_S).values()
        return found.result()

    def _pass_on(self, message: Message) -> None:
        while not self._room.acquire(timeout=POLL_S):
            if self._stop.is_set():
                return
        partition, offset = message.partition(), message.offset() + 1
        topic_id = self._ids[self._topic]
        self._known[topic_id, partition] = offset
        position = Position(topic_id=topic_id, partition=partition, offset=offset)
        record = Envelope(
            topic=self._topic,
            key=message.key() or b"",
            value=message.value() or b"",
            signatures=_signatures(message),
        )
        self._call(self._hand_over, record, position)

    def _hand_over(self, record: Envelope, position: Position) -> None:
        self._room.release()
        self._handler.command_read(record, position)

    def _note_error(self, error: KafkaError) -> None:
        self._faults.note(error)
        refused = error.code() in REFUSALS
        told_otherwise = refused and self._there is False and not self._refused
        if told_otherwise:  # a broker that was away is back, and refuses this agent
            self._there = None
        if told_otherwise or error.code() in AWAY:
            self._refused |= refused
            self._note_state(there=False, detail=self._faults.last or error.str())

    def _note_state(self, *, there: bool, detail: str) -> None:
        if there:
            self._faults.last, self._refused = None, False
        if self._there is not there:
            self._there = there
            self._call(lambda: self._handler.broker_changed(there=there, detail=detail))

    def _call(self, function: Callable[..., None], *arguments: object) -> None:
        """Call a function on the event loop's thread.  Calls after the end of the loop are dropped."""
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(function, *arguments)


def _signatures(message: Message) -> tuple[bytes, ...]:
    """The record's signatures.  A record with unreadable headers counts as unsigned."""
    try:
        return signatures_in(headers_in(message))
    except BadMessage:
        return ()
