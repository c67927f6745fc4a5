"""A cluster as the controller sees it, played at its Kafka port: windows, workers, agents, and what was commanded."""

import json
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

from confluent_kafka import Consumer, Message, Producer, TopicPartition

from tests.controller.decider.decider_situations import a_load, a_node, a_window
from tests.e2e.in_process import trimtab
from tests.served_metrics import own_labels
from tests.waiting import wait_for
from trimtab_controller.execution.journal import KEY as JOURNAL_KEY
from trimtab_controller.execution.journal import decode_entry
from trimtab_controller.execution.state import Execution
from trimtab_controller.kafka.chunks import split
from trimtab_controller.security.keys import KeyFiles
from trimtab_process.credential_files import load_trust
from trimtab_protocol.messages.codec import decoded, encoded
from trimtab_protocol.messages.commands import Ack, Command, CommandKind, Phase
from trimtab_protocol.messages.names import AppId, HostId, KeyGroup, OperatorId, Topics
from trimtab_protocol.messages.placement import Placement
from trimtab_protocol.messages.placement_log import PlacementLog
from trimtab_protocol.messages.placement_parts import decode_record
from trimtab_protocol.messages.snapshot import Snapshot
from trimtab_protocol.signing.envelope import Envelope, signatures_in

APP, OPERATOR = AppId("app"), OperatorId("sums")
WINDOW_S = 1.0
LIMIT_S = 120.0
COMMAND_AFTER_S = 1.0
"""No operator is faster: what a command looks up is published a little after what it tells."""
PROGRAM = [sys.executable, "-c", "from trimtab_controller.cli import main; raise SystemExit(main())"]


def key_group(partition: int) -> KeyGroup:
    return KeyGroup(APP, OPERATOR, partition)


def host_of(worker: str) -> HostId:
    return HostId(f"h{worker[1:]}")


@dataclass
class World:
    """Three workers, twelve key groups, all on w0; whoever `took` a key group owns it."""

    bootstrap: str
    cluster: str
    folder: Path
    metrics_port: int
    lease_s: float = 3.0
    owners: dict[KeyGroup, str] = field(default_factory=lambda: {key_group(p): "w0" for p in range(12)})
    workers: list[str] = field(default_factory=lambda: ["w0", "w1", "w2"])
    idle: frozenset[KeyGroup] = frozenset()
    """Key groups without any load."""
    commands: list[Command] = field(default_factory=list)
    placements: list[Placement] = field(default_factory=list)
    keys_written: list[bytes] = field(default_factory=list)
    """Keys of the records on the placements' topic, tombstones included."""
    journal: list[bytes] = field(default_factory=list)
    signers: list[str] = field(default_factory=list)
    running: list["subprocess.Popen[bytes]"] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.topics = Topics(self.cluster)
        self.producer = Producer({"bootstrap.servers": self.bootstrap})
        self._consumer: Consumer | None = None
        self._placement_log = PlacementLog()
        self.keys = KeyFiles(key=self.folder / "key", trust=self.folder / "trusted")
        self.keys.create()
        self.config = self.folder / "controller.toml"
        self.log = self.folder / "controller.log"
        self.config.write_text(self.configuration(self.metrics_port, self.folder / "checkpoints"))

    def configuration(self, metrics_port: int, checkpoints: Path, bootstrap: str | None = None) -> str:
        """controller.toml; the stream is played by the test.  Older controllers refuse keys that they do not know."""
        return f"""
[controller]
cluster = "{self.cluster}"
lease_s = {self.lease_s}
[kafka]
bootstrap_servers = "{bootstrap or self.bootstrap}"
[signing]
key_file = "{self.keys.key}"
trust_file = "{self.keys.trust}"
[stream]
window_s = {WINDOW_S}
watermark_s = 120.0
checkpoint_dir = "{checkpoints}"
embedded = false
[balance]
max_migrations = 8
min_interval_s = 0.5
min_windows = 1
solver_time_limit_s = 0.5
[execution]
handovers_in_flight = 1
key_groups_per_handover = 4
prepare_timeout_s = 60.0
handover_timeout_s = 60.0
[metrics]
listen = "127.0.0.1:{metrics_port}"
"""

    # --- the controller ---

    def start(self, *, act: bool = True) -> "subprocess.Popen[bytes]":
        with self.log.open("ab") as output:
            process = subprocess.Popen(
                [*PROGRAM, "controller", "run", "--config", str(self.config), *["--act"] * act],
                stdout=output,
                stderr=subprocess.STDOUT,
            )
        self.running.append(process)
        return process

    def restart(self, *, kill: bool = True) -> None:
        """End the controller, by kill -9 or in order; the next one takes over."""
        process, acting = self.running[-1], self.log_text().count("acting as generation")
        process.kill() if kill else process.terminate()
        assert (process.wait(LIMIT_S) == 0) is not kill
        self.start()
        self.wait("takeover", lambda: self.log_text().count("acting as generation") > acting)

    def trimtab(self, *arguments: str, code: int = 0) -> str:
        if arguments[0] != "status":
            time.sleep(COMMAND_AFTER_S)
        ended, output, errors = trimtab(*arguments, "--config", str(self.config))
        assert ended == code, output + errors
        return output if code == 0 else errors

    def status(self) -> dict:
        return json.loads(self.trimtab("status", "--json"))

    def status_when(self, what: str, holds: Callable[[dict], bool]) -> dict:
        """The status as soon as it `holds`: it is published a little after what it tells."""
        shown: list[dict] = []

        def look() -> bool:
            shown[:] = [self.status()]
            return holds(shown[0])

        self.wait(f"status: {what}", look)
        return shown[0]

    def metric(self, name: str) -> float:
        with urllib.request.urlopen(f"http://127.0.0.1:{self.metrics_port}/metrics", timeout=30) as page:
            lines = own_labels(page.read().decode(), "cluster").splitlines()
        return sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith(name))

    def log_text(self) -> str:
        return self.log.read_text()

    # --- the cluster ---

    def snapshot(self) -> Snapshot:
        """A window that began now; it is published when it has ended."""
        start_s = time.time()
        rows = [
            a_load(each, owner, 0.0 if each in self.idle else 0.02, covered_s=WINDOW_S,
                   tuples_in_s=0.0 if each in self.idle else 10.0, state_bytes=1000)
            for each, owner in sorted(self.owners.items())
        ]  # fmt: skip
        nodes = [a_node(worker, app=APP, covered_s=WINDOW_S, cpu=0.2) for worker in self.workers]
        return a_window(start_s + WINDOW_S, nodes, rows, cluster=self.cluster, start_ms=round(start_s * 1000))

    def publish_window(self, **changes: object) -> None:
        """Let a window pass and publish it."""
        snapshot = replace(self.snapshot(), **changes)
        time.sleep(WINDOW_S)
        self.send_snapshot(snapshot)

    def send_snapshot(self, snapshot: Snapshot) -> None:
        for chunk in split(snapshot):
            self.produce(self.topics.snapshots, self.cluster.encode(), chunk.payload, chunk.headers)

    def produce(self, topic: str, key: bytes, value: bytes, headers: list[tuple[str, bytes]] | None = None) -> None:
        self.producer.produce(topic, key=key, value=value, headers=headers)
        assert self.producer.flush(20) == 0

    def ack(self, command: Command, phase: Phase, **values: object) -> None:
        ack = Ack.to(command, phase, at=time.time(), **values)
        self.produce(self.topics.acks, command.host.encode(), encoded(ack))

    def follow(self) -> None:
        """Read what the controller published."""
        if self._consumer is None:
            settings = {"bootstrap.servers": self.bootstrap, "group.id": "world", "isolation.level": "read_committed"}
            self._consumer = Consumer(settings)
            followed = (self.topics.commands, self.topics.placement, self.topics.journal)
            self._consumer.assign([TopicPartition(topic, 0, 0) for topic in followed])
        for message in self._consumer.consume(100, timeout=0.05):
            if message.error() is not None:
                continue
            if message.topic() == self.topics.journal:
                if message.key() == JOURNAL_KEY:
                    self.journal.append(message.value())
                continue
            if message.topic() == self.topics.placement:
                self.keys_written.append(message.key())
                if message.value() is None:
                    continue
            self.signers.append(self._signer(message))
            if message.topic() == self.topics.commands:
                self.commands.append(decoded(message.value(), Command))
            else:
                self._follow_placement(message)

    def _follow_placement(self, message: Message) -> None:
        before = self._placement_log.epoch
        self._placement_log.take(decode_record(message.key(), message.value()))
        self._placement_log.settle()
        if self._placement_log.newest is not None and self._placement_log.epoch > before:
            self.placements.append(self._placement_log.newest)

    def _signer(self, message: Message) -> str:
        """The key that signed a message; it is trusted."""
        signatures = signatures_in(message.headers())
        envelope = Envelope(topic=message.topic(), key=message.key(), value=message.value(), signatures=signatures)
        load_trust(self.keys.trust).check(envelope)
        return signatures[0].partition(b":")[0].decode()

    def wait(self, what: str, condition: Callable[[], bool], *, windows: bool = False) -> None:
        deadline = time.monotonic() + LIMIT_S
        while not condition():
            assert time.monotonic() < deadline, f"no {what} within {LIMIT_S:g} s\n{self.log_text()}"
            if windows:
                self.publish_window()
            self.follow()

    def next_command(self, kind: CommandKind, after: int = 0, *, windows: bool = False) -> Command:
        """The first command of a kind, not counting the first `after` commands."""

        def found() -> Command | None:
            return next((each for each in self.commands[after:] if each.kind is kind), None)

        self.wait(kind, lambda: found() is not None, windows=windows)
        command = found()
        assert command is not None
        return command

    def take(self, prepare: Command) -> None:
        self.owners.update(dict.fromkeys(prepare.key_groups, str(prepare.target)))
        self.ack(prepare, Phase.TOOK, pause_s=0.1)

    def hand_over(self, prepare: Command) -> None:
        """Play both workers."""
        seen = len(self.commands)
        self.ack(prepare, Phase.PREPARED, generation=3, lag_records=0)
        release = self.next_command(CommandKind.RELEASE, seen)
        assert (release.handover, release.generation) == (prepare.handover, 3)
        self.ack(release, Phase.RELEASED)
        self.take(prepare)

    def hand_over_rest(self) -> None:
        """Play the workers until the round has ended."""
        done = {c.handover for c in self.commands if c.kind is CommandKind.RELEASE}
        deadline = time.monotonic() + LIMIT_S
        while (prepares := self._open_prepares(done)) or not self.round_ended():
            assert time.monotonic() < deadline, self.log_text()
            for prepare in prepares:
                done.add(prepare.handover)
                self.hand_over(prepare)
            self.follow()

    def drained(self, after: int) -> Command:
        """Play the workers until the emptied one is stopped; the command that stops it."""
        done = {each.handover for each in self.commands[:after]}

        def stopped() -> bool:
            for prepare in self._open_prepares(done):
                done.add(prepare.handover)
                self.hand_over(prepare)
            return any(each.kind is CommandKind.STOP for each in self.commands[after:])

        self.wait("stop", stopped, windows=True)
        return self.next_command(CommandKind.STOP, after)

    def _open_prepares(self, done: set[str | None]) -> list[Command]:
        return [c for c in self.commands if c.kind is CommandKind.PREPARE and c.handover not in done]

    def round_ended(self) -> bool:
        return " ended after " in self.log_text()

    def check_placements(self) -> None:
        """Epochs only rise, and the last placement is where the key groups are."""
        self.check_epochs()
        last = self.placements[-1]
        assert {each: last.of(each.operator, each.partition)[0] for each in self.owners} == self.owners

    def check_epochs(self) -> None:
        """No placement was published by somebody whose time is over."""
        epochs = [placement.epoch for placement in self.placements]
        assert epochs == sorted(set(epochs))

    def executions(self) -> list[Execution]:
        """What the journal has held, oldest first; the journal must be whole."""
        self.follow()
        return [decode_entry(value).execution for value in self.journal]

    def close(self) -> None:
        for process in self.running:
            process.kill()
            process.wait()
        if self._consumer is not None:
            self._consumer.close()


def wait_until_it_acts(world: World, text: str = "acting as generation") -> None:
    wait_for(lambda: text in world.log_text(), text, log=world.log_text)
