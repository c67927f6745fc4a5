"""An Apache Kafka broker on this machine, with KRaft broker and controller in one process."""

import base64
import os
import random
import shutil
import time
import uuid
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from confluent_kafka import KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec

from trimtab_controller.jars import class_archive
from trimtab_controller.jars.fetching import jars_of
from trimtab_controller.jars.java import java_command
from trimtab_protocol.settings.kafka import KafkaSettings, for_librdkafka
from trimtab_sandbox.configuration import BROKER
from trimtab_sandbox.marks import can_bind
from trimtab_sandbox.processes import Child, Processes

READY_LIMIT_S = 120.0
"""A start takes 3 s on an idle machine, and many times that on a busy one."""
STOP_LIMIT_S = 20.0
ANSWER_LIMIT_S = 5.0
"""How long the leaders of new partitions may take to answer once."""
PORT_TRIES = 5
"""Attempts to start when another process takes a port first."""
PORTS = range(15_000, 32_000)
"""Below the ephemeral ports.  Otherwise a client that reconnects to a dead broker could get the broker's own port,
connect to itself, and keep the broker from starting again."""

CLIENTS = "inter.broker.listener.name"
"""Setting: the listener that clients and the other brokers use."""
SETTINGS: Mapping[str, str] = {
    "controller.listener.names": "CONTROLLER",
    CLIENTS: "PLAINTEXT",
    "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
    # Topics are created explicitly, or a misspelt name would go unnoticed.
    "auto.create.topics.enable": "false",
    # One broker with few internal partitions: each costs files and start-up time.
    "offsets.topic.replication.factor": "1",
    "offsets.topic.num.partitions": "4",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": "4",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    # After kill -9 the broker's id is taken until its old session expires.
    "broker.session.timeout.ms": "4000",
    "broker.heartbeat.interval.ms": "500",
    # Members join at once; the default waits 3 s for more of them.
    "group.initial.rebalance.delay.ms": "0",
    # For tests with short leases; the default is 6000.
    "group.min.session.timeout.ms": "1000",
    # Replayed events keep their old time stamps: retention would delete them at once.
    "log.retention.ms": "-1",
    "log.cleaner.dedupe.buffer.size": "16777216",
    # No record twice a second that only shows other controllers that this one is alive: there are none.
    "metadata.max.idle.interval.ms": "0",
    "num.network.threads": "2",
    "num.io.threads": "4",
}

BOOTSTRAP = ".checkpoint"
"""Suffix of a cluster's bootstrap record: the feature levels with which a new cluster begins."""

GIVEN = 1_000
_given: deque[int] = deque(maxlen=GIVEN)

LOGGING = """\
rootLogger.level = INFO
rootLogger.appenderRef.out.ref = out
appender.out.type = Console
appender.out.name = out
appender.out.layout.type = PatternLayout
appender.out.layout.pattern = %d %p %m (%c)%n%throwable
"""
"""Kafka logs to standard output, which goes to the log file of the process."""


class BrokerError(Exception):
    """The broker did not start, or a request to it failed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Topic:
    """A topic to create; `settings` = Kafka's topic settings, such as `{"cleanup.policy": "compact"}`."""

    name: str
    partitions: int
    settings: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.name or self.partitions < 1:
            raise ValueError(f"a topic needs a name and at least one partition: {self}")


class Broker:
    """One broker with its data in `folder`.  It keeps its ports and data when it is stopped, killed or restarted.

    `settings` override SETTINGS.  Without `java_options` it starts with the class archive, if there is one.
    """

    def __init__(
        self,
        folder: Path,
        processes: Processes,
        *,
        heap_mb: int = 384,
        settings: Mapping[str, str] = SETTINGS,
        java_options: Sequence[str] | None = None,
    ) -> None:
        self.node = 1
        self.name = BROKER
        """Of its process and its log."""
        self.ports: tuple[int, ...] = ()
        """(client port, port of its KRaft controller); empty before the first start."""
        self._folder = folder.absolute()
        self._processes = processes
        self._heap_mb = heap_mb
        self._settings = {**SETTINGS, **settings}
        self._java_options = java_options
        self._jars: Sequence[Path] = ()
        self.cluster_id = new_id()
        self._child: Child | None = None
        self._seen = 0
        """Where the output of the process that was started last begins in its log."""

    @property
    def address(self) -> str:
        """`host:port` for clients (bootstrap.servers)."""
        if not self.ports:
            raise BrokerError("the broker has not been started yet")
        return f"127.0.0.1:{self.ports[0]}"

    @property
    def kafka(self) -> KafkaSettings:
        """Connection settings for a client that may do everything."""
        return KafkaSettings(bootstrap_servers=self.address)

    @property
    def data(self) -> Path:
        """The folder of its log segments and of its cluster's metadata."""
        return self._folder / "data"

    @property
    def process(self) -> Child:
        """The process that was started last."""
        if self._child is None:
            raise BrokerError("the broker has not been started yet")
        return self._child

    @property
    def alive(self) -> bool:
        """Whether its process runs."""
        return self._child is not None and self._child.alive

    def start(self) -> None:
        """Start it and wait until it answers a metadata request.  Raises BrokerError with the end of its log."""
        fresh = not self.ports
        if fresh:
            self.format()
        for attempt in range(PORT_TRIES):
            if fresh:
                self.settle(free_ports(2))
            self.launch()
            if self.until_ready():
                return
            if not fresh:
                time.sleep(0.2 * (attempt + 1))  # clients know its port, so wait until the port is free
        raise BrokerError(f"ports {self.ports} are in use by other processes, see {self.process.log}")

    def stop(self) -> None:
        """Stop it cleanly, so that the next start needs no log recovery."""
        self.process.stop(STOP_LIMIT_S)

    def kill(self) -> None:
        """kill -9."""
        self.process.kill()

    def restart(self) -> None:
        """Stop it if it runs, and start it with the same ports and data."""
        self.stop()
        self.start()

    def create_topics(self, topics: Sequence[Topic], *, limit_s: float = 30.0) -> None:
        """Create the topics and wait until a leader answers for each of their partitions.

        The broker names the leaders before they take records.  An idempotent producer that begins between loses its
        first record (`ONE_AT_A_TIME` in the settings of Kafka's clients).

        Raises BrokerError, also for a topic that exists.
        """
        if not topics:
            return
        # Silent: what goes wrong is raised, and what the client says of its own end is nothing to act on.
        admin = AdminClient({**for_librdkafka(self.kafka), "log_level": 0})
        new = [NewTopic(topic.name, topic.partitions, config=dict(topic.settings)) for topic in topics]
        for name, created in admin.create_topics(new, operation_timeout=limit_s).items():
            try:
                created.result(limit_s)
            except KafkaException as error:
                raise BrokerError(f"topic {name} was not created: {error}") from error
        deadline = time.monotonic() + limit_s
        while missing := _without_leader(admin, topics):
            if time.monotonic() > deadline:
                raise BrokerError(f"created, but partitions without a leader after {limit_s:g} s: {', '.join(missing)}")
            time.sleep(0.05)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def settle(self, ports: tuple[int, ...]) -> None:
        """Give it its ports, before its first start."""
        self.ports = ports
        self._write_settings()

    def properties(self) -> dict[str, str]:
        """The lines of server.properties."""
        client, controller = self.ports
        own = f"{self._settings[CLIENTS]}://127.0.0.1:{client}"
        return {
            **self._settings,
            "node.id": str(self.node),
            "process.roles": "broker,controller",
            "controller.quorum.voters": f"{self.node}@127.0.0.1:{controller}",
            "listeners": f"{own},CONTROLLER://127.0.0.1:{controller}",
            "advertised.listeners": own,
            "log.dirs": str(self.data),
        }

    def _write_settings(self) -> None:
        lines = "".join(f"{key}={value}\n" for key, value in self.properties().items())
        path = self._folder / "server.properties"
        path.touch(mode=0o600)  # it may hold passwords
        path.write_text(lines, encoding="utf-8")

    def format(self) -> None:
        """Format the data folder for a new cluster, as Kafka's own tool does."""
        self._jars = jars_of("broker")
        self._folder.mkdir(parents=True, exist_ok=True)
        (self._folder / "log4j2.properties").write_text(LOGGING, encoding="utf-8")
        kept = broker_archive(self._jars).with_suffix(BOOTSTRAP)
        if not kept.is_file():
            self._format_by_tool()
            return
        self.data.mkdir()
        shutil.copy(kept, self.data / f"bootstrap{BOOTSTRAP}")
        properties = f"version=1\ncluster.id={self.cluster_id}\nnode.id={self.node}\ndirectory.id={new_id()}\n"
        (self.data / "meta.properties").write_text(properties, encoding="utf-8")

    def _format_by_tool(self) -> None:
        self.settle(self.ports or (PORTS[0], PORTS[1]))  # any ports: the format does not depend on them
        formatting = self._java("format", "kafka.tools.StorageTool", "format", "-t", self.cluster_id, "-c", options=())
        try:
            code = formatting.wait(READY_LIMIT_S)
        except TimeoutError as error:
            raise BrokerError(str(error)) from error
        if code != 0:
            raise BrokerError(f"the data folder could not be formatted:\n{log_end(formatting.log)}")

    def launch(self) -> None:
        """Start the process only."""
        log = self._processes.logs / f"{self.name}.log"
        self._seen = log.stat().st_size if log.exists() else 0
        self._child = self._java(self.name, "kafka.Kafka", options=self.java_options())

    def until_ready(self) -> bool:
        """Wait until it answers; False if another process took one of its ports.  Raises BrokerError."""
        child = self.process
        # Silent, because connections are refused until it listens.
        silent = {"log_level": 0, "reconnect.backoff.max.ms": 200}
        admin = AdminClient({**for_librdkafka(self.kafka), **silent})
        deadline = time.monotonic() + READY_LIMIT_S
        while time.monotonic() < deadline:
            if not child.alive:
                if "BindException" in _text_from(child.log, self._seen):
                    return False
                raise BrokerError(f"{self.name} ended with exit code {child.exit_code}:\n{log_end(child.log)}")
            # Otherwise another broker has the port, or the others of the cluster do not see this one yet.
            if (self.cluster_id, True) == _answer(admin, self.node):
                return True
        child.stop(STOP_LIMIT_S)
        raise BrokerError(f"{self.name} did not answer within {READY_LIMIT_S:g} s:\n{log_end(child.log)}")

    def java_options(self) -> Sequence[str]:
        """With which its process is started."""
        if self._java_options is not None:
            return self._java_options
        return class_archive.use(broker_archive(self._jars))

    def _java(self, name: str, main: str, *arguments: str, options: Sequence[str]) -> Child:
        command = [
            java_command(),
            *options,
            f"-Xmx{self._heap_mb}m",
            "-XX:+UseSerialGC",
            "-XX:TieredStopAtLevel=1",
            f"-Dlog4j2.configurationFile={self._folder / 'log4j2.properties'}",
            "-cp",
            os.pathsep.join(map(str, self._jars)),
            main,
            *arguments,
            str(self._folder / "server.properties"),
        ]
        return self._processes.start(name, command)


def free_ports(count: int) -> tuple[int, ...]:
    """Distinct ports on 127.0.0.1 that are free now.  Raises BrokerError.

    The last GIVEN are not given again: who got them may not listen yet.
    """
    chosen: list[int] = []
    for port in random.sample(PORTS, len(PORTS)):
        if len(chosen) == count:
            return tuple(chosen)
        if port not in _given and can_bind(port):
            chosen.append(port)
            _given.append(port)
    raise BrokerError(f"no {count} free ports between {PORTS.start} and {PORTS.stop}")


def broker_archive(jars: Sequence[Path]) -> Path:
    """The path of the broker's class archive.  Its bootstrap record has the same name, with the suffix BOOTSTRAP."""
    return class_archive.archive_of("broker", jars)


def new_id() -> str:
    """An id of a Kafka cluster or data folder: 16 random bytes in URL-safe base64, never with `-` first (an option)."""
    while (text := base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")).startswith("-"):
        pass
    return text


def log_end(log: Path, lines: int = 20) -> str:
    """The last lines of a log, for an error message."""
    return "\n".join(log.read_text(encoding="utf-8", errors="replace").splitlines()[-lines:])


def _text_from(log: Path, offset: int) -> str:
    with log.open("rb") as content:
        content.seek(offset)
        return content.read().decode("utf-8", errors="replace")


def _answer(admin: AdminClient, node: int) -> tuple[str, bool] | None:
    """Id of the cluster that answers, and whether that broker is registered there; None without an answer."""
    try:
        metadata = admin.list_topics(timeout=0.5)
    except KafkaException:
        return None
    return str(metadata.cluster_id), node in metadata.brokers


def _without_leader(admin: AdminClient, topics: Sequence[Topic]) -> list[str]:
    """The topics for which not all leaders answer.  Only a leader knows where its partition ends."""
    places = [TopicPartition(topic.name, partition) for topic in topics for partition in range(topic.partitions)]
    asked = admin.list_offsets({place: OffsetSpec.latest() for place in places}, request_timeout=ANSWER_LIMIT_S)
    return sorted({place.topic for place, answer in asked.items() if answer.exception(2 * ANSWER_LIMIT_S) is not None})
