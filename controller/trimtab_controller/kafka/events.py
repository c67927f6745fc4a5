"""Reads the topic of events, for the command line and the console."""

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from confluent_kafka import Consumer, KafkaException, Message, TopicPartition

from trimtab_controller.kafka.connection import REQUEST_LIMIT_S, Connection
from trimtab_controller.kafka.follower import Follower
from trimtab_controller.kafka.reader import drain, partitions_of, reading, since
from trimtab_process.kafka_errors import is_transient
from trimtab_protocol.messages.codec import decoded
from trimtab_protocol.messages.decode import BadMessage
from trimtab_protocol.messages.events import Event
from trimtab_protocol.messages.names import Topics

MAX_EVENTS = 20_000
"""Events that are read from a topic at most, the newest."""
KNOWN_IDS = 50_000
"""Ids that are remembered to drop an event that is told again."""
FOLLOW_S = 0.5


class Readable:
    """The events in messages, each once; one of another cluster, or that cannot be read, is left out and counted."""

    def __init__(self, cluster: str) -> None:
        self._cluster = cluster
        self._ids: dict[str, None] = {}
        self.refused = 0

    def take(self, message: Message) -> Event | None:
        """The event, if it is new."""
        try:
            event = decoded(message.value(), Event)
        except BadMessage:
            self.refused += 1
            return None
        if event.cluster != self._cluster:
            self.refused += 1
            return None
        if event.id in self._ids:
            return None
        self._ids[event.id] = None
        if len(self._ids) > KNOWN_IDS:
            del self._ids[next(iter(self._ids))]
        return event

    def events(self, messages: Iterable[Message]) -> Iterator[Event]:
        """The new ones in these messages."""
        found = (self.take(message) for message in messages)
        return (event for event in found if event is not None)


@dataclass(frozen=True, slots=True, kw_only=True)
class EventsRead:
    """The events of a topic in the order of their times, and where to read on with the same `readable`."""

    events: tuple[Event, ...]
    positions: tuple[TopicPartition, ...]
    readable: Readable


def newest_events(consumer: Consumer, topic: str) -> list[TopicPartition]:
    """Where to begin in order to read MAX_EVENTS events, or a few more.  Raises ReadError, KafkaException."""
    found = []
    for partition in partitions_of(consumer, topic):
        low, high = consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=REQUEST_LIMIT_S)
        # The end of a transaction takes an offset too, so these are at least half as many events.
        found.append(TopicPartition(topic, partition, max(low, high - 2 * MAX_EVENTS)))
    return found


def read_events(connection: Connection, topics: Topics, at: float) -> EventsRead:
    """The newest events since `at` (epoch seconds), to the present end.  Raises ReadError, KafkaException."""
    readable = Readable(topics.cluster)
    with reading(connection, "events") as consumer:
        places = since(consumer, topics.events, at)
        newest = {place.partition: place.offset for place in newest_events(consumer, topics.events)}
        for place in places:
            place.offset = max(place.offset, newest[place.partition])
        found = drain(consumer, places)
    kept = deque(readable.events(found.messages), MAX_EVENTS)
    return EventsRead(
        events=tuple(sorted((event for event in kept if event.at >= at), key=lambda event: event.at)),
        positions=tuple(found.positions(topics.events)),
        readable=readable,
    )


def follow_events(connection: Connection, read: EventsRead) -> Iterator[Event]:
    """The events after those read, as they come; without end.  Raises KafkaException."""
    follower = Follower(connection, "events", read.positions)
    try:
        while True:
            messages = follower.consume(500, FOLLOW_S)
            for message in messages:
                if message.error() is not None and not is_transient(message.error()):
                    raise KafkaException(message.error())
            yield from read.readable.events(message for message in messages if message.error() is None)
    finally:
        follower.close()
