"""Publishes snapshots to Kafka.  One stream of a cluster publishes; the others hold theirs and are ready.

A stream takes the publishing over by one fixed transactional id, and only then reads which window was published last.
From then on the broker refuses what any earlier one publishes.  So windows follow each other on the topic, each once.
"""

import logging
import time
from collections import deque
from dataclasses import dataclass

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

from trimtab_controller.kafka.chunks import Chunk, read_chunk, split
from trimtab_controller.kafka.publisher import FENCED_CODES
from trimtab_protocol.messages.decode import BadMessage
from trimtab_protocol.messages.names import Topics, stream_transactional_id
from trimtab_protocol.messages.snapshot import Snapshot
from trimtab_protocol.settings.kafka import KafkaSettings, for_librdkafka
from trimtab_protocol.signing.envelope import headers_in

SEND_LIMIT_S = 30.0
"""How long sending a snapshot may take; after that it is too old to decide on."""
READ_LIMIT_S = 10.0
"""How long the broker may take to answer a request of the stream."""
MOST_HELD = 6
"""Number of windows that a stream holds while another one publishes; of more, it drops the oldest."""
LOOK_BACK = 4
"""Number of records before the end of the topic to begin with, in search of the last snapshot; then 8 times as many."""

log = logging.getLogger(__name__)


class NotPublished(Exception):
    """Kafka did not take a snapshot."""


class Fenced(Exception):
    """Another stream of the cluster publishes now."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """A snapshot as it will be published; `summary` for the log."""

    end_ms: int
    chunks: tuple[Chunk, ...]
    summary: str


class Turns:
    """Decides whether this stream may take the publishing over.

    With `told`, the controller says whether it leads.  A stream that nobody tells anything (a dry run's, or one that
    spark-submit runs) begins when the topic has been `silent_ms` without a new window; so does one whose publishing was
    taken over, as long as its controller leads.
    """

    def __init__(self, *, told: bool, silent_ms: int) -> None:
        self._leads = not told
        self._told_now = False
        self._silent_ms = silent_ms

    def lead(self) -> None:
        """The controller leads: take over at once."""
        self._leads = self._told_now = True

    def stand_by(self) -> None:
        """Another controller leads, or none."""
        self._leads = self._told_now = False

    @property
    def keeps(self) -> bool:
        """Whether to go on publishing; a new term takes over anew."""
        return self._leads and not self._told_now

    @property
    def told_now(self) -> bool:
        """Whether `lead` was called and not yet followed."""
        return self._told_now

    def claims(self, *, now_ms: int, newest_ms: int) -> bool:
        """Whether to take over now; `newest_ms` = the end of the newest window on the topic."""
        told_now, self._told_now = self._told_now, False
        return told_now or (self._leads and now_ms - newest_ms > self._silent_ms)


class Outlet:
    """Holds snapshots, and publishes them while it is this stream's turn; for one thread at a time."""

    def __init__(self, kafka: KafkaSettings, cluster: str, turns: Turns) -> None:
        self._kafka = kafka
        self._cluster = cluster
        self._topic = Topics(cluster).snapshots
        self._turns = turns
        self._held: deque[Held] = deque(maxlen=MOST_HELD)
        self._producer: Producer | None = None
        self._ready = False

    def add(self, snapshot: Snapshot, summary: str) -> None:
        """Hold a snapshot, newer than all before it, and publish what can be published.  Raises NotPublished."""
        self._held.append(Held(end_ms=snapshot.end_ms, chunks=tuple(split(snapshot)), summary=summary))
        self.flush()
        if self._producer is None and not self._ready:
            log.info("standby: the stream is warm, and holds its snapshots until it is its turn")
        self._ready = True

    def flush(self) -> None:
        """Publish what is held, or drop what another stream has published.  Raises NotPublished, KafkaException."""
        if not self._turns.keeps:
            self._producer = None
        if self._producer is None:
            self._see()
        try:
            while self._producer is not None and self._held:
                self._publish(self._producer, self._held[0])
                self._held.popleft()
        except Fenced as error:
            log.warning("another stream publishes now (%s): holding the snapshots", error)
            self._producer = None

    @property
    def is_due(self) -> bool:
        """Whether to `flush` now, without waiting for the next snapshot."""
        return self._turns.told_now

    def clear(self) -> None:
        """Drop what is held: a new query reads it again.  A producer that failed is replaced."""
        self._held.clear()
        if self._producer is not None and self._turns.keeps:
            self._turns.lead()
        self._producer = None

    def _see(self) -> None:
        """Take over if it is this stream's turn, and drop what has been published."""
        newest_ms = self.newest_ms()
        if self._turns.claims(now_ms=time.time_ns() // 1_000_000, newest_ms=newest_ms):
            self._producer = self._take_over()
            newest_ms = self.newest_ms()  # from now on nobody else adds one
            log.info("publishing the windows after end_ms=%d", newest_ms)
        while self._held and self._held[0].end_ms <= newest_ms:
            self._held.popleft()

    def newest_ms(self) -> int:
        """The end of the newest window on the topic; 0 when there is none.  Raises KafkaException."""
        newest_ms = last_end_ms(self._kafka, topic=self._topic)
        if newest_ms > time.time_ns() // 1_000_000:
            log.warning("ignoring the last snapshot on %s: it is from the future", self._topic)
            return 0
        return newest_ms

    def _take_over(self) -> Producer:
        producer = Producer(
            {
                **for_librdkafka(self._kafka),
                "transactional.id": stream_transactional_id(self._cluster),
                "delivery.timeout.ms": int(SEND_LIMIT_S * 1000),
                "linger.ms": 0,
            }
        )
        producer.init_transactions(SEND_LIMIT_S)
        return producer

    def _publish(self, producer: Producer, held: Held) -> None:
        """Send a snapshot in one transaction.  Raises NotPublished, Fenced."""
        try:
            producer.begin_transaction()
            for chunk in held.chunks:
                self._send(producer, chunk)
            producer.commit_transaction(SEND_LIMIT_S)
        except KafkaException as error:
            fault: KafkaError = error.args[0]
            if fault.code() in FENCED_CODES:
                raise Fenced(fault.str()) from error
            raise NotPublished(f"snapshot {held.chunks[0].snapshot}: {fault.str()}") from error
        after_ms = time.time_ns() // 1_000_000 - held.end_ms
        size = sum(len(chunk.payload) for chunk in held.chunks)
        log.info("published end_ms=%d after_ms=%d %s bytes=%d", held.end_ms, after_ms, held.summary, size)

    def _send(self, producer: Producer, chunk: Chunk) -> None:
        while True:
            try:
                producer.produce(self._topic, chunk.payload, self._cluster, headers=list(chunk.headers))
                return
            except BufferError:
                producer.poll(0.1)  # the queue is full: let it drain


def last_end_ms(kafka: KafkaSettings, *, topic: str) -> int:
    """The end of the newest window on the topic, 0 when there is none. Raises KafkaException."""
    settings = {"group.id": "trimtab-unused", "enable.auto.commit": False, "enable.partition.eof": True}
    consumer = Consumer({**for_librdkafka(kafka), **settings, "isolation.level": "read_committed"})
    try:
        partitions = consumer.list_topics(topic, timeout=READ_LIMIT_S).topics[topic].partitions
        return max((_last_end_in(consumer, TopicPartition(topic, index)) for index in partitions), default=0)
    finally:
        consumer.close()


def _last_end_in(consumer: Consumer, partition: TopicPartition) -> int:
    low, high = consumer.get_watermark_offsets(partition, timeout=READ_LIMIT_S)
    back = LOOK_BACK
    while high > low:
        start = max(low, high - back)
        if ends := _ends_from(consumer, partition, start):
            return max(ends)
        if start == low:
            break
        back *= 8  # so far only marks of transactions
    return 0


def _ends_from(consumer: Consumer, partition: TopicPartition, start: int) -> list[int]:
    """The ends of the windows whose last chunks are at this offset or later."""
    partition.offset = start
    consumer.assign([partition])
    ends: list[int] = []
    limit = time.monotonic() + READ_LIMIT_S
    while time.monotonic() < limit:
        message = consumer.poll(READ_LIMIT_S)
        if message is None:
            break
        if (error := message.error()) is not None:
            if error.code() == KafkaError._PARTITION_EOF:
                return ends
            raise KafkaException(error)
        try:
            chunk = read_chunk(headers_in(message), message.value())
        except BadMessage:
            log.warning("passing over a record of %s that is not a snapshot", partition.topic)
            continue
        if chunk.index == chunk.count - 1:  # without its last chunk it was not published
            ends.append(chunk.end_ms)
    raise KafkaException(KafkaError(KafkaError._TIMED_OUT, f"{partition.topic} could not be read"))
