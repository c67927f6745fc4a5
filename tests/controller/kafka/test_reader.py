"""Reading topics to their end."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from confluent_kafka import OFFSET_END, KafkaError, KafkaException, TopicPartition

from tests.kafka_record import Record
from trimtab_controller.kafka import intents
from trimtab_controller.kafka.connection import Connection
from trimtab_controller.kafka.intents import NotWrittenError, write_intents
from trimtab_controller.kafka.reader import drain, since
from trimtab_protocol.messages.codec import encoded
from trimtab_protocol.messages.decode import BadMessage
from trimtab_protocol.messages.intents import Pause, TakenBack, taken_back_in
from trimtab_protocol.messages.names import THE_PARTITION, Topics
from trimtab_protocol.settings.kafka import KafkaSettings, Tls


class Records:
    """A consumer that has them all at once; the last one says that they end."""

    def __init__(self, *keys: bytes) -> None:
        self._records = [Record("acks", None, key, offset=at) for at, key in enumerate(keys)]
        self._records.append(Record("acks", offset=len(keys), error=KafkaError(KafkaError._PARTITION_EOF)))

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
    refused = KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED, "Fetch from broker 1 failed")
    records = Records()
    records._records = [Record("acks", error=refused)]
    with pytest.raises(KafkaException, match="topic acks: this user has no right to read it; `trimtab acl` prints"):
        drain(records, [TopicPartition("acks", 0, 0)])


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


def test_a_place_that_the_broker_does_not_know_is_none() -> None:
    class Leaderless(Partitions):
        def offsets_for_times(self, wanted: list[TopicPartition], timeout: float) -> list[SimpleNamespace]:
            fault = KafkaError(KafkaError.LEADER_NOT_AVAILABLE)
            return [SimpleNamespace(partition=each.partition, offset=-1001, error=fault) for each in wanted]

    with pytest.raises(KafkaException, match="LEADER_NOT_AVAILABLE"):
        since(Leaderless(), "windows", 1.5)


# ---- operators' intents on their way to the brokers


NOWHERE = Connection(kafka=KafkaSettings(bootstrap_servers="127.0.0.1:1"))
TOPICS = Topics("c")
PAUSE = Pause(by="ann", at=1.0, reason="test")
BACK = TakenBack(by="bob", at=2.0, reason="it is over")


@dataclass(frozen=True)
class Stored:
    at: int

    def offset(self) -> int:
        return self.at


class FakeProducer:
    """Answers each record with the next of `answers`: an offset, an error, or nothing."""

    answers: tuple[int | KafkaError | None, ...] = ()

    fatal: KafkaError | None = None
    last: "FakeProducer"

    def __init__(self, settings: dict[str, object]) -> None:
        assert settings["message.timeout.ms"] == 2_000
        assert settings["max.in.flight.requests.per.connection"] == 1
        self.told: list[Callable[[], None]] = []
        self.sent: list[tuple[bytes, bytes | None, list[tuple[str, bytes]]]] = []
        FakeProducer.last = self

    def produce(
        self,
        topic: str,
        partition: int,
        key: bytes,
        value: bytes | None,
        headers: list[tuple[str, bytes]],
        on_delivery: Callable[..., None],
    ) -> None:
        assert (topic, partition) == (TOPICS.intents, THE_PARTITION)
        answer = self.answers[len(self.sent)]
        self.sent.append((key, value, headers))
        if answer is not None:
            error = answer if isinstance(answer, KafkaError) else None
            at = answer if isinstance(answer, int) else -1
            self.told.append(lambda: on_delivery(error, Stored(at)))

    def flush(self, limit_s: float) -> int:
        if self.fatal is not None:
            raise SystemError("a callback returned a result with an exception set") from KafkaException(self.fatal)
        for tell in self.told:
            tell()
        return len(self.sent) - len(self.told)


def write(monkeypatch: pytest.MonkeyPatch, *answers: int | KafkaError | None) -> int:
    monkeypatch.setattr(FakeProducer, "answers", answers)
    monkeypatch.setattr(intents, "Producer", FakeProducer)
    return write_intents(NOWHERE, TOPICS, [(PAUSE.key, PAUSE), ("drain/w0", BACK)], limit_s=2.0)


def test_the_offset_of_the_last_record_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    assert write(monkeypatch, 7, 9) == 9
    (_, value, none), (key, nothing, headers) = FakeProducer.last.sent
    assert (value, none) == (encoded(PAUSE), [])
    assert (key, nothing, taken_back_in(headers)) == (b"drain/w0", None, BACK), "the end of an intent says who ended it"


def test_what_the_controller_could_not_read_is_not_written() -> None:
    for records in ([(PAUSE.key, Pause(by="ann", at=1.0, reason=""))], [("pause", replace(BACK, reason=2_001 * "x"))]):
        with pytest.raises(BadMessage, match="reason: found"):
            write_intents(NOWHERE, TOPICS, records, limit_s=2.0)


@pytest.mark.parametrize(
    ("answers", "why"),
    [
        ((7, KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED)), "this client needs the rights of `trimtab acl --role"),
        ((KafkaError(KafkaError.MSG_SIZE_TOO_LARGE), 8), "Broker: Message size too large"),
        ((7, KafkaError(KafkaError._MSG_TIMED_OUT)), "no answer within 2 s, so it is not known whether it was written"),
        ((7, None), "no answer within 2 s, so it is not known whether it was written"),
    ],
)
def test_what_is_not_confirmed_is_said(
    monkeypatch: pytest.MonkeyPatch, answers: tuple[int | KafkaError | None, ...], why: str
) -> None:
    with pytest.raises(NotWrittenError, match=r"^not confirmed by Kafka at 127\.0\.0\.1:1: ") as refused:
        write(monkeypatch, *answers)
    assert why in str(refused.value)


def test_a_client_that_may_write_nothing_says_what_it_lacks(monkeypatch: pytest.MonkeyPatch) -> None:
    """It does not even get a producer id, which to librdkafka is a fatal error."""
    denied = KafkaError(KafkaError.CLUSTER_AUTHORIZATION_FAILED, "no producer id", True)
    monkeypatch.setattr(FakeProducer, "fatal", denied)
    with pytest.raises(NotWrittenError, match="no producer id: this client needs the rights of `trimtab acl --role"):
        write(monkeypatch, None, None)


def test_a_broker_that_is_not_there_is_given_up() -> None:
    with pytest.raises(NotWrittenError, match=r"no answer within 0\.2 s"):
        write_intents(NOWHERE, TOPICS, [(PAUSE.key, PAUSE)], limit_s=0.2)


def test_a_client_that_cannot_be_made_is_said(tmp_path: Path) -> None:
    connection = Connection(kafka=KafkaSettings(bootstrap_servers="b:1", tls=Tls(ca=tmp_path / "none")))
    with pytest.raises(NotWrittenError, match=r"^not confirmed by Kafka at b:1: .*ssl\.ca\.location"):
        write_intents(connection, TOPICS, [(PAUSE.key, PAUSE)], limit_s=2.0)
