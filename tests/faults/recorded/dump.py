"""Reads a run back from Kafka into a folder.  Knows Kafka and the names of the topics, nothing of the product."""

import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from confluent_kafka import Consumer, KafkaException, TopicPartition

from tests.faults.recorded.history import Row, Strike, write_rows, write_strikes

JOB = ("flights", "flights-delays", "flights-totals", "flights-sums-changelog")
OWN = ("placement", "commands", "acks", "handover", "journal", "intents", "status", "snapshots")
OFFSETS = "__consumer_offsets"
"""Kafka's own: every commit and every generation of every group, as the broker wrote them down."""
STALL_LIMIT_S = 60.0


def dump(
    bootstrap: str, cluster: str, folder: Path, strikes: Sequence[Strike] = (), *, more: Sequence[str] = ()
) -> dict[str, int]:
    """Write all that is recorded of a run on this broker into the folder; rows by topic.  `more` = topics of the job.

    Nothing was compacted away as long as the broker never rolled a segment (in its settings: 1 GiB, 7 days).
    Raises KafkaException, TimeoutError.
    """
    folder.mkdir(parents=True, exist_ok=True)
    topics = (*JOB, *more, *(f"trimtab.{cluster}.{part}" for part in OWN), OFFSETS)
    counts = {topic: write_rows(folder, topic, read_topic(bootstrap, topic)) for topic in topics}
    write_strikes(folder, strikes)
    return counts


def read_topic(bootstrap: str, topic: str) -> Iterator[Row]:
    """All committed rows of a topic from its beginning to its present end; of a topic that is not there, none."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "recorder",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "log_level": 0,
        }
    )
    try:
        partitions = consumer.list_topics(topic, timeout=10).topics[topic].partitions
        ends = {
            partition: consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=10)[1]
            for partition in partitions
        }
        ends = {partition: end for partition, end in ends.items() if end > 0}
        consumer.assign([TopicPartition(topic, partition, 0) for partition in ends])
        yield from _read(consumer, topic, ends)
    finally:
        consumer.close()


def _read(consumer: Consumer, topic: str, ends: dict[int, int]) -> Iterator[Row]:
    heard = time.monotonic()
    while ends:
        for message in consumer.consume(10_000, timeout=0.5):
            if message.error():
                raise KafkaException(message.error())
            heard = time.monotonic()
            if message.offset() < ends.get(message.partition(), 0):
                yield Row(
                    message.partition(),
                    message.offset(),
                    message.timestamp()[1] / 1000,
                    message.key(),
                    message.value(),
                    dict(message.headers() or ()),
                )
        # The last offsets may hold no row (marks of transactions): the position tells, not the rows.
        for place in consumer.position([TopicPartition(topic, partition) for partition in ends]):
            if place.offset >= ends[place.partition]:
                del ends[place.partition]
        if time.monotonic() - heard > STALL_LIMIT_S:
            raise TimeoutError(f"{topic}: nothing for {STALL_LIMIT_S:g} s, partitions {sorted(ends)} not at their end")
