"""Reads topics of the job back from Kafka, from the beginning to the present end."""

import time
from collections.abc import Iterator
from dataclasses import dataclass

from confluent_kafka import Consumer, KafkaException, TopicPartition

from flights.verify import Change, Table, table_of
from flights.wire import CHANGELOG, TOTALS, Total, decode_changelog, decode_total

STALL_LIMIT_S = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """One record of a topic; `at` = when it was produced (epoch seconds)."""

    partition: int
    offset: int
    at: float
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()


def read_topic(bootstrap: str, topic: str) -> Iterator[Record]:
    """All committed records of a topic up to its present end, in order per partition; none if there is no such topic.

    Raises KafkaException, TimeoutError.
    """
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "flights-readback",
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
        open_ends = {partition: end for partition, end in ends.items() if end > 0}
        consumer.assign([TopicPartition(topic, partition, 0) for partition in open_ends])
        yield from _read(consumer, topic, open_ends)
    finally:
        consumer.close()


def _read(consumer: Consumer, topic: str, ends: dict[int, int]) -> Iterator[Record]:
    heard = time.monotonic()
    while ends:
        for message in consumer.consume(10_000, timeout=0.5):
            if message.error():
                raise KafkaException(message.error())
            heard = time.monotonic()
            if message.offset() >= ends.get(message.partition(), 0):
                continue  # it came later
            yield Record(
                partition=message.partition(),
                offset=message.offset(),
                at=message.timestamp()[1] / 1000,
                key=message.key(),
                value=message.value(),
                headers=tuple(message.headers() or ()),
            )
        # The last offsets may have no record (compacted, marks of transactions), so check the position.
        places = consumer.position([TopicPartition(topic, partition) for partition in ends])
        for place in places:
            if place.offset >= ends[place.partition]:
                del ends[place.partition]
        if time.monotonic() - heard > STALL_LIMIT_S:
            raise TimeoutError(f"{topic}: nothing for {STALL_LIMIT_S:g} s, partitions {sorted(ends)} not at their end")


def read_totals(bootstrap: str) -> list[Total]:
    """The outputs of the job."""
    rows = ((record.key, record.value) for record in read_topic(bootstrap, TOTALS))
    return [decode_total(key, value) for key, value in rows if key is not None and value is not None]


def read_table(bootstrap: str) -> Table:
    """The table `sums`, from its changelog."""
    return table_of(
        Change(record.partition, *decode_changelog(record.key, record.value))
        for record in read_topic(bootstrap, CHANGELOG)
        if record.key is not None
    )
