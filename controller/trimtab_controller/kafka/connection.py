"""Reaching the cluster: settings of the clients, waiting for the broker, the topics that must be there."""

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, NewTopic

from trimtab_protocol.messages.names import Topics, TopicSettings, topic_settings
from trimtab_protocol.settings.kafka import KafkaSettings, for_librdkafka

log = logging.getLogger(__name__)

Stopping = Callable[[], bool]

BACKOFF_S = (0.5, 1.0, 2.0, 5.0)
REQUEST_LIMIT_S = 10.0
"""How long the broker may take to answer a request of the controller."""
WEATHER = frozenset(
    {
        KafkaError._TRANSPORT,
        KafkaError._ALL_BROKERS_DOWN,
        KafkaError._TIMED_OUT,
        KafkaError._RESOLVE,
        KafkaError._WAIT_COORD,
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.BROKER_NOT_AVAILABLE,
        KafkaError.REPLICA_NOT_AVAILABLE,
        KafkaError.REQUEST_TIMED_OUT,
        KafkaError.NETWORK_EXCEPTION,
        KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
        KafkaError.COORDINATOR_NOT_AVAILABLE,
        KafkaError.NOT_COORDINATOR,
    }
)
"""Faults that pass.  librdkafka itself calls only those of transactions retriable."""


class StoppedError(Exception):
    """The operator ended the controller while it waited."""


class MissingTopicsError(Exception):
    """Topics are missing and may not be created; the message names them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Connection:
    """How Kafka is reached."""

    kafka: KafkaSettings

    def client(self, name: str, **further: str | int | bool) -> dict[str, str | int | bool]:
        """The settings of one client; keys of `further` are written with `_` for `.`."""
        own = {key.replace("_", "."): value for key, value in further.items()}
        # Librdkafka's own log would say once per second what we say once.
        quiet: dict[str, str | int | bool] = {"log_level": 2, "reconnect.backoff.max.ms": 2000}
        return {**quiet, **for_librdkafka(self.kafka), "client.id": name, **own}


def wait_for_broker(admin: AdminClient, connection: Connection, stopping: Stopping) -> None:
    """Return when the broker answers; say once per attempt that it does not. Raises StoppedError."""
    attempt = 0
    while not stopping():
        try:
            admin.list_topics(timeout=REQUEST_LIMIT_S)
        except KafkaException as error:
            delay_s = backoff_s(attempt)
            text = error.args[0].str()
            servers = connection.kafka.bootstrap_servers
            log.warning("Kafka at %s does not answer (%s), next try in %g s", servers, text, delay_s)
            pause(delay_s, stopping)
            attempt += 1
        else:
            return
    raise StoppedError


def is_transient(error: KafkaError) -> bool:
    """Whether it makes sense to try again."""
    return bool(error.retriable()) or error.code() in WEATHER


def backoff_s(attempt: int) -> float:
    """How long to wait before the next attempt (seconds)."""
    return BACKOFF_S[min(attempt, len(BACKOFF_S) - 1)]


def pause(seconds: float, stopping: Stopping) -> None:
    """Sleep, but not much longer than the controller is to run."""
    end = time.monotonic() + seconds
    while (left := end - time.monotonic()) > 0 and not stopping():
        time.sleep(min(0.1, left))


def ensure_topics(admin: AdminClient, topics: Topics) -> None:
    """Create the topics of the cluster that are not there.

    Raises MissingTopicsError when that is not allowed, KafkaException when the broker does not answer.
    """
    present = admin.list_topics(timeout=REQUEST_LIMIT_S).topics
    missing = [wanted for wanted in topic_settings(topics) if wanted.name not in present]
    if not missing:
        return
    refused = []
    for name, created in admin.create_topics([_new_topic(wanted) for wanted in missing]).items():
        try:
            created.result(REQUEST_LIMIT_S)
            log.info("created topic %s", name)
        except TimeoutError as error:
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT, f"topic {name} is not there yet")) from error
        except KafkaException as error:
            if is_transient(error.args[0]):
                raise
            if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                refused.append(f"{name} ({error.args[0].str()})")
    if refused:
        raise MissingTopicsError(f"topics are missing and could not be created: {', '.join(refused)}")


def _new_topic(wanted: TopicSettings) -> NewTopic:
    return NewTopic(wanted.name, wanted.partitions, -1, config=wanted.configuration)
