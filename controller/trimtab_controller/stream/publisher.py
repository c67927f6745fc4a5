"""Publishes snapshots to Kafka, and finds the last one that a predecessor published."""

import logging

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from trimtab_controller.kafka.chunks import Chunk, read_chunk, split
from trimtab_protocol.messages.decode import BadMessage
from trimtab_protocol.messages.snapshot import Snapshot
from trimtab_protocol.settings.kafka import KafkaSettings, for_librdkafka
from trimtab_protocol.signing.envelope import headers_in

SEND_LIMIT_S = 30.0
"""How long sending a snapshot may take; after that it is too old to decide on."""
READ_LIMIT_S = 10.0
"""How long the broker may take to answer a request of the stream."""

log = logging.getLogger(__name__)


class NotPublished(Exception):
    """Kafka did not take a snapshot."""


class Publisher:
    """Sends snapshots to one topic, keyed by the cluster."""

    def __init__(self, kafka: KafkaSettings, *, topic: str) -> None:
        self._topic = topic
        self._producer = Producer(
            {
                **for_librdkafka(kafka),
                "enable.idempotence": True,
                "delivery.timeout.ms": int(SEND_LIMIT_S * 1000),
                "linger.ms": 0,
            }
        )

    def publish(self, snapshot: Snapshot) -> int:
        """Send a snapshot and wait until Kafka has stored it; return its size in bytes.  Raises NotPublished."""
        chunks = split(snapshot)
        failures: list[str] = []
        for chunk in chunks:
            self._send(snapshot.cluster, chunk, failures)
        if self._producer.flush(SEND_LIMIT_S) or failures:
            raise NotPublished(f"snapshot {chunks[0].snapshot}: {failures[0] if failures else 'no answer from Kafka'}")
        return sum(len(chunk.payload) for chunk in chunks)

    def _send(self, cluster: str, chunk: Chunk, failures: list[str]) -> None:
        def delivered(error: object, _message: object) -> None:
            if error is not None:
                failures.append(str(error))

        while True:
            try:
                headers = list(chunk.headers)
                self._producer.produce(self._topic, chunk.payload, cluster, on_delivery=delivered, headers=headers)
                return
            except BufferError:
                self._producer.poll(0.1)  # the queue is full: let it drain


def last_end_ms(kafka: KafkaSettings, *, topic: str) -> int:
    """The end of the newest window on the topic, 0 when there is none. Raises KafkaException."""
    consumer = Consumer({**for_librdkafka(kafka), "group.id": "trimtab-unused", "enable.auto.commit": False})
    try:
        partitions = consumer.list_topics(topic, timeout=READ_LIMIT_S).topics[topic].partitions
        return max((_last_end_in(consumer, TopicPartition(topic, index)) for index in partitions), default=0)
    finally:
        consumer.close()


def _last_end_in(consumer: Consumer, partition: TopicPartition) -> int:
    low, high = consumer.get_watermark_offsets(partition, timeout=READ_LIMIT_S)
    if high <= low:
        return 0
    partition.offset = high - 1
    consumer.assign([partition])
    message = consumer.poll(READ_LIMIT_S)
    if message is None or message.error():
        raise KafkaException(message.error() if message else f"{partition.topic} could not be read")
    try:
        chunk = read_chunk(headers_in(message), message.value())
    except BadMessage:
        log.warning("the last message of %s is not a snapshot: windows may be published twice", partition.topic)
        return 0
    # A snapshot without its last chunk was not published.  A Reassembler ignores older windows that come again.
    return chunk.end_ms if chunk.index == chunk.count - 1 else 0
