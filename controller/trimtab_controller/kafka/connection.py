"""Connects to Kafka: settings of the clients, waiting for the broker, creating the topics."""

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import (
    AclOperation,
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    NewPartitions,
    NewTopic,
)

from trimtab_process.backoff import BROKER
from trimtab_process.kafka_errors import ConnectionFaults, error_text, is_transient
from trimtab_protocol.messages.names import Topics, TopicSettings, topic_settings
from trimtab_protocol.settings.kafka import KafkaSettings, for_librdkafka

log = logging.getLogger(__name__)

UNKNOWN, NOT_ALLOWED = "there is no such topic", "not allowed to write"

Stopping = Callable[[], bool]

NOT_THE_TOPIC = frozenset(
    {KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.CLUSTER_AUTHORIZATION_FAILED, KafkaError.NOT_CONTROLLER}
)
"""Refusals that no other setting of the topic would change."""
REQUEST_LIMIT_S = 10.0
"""How long the broker may take to answer one request."""
APPEAR_S = 3.0
"""How long a topic that was just created may be unknown to the brokers."""
TRY_LIMIT_S = 3.0
"""How long one try waits for a broker that may be away: a controller that is stopped meanwhile ends after it."""


class StoppedError(Exception):
    """The operator ended the controller while it waited."""


class MissingTopicsError(Exception):
    """Topics are missing and cannot be created; the message names them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Connection:
    """How to reach Kafka."""

    kafka: KafkaSettings

    def client(self, name: str, **further: str | int | bool) -> dict[str, str | int | bool]:
        """The settings of one client; keys of `further` have `_` in place of `.`."""
        own = {key.replace("_", "."): value for key, value in further.items()}
        # Librdkafka would log once per second what the controller logs once.
        quiet: dict[str, str | int | bool] = {"log_level": 2, "reconnect.backoff.max.ms": 2000}
        return {**quiet, **for_librdkafka(self.kafka), "client.id": name, **own}


def wait_for_broker(connection: Connection, name: str, stopping: Stopping) -> AdminClient:
    """A client of this name, once the broker answers it; logs each failed attempt.  Raises StoppedError."""
    faults = ConnectionFaults()
    admin = AdminClient({**connection.client(name), "error_cb": faults.note})
    failures = 0
    while not stopping():
        try:
            admin.list_topics(timeout=TRY_LIMIT_S)
        except KafkaException as error:
            failures += 1
            admin.poll(0)  # passes on what its connections have met
            delay_s = BROKER.after(failures)
            servers, why = connection.kafka.bootstrap_servers, faults.explain(error)
            log.warning("Kafka at %s does not answer (%s), next try in %g s", servers, why, delay_s)
            pause(delay_s, stopping)
        else:
            return admin
    raise StoppedError


def pause(seconds: float, stopping: Stopping) -> None:
    """Sleep, but return soon after `stopping`."""
    end = time.monotonic() + seconds
    while (left := end - time.monotonic()) > 0 and not stopping():
        time.sleep(min(0.1, left))


def ensure_topics(admin: AdminClient, topics: Topics, *, host_keys: bool = False) -> None:
    """Create the missing topics of the cluster, except for that of events: a controller can do without it.

    That of keys is needed only with `host_keys`.  Topics that a broker has made by itself, because somebody asked for
    them first, get their settings.
    Raises MissingTopicsError when the broker refuses a topic, KafkaException when it does not answer.
    """
    present = admin.list_topics(timeout=REQUEST_LIMIT_S).topics
    spared = {topics.events} if host_keys else {topics.events, topics.keys}
    needed = (wanted for wanted in topic_settings(topics) if wanted.name not in spared)
    refused = _create(admin, [wanted for wanted in needed if wanted.name not in present])
    if refused:
        faults = "; ".join(f"{name}: {why}" for name, why in refused.items())
        raise MissingTopicsError(f"topics are missing and could not be created: {faults}")
    set_right(
        admin,
        {each: len(present[each.name].partitions) for each in topic_settings(topics) if each.name in present},
    )


def set_right(admin: AdminClient, topics: Mapping[TopicSettings, int]) -> None:
    """Give topics what they lack, and say so; each with its partitions.  What somebody has set on a topic stays.

    What this user may not look at stays, too: `trimtab doctor` says what is wrong.
    """
    for wanted, partitions in topics.items():
        if partitions < wanted.partitions:
            more = NewPartitions(wanted.name, wanted.partitions)
            asked = admin.create_partitions([more], request_timeout=REQUEST_LIMIT_S)[wanted.name]
            _tell(wanted.name, f"{partitions} partitions", f"{wanted.partitions}", _fault_of(asked))
    shown = {each.name: each for each in topics}
    resources = [ConfigResource(ConfigResource.Type.TOPIC, name) for name in shown]
    answers = admin.describe_configs(resources, request_timeout=REQUEST_LIMIT_S) if resources else {}
    for resource, answer in answers.items():
        if _fault_of(answer) is None:
            _set_lacking(admin, shown[resource.name], answer.result())


def _set_lacking(admin: AdminClient, wanted: TopicSettings, found: Mapping[str, ConfigEntry]) -> None:
    """Set on the topic itself what the broker's defaults do not give it."""
    for key, value in wanted.configuration.items():
        entry = found.get(key)
        set_by_somebody = entry is not None and entry.source == ConfigSource.DYNAMIC_TOPIC_CONFIG.value
        before = None if entry is None else entry.value
        if set_by_somebody or before == value:
            continue
        for each in dict.fromkeys((value, wanted.otherwise.get(key, value))):
            change = ConfigEntry(key, each, incremental_operation=AlterConfigOpType.SET)
            resource = ConfigResource(ConfigResource.Type.TOPIC, wanted.name, incremental_configs=[change])
            [asked] = admin.incremental_alter_configs([resource], request_timeout=REQUEST_LIMIT_S).values()
            if (fault := _fault_of(asked)) is None:
                break
        _tell(wanted.name, f"{key}={before}", each, fault)


def _tell(topic: str, found: str, wanted: str, fault: str | None) -> None:
    """Say what became of something that the broker's own defaults had made otherwise."""
    if fault is None:
        log.info("topic %s was made with the broker's defaults: set %s to %s", topic, found, wanted)
    else:
        log.warning("topic %s has %s, expected %s, and it cannot be set: %s", topic, found, wanted, fault)


def _fault_of(answer: "Future[Any]") -> str | None:
    """Why a request was refused; None if it was not."""
    try:
        answer.result(REQUEST_LIMIT_S)
    except KafkaException as error:
        return error_text(error)
    except TimeoutError:
        return "no answer in time"
    return None


def events_obstacle(admin: AdminClient, topics: Topics, *, patience_s: float = APPEAR_S) -> str | None:
    """Why this client cannot write events, None if it can.  Creates their topic if it is missing.

    `patience_s` = how long the brokers may take to know a new topic.  Raises KafkaException.
    """
    why = _obstacle(admin, topics.events)
    if why is UNKNOWN:
        wanted = [settings for settings in topic_settings(topics) if settings.name == topics.events]
        if (refused := _create(admin, wanted).get(topics.events)) is not None:
            return f"{UNKNOWN}, and it cannot be created: {refused}"
    deadline = time.monotonic() + patience_s
    while why is UNKNOWN and time.monotonic() < deadline:
        time.sleep(0.2)
        why = _obstacle(admin, topics.events)
    return why


def _create(admin: AdminClient, wanted: Sequence[TopicSettings]) -> dict[str, str]:
    """Create topics; the names of those that the broker refused, each with its reason.  Raises KafkaException."""
    refused: dict[str, str] = {}
    if not wanted:
        return refused
    for name, created in admin.create_topics([_new_topic(settings) for settings in wanted]).items():
        try:
            created.result(REQUEST_LIMIT_S)
            log.info("created topic %s", name)
        except TimeoutError as error:
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT, f"topic {name} is not there yet")) from error
        except KafkaException as error:
            if is_transient(error.args[0]):
                raise
            if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                [settings] = (each for each in wanted if each.name == name)
                if (why := _create_otherwise(admin, settings, error)) is not None:
                    refused[name] = why
    return refused


def _create_otherwise(admin: AdminClient, wanted: TopicSettings, error: KafkaException) -> str | None:
    """Create a topic that was refused, with settings that serve as well; why not, and the command that would."""
    why, code = error_text(error), error.args[0].code()
    if code in NOT_THE_TOPIC:
        return why
    default, otherwise = wanted.configuration, {**wanted.configuration, **wanted.otherwise}
    refused = [key for key, value in default.items() if _refusal(admin, wanted, {key: value}, only_ask=True)]
    told = ", ".join(f"{key}={default[key]}" for key in refused) or f"{wanted.partitions} partitions, default replicas"
    given = {key: otherwise[key] if key in refused else value for key, value in default.items()}
    if given != default:
        why_not = _refusal(admin, wanted, given)
        if why_not is None:
            instead = ", ".join(f"{key}={given[key]}" for key in refused)
            log.warning("created topic %s with %s: the broker refuses %s: %s", wanted.name, instead, told, why)
            return None
        why = why_not
    words = [f"--partitions {wanted.partitions} --replication-factor 3"]
    words += [f"--config {key}={value}" for key, value in given.items()]
    command = f"kafka-topics --create --topic {wanted.name} {' '.join(words)}"
    return f"the broker refuses {told}: {why}; create it with values that it takes, such as: {command}"


def _refusal(
    admin: AdminClient, wanted: TopicSettings, configuration: Mapping[str, str], *, only_ask: bool = False
) -> str | None:
    """Why the broker refuses a topic with these settings; None if it does not.  `only_ask`: it is not created."""
    new = NewTopic(wanted.name, wanted.partitions, -1, config=dict(configuration))
    return _fault_of(admin.create_topics([new], validate_only=only_ask)[wanted.name])


def _obstacle(admin: AdminClient, topic: str) -> str | None:
    """Why nothing can be written to a topic; None if it can."""
    try:
        found = admin.describe_topics(
            TopicCollection([topic]), include_authorized_operations=True, request_timeout=REQUEST_LIMIT_S
        )[topic].result(REQUEST_LIMIT_S)
    except TimeoutError as error:
        raise KafkaException(KafkaError(KafkaError._TIMED_OUT, f"no answer about topic {topic}")) from error
    except KafkaException as error:
        if error.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
            return UNKNOWN
        if is_transient(error.args[0]):
            raise
        return error_text(error)
    allowed = found.authorized_operations
    return None if allowed is None or AclOperation.WRITE in allowed else NOT_ALLOWED  # None: nobody says


def _new_topic(wanted: TopicSettings) -> NewTopic:
    return NewTopic(wanted.name, wanted.partitions, -1, config=wanted.configuration)
