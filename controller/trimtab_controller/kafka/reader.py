"""Reads topics up to their present end, for a starting controller and for the CLI."""

import time
from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Message, TopicPartition

from trimtab_controller.kafka.connection import REQUEST_LIMIT_S, Connection
from trimtab_process.kafka_errors import is_transient
from trimtab_process.offsets import first_since
from trimtab_protocol.signing.envelope import Envelope, headers_in, signatures_in

SILENCE_LIMIT_S = 30.0
"""How long the broker may be silent before it counts as away."""


class ReadError(Exception):
    """A topic could not be read to its end."""


class NoTopicError(ReadError):
    """There is no such topic."""


@dataclass(slots=True)
class Reading:
    """Messages in reading order, and the next offset of each (topic, partition)."""

    messages: list[Message] = field(default_factory=list)
    next_offsets: dict[tuple[str, int], int] = field(default_factory=dict)

    def latest(self, topic: str, counts: Callable[[Message], bool] = lambda _: True) -> list[Message]:
        """The last message of each key of a compacted topic for which `counts` holds, without deleted keys."""
        last = {message.key(): message for message in self.messages if message.topic() == topic and counts(message)}
        return [message for message in last.values() if message.value() is not None]

    def positions(self, topic: str) -> list[TopicPartition]:
        """Where to continue reading a topic."""
        return [TopicPartition(name, at, offset) for (name, at), offset in self.next_offsets.items() if name == topic]


def envelope_of(message: Message) -> Envelope:
    """The record, as far as its signatures cover it.  Raises BadMessage."""
    value = message.value()
    signatures = signatures_in(headers_in(message)) if value is not None else ()
    return Envelope(topic=message.topic(), key=message.key() or b"", value=value or b"", signatures=signatures)


NO_RIGHT = "topic {}: this user has no right to read it; `trimtab acl` prints the rights of each role"


def new_consumer(connection: Connection, name: str, *, eof: bool = False) -> Consumer:
    """A consumer that joins no group and sees only committed messages."""
    return Consumer(
        connection.client(
            f"trimtab-{name}",
            group_id=f"trimtab-{name}",
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            isolation_level="read_committed",
            enable_partition_eof=eof,
            fetch_wait_max_ms=50,
            fetch_error_backoff_ms=200,
            queued_min_messages=1000,  # a flood on one topic must not fill the queue before messages of the others
        )
    )


def partitions_of(consumer: Consumer, topic: str, *, limit_s: float = REQUEST_LIMIT_S) -> list[int]:
    """The partitions of a topic. Raises NoTopicError, ReadError, KafkaException."""
    found = consumer.list_topics(topic, timeout=limit_s).topics[topic]
    if found.error is not None and found.error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
        raise NoTopicError(
            f"no topic {topic}: is the cluster's name right? The controller creates it at its first start"
        )
    if found.error is not None:
        raise ReadError(f"topic {topic}: {found.error.str()}")
    return sorted(found.partitions)


def starts(consumer: Consumer, topics: Iterable[str]) -> list[TopicPartition]:
    """The beginnings of all partitions of the topics."""
    return [
        TopicPartition(topic, partition, OFFSET_BEGINNING)
        for topic in topics
        for partition in partitions_of(consumer, topic)
    ]


def at_offsets(consumer: Consumer, topic: str, offsets: Mapping[int, int]) -> list[TopicPartition]:
    """The partitions of a topic at the given offsets; at the beginning where none is given."""
    return [
        TopicPartition(topic, partition, offsets.get(partition, OFFSET_BEGINNING))
        for partition in partitions_of(consumer, topic)
    ]


def since(consumer: Consumer, topic: str, at: float, *, limit_s: float = REQUEST_LIMIT_S) -> list[TopicPartition]:
    """The partitions of a topic at their first message from `at` (epoch seconds) on; at their ends if there is none.

    `limit_s` applies to each request.  Raises NoTopicError, ReadError, KafkaException.
    """
    return first_since(consumer, topic, partitions_of(consumer, topic, limit_s=limit_s), at, limit_s=limit_s)


@contextmanager
def reading(connection: Connection, name: str) -> Iterator[Consumer]:
    """A consumer for `drain`, closed at the end."""
    consumer = new_consumer(connection, name, eof=True)
    try:
        yield consumer
    finally:
        consumer.close()


def drain(
    consumer: Consumer,
    positions: list[TopicPartition],
    *,
    keys: Container[bytes | None] | None = None,
    most_per_key: int | None = None,
) -> Reading:
    """Read from the positions up to the present ends of the partitions.

    Keeps only messages of `keys` (None = all), and of each key the first `most_per_key`.  Raises ReadError,
    KafkaException.
    """
    reading = Reading()
    kept: Counter[bytes | None] = Counter()
    for message in passing(consumer, positions, reading.next_offsets):
        key = message.key()
        if (keys is None or key in keys) and (most_per_key is None or kept[key] < most_per_key):
            kept[key] += 1
            reading.messages.append(message)
    return reading


def passing(
    consumer: Consumer,
    positions: list[TopicPartition],
    next_offsets: dict[tuple[str, int], int] | None = None,
    *,
    silence_s: float = SILENCE_LIMIT_S,
) -> Iterator[Message]:
    """The messages from the positions up to the present ends of the partitions, one by one.

    `next_offsets` learns where to read on.  `silence_s`: how long the broker may be silent.  Raises ReadError,
    KafkaException.
    """
    read_to = {} if next_offsets is None else next_offsets
    left = {(each.topic, each.partition) for each in positions}
    consumer.assign(positions)
    silent_s = 0.0
    while left:
        if silent_s > silence_s:
            missing = ", ".join(f"{topic}/{partition}" for topic, partition in sorted(left))
            raise ReadError(f"the broker has been silent for {silence_s:g} s; not read to the end: {missing}")
        asked_at = time.monotonic()
        messages = consumer.consume(1000, timeout=0.2)
        silent_s += time.monotonic() - asked_at
        for message in messages:
            error = message.error()
            where = (message.topic(), message.partition())
            if error is None or error.code() == KafkaError._PARTITION_EOF:
                silent_s = 0.0
            if error is None:
                yield message
                read_to[where] = message.offset() + 1
            elif error.code() == KafkaError._PARTITION_EOF:
                read_to[where] = message.offset()
                left.discard(where)
            elif error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
                raise KafkaException(KafkaError(error.code(), NO_RIGHT.format(where[0])))
            elif not is_transient(error):
                raise KafkaException(error)
