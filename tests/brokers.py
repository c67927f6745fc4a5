"""Sandboxes of several brokers, of which some may be away, and of clients that reach them through proxies."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from confluent_kafka.admin import AdminClient

from tests.waiting import wait_for
from trimtab_controller.kafka.connection import Connection
from trimtab_controller.kafka.host_keys import approving, change_keys
from trimtab_process.credential_files import load_or_make_key
from trimtab_protocol.messages.names import HostId
from trimtab_protocol.settings.kafka import KafkaSettings, for_librdkafka
from trimtab_sandbox.broker import Broker, BrokerError, Topic, free_ports, new_id
from trimtab_sandbox.cluster import SandboxCluster
from trimtab_sandbox.configuration import BROKER, LOOPBACK, SandboxSettings, Table, host_name
from trimtab_sandbox.processes import Child, Processes

COPIES = "2"
REPLICATED: Mapping[str, str] = {
    "default.replication.factor": COPIES,
    "offsets.topic.replication.factor": COPIES,
    "transaction.state.log.replication.factor": COPIES,
    "share.coordinator.state.topic.replication.factor": COPIES,
}
"""For several brokers: one of them may be away, since `min.insync.replicas` is 1 unless a topic has its own."""
MAJORITY = 3
"""So many controllers still elect one of them while one is away; of fewer brokers only the first is a controller."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Detour:
    """A proxy in front of a broker without security, for clients whose connections a test cuts.

    The broker also listens on port `behind`, and tells clients that connect there to use port `proxy`.
    """

    proxy: int
    behind: int


class MemberBroker(Broker):
    """A broker with detours, which may be one of several of a cluster: those are made and first started by `Brokers`.

    `voters` = the brokers of its cluster that are controllers too.
    """

    def __init__(
        self,
        folder: Path,
        processes: Processes,
        *,
        heap_mb: int = 384,
        detours: Sequence[Detour] = (),
        settings: Mapping[str, str] = MappingProxyType({}),
        node: int = 1,
        cluster_id: str | None = None,
    ) -> None:
        super().__init__(folder, processes, heap_mb=heap_mb, settings=settings)
        self.node = node
        self.name = BROKER if node == 1 else f"{BROKER}-{node}"
        self.cluster_id = cluster_id or self.cluster_id
        self.voters: Sequence[Broker] = (self,)
        self.detours = tuple(detours)

    def properties(self) -> dict[str, str]:
        lines = super().properties()
        lines["controller.quorum.voters"] = ",".join(f"{each.node}@127.0.0.1:{each.ports[1]}" for each in self.voters)
        if self not in self.voters:
            lines |= {"process.roles": "broker", "listeners": lines["advertised.listeners"]}
        for number, detour in enumerate(self.detours):
            lines["listeners"] += f",DETOUR{number}://127.0.0.1:{detour.behind}"
            lines["advertised.listeners"] += f",DETOUR{number}://127.0.0.1:{detour.proxy}"
            lines["listener.security.protocol.map"] += f",DETOUR{number}:PLAINTEXT"
        return lines


class Brokers:
    """`count` brokers of one cluster, with their data in `folder`.  Each can be stopped, killed and started alone.

    One broker is as `Broker`.  Of two, the second may be away at any time; of three, any one.
    `detours`: per client with a detour, its detour at each of the brokers.
    """

    def __init__(
        self,
        folder: Path,
        processes: Processes,
        count: int,
        *,
        heap_mb: int,
        detours: Sequence[Sequence[Detour]] = (),
    ) -> None:
        cluster_id = new_id()
        self.members = [
            MemberBroker(
                folder if count == 1 else folder / str(node),
                processes,
                heap_mb=heap_mb,
                detours=[each[node - 1] for each in detours],
                settings={} if count == 1 else REPLICATED,
                node=node,
                cluster_id=cluster_id,
            )
            for node in range(1, count + 1)
        ]
        for member in self.members:
            member.voters = self.members if count >= MAJORITY else self.members[:1]

    @property
    def process(self) -> Child:
        """Of the first one."""
        return self.members[0].process

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

    def until_in_sync(self) -> None:
        """Wait until all copies of all partitions are in sync, as before the next of them is restarted."""
        admin = AdminClient({**for_librdkafka(self.kafka), "log_level": 0})
        wait_for(lambda: not self._behind(admin), log=lambda: f"not in sync: {', '.join(self._behind(admin))}")

    def _behind(self, admin: AdminClient) -> list[str]:
        """What is not in sync: brokers that are away, and partitions with too few copies."""
        metadata = admin.list_topics(timeout=5)
        away = len(self.members) - len(metadata.brokers)
        return [f"{away} brokers"] * bool(away) + [
            f"{topic.topic}-{partition.id}"
            for topic in metadata.topics.values()
            for partition in topic.partitions.values()
            if len(partition.isrs) < len(partition.replicas)
        ]


class WiredCluster(SandboxCluster):
    """A sandbox of several brokers.

    `detours`: host name or `controller` -> the proxies through which it reaches the brokers.  All others connect
    directly.  With `host_keys` each "host" has a key of its own, with which it signs.
    """

    broker: Brokers  # type: ignore[assignment]

    def __init__(
        self,
        settings: SandboxSettings,
        folder: Path,
        *,
        brokers: int = 1,
        detours: Mapping[str, Sequence[Detour]] = MappingProxyType({}),
        host_keys: bool = False,
    ) -> None:
        super().__init__(settings, folder)
        self._detours, self._host_keys = detours, host_keys
        wires = tuple(detours.values())
        self.broker = Brokers(self.folder / "broker", self.processes, brokers, heap_mb=settings.heap_mb, detours=wires)

    def start_broker(self) -> None:
        """Start the brokers that do not run; the first start lets each host have a key."""
        fresh = not self.broker.ports
        super().start_broker()
        self._children |= {member.name: member.process for member in self.broker.members}
        if not fresh or not self._host_keys:
            return
        key, trusted = self.keys.load()
        connection = Connection(kafka=self.broker.kafka)
        for index in range(self.settings.workers):
            own = load_or_make_key(self.host_key(index)).public
            change = approving(self.topics.cluster, HostId(host_name(index)), own, "sandbox")
            change_keys(connection, self.topics, key, trusted, change)

    def host_key(self, index: int) -> Path:
        """The file with the private key of one host."""
        return self.keys.key.with_name(f"{host_name(index)}.pem")

    def agent_table(self, index: int) -> Table:
        """The agent.toml of one host."""
        signing = {"signing": {"key_file": self.host_key(index)}} if self._host_keys else {}
        return {**super().agent_table(index), **signing}

    def bootstrap_of(self, name: str) -> str:
        """`host:port` at which this host, or the controller, reaches each broker."""
        detours = self._detours.get(name, ())
        return ",".join(f"{LOOPBACK}:{each.proxy}" for each in detours) or super().bootstrap_of(name)
