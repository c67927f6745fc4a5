"""A topic that publications can do without: while nothing can be written to it, they leave it out."""

import logging
import time
from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

from confluent_kafka import KafkaException

from trimtab_process.kafka_errors import error_text

log = logging.getLogger(__name__)

LOOK_AGAIN_S = 60.0
"""How often it is looked whether the topic can be written to again."""


class _HasTopic(Protocol):
    @property
    def topic(self) -> str: ...


R = TypeVar("R", bound=_HasTopic)


class OptionalTopic:
    """Knows whether the topic can be written to; the log says when that changes, and how many records it has cost."""

    def __init__(self, topic: str, look: Callable[[], str | None], clock: Callable[[], float] = time.monotonic) -> None:
        """Looks for the topic.  `look` says why nothing can be written to it, None: nothing is in the way.

        Raises what `look` raises, which may be KafkaException.
        """
        self._topic = topic
        self._look = look
        self._clock = clock
        self._left_out = 0
        self._obstacle: str | None = None
        self._look_at = clock() + LOOK_AGAIN_S
        self._see(look())

    def writable(self, records: Sequence[R]) -> list[R]:
        """The records without those that cannot be written now."""
        if self._obstacle is not None and self._clock() >= self._look_at:
            self.is_in_the_way()
        if self._obstacle is None:
            return list(records)
        found = [record for record in records if record.topic != self._topic]
        self._left_out += len(records) - len(found)
        return found

    def is_in_the_way(self) -> bool:
        """Look again: whether a publication fails because of this topic; not if the broker does not say."""
        self._look_at = self._clock() + LOOK_AGAIN_S
        try:
            self._see(self._look())
        except KafkaException as error:
            log.debug("cannot look for topic %s: %s", self._topic, error_text(error))
            return False
        return self._obstacle is not None

    def _see(self, obstacle: str | None) -> None:
        if obstacle is not None and obstacle != self._obstacle:
            log.warning(
                "nothing is told on topic %s: %s; looking again every %g s", self._topic, obstacle, LOOK_AGAIN_S
            )
        if obstacle is None and self._obstacle is not None:
            log.info("topic %s can be written to again; %d records were left out", self._topic, self._left_out)
            self._left_out = 0
        self._obstacle = obstacle
