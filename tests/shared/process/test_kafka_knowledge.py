"""What agent and controller know of Kafka: which errors pass, how long to wait, when a topic is another one."""

from types import SimpleNamespace

import pytest
from confluent_kafka import KafkaError, KafkaException

from trimtab_process.backoff import Backoff
from trimtab_process.kafka_errors import error_text, error_word, is_transient
from trimtab_process.topic_identity import TopicIds

FIRST, SECOND = SimpleNamespace(topic_id="id-1"), SimpleNamespace(topic_id="id-2")


@pytest.mark.parametrize(
    ("error", "passes"),
    [
        (KafkaError(KafkaError._TRANSPORT), True),
        (KafkaError(KafkaError.NOT_COORDINATOR), True),
        (KafkaError(KafkaError._FAIL, "retriable by its own word", retriable=True), True),
        (KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED), False),
        (KafkaError(KafkaError._FENCED), False),
    ],
)
def test_errors_that_pass_are_told_from_those_that_stay(error: KafkaError, passes: bool) -> None:
    assert is_transient(error) is passes


def test_an_error_is_told_in_its_own_words_and_counted_by_one() -> None:
    error = KafkaError(KafkaError._MSG_TIMED_OUT, "waited too long")

    assert error_text(KafkaException(error)) == "waited too long"
    assert error_text(KafkaException("no error object")) == "no error object"
    assert error_word(error) == "msg_timed_out"


def test_the_last_step_of_a_backoff_repeats() -> None:
    backoff = Backoff((0.5, 1.0, 3.0))

    assert [backoff.after(failures) for failures in (1, 2, 3, 4, 100)] == [0.5, 1.0, 3.0, 3.0, 3.0]
    assert backoff.longest_s == 3.0


@pytest.mark.parametrize("steps_s", [(), (1.0, -0.1), (float("nan"),)])
def test_a_backoff_without_usable_steps_is_refused(steps_s: tuple[float, ...]) -> None:
    with pytest.raises(ValueError, match="steps_s: found"):
        Backoff(steps_s)


def test_there_is_no_wait_before_the_first_failure() -> None:
    with pytest.raises(ValueError, match="failures: found 0, expected 1 or more"):
        Backoff((1.0,)).after(0)


def test_a_topic_is_another_one_until_the_new_one_is_read() -> None:
    ids = TopicIds()

    assert not ids.is_recreated("t", FIRST)
    assert not ids.is_recreated("t", FIRST)
    assert [ids.is_recreated("t", SECOND) for _ in range(2)] == [True, True]
    assert not ids.is_recreated("other", SECOND)
    ids.note("t", SECOND)
    assert not ids.is_recreated("t", SECOND)
    assert ids["t"] == "id-2"
