"""Several Apache Kafka brokers that are one cluster."""

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import Self

from confluent_kafka.admin import AdminClient

from trimtab_protocol.settings.kafka import KafkaSettings, for_librdkafka
from trimtab_sandbox.broker import Broker, BrokerError, Detour, Topic, free_ports, new_id
from trimtab_sandbox.processes import Processes

COPIES = "2"
REPLICATED: Mapping[str, str] = {
    "default.replication.factor": COPIES,
    "offsets.topic.replication.factor": COPIES,
    "transaction.state.log.replication.factor": COPIES,
    "share.coordinator.state.topic.replication.factor": COPIES,
}
"""For several brokers: one of them may be away, since `min.insync.replicas` is 1 unless a topic has its own."""
HEAP_MB = 300
MAJORITY = 3
"""So many controllers still elect one of them while one is away; of fewer brokers only the first is a controller."""


class Brokers:
    """`count` brokers of one cluster, with their data in `folder`.  Each can be stopped, killed and started alone.

    One broker is as `Broker`.  Of two, the second may be away at any time; of three, any one.
    `detours`: per client with a detour, its detour at each of the brokers.
    """

    def __init__(
        self,
        folder: Path,
        processes: Processes,
        count: int = 1,
        *,
        heap_mb: int = HEAP_MB,
        detours: Sequence[Sequence[Detour]] = (),
        settings: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        cluster_id = new_id()
        self.members = [
            Broker(
                folder if count == 1 else folder / str(node),
                processes,
                heap_mb=heap_mb,
                detours=[each[node - 1] for each in detours],
                settings=settings if count == 1 else {**REPLICATED, **settings},
                node=node,
                cluster_id=cluster_id,
            )
            for node in range(1, count + 1)
        ]
        for member in self.members:
            member.voters = self.members if count >= MAJORITY else self.members[:1]

    @property
    def address(self) -> str:
        """`host:port` of all of them (bootstrap.servers)."""
        return ",".join(member.address for member in self.members)

    @property
    def kafka(self) -> KafkaSettings:
        """Connection settings for a client of all of them."""
        return KafkaSettings(bootstrap_servers=self.address)

    @property
    def ports(self) -> tuple[int, ...]:
        """The ports of all of them; empty before the first start."""
        return tuple(port for member in self.members for port in member.ports)

    def start(self) -> None:
        """Start those that do not run, and wait until all answer.  Raises BrokerError."""
        if len(self.members) == 1:
            self.members[0].start()
            return
        if not self.ports:
            ports = iter(free_ports(2 * len(self.members)))
            for member in self.members:
                member.ports = (next(ports), next(ports))
            for member in self.members:
                member.format()
                member.settle(member.ports)
        away = [member for member in self.members if not member.alive]
        for member in away:
            member.launch()
        for member in away:
            if not member.until_ready():
                raise BrokerError(f"ports {member.ports} are in use by other processes, see {member.process.log}")

    def stop(self) -> None:
        """End all at once: one after the other, the last ones would wait for the controllers that are gone."""
        for member in self.members:
            member.process.terminate()
        for member in self.members:
            member.stop()

    def create_topics(self, topics: Sequence[Topic], *, limit_s: float = 30.0) -> None:
        """As `Broker.create_topics`, by one that runs."""
        next(member for member in self.members if member.alive).create_topics(topics, limit_s=limit_s)

    def until_in_sync(self, limit_s: float = 60.0) -> None:
        """Wait until all copies of all partitions are in sync, as before the next of them is restarted."""
        admin = AdminClient({**for_librdkafka(self.kafka), "log_level": 0})
        deadline = time.monotonic() + limit_s
        while behind := _behind(admin, len(self.members)):
            if time.monotonic() > deadline:
                raise BrokerError(f"not in sync after {limit_s:g} s: {', '.join(behind)}")
            time.sleep(0.1)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


def _behind(admin: AdminClient, brokers: int) -> list[str]:
    """What is not in sync: brokers that are away, and partitions with too few copies."""
    metadata = admin.list_topics(timeout=5)
    away = [] if len(metadata.brokers) == brokers else [f"{brokers - len(metadata.brokers)} brokers"]
    return away + [
        f"{topic.topic}-{partition.id}"
        for topic in metadata.topics.values()
        for partition in topic.partitions.values()
        if len(partition.isrs) < len(partition.replicas)
    ]
