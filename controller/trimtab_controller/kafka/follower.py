"""A consumer that survives the re-creation of its topics; the running controller reads with it."""

import logging
import time
from collections.abc import Iterable, Mapping
from concurrent.futures import Future

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaException, Message, TopicPartition
from confluent_kafka.admin import AdminClient, TopicDescription

from trimtab_controller.kafka.connection import REQUEST_LIMIT_S, Connection
from trimtab_controller.kafka.reader import new_consumer
from trimtab_process.kafka_errors import error_text
from trimtab_process.topic_identity import COMPARE_EVERY_S, TopicIds, describe_topics

log = logging.getLogger(__name__)


class Follower:
    """Reads committed messages from the given positions on, and a re-created topic from its beginning.

    `watched`: topics that are not read here, but whose re-creation matters.
    """

    def __init__(
        self, connection: Connection, name: str, positions: Iterable[TopicPartition], *, watched: Iterable[str] = ()
    ) -> None:
        self._connection = connection
        self._name = name
        self._next = {(each.topic, each.partition): each.offset for each in positions}
        self._admin = AdminClient(connection.client(f"trimtab-{name}-admin"))
        self._watched = frozenset(watched)
        self._recreated: set[str] = set()
        self._ids = TopicIds()
        self._asked: Mapping[str, Future[TopicDescription]] = {}
        self._ask_at = time.monotonic()
        self._consumer = self._reader(self._next)

    def consume(self, most: int, timeout_s: float) -> list[Message]:
        """Up to `most` messages, errors included; empty if none arrive within the timeout."""
        self._watch()
        messages: list[Message] = self._consumer.consume(most, timeout=timeout_s)
        for message in messages:
            if message.error() is None:
                self._next[message.topic(), message.partition()] = message.offset() + 1
        return messages

    def take_recreated(self) -> frozenset[str]:
        """The topics that were re-created since the last call."""
        found, self._recreated = frozenset(self._recreated), set()
        return found

    def close(self) -> None:
        """Stop reading."""
        self._consumer.close()

    def _reader(self, positions: Mapping[tuple[str, int], int]) -> Consumer:
        consumer = new_consumer(self._connection, self._name)
        consumer.assign([TopicPartition(topic, at, offset) for (topic, at), offset in positions.items()])
        return consumer

    def _watch(self) -> None:
        """Ask for the topics' ids from time to time, and compare the answers once they arrive; never block."""
        if self._asked:
            if all(answer.done() for answer in self._asked.values()):
                self._compare(self._asked)
                self._asked = {}
        elif time.monotonic() >= self._ask_at:
            self._ask_at = time.monotonic() + COMPARE_EVERY_S
            self._asked = describe_topics(
                self._admin, self._watched.union(topic for topic, _ in self._next), REQUEST_LIMIT_S
            )

    def _compare(self, answers: Mapping[str, Future[TopicDescription]]) -> None:
        recreated = {}
        for topic, answer in answers.items():
            try:
                found = answer.result()
            except KafkaException:
                continue  # broker or topic is away, so nothing is written there now
            # A topic that is just being created may have no partitions yet.
            if found.partitions and self._ids.is_recreated(topic, found):
                recreated[topic] = found
        read = {topic for topic, _ in self._next}
        for topic in recreated.keys() - read:
            self._ids.note(topic, recreated[topic])
            self._recreated.add(topic)
        if of_read := {topic: found for topic, found in recreated.items() if topic in read}:
            self._read_from_beginning(of_read)

    def _read_from_beginning(self, topics: Mapping[str, TopicDescription]) -> None:
        positions = {where: offset for where, offset in self._next.items() if where[0] not in topics}
        for topic, found in topics.items():
            positions |= {(topic, partition.id): OFFSET_BEGINNING for partition in found.partitions}
        try:
            fresh = self._reader(positions)
        except KafkaException as error:  # for example no free file descriptor; the next comparison tries again
            log.warning("cannot read re-created topics yet (%s): %s", ", ".join(topics), error_text(error))
            return
        log.warning("topics were re-created, reading them from the beginning: %s", ", ".join(topics))
        self._consumer.close()
        self._consumer, self._next = fresh, positions
        self._recreated.update(topics)
        for topic, found in topics.items():
            self._ids.note(topic, found)
