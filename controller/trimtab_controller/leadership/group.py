"""The consumer group of a cluster's controllers: membership, and the list of members."""

import json
import logging
import os
import socket
import time
from collections.abc import Sequence
from dataclasses import dataclass

from confluent_kafka import OFFSET_END, Consumer, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient

from trimtab_controller.kafka.connection import REQUEST_LIMIT_S, Connection
from trimtab_controller.leadership.machine import GroupEvent
from trimtab_process.kafka_errors import is_transient
from trimtab_protocol.messages.decode import printable
from trimtab_protocol.messages.names import Topics, controllers_group

log = logging.getLogger(__name__)

SIGNS_PER_LEASE = 6
"""Number of heartbeats per lease; by these a standby also learns that the leader has left."""
STATISTICS_MS = 2_000
"""How often the client says when the broker last answered."""


class MembershipError(Exception):
    """The group will never accept this controller; the message says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """A controller in the group, according to the broker.  `name` is HOST:PID, `address` the one it connects from."""

    name: str
    address: str
    leads: bool


def own_name() -> str:
    """The name of this process in the group."""
    return f"{socket.gethostname()}:{os.getpid()}"


def members(admin: AdminClient, cluster: str) -> tuple[Member, ...]:
    """The present members of the group, leader first.  Raises KafkaException.

    Asks no broker that is away: librdkafka ends the process when it comes back after the limit (its issue 4605).  For
    the same reason use another client after an exception.
    """
    admin.list_topics(timeout=REQUEST_LIMIT_S)
    group = controllers_group(cluster)
    found = admin.describe_consumer_groups([group], request_timeout=REQUEST_LIMIT_S)[group].result(REQUEST_LIMIT_S)
    rows = [
        Member(
            name=printable(row.client_id),
            address=row.host.lstrip("/"),
            leads=bool(row.assignment and row.assignment.topic_partitions),
        )
        for row in found.members
    ]
    return tuple(sorted(rows, key=lambda row: (not row.leads, row.name)))


class Membership:
    """A member of the group from `join` to `leave`; the owner of partition 0 of the journal leads.

    The client sends heartbeats from a thread of its own.  `poll` must be called regularly, so a process that hangs
    loses its lease too, after Kafka's max.poll.interval.ms.
    """

    def __init__(self, connection: Connection, topics: Topics, lease_s: float) -> None:
        self._topic = topics.journal
        self._lease_s = lease_s
        self._settings = connection.client(
            own_name(),
            group_id=controllers_group(topics.cluster),
            session_timeout_ms=round(lease_s * 1000),
            heartbeat_interval_ms=round(lease_s * 1000 / SIGNS_PER_LEASE),
            # The partition stays with its owner while other members come and go.
            partition_assignment_strategy="cooperative-sticky",
            enable_auto_commit=False,
            statistics_interval_ms=STATISTICS_MS,
        )
        self.heard_at: float | None = None
        """When the broker last answered (epoch seconds); None = not yet."""
        self._consumer: Consumer | None = None
        self._heard: list[GroupEvent] = []

    def join(self) -> None:
        """Ask to join the group."""
        self._consumer = Consumer({**self._settings, "stats_cb": self._measured})
        self._consumer.subscribe([self._topic], on_assign=self._assigned, on_revoke=self._revoked, on_lost=self._lost)

    def poll(self, timeout_s: float) -> list[GroupEvent]:
        """The events of the group since the last call.  Raises MembershipError."""
        if self._consumer is not None:
            message = self._consumer.poll(timeout_s)
            if message is not None and (error := message.error()) is not None:
                self._judge(error)
        heard, self._heard = self._heard, []
        return heard

    def leave(self) -> None:
        """Leave the group and give up the lease, so that the next member gets it at once."""
        if self._consumer is not None:
            self._consumer.close()
        self._consumer, self._heard = None, []

    def _assigned(self, consumer: Consumer, partitions: Sequence[TopicPartition]) -> None:
        ours = [TopicPartition(row.topic, row.partition, OFFSET_END) for row in partitions]
        if ours:  # only ownership matters; nothing is read
            consumer.incremental_assign(ours)
            consumer.pause(ours)
        self._heard.append(GroupEvent.GRANTED if _has_lease(partitions) else GroupEvent.NOTHING_GRANTED)

    def _revoked(self, consumer: Consumer, partitions: Sequence[TopicPartition]) -> None:
        if _has_lease(partitions):
            self._heard.append(GroupEvent.MOVED)

    def _lost(self, consumer: Consumer, partitions: Sequence[TopicPartition]) -> None:
        if _has_lease(partitions):
            self._heard.append(GroupEvent.EXPIRED)

    def _measured(self, statistics: str) -> None:
        silent_s = silence(statistics)
        if silent_s is not None:
            self.heard_at = time.time() - silent_s

    def _judge(self, error: KafkaError) -> None:
        """Raise an error that is final; return for one from which the client recovers."""
        if error.code() == KafkaError.INVALID_SESSION_TIMEOUT:
            raise MembershipError(
                f"controller.lease_s: found {self._lease_s:g}, expected what the brokers allow: their "
                "group.min.session.timeout.ms (6000 when not set) to group.max.session.timeout.ms"
            )
        if error.code() in (KafkaError.GROUP_AUTHORIZATION_FAILED, KafkaError.TOPIC_AUTHORIZATION_FAILED):
            group = self._settings["group.id"]
            raise MembershipError(f"no right to be a member of the group {group}: {error.str()}; see `trimtab acl`")
        if error.fatal():
            raise KafkaException(error)
        if not is_transient(error):
            log.warning("error in the group of controllers: %s", error.str())


def silence(statistics: str) -> float | None:
    """Seconds since a broker last answered, by the client's statistics; None while none is connected."""
    brokers = json.loads(statistics).get("brokers", {}).values()
    idle_us = [broker["rxidle"] for broker in brokers if broker.get("state") == "UP" and broker.get("rxidle", -1) >= 0]
    return min(idle_us) / 1e6 if idle_us else None


def _has_lease(partitions: Sequence[TopicPartition]) -> bool:
    return any(row.partition == 0 for row in partitions)
