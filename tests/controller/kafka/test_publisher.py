"""What becomes of a publication whose topics are gone; the Kafka client is played."""

from types import SimpleNamespace

import pytest
from confluent_kafka import KafkaError, KafkaException

from trimtab_controller.kafka import publisher
from trimtab_controller.kafka.connection import Connection
from trimtab_controller.kafka.publisher import ProducerEndedError, Publisher, Record
from trimtab_protocol.settings.kafka import KafkaSettings

JOURNAL, PLACEMENT = "trimtab.c.journal", "trimtab.c.placement"
UNKNOWN = KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART)
SILENT = KafkaException(KafkaError(KafkaError._TIMED_OUT, "no answer"))


class Played:
    """A producer whose commits time out while `looks` are left; each look says what the broker says of the journal."""

    def __init__(self, *looks: KafkaError | KafkaException | None) -> None:
        self.looks = list(looks)
        self.produced: list[str] = []
        self.committed = 0

    def __len__(self) -> int:
        return len(self.looks)

    def init_transactions(self, limit_s: float) -> None: ...

    def begin_transaction(self) -> None: ...

    def produce(self, topic: str, **_: object) -> None:
        self.produced.append(topic)

    def commit_transaction(self, limit_s: float) -> None:
        if self.looks:
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT, "1 message(s) remaining", retriable=True))
        self.committed += 1

    def list_topics(self, topic: str, timeout: float) -> SimpleNamespace:
        look = self.looks.pop(0) if topic == JOURNAL else None
        if isinstance(look, KafkaException):
            raise look
        return SimpleNamespace(topics={topic: SimpleNamespace(error=look)})


def publish(monkeypatch: pytest.MonkeyPatch, played: Played) -> None:
    monkeypatch.setattr(publisher, "Producer", lambda _: played)
    monkeypatch.setattr(publisher, "pause", lambda *_: None)
    made = Publisher(Connection(kafka=KafkaSettings(bootstrap_servers="played:9092")), "t", lambda: False)
    made.publish([Record(topic=topic, key=b"k", value=b"v") for topic in (JOURNAL, PLACEMENT)])


def test_a_transaction_does_not_wait_for_a_topic_that_was_deleted(monkeypatch: pytest.MonkeyPatch) -> None:
    played = Played(UNKNOWN, UNKNOWN, UNKNOWN)

    with pytest.raises(ProducerEndedError, match=f"topics were deleted: {JOURNAL}$"):
        publish(monkeypatch, played)

    assert (played.produced, played.committed) == ([JOURNAL, PLACEMENT], 0)


@pytest.mark.parametrize(
    "looks",
    [
        pytest.param((UNKNOWN, None, UNKNOWN, None), id="brokers that start do not know it yet"),
        pytest.param((UNKNOWN, SILENT, UNKNOWN), id="nobody answers in between"),
        pytest.param((None, None), id="it is there"),
    ],
)
def test_it_waits_while_the_broker_is_away_or_has_just_started(
    monkeypatch: pytest.MonkeyPatch, looks: tuple[KafkaError | KafkaException | None, ...]
) -> None:
    played = Played(*looks)

    publish(monkeypatch, played)

    assert (played.committed, played.looks) == (1, [])
