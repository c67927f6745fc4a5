"""Which topics a controller needs, and which it does without."""

from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import AclOperation, ConfigResource, NewTopic

from trimtab_controller.kafka.connection import MissingTopicsError, ensure_topics, events_obstacle
from trimtab_protocol.messages.names import Topics, topic_settings

TOPICS = Topics("c")
NAMES = {settings.name for settings in topic_settings(TOPICS)}
DENIED = KafkaError.TOPIC_AUTHORIZATION_FAILED


class Brokers:
    """As much of an admin client as is asked; `refused` = code with which creating these topics fails."""

    def __init__(self, present: set[str], refused: dict[str, int] | None = None, answer: object = None) -> None:
        self._present = present
        self._refused = refused or {}
        self._answer = answer
        self.created: list[str] = []

    def list_topics(self, timeout: float) -> Any:
        return SimpleNamespace(topics=dict.fromkeys(self._present, SimpleNamespace(partitions=range(4))))

    def create_topics(self, topics: list[NewTopic], validate_only: bool = False) -> dict[str, Future[None]]:
        self.created = [each.topic for each in topics]
        return {name: done(KafkaError(self._refused[name], "no") if name in self._refused else None)
                for name in self.created}  # fmt: skip

    def describe_configs(self, resources: list[ConfigResource], **_: object) -> dict[ConfigResource, Future[Any]]:
        return {each: done(KafkaError(DENIED, "no")) for each in resources}

    def describe_topics(self, topics: TopicCollection, **_: object) -> dict[str, Future[Any]]:
        return {TOPICS.events: done(self._answer)}


class Provider(Brokers):
    """Managed brokers: `least` and `most` of a setting, or a size that no topic may have."""

    def __init__(self, least: dict[str, int] | None = None, most: dict[str, int] | None = None) -> None:
        super().__init__(set())
        self._least, self._most = least or {}, most or {}
        self.made: dict[str, dict[str, str]] = {}

    def create_topics(self, topics: list[NewTopic], validate_only: bool = False) -> dict[str, Future[None]]:
        answers = {}
        for each in topics:
            given = {key: int(value) for key, value in each.config.items() if value.isdecimal()}
            bad = [key for key, value in given.items() if not self._takes(key, value)]
            if not bad and not validate_only:
                self.made[each.topic] = each.config
            answers[each.topic] = done(KafkaError(KafkaError.POLICY_VIOLATION, "not by our policy") if bad else None)
        return answers

    def _takes(self, key: str, value: int) -> bool:
        return self._least.get(key, 0) <= value <= self._most.get(key, value)


def done(result: object) -> "Future[Any]":
    found: Future[Any] = Future()
    if isinstance(result, KafkaError):
        found.set_exception(KafkaException(result))
    else:
        found.set_result(result)
    return found


def test_a_missing_topic_of_events_is_created_apart_from_the_others() -> None:
    brokers = Brokers(NAMES - {TOPICS.events}, answer=KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART, "no"))
    ensure_topics(brokers, TOPICS)  # type: ignore[arg-type]
    assert brokers.created == []
    events_obstacle(brokers, TOPICS, patience_s=0.0)  # type: ignore[arg-type]
    assert brokers.created == [TOPICS.events]


def test_the_topic_of_keys_is_created_only_where_hosts_sign() -> None:
    brokers = Brokers(NAMES - {TOPICS.keys})
    ensure_topics(brokers, TOPICS)  # type: ignore[arg-type]
    assert brokers.created == []
    ensure_topics(brokers, TOPICS, host_keys=True)  # type: ignore[arg-type]
    assert brokers.created == [TOPICS.keys]


def test_older_rules_forbid_to_create_the_topic_of_events() -> None:
    unknown = KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART, "no")
    brokers = Brokers(NAMES - {TOPICS.events}, {TOPICS.events: DENIED}, answer=unknown)
    why = events_obstacle(brokers, TOPICS)  # type: ignore[arg-type]
    assert why is not None
    assert why.startswith("there is no such topic, and it cannot be created: ")


def test_no_other_topic_may_be_missing() -> None:
    brokers = Brokers(NAMES - {TOPICS.journal}, {TOPICS.journal: DENIED})
    with pytest.raises(MissingTopicsError, match=r"trimtab\.c\.journal"):
        ensure_topics(brokers, TOPICS)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("answer", "allowed"),
    [
        (SimpleNamespace(authorized_operations=[AclOperation.WRITE, AclOperation.DESCRIBE]), True),
        (SimpleNamespace(authorized_operations=None), True),
        (SimpleNamespace(authorized_operations=[AclOperation.DESCRIBE]), False),
        (KafkaError(DENIED, "no"), False),
        (KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART, "no"), False),
    ],
)
def test_events_are_told_only_where_they_may_be_written(answer: object, allowed: bool) -> None:
    brokers = Brokers(NAMES, answer=answer)
    assert (events_obstacle(brokers, TOPICS, patience_s=0.0) is None) is allowed  # type: ignore[arg-type]


def test_a_topic_that_was_just_created_may_be_unknown_for_a_moment() -> None:
    brokers = Brokers(NAMES, answer=KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART, "no"))
    describe, answers = brokers.describe_topics, []

    def later(topics: TopicCollection, **_: object) -> dict[str, Future[Any]]:
        answers.append(topics)
        return (
            describe(topics) if len(answers) < 3 else {TOPICS.events: done(SimpleNamespace(authorized_operations=None))}
        )

    brokers.describe_topics = later  # type: ignore[method-assign]
    assert events_obstacle(brokers, TOPICS, patience_s=60.0) is None  # type: ignore[arg-type]
    assert len(answers) == 3


def test_a_broker_that_is_away_is_asked_again() -> None:
    with pytest.raises(KafkaException):
        events_obstacle(Brokers(NAMES, answer=KafkaError(KafkaError._TRANSPORT, "away")), TOPICS)  # type: ignore[arg-type]


def test_a_provider_that_refuses_a_setting_gets_another_that_serves(caplog: pytest.LogCaptureFixture) -> None:
    brokers = Provider({"segment.bytes": 50 << 20}, {"max.message.bytes": 8 << 20})
    ensure_topics(brokers, TOPICS)  # type: ignore[arg-type]
    assert set(brokers.made) == NAMES - {TOPICS.events, TOPICS.keys}
    wanted = {settings.name: settings for settings in topic_settings(TOPICS)}
    for name, made in brokers.made.items():
        assert made.keys() == wanted[name].configuration.keys()
        assert [key for key in made if not wanted[name].serves(key, made[key])] == []
    told = (
        f"created topic {TOPICS.journal} with max.message.bytes=8388608, segment.bytes=52428800: the broker refuses "
        "max.message.bytes=16777216, segment.bytes=16777216: not by our policy"
    )
    assert told in caplog.messages


def test_a_setting_that_has_no_other_value_is_named_with_the_command() -> None:
    with pytest.raises(MissingTopicsError) as refused:
        ensure_topics(Provider(most={"max.message.bytes": 1 << 20}), TOPICS)  # type: ignore[arg-type]
    told = (
        f"{TOPICS.placement}: the broker refuses max.message.bytes=16777216: not by our policy; create it with values "
        f"that it takes, such as: kafka-topics --create --topic {TOPICS.placement} --partitions 1 "
        "--replication-factor 3 --config max.message.bytes=8388608 --config cleanup.policy=compact "
        "--config segment.bytes=16777216"
    )
    assert told in str(refused.value)
