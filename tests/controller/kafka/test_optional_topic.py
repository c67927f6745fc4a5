"""Publications leave out the records of a topic that cannot be written to."""

import logging
from dataclasses import dataclass, field

import pytest
from confluent_kafka import KafkaError, KafkaException

from trimtab_controller.kafka.publisher import LOOK_AGAIN_S, OptionalTopic, Record

JOURNAL, EVENTS = "journal", "events"
RECORDS = [Record(topic=name, key=b"k", value=b"v") for name in (JOURNAL, EVENTS, EVENTS)]


@dataclass
class Brokers:
    """What the brokers answer, and when."""

    answers: list[str | KafkaException | None]
    now: float = 0.0
    asked: list[float] = field(default_factory=list)

    def look(self) -> str | None:
        self.asked.append(self.now)
        answer = self.answers.pop(0)
        if isinstance(answer, KafkaException):
            raise answer
        return answer

    def topic(self) -> OptionalTopic:
        return OptionalTopic(EVENTS, self.look, lambda: self.now)


def written(topic: OptionalTopic) -> list[str]:
    return [record.topic for record in topic.writable(RECORDS)]


def test_nothing_is_left_out_or_asked_while_all_is_well() -> None:
    brokers = Brokers([None])
    topic = brokers.topic()
    brokers.now = 10 * LOOK_AGAIN_S
    assert written(topic) == [JOURNAL, EVENTS, EVENTS]
    assert brokers.asked == [0.0]


def test_a_topic_that_is_gone_is_left_out_until_it_is_back(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    brokers = Brokers([None, "it is gone", "it is gone", None])
    topic = brokers.topic()
    assert topic.is_in_the_way()
    assert written(topic) == [JOURNAL]
    brokers.now = LOOK_AGAIN_S
    assert written(topic) == [JOURNAL]
    assert written(topic) == [JOURNAL]
    brokers.now = 2 * LOOK_AGAIN_S
    assert written(topic) == [JOURNAL, EVENTS, EVENTS]
    assert brokers.asked == [0.0, 0.0, LOOK_AGAIN_S, 2 * LOOK_AGAIN_S]
    gone, back = caplog.messages
    assert gone == "nothing is told on topic events: it is gone; looking again every 60 s"
    assert back == "topic events can be written to again; 6 records were left out"


def test_a_broker_that_is_away_blames_no_topic() -> None:
    brokers = Brokers([None, KafkaException(KafkaError(KafkaError._TRANSPORT, "away"))])
    topic = brokers.topic()
    assert not topic.is_in_the_way()
    assert written(topic) == [JOURNAL, EVENTS, EVENTS]
