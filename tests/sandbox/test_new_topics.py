"""Topics of the sandbox count as created when the leaders of all partitions answer.  The admin client is played."""

from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from trimtab_sandbox import broker
from trimtab_sandbox.broker import Broker, BrokerError, Topic
from trimtab_sandbox.processes import Processes

NOT_LEADER = KafkaException(KafkaError(KafkaError.NOT_LEADER_FOR_PARTITION))
TOPICS = [Topic(name="a", partitions=2), Topic(name="b", partitions=1)]


class Played:
    """Creates every topic; `late` = how often a place is asked before its leader answers."""

    def __init__(self, late: dict[tuple[str, int], int]) -> None:
        self.late = late
        self.asked = 0

    def create_topics(self, new: list[Any], operation_timeout: float) -> dict[str, Future[None]]:
        return {each.topic: done(None) for each in new}

    def list_offsets(self, places: dict[TopicPartition, Any], request_timeout: float) -> dict[TopicPartition, Any]:
        self.asked += 1
        answers = {place: done(NOT_LEADER if self._is_late(place) else None) for place in places}
        assert sorted((place.topic, place.partition) for place in answers) == [("a", 0), ("a", 1), ("b", 0)]
        return answers

    def _is_late(self, place: TopicPartition) -> bool:
        return self.asked <= self.late.get((place.topic, place.partition), 0)


def done(fault: Exception | None) -> "Future[None]":
    future: Future[None] = Future()
    if fault is None:
        future.set_result(None)
    else:
        future.set_exception(fault)
    return future


@pytest.fixture
def made(tmp_path: Path) -> Iterator[Broker]:
    with Processes(tmp_path / "logs") as processes:
        one = Broker(tmp_path / "broker", processes)
        one.ports = (1, 2)
        yield one


def test_it_waits_for_the_last_leader(made: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    played = Played({("a", 1): 2, ("b", 0): 1})
    monkeypatch.setattr(broker, "AdminClient", lambda _: played)

    made.create_topics(TOPICS)

    assert played.asked == 3


def test_a_leader_that_never_answers_is_a_fault(made: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(broker, "AdminClient", lambda _: Played({("a", 1): 1_000}))

    with pytest.raises(BrokerError, match=r"without a leader after 0.1 s: a$"):
        made.create_topics(TOPICS, limit_s=0.1)
