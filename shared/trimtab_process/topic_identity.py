"""Detects a topic that was deleted and re-created under the same name.

After a broker restart the client does not report that.  A new topic counts its leader epochs from 0, and a consumer
treats metadata with a lower leader epoch than it knows as outdated, for ever.  It keeps waiting at its old offset.  So
readers compare the topic's id regularly, and read a re-created topic with a new consumer.
"""

from collections.abc import Iterable, Mapping
from concurrent.futures import Future
from typing import Protocol

from confluent_kafka import TopicCollection
from confluent_kafka.admin import AdminClient, TopicDescription

COMPARE_EVERY_S = 30.0
"""How often a reader checks whether its topics are still the same."""


def describe_topics(
    admin: AdminClient, topics: Iterable[str], limit_s: float
) -> Mapping[str, Future[TopicDescription]]:
    """Ask the broker for ids and partitions of topics.

    Each future returns a description or raises KafkaException, also for a missing topic.
    """
    wanted = TopicCollection(sorted(topics))
    answers: Mapping[str, Future[TopicDescription]] = admin.describe_topics(wanted, request_timeout=limit_s)
    return answers


class Description(Protocol):
    """The part of a `TopicDescription` that `TopicIds` needs."""

    @property
    def topic_id(self) -> object:
        """Id of the topic; its `str` is always the same for the same topic."""


class TopicIds:
    """Ids of the topics that a reader reads, by name."""

    def __init__(self) -> None:
        self._ids: dict[str, str] = {}

    def __getitem__(self, topic: str) -> str:
        return self._ids[topic]

    def note(self, topic: str, found: Description) -> None:
        """Note the id of a topic that is read from now on."""
        self._ids[topic] = str(found.topic_id)

    def is_recreated(self, topic: str, found: Description) -> bool:
        """Whether the topic has another id than the noted one.  If none is noted, notes this one."""
        return self._ids.setdefault(topic, str(found.topic_id)) != str(found.topic_id)
