"""An agent as a process, both ends of its topics, and workers that speak the plug-in's side of its socket."""

import sys
import time
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

from confluent_kafka import Consumer, Producer, TopicPartition

from tests.e2e import fake_worker
from tests.e2e.fake_worker import APP, OPERATOR, FakeWorker
from tests.served_metrics import own_labels
from trimtab_controller.security.keys import KeyFiles
from trimtab_protocol.messages.codec import decoded, encoded
from trimtab_protocol.messages.commands import Ack, Command, CommandKind, Phase
from trimtab_protocol.messages.names import Epoch, HostId, KeyGroup, Topics, WorkerId, topic_settings
from trimtab_protocol.messages.report import Report
from trimtab_protocol.signing.envelope import Envelope
from trimtab_protocol.signing.keys import SigningKey
from trimtab_sandbox.broker import Broker, Topic, free_ports
from trimtab_sandbox.processes import Child, Processes


class Bench:
    """One agent on one broker, and both ends of its topics."""

    def __init__(self, broker: Broker, cluster: str, folder: Path, processes: Processes) -> None:
        self.broker, self.cluster, self.folder = broker, cluster, folder
        self.topics = Topics(cluster)
        self.socket = str(folder / "a.sock")
        self.metrics_port = free_ports(1)[0]
        self.key: SigningKey | None = None
        self._processes = processes
        self._workers: list[FakeWorker] = []
        self._producer: Producer | None = None
        folder.mkdir(exist_ok=True)
        (folder / "agent.toml").write_text(
            f"""
[agent]
cluster = "{cluster}"
host = "h0"
interval_s = 0.5
state_dir = "{folder}/state"
socket = "{self.socket}"
max_crashes = 3
[kafka]
bootstrap_servers = "{broker.address}"
[metrics]
listen = "127.0.0.1:{self.metrics_port}"
[workers.w0]
capacity = 0.25
data_dir = "{folder}/w0"
[workers.w1]
app = "{APP}"
command = ["{sys.executable}", "{fake_worker.__file__}"]
"""
        )

    def demand_signatures(self) -> KeyFiles:
        """Have the agent obey one key; what is published from now on is signed with it."""
        files = KeyFiles(key=self.folder / "key", trust=self.folder / "trusted")
        self.key = files.create()
        config = self.folder / "agent.toml"
        config.write_text(f'{config.read_text()}[trust]\nfile = "{files.trust}"\n')
        return files

    def create_topics(self) -> None:
        self.broker.create_topics(
            [Topic(name=s.name, partitions=s.partitions) for s in topic_settings(self.topics)[:5]]
        )

    def start_agent(self, environment: Mapping[str, str] | None = None) -> Child:
        command = [sys.executable, "-m", "trimtab_agent.cli", "run", "--config", str(self.folder / "agent.toml")]
        return self._processes.start("agent", command, environment=environment)

    def log(self) -> str:
        return (self._processes.logs / "agent.log").read_text()

    def worker(self, name: str, owned: Sequence[int]) -> FakeWorker:
        worker = FakeWorker(self.socket, name, owned)
        self._workers.append(worker)
        return worker

    def command(self, number: int, kind: CommandKind, worker: str = "w0", **changes: object) -> Command:
        migration = kind in (CommandKind.PREPARE, CommandKind.RELEASE)
        values: dict[str, object] = {
            "cluster": self.cluster, "kind": kind, "epoch": Epoch(1, number), "host": HostId("h0"),
            "worker": WorkerId(worker), "app": APP, "issued_at": time.time(), "deadline": time.time() + 100,
        }  # fmt: skip
        if migration:
            values |= {"handover": f"ho-{number}", "key_groups": (KeyGroup(APP, OPERATOR, number),)}
            values |= {"source": WorkerId("w0"), "target": WorkerId("w9")}
            values |= {"generation": 4} if kind is CommandKind.RELEASE else {}
        return Command(**{**values, **changes})  # type: ignore[arg-type]

    def record(self, command: Command | bytes) -> Envelope:
        """As the controller writes it, but for its signature."""
        payload = command if isinstance(command, bytes) else encoded(command)
        return Envelope(topic=self.topics.commands, key=b"h0", value=payload)

    def publish(self, *commands: Command | bytes) -> None:
        """As the controller does it: in a transaction."""
        records = [self.record(command) for command in commands]
        self.send(*((record, [self.key.sign(record)] if self.key else []) for record in records))

    def send(self, *records: tuple[Envelope, list[tuple[str, bytes]]]) -> None:
        """Write records with whatever headers, in one transaction."""
        if self._producer is None:
            settings = {"bootstrap.servers": self.broker.address, "transactional.id": self.cluster}
            self._producer = Producer(settings)
            self._producer.init_transactions(60)
        self._producer.begin_transaction()
        for record, headers in records:
            self._producer.produce(record.topic, record.value, key=record.key, headers=headers)
        self._producer.commit_transaction(60)

    def read(self, topic: str, enough: Callable[[list[bytes]], bool], limit_s: float = 120.0) -> list[bytes]:
        """All records of a topic, once there are enough of them."""
        consumer = Consumer({"bootstrap.servers": self.broker.address, "group.id": "r", "enable.auto.commit": False})
        try:
            partitions = consumer.list_topics(topic, timeout=10).topics[topic].partitions
            consumer.assign([TopicPartition(topic, partition, 0) for partition in partitions])
            found: list[bytes] = []
            deadline = time.monotonic() + limit_s
            while not enough(found):
                message = consumer.poll(0.2)
                if message is not None and message.error() is None:
                    found.append(message.value())
                assert time.monotonic() < deadline, f"{topic}: {len(found)}, {found[-3:]}\n{self.log()}"
            return found
        finally:
            consumer.close()

    def acks(self, count: int, limit_s: float = 120.0) -> list[Ack]:
        return [decoded(payload, Ack) for payload in self.read(self.topics.acks, lambda f: len(f) >= count, limit_s)]

    def await_answers(self, wanted: set[tuple[int, Phase]]) -> list[Ack]:
        """All acks, once these (epoch number, phase) are among them, whatever else and however often."""

        def all_there(found: list[bytes]) -> bool:
            return wanted <= {(ack.epoch.number, ack.phase) for ack in map(partial(decoded, kind=Ack), found)}

        return [decoded(payload, Ack) for payload in self.read(self.topics.acks, all_there)]

    def phases(self, count: int) -> list[tuple[str, Phase]]:
        return [(ack.kind.value, ack.phase) for ack in self.acks(count)]

    def report(self, wanted: Callable[[Report], bool], limit_s: float = 120.0) -> Report:
        """The first report as wanted."""

        def match(found: list[bytes]) -> bool:
            return any(wanted(decoded(payload, Report)) for payload in found[-1:])

        return decoded(self.read(self.topics.reports, match, limit_s)[-1], Report)

    def metric(self, line: str) -> float:
        """The value of one line of /metrics."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.metrics_port}/metrics", timeout=30) as answer:
            text = own_labels(answer.read().decode(), "cluster", "host")
        lines = dict(row.rsplit(" ", 1) for row in text.splitlines() if row[:1] != "#")
        return float(lines[f"trimtab_agent_{line}"])

    def close(self) -> None:
        for worker in self._workers:
            worker.close()
