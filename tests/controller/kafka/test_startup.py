"""Work on the topics begins when broker and topics are there, and again after a fault that passes by itself."""

import pytest
from confluent_kafka import KafkaError, KafkaException

from trimtab_controller.kafka import startup
from trimtab_controller.kafka.connection import Connection, StoppedError
from trimtab_controller.kafka.reader import ReadError
from trimtab_controller.kafka.startup import start_when_ready
from trimtab_protocol.messages.names import Topics
from trimtab_protocol.settings.kafka import KafkaSettings

CONNECTION, TOPICS = Connection(kafka=KafkaSettings(bootstrap_servers="127.0.0.1:1")), Topics("c")
AWAY = KafkaException(KafkaError(KafkaError._TRANSPORT, "away"))
DENIED = KafkaException(KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED, "no"))


@pytest.fixture
def done(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """What was asked of a broker that answers; a pause ends at once."""
    found: list[object] = []

    def wait(*_: object) -> str:
        found.append("wait")
        return "admin"

    monkeypatch.setattr(startup, "wait_for_broker", wait)
    monkeypatch.setattr(startup, "ensure_topics", lambda *_, host_keys: found.append(("topics", host_keys)))
    monkeypatch.setattr(startup, "pause", lambda *_: found.append("pause"))
    return found


def starting(done: list[object], *outcomes: Exception | str) -> str:
    left = iter(outcomes)

    def start(admin: object) -> str:
        done.append(("start", admin))
        outcome = next(left)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    return start_when_ready(CONNECTION, TOPICS, lambda: False, start, host_keys=True)


def test_it_starts_again_after_each_fault_that_passes(done: list[object]) -> None:
    assert starting(done, AWAY, ReadError("silent"), "begun") == "begun"
    attempt = ["wait", ("topics", True), ("start", "admin")]
    assert done == [*attempt, "pause", *attempt, "pause", *attempt]


def test_a_fault_that_stays_ends_it(done: list[object]) -> None:
    with pytest.raises(KafkaException, match="no"):
        starting(done, DENIED)
    assert "pause" not in done


def test_it_ends_when_it_is_stopped_while_the_broker_is_away() -> None:
    with pytest.raises(StoppedError):
        start_when_ready(CONNECTION, TOPICS, lambda: True, lambda _: pytest.fail("started"))
