"""Notices when a topic was deleted and created again under its name.

The client says nothing of that when the broker was restarted before: a new topic counts its leader epochs from 0, and a
consumer takes metadata with a lower leader epoch than the one it knows for outdated, for ever.  It goes on waiting at
its old offset.  So readers compare the topic's id now and then, and read a re-created topic with a new consumer.
"""

from collections.abc import Iterable, Mapping
from concurrent.futures import Future
from typing import Protocol

from confluent_kafka import TopicCollection
from confluent_kafka.admin import AdminClient, TopicDescription

COMPARE_EVERY_S = 30.0
"""How often a reader looks whether its topics are still the same."""


def describe_topics(
    admin: AdminClient, topics: Iterable[str], limit_s: float
) -> Mapping[str, Future[TopicDescription]]:
    """Ask the broker for the topics' ids and partitions; the answers raise KafkaException, also for a missing topic."""
    wanted = TopicCollection(sorted(topics))
    answers: Mapping[str, Future[TopicDescription]] = admin.describe_topics(wanted, request_timeout=limit_s)
    return answers


class Description(Protocol):
    """What is needed of a `TopicDescription`."""

    @property
    def topic_id(self) -> object:
        """Its id; `str` of it is the same for the same topic."""


class TopicIds:
    """The ids of the topics that are read, by name."""

    def __init__(self) -> None:
        self._ids: dict[str, str] = {}

    def __getitem__(self, topic: str) -> str:
        return self._ids[topic]

    def note(self, topic: str, found: Description) -> None:
        """From now on this topic is the one that is read."""
        self._ids[topic] = str(found.topic_id)

    def is_recreated(self, topic: str, found: Description) -> bool:
        """Whether it is another topic than the one that is read; the first one that is seen is the one that is read."""
        return self._ids.setdefault(topic, str(found.topic_id)) != str(found.topic_id)
