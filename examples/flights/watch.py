"""Reads from Kafka what controller and stream publish."""

from typing import Self

from confluent_kafka import OFFSET_BEGINNING, TopicPartition

from flights.readback import read_topic
from trimtab_controller.kafka.chunks import Reassembler, read_chunk
from trimtab_controller.kafka.connection import Connection
from trimtab_controller.kafka.follower import Follower
from trimtab_protocol.messages.codec import decoded
from trimtab_protocol.messages.names import Topics
from trimtab_protocol.messages.snapshot import Snapshot
from trimtab_protocol.messages.status import RoundStatus, Status, status_key
from trimtab_protocol.settings.kafka import KafkaSettings


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
                self.last = decoded(message.value(), Status)
                self.rounds.update({row.plan: row for row in self.last.rounds})
        return self.last

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._follower.close()


def read_snapshots(bootstrap: str, topics: Topics) -> tuple[Snapshot, ...]:
    """Every snapshot that the stream has published, oldest first."""
    reassembler = Reassembler(topics.cluster)
    found = (reassembler.add(read_chunk(row.headers, row.value)) for row in read_topic(bootstrap, topics.snapshots))
    return tuple(sorted((row for row in found if row is not None), key=lambda row: row.end_ms))
