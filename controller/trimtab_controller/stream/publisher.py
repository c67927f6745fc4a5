"""Publishes snapshots to Kafka, in one transaction each, and finds the last one that was published.

The transactional id is fixed.  So a stream that takes it over fences the previous one: the broker refuses what that one
still publishes.
"""

import logging
import time

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

from trimtab_controller.kafka.chunks import Chunk, read_chunk, split
from trimtab_controller.kafka.publisher import FENCED_CODES
from trimtab_controller.stream.outlet import Fenced
from trimtab_protocol.messages.decode import BadMessage
from trimtab_protocol.messages.names import THE_PARTITION, Topics, stream_transactional_id
from trimtab_protocol.messages.snapshot import Snapshot
from trimtab_protocol.settings.kafka import ONE_AT_A_TIME, KafkaSettings, for_librdkafka
from trimtab_protocol.signing.envelope import headers_in

SEND_LIMIT_S = 30.0
"""How long sending a snapshot may take; after that it is too old to decide on."""
READ_LIMIT_S = 10.0
"""How long the broker may take to answer a request of the stream."""
LOOK_BACK, MORE = 4, 8
"""Number of records before the end of the topic in which the last snapshot is sought first, and then times as many."""

log = logging.getLogger(__name__)


class NotPublished(Exception):
    """Kafka did not take a snapshot."""


class SnapshotPublisher:
    """The topic of a cluster's snapshots, as `outlet.SnapshotTopic`; records are keyed by the cluster."""

    def __init__(self, kafka: KafkaSettings, cluster: str) -> None:
        self._kafka = kafka
        self._cluster = cluster
        self._topic = Topics(cluster).snapshots
        self._producer: Producer | None = None

    def newest_ms(self) -> int:
        """The end of the newest window on the topic; 0 when there is none.  Raises KafkaException."""
        newest_ms = last_end_ms(self._kafka, topic=self._topic)
        if newest_ms > time.time_ns() // 1_000_000:
            log.warning("ignoring the last snapshot on %s: it is from the future", self._topic)
            return 0
        return newest_ms

    def take_over(self) -> None:
        """Fence the stream that has published so far.  Raises KafkaException."""
        self._producer = Producer(
            {
                **for_librdkafka(self._kafka),
                **ONE_AT_A_TIME,
                "transactional.id": stream_transactional_id(self._cluster),
                "log_level": 2,  # being fenced is an ordinary end, and logged by the outlet
                "delivery.timeout.ms": int(SEND_LIMIT_S * 1000),
                "linger.ms": 0,
            }
        )
        self._producer.init_transactions(SEND_LIMIT_S)

    def publish(self, snapshot: Snapshot) -> None:
        """Send a snapshot and wait until Kafka has stored it.  Raises NotPublished, Fenced."""
        chunks = split(snapshot)
        producer = self._producer
        assert producer is not None, "take_over comes first"
        try:
            producer.begin_transaction()
            for chunk in chunks:
                self._send(producer, chunk)
            producer.commit_transaction(SEND_LIMIT_S)
        except KafkaException as error:
            fault: KafkaError = error.args[0]
            if fault.code() in FENCED_CODES:
                raise Fenced(fault.str()) from error
            raise NotPublished(f"snapshot {chunks[0].snapshot}: {fault.str()}") from error
        log.info("published %s", _summary(snapshot, sum(len(chunk.payload) for chunk in chunks)))

    def _send(self, producer: Producer, chunk: Chunk) -> None:
        while True:
            try:
                headers = list(chunk.headers)
                producer.produce(self._topic, chunk.payload, self._cluster, partition=THE_PARTITION, headers=headers)
                return
            except BufferError:
                producer.poll(0.1)  # the queue is full: let it drain


def _summary(snapshot: Snapshot, size: int) -> str:
    figures = {
        "end_ms": snapshot.end_ms,
        "after_ms": time.time_ns() // 1_000_000 - snapshot.end_ms,
        "hosts": f"{snapshot.hosts_seen}/{snapshot.hosts_expected}",
        "key_groups": len(snapshot.key_groups),
        "pairs": len(snapshot.pairs),
        "late_rows": snapshot.late_rows,
        "rejected": sum(snapshot.rejected.values()),
        "bytes": size,
    }
    return " ".join(f"{name}={figure}" for name, figure in figures.items())


def last_end_ms(kafka: KafkaSettings, *, topic: str) -> int:
    """The end of the newest window on the topic, 0 when there is none. Raises KafkaException."""
    settings = {"group.id": "trimtab-unused", "enable.auto.commit": False, "enable.partition.eof": True}
    consumer = Consumer({**for_librdkafka(kafka), **settings, "isolation.level": "read_committed"})
    try:
        partitions = consumer.list_topics(topic, timeout=READ_LIMIT_S).topics[topic].partitions
        return max((_last_end_in(consumer, topic, index) for index in partitions), default=0)
    finally:
        consumer.close()


def _last_end_in(consumer: Consumer, topic: str, index: int) -> int:
    low, high = consumer.get_watermark_offsets(TopicPartition(topic, index), timeout=READ_LIMIT_S)
    back, start = LOOK_BACK, high
    while start > low:  # the last records may be marks of transactions
        start = max(low, high - back)
        if ends := _ends_from(consumer, TopicPartition(topic, index, start)):
            return max(ends)
        back *= MORE
    return 0


def _ends_from(consumer: Consumer, position: TopicPartition) -> list[int]:
    """The ends of the windows whose last chunks are at this offset or later."""
    consumer.assign([position])
    ends: list[int] = []
    while (message := consumer.poll(READ_LIMIT_S)) is not None:
        error = message.error()
        if error is not None and error.code() == KafkaError._PARTITION_EOF:
            return ends
        if error is not None:
            raise KafkaException(error)
        try:
            chunk = read_chunk(headers_in(message), message.value())
        except BadMessage:
            log.warning("a record of %s is not a snapshot", position.topic)
            continue
        if chunk.index == chunk.count - 1:  # a snapshot without its last chunk was not published
            ends.append(chunk.end_ms)
    raise KafkaException(KafkaError(KafkaError._TIMED_OUT, f"{position.topic} could not be read"))
