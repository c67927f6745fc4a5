"""Starts work on the topics of a cluster when broker and topics are there, and again after a fault that passes."""

import logging
from collections.abc import Callable
from typing import TypeVar

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from trimtab_controller.kafka.connection import Connection, Stopping, ensure_topics, pause, wait_for_broker
from trimtab_controller.kafka.reader import ReadError
from trimtab_process.kafka_errors import is_transient
from trimtab_protocol.messages.names import Topics

log = logging.getLogger(__name__)

RETRY_S = 1.0

T = TypeVar("T")


def start_when_ready(
    connection: Connection,
    topics: Topics,
    stopping: Stopping,
    start: Callable[[AdminClient], T],
    *,
    host_keys: bool = False,
) -> T:
    """What `start` returns once the broker answers and the topics exist, that of keys only with `host_keys`.

    `start` is called again after each fault that passes by itself.  Raises StoppedError, MissingTopicsError, what
    `start` raises except ReadError, and KafkaException for a fault that stays.
    """
    while True:
        admin = wait_for_broker(connection, "trimtab-controller-admin", stopping)
        try:
            ensure_topics(admin, topics, host_keys=host_keys)
            return start(admin)
        except (KafkaException, ReadError) as error:
            if isinstance(error, KafkaException) and not is_transient(error.args[0]):
                raise
            log.warning("cannot start yet, trying again: %s", error)
            pause(RETRY_S, stopping)
