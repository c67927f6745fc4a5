"""The agent as a process, on a real broker, with a worker that speaks the plug-in's side of the socket.

This file is also the worker: `python test_agent.py` connects as the environment says and answers like a plug-in.
"""

import os
import signal
import socket
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import psutil
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from trimtab_controller.keys import KeyFiles, load_signing_key
from trimtab_controller.sandbox.broker import Broker, Topic, free_ports
from trimtab_controller.sandbox.processes import Child, Processes
from trimtab_models.messages.commands import (
    Ack,
    Command,
    CommandKind,
    Phase,
    Refusal,
    decode_ack,
    encode_command,
)
from trimtab_models.messages.local import Hello, Statistics, Welcome, decode_frame, encode_frame
from trimtab_models.messages.names import AppId, Epoch, HostId, KeyGroup, OperatorId, Topics, WorkerId, topic_settings
from trimtab_models.messages.report import KeyGroupSample, Mark, Report, WorkerState, decode_report
from trimtab_models.signing.envelope import Envelope
from trimtab_models.signing.keys import SigningKey

APP, OPERATOR = AppId("flights"), OperatorId("sums")
ANSWERS = {
    CommandKind.PREPARE: (Phase.PREPARED, Phase.TOOK),
    CommandKind.RELEASE: (Phase.RELEASED,),
    CommandKind.ABANDON: (Phase.ABANDONED,),
    CommandKind.REJOIN: (Phase.REJOINED,),
}


class FakeWorker:
    """A worker that owns `owned` partitions, reports them, and answers every command in a moment."""

    def __init__(self, path: str, worker: str, owned: Sequence[int], interval_s: float = 0.2) -> None:
        self.path, self.worker, self.owned = path, WorkerId(worker), list(owned)
        self.interval_s = interval_s
        self.commands: list[Command] = []
        self.answer = True
        self.stop = threading.Event()
        self._threads = [threading.Thread(target=self._run, daemon=True)]
        self._threads[0].start()

    def _run(self) -> None:
        """Connect for ever."""
        while not self.stop.wait(0.1):
            try:
                with socket.socket(socket.AF_UNIX) as connection:
                    connection.connect(self.path)
                    self._speak(connection)
            except OSError:
                continue

    def _speak(self, connection: socket.socket) -> None:
        hello = Hello(
            app=APP, worker=self.worker, pid=os.getpid(), steering=True, reason=None,
            operators={OPERATOR: 8}, versions={"fake": "1"},
        )  # fmt: skip
        connection.sendall(encode_frame(hello))
        connection.settimeout(self.interval_s)
        buffer = b""
        while not self.stop.is_set():
            try:
                received = connection.recv(65536)
                if not received:
                    return
                buffer += received
            except TimeoutError:
                connection.sendall(encode_frame(self._statistics()))
            *lines, buffer = buffer.split(b"\n")
            for line in lines:
                self._obey(connection, decode_frame(line))

    def _obey(self, connection: socket.socket, frame: object) -> None:
        if not isinstance(frame, Command):
            assert isinstance(frame, Welcome)
            return
        self.commands.append(frame)
        for phase in ANSWERS[frame.kind] if self.answer else ():
            pause_s = 0.12 if phase is Phase.TOOK else None
            ack = Ack.to(frame, phase, at=time.time(), pause_s=pause_s)
            connection.sendall(encode_frame(ack))

    def _statistics(self) -> Statistics:
        samples = [
            KeyGroupSample(key_group=KeyGroup(APP, OPERATOR, p), worker=self.worker, cpu_s=0.001, tuples_in=10)
            for p in self.owned
        ]
        return Statistics(
            at_ms=round(time.time() * 1000), interval_s=self.interval_s, state=WorkerState.RUNNING, cpu_s=0.01,
            epoch=Epoch(1, 1), generation=4, complete=True, key_groups=tuple(samples), pairs=(),
        )  # fmt: skip

    def close(self) -> None:
        self.stop.set()
        self._threads[0].join(5)


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
[kafka]
bootstrap_servers = "{broker.address}"
[metrics]
listen = "127.0.0.1:{self.metrics_port}"
[workers.w0]
capacity = 0.25
[workers.w1]
command = ["{sys.executable}", "{__file__}"]
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

    def start_agent(self) -> Child:
        command = [sys.executable, "-m", "trimtab_agent.cli", "run", "--config", str(self.folder / "agent.toml")]
        return self._processes.start("agent", command)

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
        payload = command if isinstance(command, bytes) else encode_command(command)
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

    def read(self, topic: str, enough: Callable[[list[bytes]], bool], limit_s: float = 60.0) -> list[bytes]:
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

    def acks(self, count: int, limit_s: float = 60.0) -> list[Ack]:
        return [decode_ack(payload) for payload in self.read(self.topics.acks, lambda f: len(f) >= count, limit_s)]

    def await_answers(self, wanted: set[tuple[int, Phase]]) -> None:
        """Until these (epoch number, phase) have been acked, whatever else and however often."""

        def all_there(found: list[bytes]) -> bool:
            return wanted <= {(ack.epoch.number, ack.phase) for ack in map(decode_ack, found)}

        self.read(self.topics.acks, all_there)

    def phases(self, count: int) -> list[tuple[str, Phase]]:
        return [(ack.kind.value, ack.phase) for ack in self.acks(count)]

    def report(self, wanted: Callable[[Report], bool], limit_s: float = 60.0) -> Report:
        """The first report as wanted."""

        def match(found: list[bytes]) -> bool:
            return any(wanted(decode_report(payload)) for payload in found[-1:])

        return decode_report(self.read(self.topics.reports, match, limit_s)[-1])

    def wait_for(self, condition: Callable[[], bool], limit_s: float = 60.0) -> None:
        deadline = time.monotonic() + limit_s
        while not condition():
            assert time.monotonic() < deadline, self.log()
            time.sleep(0.05)

    def metric(self, line: str) -> float:
        """The value of one line of /metrics."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.metrics_port}/metrics", timeout=5) as answer:
            lines = dict(row.rsplit(" ", 1) for row in answer.read().decode().splitlines() if row[:1] != "#")
        return float(lines[f"trimtab_agent_{line}"])

    def close(self) -> None:
        for worker in self._workers:
            worker.close()


@pytest.fixture
def start(tmp_path: Path, unique: str) -> Iterator[Callable[[Broker], Bench]]:
    """Makes the bench of a test on the broker it wants."""
    made: list[Bench] = []
    with Processes(tmp_path / "logs") as processes:

        def make(on: Broker) -> Bench:
            made.append(Bench(on, unique, tmp_path / "agent", processes))
            return made[-1]

        yield make
        for bench in made:
            bench.close()


@pytest.fixture
def bench(broker: Broker, start: Callable[[Broker], Bench]) -> Bench:
    """Topics and a running agent."""
    made = start(broker)
    made.create_topics()
    made.start_agent()
    return made


def test_a_report_says_what_is_complete_and_what_is_away(bench: Bench) -> None:
    bench.worker("w0", [0, 1, 2])

    report = bench.report(lambda r: len(r.key_groups) == 3 and r.sample.cpu_s is not None and r.workers[0].marks == ())

    w0, w1 = report.workers
    assert (report.cluster, report.host, report.interval_s, report.at_ms % 500) == (bench.cluster, "h0", 0.5, 0)
    assert (w0.worker, w0.app, w0.state, w0.capacity, w0.generation) == ("w0", APP, WorkerState.RUNNING, 0.25, 4)
    assert w0.cpu_s is not None
    assert (w1.worker, w1.state, w1.cpu_s, w1.memory_bytes) == ("w1", WorkerState.AWAY, None, None)
    assert report.sample.cores == psutil.cpu_count() or report.sample.basis == "cgroup"


def test_a_silent_worker_is_stale_and_lists_nothing(bench: Bench) -> None:
    worker = bench.worker("w0", [0, 1, 2])
    bench.report(lambda r: len(r.key_groups) == 3)
    worker.interval_s = 60.0
    worker.close()
    with socket.socket(socket.AF_UNIX) as connection:  # connects, and then says nothing
        connection.connect(bench.socket)
        connection.sendall(
            encode_frame(
                Hello(app=APP, worker=WorkerId("w0"), pid=1, steering=False, reason="old", operators={}, versions={})
            )
        )
        report = bench.report(lambda r: r.workers[0].marks == (Mark.STALE,) and not r.workers[0].steering)

    assert report.key_groups == ()


def test_a_command_goes_through_its_phases_and_a_repeat_is_answered(bench: Bench) -> None:
    worker = bench.worker("w0", [1, 2])
    bench.report(lambda r: len(r.key_groups) == 2)
    prepare = bench.command(3, CommandKind.PREPARE, target=WorkerId("w0"), source=WorkerId("w9"))
    release = bench.command(4, CommandKind.RELEASE, key_groups=(KeyGroup(APP, OPERATOR, 2),))

    bench.publish(prepare, release, bench.command(5, CommandKind.REJOIN, host=HostId("h7")))
    first = bench.acks(5)
    bench.publish(prepare, b"{]")
    again = bench.acks(6)[-1]

    expected = {"prepare": ["accepted", "prepared", "took"], "release": ["accepted", "released"]}
    assert {kind: [a.phase for a in first if a.kind == kind] for kind in expected} == expected
    assert (again.command_id, again.phase, again.pause_s) == (prepare.id, Phase.TOOK, 0.12)
    assert [command.id for command in worker.commands] == [prepare.id, release.id]
    bench.wait_for(lambda: 'event="bad command" reason=malformed' in bench.log())
    assert bench.metric('bad_commands_total{reason="malformed"}') == 1
    assert bench.metric('command_answers_total{kind="prepare",phase="took"}') == 2  # said, and said again
    assert bench.metric('handover_pause_seconds_bucket{le="0.15"}') == bench.metric("handover_pause_seconds_count") == 1
    assert (bench.metric("workers_connected"), bench.metric("workers_steering")) == (1, 1)
    assert bench.metric("reports_sent_total") > 0


def test_refusals_name_their_reason(bench: Bench) -> None:
    bench.worker("w0", [1])
    bench.report(lambda r: len(r.key_groups) == 1)
    now = time.time()

    bench.publish(
        bench.command(9, CommandKind.REJOIN, epoch=Epoch(1, 9)),
        bench.command(8, CommandKind.RELEASE),
        bench.command(10, CommandKind.RELEASE),
        bench.command(11, CommandKind.REJOIN, issued_at=now - 9, deadline=now - 1),
        bench.command(12, CommandKind.REJOIN, issued_at=now + 900, deadline=now + 999),
        bench.command(13, CommandKind.START),
        bench.command(14, CommandKind.STOP),
    )

    answers = [(a.epoch.number, a.phase, a.refusal) for a in bench.acks(8) if a.epoch.number != 9]
    assert answers == [
        (8, Phase.REFUSED, Refusal.OLD_EPOCH),
        (10, Phase.REFUSED, Refusal.PRECONDITION),
        (11, Phase.EXPIRED, None),
        (12, Phase.REFUSED, Refusal.FAILED),
        (13, Phase.REFUSED, Refusal.NOT_CONFIGURED),
        (14, Phase.REFUSED, Refusal.NOT_EMPTY),
    ]


def test_only_signed_commands_are_obeyed_and_keys_change_while_it_runs(
    broker: Broker, start: Callable[[Broker], Bench]
) -> None:
    bench = start(broker)
    files = bench.demand_signatures()
    bench.create_topics()
    bench.start_agent()
    worker = bench.worker("w0", [1])
    bench.report(lambda r: len(r.key_groups) == 1)
    own, stranger = bench.key, SigningKey.generate()
    rejoin = [bench.command(number, CommandKind.REJOIN) for number in range(8)]

    for number, key in ((1, own), (2, None), (3, stranger)):
        bench.key = key
        bench.publish(rejoin[number])
    bench.key = own
    bench.publish(rejoin[1], replace(rejoin[1], deadline=rejoin[1].deadline + 1))  # repeated, and with other content
    bench.await_answers({(1, Phase.REJOINED), (2, Phase.REFUSED), (3, Phase.REFUSED)})
    bench.key = files.begin()
    bench.publish(rejoin[4])
    bench.key = files.switch()
    bench.publish(rejoin[5])
    files.finish()
    bench.key = own
    bench.publish(rejoin[6])
    bench.await_answers({(5, Phase.REJOINED)})

    bench.wait_for(lambda: bench.metric('bad_commands_total{reason="unknown_key"}') == 2)
    assert [command.epoch.number for command in worker.commands] == [1, 4, 5]
    assert bench.metric('bad_commands_total{reason="unsigned"}') == 1
    assert bench.metric('bad_commands_total{reason="repeated_id"}') == 1
    assert (bench.metric("commands_verified"), bench.metric("trust_file_faulty")) == (1, 0)
    files.trust.write_text("")
    bench.wait_for(lambda: bench.metric("trust_file_faulty") == 1)
    bench.key = load_signing_key(files.key)
    bench.publish(rejoin[7])  # the keys of before hold
    bench.await_answers({(7, Phase.REJOINED)})
    assert bench.log().count("the trust file cannot be used, the keys of before hold") == 1
    told = {(a.epoch.number, a.refusal) for a in bench.acks(8) if a.phase is Phase.REFUSED}
    assert told >= {(2, Refusal.UNSIGNED), (3, Refusal.UNKNOWN_KEY)}
    assert rejoin[2].id not in {ack.command_id for ack in bench.acks(8)}


def test_what_is_altered_foreign_or_too_much_for_this_host_is_refused(
    broker: Broker, start: Callable[[Broker], Bench]
) -> None:
    bench = start(broker)
    key = bench.demand_signatures().load()[0]
    config = bench.folder / "agent.toml"
    config.write_text(f"{config.read_text()}[guard]\nmin_free_memory_bytes = {2**60}\n")
    bench.create_topics()
    bench.start_agent()
    worker = bench.worker("w0", [1])
    bench.report(lambda r: len(r.key_groups) == 1)
    first, second = (bench.record(bench.command(number, CommandKind.REJOIN)) for number in (1, 2))

    bench.send(
        (first, [key.sign(second)]),
        (first, [key.sign(replace(first, key=b"h1"))]),
        (first, [key.sign(replace(first, topic="trimtab.other.commands"))]),
        (first, [key.sign(first)] * 2),
    )
    bench.publish(
        bench.command(3, CommandKind.REJOIN, cluster="other"),
        bench.command(4, CommandKind.PREPARE, source=WorkerId("w9"), target=WorkerId("w0")),
        bench.command(5, CommandKind.REJOIN),
    )

    bench.await_answers({(5, Phase.REJOINED)})
    assert [command.epoch.number for command in worker.commands] == [5]
    refused = [(a.epoch.number, a.refusal) for a in bench.acks(4) if a.phase is Phase.REFUSED]
    assert refused == [(1, Refusal.WRONG_SIGNATURE), (4, Refusal.GUARD)]  # a notice for the four; of the third nothing
    assert bench.metric('bad_commands_total{reason="wrong_signature"}') == 4
    assert bench.metric('bad_commands_total{reason="other_cluster"}') == 1
    assert bench.metric('command_refusals_total{reason="guard"}') == 1


def test_a_killed_agent_answers_repeats_and_asks_again_and_obeys_nothing_twice_without_its_journal(
    broker: Broker, start: Callable[[Broker], Bench]
) -> None:
    bench = start(broker)
    bench.create_topics()
    agent = bench.start_agent()
    worker = bench.worker("w0", [1])
    bench.report(lambda r: len(r.key_groups) == 1)
    done, open_ = bench.command(1, CommandKind.RELEASE), bench.command(2, CommandKind.REJOIN)
    bench.publish(done)
    bench.acks(2)
    worker.answer = False
    bench.publish(open_)
    bench.wait_for(lambda: len(worker.commands) == 2)

    agent.kill()
    worker.answer = True
    bench.publish(done, bench.command(3, CommandKind.REJOIN))
    agent = bench.start_agent()

    bench.wait_for(lambda: len(worker.commands) == 4)
    assert sorted(command.epoch.number for command in worker.commands) == [1, 2, 2, 3]
    bench.await_answers({(number, Phase.ACCEPTED) for number in (1, 2, 3)})
    bench.await_answers({(1, Phase.RELEASED), (2, Phase.REJOINED), (3, Phase.REJOINED)})

    agent.kill()
    (bench.folder / "state" / "journal").unlink()
    bench.publish(bench.command(4, CommandKind.REJOIN))
    bench.start_agent()

    bench.await_answers({(number, Phase.REFUSED) for number in (1, 2, 3, 4)})
    assert len(worker.commands) == 4
    assert bench.metric("journal_faults") == 1


def test_no_broker_at_the_start_and_a_restart_of_it_lose_no_command(
    private_broker: Callable[[], Broker], start: Callable[[Broker], Bench]
) -> None:
    broker = private_broker()
    bench = start(broker)
    bench.create_topics()
    broker.stop()
    agent = bench.start_agent()
    worker = bench.worker("w0", [1])
    bench.wait_for(lambda: 'event="broker away' in bench.log() and "worker connected" in bench.log())

    broker.start()
    bench.publish(bench.command(1, CommandKind.REJOIN))
    assert bench.phases(2) == [("rejoin", Phase.ACCEPTED), ("rejoin", Phase.REJOINED)]

    worker.answer = False
    bench.publish(bench.command(2, CommandKind.REJOIN, deadline=time.time() + 3))
    bench.wait_for(lambda: len(worker.commands) == 2)
    broker.kill()
    bench.wait_for(lambda: "phase=expired" in bench.log())
    broker.start()
    bench.publish(bench.command(3, CommandKind.REJOIN))
    bench.wait_for(lambda: len(worker.commands) == 3)
    bench.await_answers({(2, Phase.ACCEPTED), (2, Phase.EXPIRED), (3, Phase.ACCEPTED)})
    assert agent.alive
    assert bench.log().count('event="broker away') == 2  # once per change


def test_a_worker_is_started_survives_the_agent_and_is_stopped(
    broker: Broker, start: Callable[[Broker], Bench]
) -> None:
    bench = start(broker)
    bench.create_topics()
    agent = bench.start_agent()
    bench.publish(bench.command(1, CommandKind.START, worker="w1"))
    assert bench.phases(2) == [("start", Phase.ACCEPTED), ("start", Phase.STARTED)]

    agent.send(signal.SIGTERM)
    began = time.monotonic()
    assert agent.wait(30) == 0
    assert time.monotonic() - began < 2
    bench.start_agent()
    bench.report(lambda r: r.workers[1].state is WorkerState.RUNNING)
    assert "commands from 0:1" in bench.log()  # where it had been, not where it once began

    bench.publish(bench.command(2, CommandKind.START, worker="w1"), bench.command(3, CommandKind.STOP, worker="w1"))
    acks = bench.acks(5)
    assert [(ack.epoch.number, ack.phase) for ack in acks[2:]] == [
        (2, Phase.STARTED), (3, Phase.ACCEPTED), (3, Phase.STOPPED),
    ]  # fmt: skip
    assert "another" not in bench.log()  # one process, not two, was there
    bench.report(lambda r: r.workers[1].state is WorkerState.AWAY)


def test_the_exit_code_of_an_own_child_is_in_the_ack(bench: Bench) -> None:
    bench.publish(bench.command(1, CommandKind.START, worker="w1"))
    bench.report(lambda r: r.workers[1].state is WorkerState.RUNNING)
    bench.publish(bench.command(2, CommandKind.STOP, worker="w1"))

    last = bench.acks(4)[-1]

    assert (last.phase, last.exit_code) == (Phase.STOPPED, 7)


def main() -> None:
    """A worker without key groups; SIGTERM ends it with exit code 7."""
    signal.signal(signal.SIGTERM, lambda *_: os._exit(7))
    FakeWorker(os.environ["TRIMTAB_SOCKET"], os.environ["TRIMTAB_WORKER"], []).stop.wait()


if __name__ == "__main__":
    main()
