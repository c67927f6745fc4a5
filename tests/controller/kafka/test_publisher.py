"""Publications, each in one transaction, and a topic that they can do without."""

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import SimpleNamespace

import pytest
from confluent_kafka import KafkaError, KafkaException

from trimtab_controller.kafka import publisher
from trimtab_controller.kafka.connection import Connection
from trimtab_controller.kafka.host_keys import approving, revoking, sign_again
from trimtab_controller.kafka.publisher import LOOK_AGAIN_S, OptionalTopic, ProducerEndedError, Publisher, Record
from trimtab_protocol.messages.host_keys import HostKeys
from trimtab_protocol.messages.names import HostId
from trimtab_protocol.settings.kafka import ONE_AT_A_TIME, KafkaSettings
from trimtab_protocol.signing.keys import BadKey, KeyId, PublicKey, SigningKey

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
    def new_producer(settings: dict[str, object]) -> Played:
        assert ONE_AT_A_TIME.items() <= settings.items(), "else the first record of a partition can be lost"
        return played

    monkeypatch.setattr(publisher, "Producer", new_producer)
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


# --- optional topic ---------------------------------------------------------------------------------------------------


NEEDED, EVENTS = "journal", "events"
RECORDS = [Record(topic=name, key=b"k", value=b"v") for name in (NEEDED, EVENTS, EVENTS)]


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


def test_a_topic_that_is_gone_is_left_out_until_it_is_back(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    brokers = Brokers([None, "it is gone", "it is gone", None])
    topic = brokers.topic()
    assert topic.is_in_the_way()
    assert written(topic) == [NEEDED]
    brokers.now = LOOK_AGAIN_S
    assert written(topic) == [NEEDED]
    assert written(topic) == [NEEDED]
    brokers.now = 2 * LOOK_AGAIN_S
    assert written(topic) == [NEEDED, EVENTS, EVENTS]
    assert brokers.asked == [0.0, 0.0, LOOK_AGAIN_S, 2 * LOOK_AGAIN_S]
    gone, back = caplog.messages
    assert gone == "nothing is written to topic events: it is gone; trying again every 60 s"
    assert back == "topic events can be written to again; 6 records were left out"


def test_a_broker_that_is_away_blames_no_topic() -> None:
    brokers = Brokers([None, KafkaException(KafkaError(KafkaError._TRANSPORT, "away"))])
    topic = brokers.topic()
    assert not topic.is_in_the_way()
    assert written(topic) == [NEEDED, EVENTS, EVENTS]


# ---- changes of the keys of hosts, as records to write


A, B = HostId("a"), HostId("b")
FIRST, SECOND, THIRD = (SigningKey.generate().public for _ in range(3))


def keys_of(host: HostId, *keys: PublicKey, at: float = 10.0) -> HostKeys:
    return HostKeys(cluster="c", host=host, keys=tuple(key.raw for key in keys), at=at, by="ops")


def known(*records: HostKeys) -> Mapping[HostId, HostKeys]:
    return {record.host: record for record in records}


def test_a_new_key_counts_beside_the_one_before() -> None:
    approve = approving("c", A, SECOND, "ops")

    assert approve({}, 20.0) == [keys_of(A, SECOND, at=20.0)]
    assert approve(known(keys_of(A, FIRST)), 20.0) == [keys_of(A, SECOND, FIRST, at=20.0)]
    assert approve(known(keys_of(A, FIRST, THIRD)), 20.0) == [keys_of(A, SECOND, FIRST, at=20.0)]
    assert approve(known(keys_of(A, SECOND)), 20.0) == [keys_of(A, SECOND, at=20.0)]


def test_a_key_belongs_to_one_host() -> None:
    with pytest.raises(BadKey, match="approved for host b, expected a key of a alone"):
        approving("c", A, FIRST, "ops")(known(keys_of(B, FIRST)), 20.0)


def test_revoking_takes_one_key_or_all_and_forgets_nothing_before() -> None:
    both = known(keys_of(A, SECOND, FIRST), keys_of(B, THIRD))

    assert revoking("c", A, FIRST.id, "ops")(both, 20.0) == [keys_of(A, SECOND, at=20.0)]
    assert revoking("c", A, None, "ops")(both, 20.0) == [keys_of(A, at=20.0)]
    assert revoking("c", A, None, "ops")({}, 20.0) == [keys_of(A, at=20.0)]
    assert approving("c", A, THIRD, "ops")(known(keys_of(A)), 20.0) == [keys_of(A, THIRD, at=20.0)]
    with pytest.raises(BadKey, match="expected 0000 among them"):
        revoking("c", A, KeyId("0000"), "ops")(both, 20.0)


def test_a_change_is_later_than_the_one_before_also_by_a_slow_clock() -> None:
    [record] = revoking("c", A, None, "ops")(known(keys_of(A, FIRST, at=100.0)), 20.0)

    assert record.at > 100.0


def test_signing_again_changes_nothing() -> None:
    records = known(keys_of(B, THIRD), keys_of(A, FIRST))

    assert sign_again(records, 20.0) == [keys_of(A, FIRST), keys_of(B, THIRD)]
