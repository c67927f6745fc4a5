"""Inspects Kafka, the agents and the controllers.  It only reads: it joins no group and takes over no id."""

import contextlib
import socket
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from typing import Any, TypeVar

from confluent_kafka import (
    TIMESTAMP_LOG_APPEND_TIME,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, ConfigResource, OffsetSpec, TopicMetadata

from trimtab_controller.cli.doctor.agent_checks import LeaderSeen, ReportSeen, ReportsSeen
from trimtab_controller.cli.doctor.cluster_checks import (
    AUTHENTICATION,
    CHANGELOG,
    RESOLVE,
    TLS,
    Address,
    BrokersSeen,
    PartitionSeen,
    Rights,
    TopicSeen,
)
from trimtab_controller.kafka.connection import Connection
from trimtab_controller.kafka.host_keys import read_keys
from trimtab_controller.kafka.reader import ReadError, drain, passing, reading, since, starts
from trimtab_controller.leadership.group import members
from trimtab_controller.security.acl import OTHER_GROUPS, AclRule, Resource
from trimtab_protocol.messages.codec import decoded
from trimtab_protocol.messages.commands import UNVERIFIED, Ack
from trimtab_protocol.messages.decode import BadMessage, printable
from trimtab_protocol.messages.names import HostId, Topics, topic_settings
from trimtab_protocol.messages.report import Report
from trimtab_protocol.messages.status import Status
from trimtab_protocol.signing.envelope import headers_in, signatures_in
from trimtab_protocol.signing.hosts import Signed, digest_of
from trimtab_protocol.signing.keys import TrustedKeys

T = TypeVar("T")

CONNECT_LIMIT_S = 3.0
"""How long `trimtab doctor` waits for a connection to one address of a broker."""
ANSWER_LIMIT_S = 10.0
"""How long `trimtab doctor` waits for a broker's answer."""
MOST_ADDRESSES = 8
"""Number of addresses of each kind to try; each may take CONNECT_LIMIT_S."""
LOOK_BACK_S = 120.0
READ_LIMIT_S = 20.0
"""How long `trimtab doctor` reads a topic."""
REFUSALS_S = 600.0
KINDS = {
    KafkaError._AUTHENTICATION: AUTHENTICATION,
    KafkaError.SASL_AUTHENTICATION_FAILED: AUTHENTICATION,
    KafkaError._SSL: TLS,
    KafkaError._RESOLVE: RESOLVE,
}
SSL_FAULT = "in state SSL_HANDSHAKE"
DENIED = frozenset({KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.GROUP_AUTHORIZATION_FAILED})


class ClusterReader:
    """Asks one Kafka cluster; every request has a limit.  Raises KafkaException where the client cannot be made."""

    def __init__(self, connection: Connection, topics: Topics) -> None:
        self._connection = connection
        self._topics = topics
        self._errors: dict[str, str] = {}
        self._admin = AdminClient({**connection.client("trimtab-doctor"), "error_cb": self._note})

    def _note(self, error: KafkaError) -> None:
        if error.code() == KafkaError._ALL_BROKERS_DOWN:
            return  # the errors of the single brokers say more
        # A failed handshake is reported as a transport error; only its text shows the cause.
        kind = TLS if SSL_FAULT in error.str() else KINDS.get(error.code(), "")
        self._errors.setdefault(kind, error.str())

    def brokers(self) -> BrokersSeen:
        """Which brokers answer; each address is also tried by itself."""
        kafka = self._connection.kafka
        bootstrap = tuple(_try(name.strip()) for name in kafka.bootstrap_servers.split(",")[:MOST_ADDRESSES])
        protocol = str(kafka.client.get("security.protocol", kafka.protocol))
        try:
            found = self._admin.list_topics(timeout=ANSWER_LIMIT_S).brokers.values()
        except KafkaException as error:
            self._admin.poll(0)  # passes the client's errors to _note
            self._note(error.args[0])
            errors = tuple((kind, text) for kind, text in self._errors.items())
            return BrokersSeen(protocol=protocol, bootstrap=bootstrap, answered=False, errors=errors)
        advertised = tuple(_try(f"{each.host}:{each.port}") for each in list(found)[:MOST_ADDRESSES])
        return BrokersSeen(protocol=protocol, bootstrap=bootstrap, answered=True, advertised=advertised)

    def rights(self, rules: tuple[AclRule, ...]) -> Rights:
        """The operations that this user may do on the topics and groups of the rules."""
        names = {
            resource: sorted({rule.name for rule in rules if rule.resource is resource and not rule.prefixed})
            for resource in Resource
        }
        groups = [*names[Resource.GROUP], f"{OTHER_GROUPS}doctor"]
        described: Mapping[str, Future[Any]] = self._admin.describe_topics(
            TopicCollection(names[Resource.TOPIC]), include_authorized_operations=True, request_timeout=ANSWER_LIMIT_S
        )
        allowed = {(Resource.TOPIC, name): _allowed(answer) for name, answer in described.items()}
        described = self._admin.describe_consumer_groups(
            groups, include_authorized_operations=True, request_timeout=ANSWER_LIMIT_S
        )
        allowed |= {(Resource.GROUP, name): _allowed(answer) for name, answer in described.items()}
        allowed[Resource.GROUP, OTHER_GROUPS] = allowed.pop((Resource.GROUP, groups[-1]))
        return {what: operations for what, operations in allowed.items() if operations is not None}

    def topics(self) -> dict[str, TopicSeen]:
        """The existing topics of the cluster."""
        present = self._admin.list_topics(timeout=ANSWER_LIMIT_S).topics
        names = [each.name for each in topic_settings(self._topics) if each.name in present]
        settings = self._settings_of(names)
        return {
            name: TopicSeen(
                name=name,
                partitions=_partitions(present[name]),
                settings=settings[name][0],
                unreadable=settings[name][1],
            )
            for name in names
        }

    def changelogs(self, apps: Iterable[str]) -> tuple[TopicSeen, ...]:
        """The changelogs of these apps, as far as this user may see them."""
        named = tuple(f"{app}-" for app in apps)
        present = self._admin.list_topics(timeout=ANSWER_LIMIT_S).topics
        names = sorted(name for name in present if name.startswith(named) and name.endswith(CHANGELOG))
        settings = self._settings_of(names)
        starts = self._starts_of({name: present[name].partitions for name in names})
        return tuple(
            TopicSeen(
                name=name,
                partitions=_partitions(present[name]),
                settings=settings[name][0],
                unreadable=settings[name][1],
                starts=starts[name],
            )
            for name in names
        )

    def _starts_of(self, partitions: Mapping[str, Iterable[int]]) -> dict[str, dict[int, int]]:
        """Where the logs of these topics' partitions begin; without those that the brokers do not tell."""
        found: dict[str, dict[int, int]] = {name: {} for name in partitions}
        asked = {TopicPartition(name, each): OffsetSpec.earliest() for name in partitions for each in partitions[name]}
        answers = self._admin.list_offsets(asked, request_timeout=ANSWER_LIMIT_S) if asked else {}
        for place, answer in answers.items():
            with contextlib.suppress(KafkaException, TimeoutError):
                found[place.topic][place.partition] = answer.result(ANSWER_LIMIT_S).offset
        return found

    def _settings_of(self, names: Sequence[str]) -> dict[str, tuple[dict[str, str] | None, str]]:
        """Each topic's settings, or why they are not shown."""
        resources = [ConfigResource(ConfigResource.Type.TOPIC, name) for name in names]
        answers = self._admin.describe_configs(resources, request_timeout=ANSWER_LIMIT_S) if resources else {}
        return {resource.name: _settings(answer) for resource, answer in answers.items()}

    def reports(self, now: float, trusted: TrustedKeys | None = None) -> ReportsSeen:
        """The last report of each host, and the agents that refused a record because of its signature.

        `trusted`: who signs the keys of the hosts; None: the signatures of reports are not looked at.
        """
        known = None if trusted is None else read_keys(self._connection, self._topics, trusted)[0]
        unsigned: dict[HostId, str] = {}
        numbers: Counter[bytes] = Counter()

        def count(message: Message) -> bool:
            numbers[message.key() or b""] += 1
            return True

        with reading(self._connection, "doctor") as consumer:
            last, complete = _last_by_key(consumer, self._topics.reports, now - LOOK_BACK_S, counts=count)
            try:
                acks, _ = _last_by_key(consumer, self._topics.acks, now - REFUSALS_S, counts=_is_refusal)
            except ReadError:  # no such topic; the check of the topics reports it
                acks = {}
        hosts, unreadable = {}, []
        for key, message in last.items():
            try:
                report = decoded(message.value(), Report)
            except BadMessage:
                unreadable.append(printable(key.decode(errors="replace")[:100]))
                continue
            kind, at_ms = message.timestamp()
            stamped_at = at_ms / 1000.0 if kind == TIMESTAMP_LOG_APPEND_TIME else None
            hosts[report.host] = ReportSeen(report=report, stamped_at=stamped_at, number=numbers[key])
            if known is not None and (wrong := known.fault(self._topics.reports, _signed(message))) is not None:
                unsigned[report.host] = str(wrong)
        refusals = [decoded(message.value(), Ack) for message in acks.values()]
        return ReportsSeen(
            now=time.time(),
            looked_back_s=LOOK_BACK_S,
            hosts=hosts,
            unreadable=tuple(unreadable),
            complete=complete,
            refusing={HostId(each.host): str(each.refusal) for each in refusals},
            unsigned=None if known is None else unsigned,
        )

    def leader(self) -> LeaderSeen:
        """The leader according to the broker, and the last status of the acting controller."""
        group = members(self._admin, self._topics.cluster)
        with reading(self._connection, "doctor") as consumer:
            found = drain(consumer, starts(consumer, [self._topics.status]))
        told = [_status(message) for message in found.latest(self._topics.status)]
        known = [each for each in told if each is not None]
        status = max((each for each in known if each.acting), key=lambda each: each.at, default=None)
        dry_runs = [time.time() - each.at for each in known if not each.acting]
        return LeaderSeen(
            leader=next((each.name for each in group if each.leads), None),
            standbys=tuple(each.name for each in group if not each.leads),
            heard_s=None if status is None else time.time() - status.at,
            dry_run_heard_s=min(dry_runs, default=None),
            hold=None if status is None or status.hold is None else status.hold.text,
            paused=None if status is None else status.paused,
        )


def _partitions(topic: TopicMetadata) -> tuple[PartitionSeen, ...]:
    return tuple(
        PartitionSeen(number=number, leader=each.leader >= 0, replicas=len(each.replicas), in_sync=len(each.isrs))
        for number, each in sorted(topic.partitions.items())
    )


def _signed(message: Message) -> Signed:
    try:
        signatures = signatures_in(headers_in(message))
    except BadMessage:
        signatures = ()
    return Signed(key=message.key() or b"", digest=digest_of(message.value() or b""), signatures=signatures)


def _try(name: str) -> Address:
    """Try to connect to an address."""
    host, _, port = name.rpartition(":")
    try:
        with socket.create_connection((host.strip("[]"), int(port)), timeout=CONNECT_LIMIT_S):
            return Address(name=name)
    except (OSError, ValueError, OverflowError) as error:
        return Address(name=name, fault=getattr(error, "strerror", None) or str(error))


def _allowed(answer: "Future[Any]") -> frozenset[str] | None:
    """The allowed operations; empty if even the question is refused, None if the brokers do not answer it."""
    try:
        operations = answer.result(ANSWER_LIMIT_S).authorized_operations
    except KafkaException as error:
        return frozenset() if error.args[0].code() in DENIED else None
    except TimeoutError:
        return None
    return None if operations is None else frozenset(each.name for each in operations)


def _settings(answer: "Future[Any]") -> tuple[dict[str, str] | None, str]:
    try:
        found = answer.result(ANSWER_LIMIT_S)
    except KafkaException as error:
        return None, error.args[0].str()
    except TimeoutError:
        return None, "no answer in time"
    return {name: entry.value for name, entry in found.items() if entry.value is not None}, ""


def _last_by_key(
    consumer: Consumer, topic: str, at: float, *, counts: Callable[[Message], bool] = lambda _: True
) -> tuple[dict[bytes, Message], bool]:
    """The last message of each key that counts since then, and whether all were read in time."""
    places = since(consumer, topic, at)
    last: dict[bytes, Message] = {}
    deadline = time.monotonic() + READ_LIMIT_S
    with contextlib.suppress(ReadError):  # the broker has fallen silent
        for message in passing(consumer, places, silence_s=READ_LIMIT_S):
            if counts(message):
                last[message.key() or b""] = message
            if time.monotonic() > deadline:
                return last, False
        return last, True
    return last, False


def _is_refusal(message: Message) -> bool:
    try:
        return decoded(message.value(), Ack).refusal in UNVERIFIED
    except BadMessage:
        return False


def _status(message: Message) -> Status | None:
    try:
        return decoded(message.value(), Status)
    except BadMessage:
        return None
