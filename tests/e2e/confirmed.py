"""A producer whose records count once the broker has confirmed them.

`flush` counts one that was not delivered as done all the same.  A test that counts what it sends would take that for a
loss of the job's.
"""

import logging
from collections.abc import Callable
from typing import NamedTuple

from confluent_kafka import KafkaError, Message, Producer

from trimtab_protocol.settings.kafka import ONE_AT_A_TIME

log = logging.getLogger(__name__)

FLUSH_LIMIT_S = 30.0


class Confirmed(NamedTuple):
    """A record that is in Kafka, and when it was sent (epoch seconds)."""

    key: str | None
    value: str
    sent_at: float


class ConfirmedProducer:
    """Sends records in their order, none twice, and calls `confirmed` for each that is in Kafka."""

    def __init__(self, bootstrap: str, confirmed: Callable[[Confirmed], None]) -> None:
        options = {"enable.idempotence": True, **ONE_AT_A_TIME, "linger.ms": 5, "log_level": 0}
        self._producer = Producer({"bootstrap.servers": bootstrap, **options})
        self._confirmed = confirmed

    def send(self, topic: str, value: str, key: str | None = None, partition: int = -1) -> None:
        """Send one record; partition -1: the one of its key."""
        self._producer.produce(topic, value, key, partition, on_delivery=self._delivered)

    def poll(self) -> None:
        """Take the broker's answers that have come."""
        self._producer.poll(0)

    def close(self) -> None:
        """Wait until the broker has answered for each record."""
        assert self._producer.flush(FLUSH_LIMIT_S) == 0

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            log.warning("a record was not delivered: %s", error)
            return
        key, value, (_, sent_ms) = message.key(), message.value(), message.timestamp()
        assert value is not None
        name = None if key is None else key.decode()
        self._confirmed(Confirmed(name, value.decode(), sent_ms / 1e3))
