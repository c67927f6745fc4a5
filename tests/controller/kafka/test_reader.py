"""Reading topics to their end."""

from dataclasses import dataclass
from types import SimpleNamespace

import pytest
from confluent_kafka import OFFSET_END, KafkaError, KafkaException, TopicPartition

from trimtab_controller.kafka.reader import drain, since


@dataclass
class Record:
    """As much of a Kafka message as is looked at; without a key it is the end of the partition."""

    at: int
    of: bytes | None = None

    def topic(self) -> str:
        return "acks"

    def partition(self) -> int:
        return 0

    def offset(self) -> int:
        return self.at

    def key(self) -> bytes | None:
        return self.of

    def error(self) -> KafkaError | None:
        return KafkaError(KafkaError._PARTITION_EOF) if self.of is None else None


class Records:
    """A consumer that has them all at once."""

    def __init__(self, *keys: bytes) -> None:
        self._records = [Record(at, key) for at, key in enumerate(keys)]
        self._records.append(Record(len(keys)))

    def assign(self, positions: list[TopicPartition]) -> None:
        assert [(each.topic, each.partition) for each in positions] == [("acks", 0)]

    def consume(self, count: int, timeout: float) -> list[Record]:
        taken, self._records = self._records[:count], self._records[count:]
        return taken


def test_all_is_kept_or_of_some_keys_the_first_and_all_of_it_is_read() -> None:
    keys, start = (b"h1", b"h1", b"h2", b"h1", b"h2", b"h3"), [TopicPartition("acks", 0, 0)]

    whole, part = drain(Records(*keys), start), drain(Records(*keys), start, keys={b"h1", b"h2"}, most_per_key=2)

    assert [message.offset() for message in whole.messages] == [0, 1, 2, 3, 4, 5]
    assert [message.offset() for message in part.messages] == [0, 1, 2, 4]
    assert whole.next_offsets == part.next_offsets == {("acks", 0): 6}


def test_which_topic_may_not_be_read_is_said() -> None:
    @dataclass
    class Refused(Record):
        def error(self) -> KafkaError | None:
            return KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED, "Fetch from broker 1 failed")

    class Closed(Records):
        def consume(self, count: int, timeout: float) -> list[Record]:
            return [Refused(0)]

    with pytest.raises(KafkaException, match="topic acks: this user has no right to read it; `trimtab acl` prints"):
        drain(Closed(), [TopicPartition("acks", 0, 0)])


class Partitions:
    """A consumer of a topic with messages in its first partition only."""

    def list_topics(self, topic: str, timeout: float) -> SimpleNamespace:
        found = SimpleNamespace(error=None, partitions={0: None, 1: None})
        return SimpleNamespace(topics={topic: found})

    def get_watermark_offsets(self, place: TopicPartition, timeout: float) -> tuple[int, int]:
        return (2, 9) if place.partition == 0 else (0, 5)

    def offsets_for_times(self, wanted: list[TopicPartition], timeout: float) -> list[TopicPartition]:
        assert [each.offset for each in wanted] == [1_500, 1_500]
        return [TopicPartition("windows", 0, 7), TopicPartition("windows", 1, OFFSET_END)]


def test_where_nothing_new_is_the_end_of_now_counts_not_that_of_when_a_consumer_has_connected() -> None:
    found = since(Partitions(), "windows", 1.5)
    assert [(each.partition, each.offset) for each in found] == [(0, 7), (1, 5)]


def test_a_place_that_the_broker_does_not_know_is_none() -> None:
    class Leaderless(Partitions):
        def offsets_for_times(self, wanted: list[TopicPartition], timeout: float) -> list[SimpleNamespace]:
            fault = KafkaError(KafkaError.LEADER_NOT_AVAILABLE)
            return [SimpleNamespace(partition=each.partition, offset=-1001, error=fault) for each in wanted]

    with pytest.raises(KafkaException, match="LEADER_NOT_AVAILABLE"):
        since(Leaderless(), "windows", 1.5)
