"""Reading topics on and on, whatever becomes of them: the running controller's ear."""

import logging
import time
from collections.abc import Iterable, Mapping
from concurrent.futures import Future

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaException, Message, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient, TopicDescription

from trimtab_controller.kafka.connection import REQUEST_LIMIT_S, Connection
from trimtab_controller.kafka.reader import new_consumer

log = logging.getLogger(__name__)

WATCH_S = 30.0
"""How often to check whether topics were re-created."""


class Follower:
    """Reads committed messages from the given positions on; of a re-created topic, all that is in it.

    The client alone would ignore such a topic for ever if the broker was restarted before: leader epochs of a new topic
    begin at 0, and the client takes a lower epoch than the one it knows for outdated metadata.
    """

    def __init__(self, connection: Connection, name: str, positions: Iterable[TopicPartition]) -> None:
        self._connection = connection
        self._name = name
        self._next = {(each.topic, each.partition): each.offset for each in positions}
        self._admin = AdminClient(connection.client(f"trimtab-{name}-admin"))
        self._ids: dict[str, str] = {}
        self._asked: Mapping[str, Future[TopicDescription]] = {}
        self._ask_at = time.monotonic()
        self._consumer = self._reader(self._next)

    def consume(self, most: int, timeout_s: float) -> list[Message]:
        """At most so many messages, errors among them; none when there are none within the timeout."""
        self._watch()
        messages: list[Message] = self._consumer.consume(most, timeout=timeout_s)
        for message in messages:
            if message.error() is None:
                self._next[message.topic(), message.partition()] = message.offset() + 1
        return messages

    def close(self) -> None:
        """Read no more."""
        self._consumer.close()

    def _reader(self, positions: Mapping[tuple[str, int], int]) -> Consumer:
        consumer = new_consumer(self._connection, self._name)
        consumer.assign([TopicPartition(topic, at, offset) for (topic, at), offset in positions.items()])
        return consumer

    def _watch(self) -> None:
        """Ask for the topics' ids from time to time, without waiting for the answers."""
        if self._asked:
            if all(answer.done() for answer in self._asked.values()):
                self._compare(self._asked)
                self._asked = {}
        elif time.monotonic() >= self._ask_at:
            self._ask_at = time.monotonic() + WATCH_S
            topics = TopicCollection(sorted({topic for topic, _ in self._next}))
            self._asked = self._admin.describe_topics(topics, request_timeout=REQUEST_LIMIT_S)

    def _compare(self, answers: Mapping[str, Future[TopicDescription]]) -> None:
        created = {}
        for topic, answer in answers.items():
            try:
                found = answer.result()
            except KafkaException:
                continue  # the broker is away, or the topic is: nobody writes there now
            # One that is just being made may have no partitions yet.
            if found.partitions and self._ids.setdefault(topic, str(found.topic_id)) != str(found.topic_id):
                created[topic] = found
        if created:
            self._read_re_created(created)

    def _read_re_created(self, topics: Mapping[str, TopicDescription]) -> None:
        positions = {where: offset for where, offset in self._next.items() if where[0] not in topics}
        for topic, found in topics.items():
            positions |= {(topic, partition.id): OFFSET_BEGINNING for partition in found.partitions}
        try:
            fresh = self._reader(positions)
        except KafkaException as error:  # no descriptor is free, say: it is tried again at the next look
            log.warning("cannot read re-created topics yet, %s: %s", ", ".join(topics), error)
            return
        log.warning("topics were re-created, reading them from the beginning: %s", ", ".join(topics))
        self._consumer.close()
        self._consumer, self._next = fresh, positions
        self._ids |= {topic: str(found.topic_id) for topic, found in topics.items()}
