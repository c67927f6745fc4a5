"""Reads from Kafka what controller and stream publish, and how far the job is behind."""

from types import TracebackType
from typing import Self

from confluent_kafka import (
    OFFSET_BEGINNING,
    ConsumerGroupTopicPartitions,
    KafkaError,
    KafkaException,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, OffsetSpec

from flights.readback import read_topic
from trimtab_controller.kafka.chunks import Reassembler, read_chunk
from trimtab_controller.kafka.connection import Connection
from trimtab_controller.kafka.follower import Follower
from trimtab_protocol.messages.names import Topics
from trimtab_protocol.messages.round_status import RoundStatus
from trimtab_protocol.messages.snapshot import Snapshot
from trimtab_protocol.messages.status import Status, decode_status, status_key
from trimtab_protocol.settings.kafka import KafkaSettings

REQUEST_LIMIT_S = 10.0


class StatusWatch:
    """Follows the controller's status topic; `rounds` = plan -> last reported state of every round."""

    def __init__(self, bootstrap: str, topics: Topics) -> None:
        self.last: Status | None = None
        self.rounds: dict[str, RoundStatus] = {}
        connection = Connection(kafka=KafkaSettings(bootstrap_servers=bootstrap))
        self._follower = Follower(connection, "watch", [TopicPartition(topics.status, 0, OFFSET_BEGINNING)])

    def poll(self) -> Status | None:
        """The newest status; None before the first."""
        for message in self._follower.consume(100, 0.05):
            if message.error() is None and message.key() == status_key(acting=True):
                self.last = decode_status(message.value())
                self.rounds.update({row.plan: row for row in self.last.rounds})
        return self.last

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._follower.close()


class Backlog:
    """The backlog of a consumer group."""

    def __init__(self, bootstrap: str, group: str, topics: dict[str, int]) -> None:
        self._bootstrap = bootstrap
        self._group = group
        self._places = [
            TopicPartition(topic, partition) for topic, count in topics.items() for partition in range(count)
        ]

    def records(self) -> int:
        """Number of records that are produced but not committed.  Raises KafkaException."""
        # A new client each time: one that has lost its broker may time out for ever.
        admin = AdminClient({"bootstrap.servers": self._bootstrap, "log_level": 0})
        ends = admin.list_offsets(
            {place: OffsetSpec.latest() for place in self._places}, request_timeout=REQUEST_LIMIT_S
        )
        [answer] = admin.list_consumer_group_offsets(
            [ConsumerGroupTopicPartitions(self._group)], request_timeout=REQUEST_LIMIT_S
        ).values()
        try:
            rows = answer.result(REQUEST_LIMIT_S).topic_partitions
            committed = {(row.topic, row.partition): max(0, row.offset) for row in rows}
            return sum(
                future.result(REQUEST_LIMIT_S).offset - committed.get((place.topic, place.partition), 0)
                for place, future in ends.items()
            )
        except TimeoutError as error:  # the broker has died: the client itself may wait for ever
            raise KafkaException(
                KafkaError(KafkaError._TIMED_OUT, "the broker did not answer with its offsets")
            ) from error


def read_snapshots(bootstrap: str, topics: Topics) -> tuple[Snapshot, ...]:
    """Every snapshot that the stream has published, oldest first."""
    reassembler = Reassembler(topics.cluster)
    found = (reassembler.add(read_chunk(row.headers, row.value)) for row in read_topic(bootstrap, topics.snapshots))
    return tuple(sorted((row for row in found if row is not None), key=lambda row: row.end_ms))
