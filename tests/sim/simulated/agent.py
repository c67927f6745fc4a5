"""An agent process: the real daemon, driver, machine and journal on a simulated host.

The journal is the real one in a real file; what a crash leaves of it is decided here: all that was made durable, and of
what was written after that as much as chance has it, to the middle of a line.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

from tests.narrow import of_type
from tests.sim.simulated.broker import Broker, Headers, Unsent
from tests.sim.simulated.kafka_client import Killed
from tests.sim.simulated.machine import CAPACITY_CORES, Machine, Worker
from tests.sim.simulated.network import Network
from tests.sim.simulated.timeline import Timeline
from trimtab_agent import daemon
from trimtab_agent.commands import driver
from trimtab_agent.commands.events import Admitted, Entry, Position, ProcessEnded, ProcessId
from trimtab_agent.commands.journal import Journal, encode_line
from trimtab_agent.configuration import AgentConfiguration, HostConfiguration, WorkerConfiguration
from trimtab_agent.sampler.derive import UsableResources, Use
from trimtab_protocol.messages.commands import Ack, Command
from trimtab_protocol.messages.decode import BadMessage
from trimtab_protocol.messages.local import Hello, Statistics, decode_frame, encode_frame
from trimtab_protocol.messages.names import Topics, WorkerId
from trimtab_protocol.messages.report import Basis, HostSample
from trimtab_protocol.settings.kafka import KafkaSettings
from trimtab_protocol.signing.envelope import Envelope, signatures_in

TICK_S = 5.0
"""The driver looks at its clock every half second; here it does when its machine wants to, and this often."""
SETTLE_S = 0.25
RECONNECT_S = 2.0
"""After the agent's start its workers are connected again so late at the latest."""
TOPIC_ID = "simulated"
running: list["AgentProcess"] = []


class CrashingJournal(Journal):
    """Notes what is on disk; dies in the middle of a line when its time has come."""

    def append(self, entry: Entry, *, durable: bool = True) -> None:
        """See Journal."""
        agent = running[-1]
        machine = agent.machine
        if machine.dies_after is not None:
            machine.dies_after -= 1
            if machine.dies_after <= 0:
                machine.dies_after = None
                line = encode_line(entry)
                with agent.journal.open("ab") as file:
                    file.write(line[: agent.timeline.random.randrange(len(line))])
                raise Killed
        super().append(entry, durable=False)
        if durable:
            machine.durable_bytes = agent.journal.stat().st_size
        if isinstance(entry, Admitted):
            machine.admitted(entry)

    def rewrite(self, entries: Iterable[Entry]) -> None:
        """See Journal."""
        super().rewrite(entries)
        agent = running[-1]
        agent.machine.durable_bytes = agent.journal.stat().st_size


class Processes:
    """Instead of WorkerProcesses: the worker processes of the host."""

    def __init__(self, **_: object) -> None:
        self._machine = running[-1].machine
        self._children: dict[int, Worker] = {}
        self._watched: dict[WorkerId, tuple[ProcessId, Worker | None]] = {}

    def ensure(self, worker: WorkerConfiguration) -> ProcessId:
        """Find or start it."""
        found = self._machine.workers.get(worker.worker)
        if found is None or not found.alive:
            found = self._machine.start_worker(worker.worker)
            self._children[found.process.pid] = found
        self.watch(worker.worker, found.process)
        return found.process

    def watch(self, worker: WorkerId, process: ProcessId) -> None:
        """Have `ended` tell of its end."""
        self._watched[worker] = process, self._find(worker, process)

    connected = watch
    """No worker here leaves processes behind."""

    def terminate(self, worker: WorkerId, process: ProcessId) -> None:
        """SIGTERM, when it still is that process."""
        self.watch(worker, process)
        if (found := self._find(worker, process)) is not None:
            found.terminate()

    def ended(self) -> Iterator[ProcessEnded]:
        """Those that ended since the last call."""
        for worker, (process, found) in list(self._watched.items()):
            if found is None or not found.alive:
                del self._watched[worker]
                code = 0 if process.pid in self._children else None
                yield ProcessEnded(worker=worker, process=process, exit_code=code)

    def _find(self, worker: WorkerId, process: ProcessId) -> Worker | None:
        found = self._machine.workers.get(worker)
        return found if found is not None and found.alive and found.process == process else None


class AgentProcess:
    """One process from its start to its end."""

    def __init__(
        self, machine: Machine, configuration: AgentConfiguration, timeline: Timeline, broker: Broker, network: Network
    ) -> None:
        self.machine = machine
        self.timeline = timeline
        self.journal = configuration.state_dir / "journal"
        self.alive = True
        self._interval_s = configuration.interval_s
        self._broker = broker
        self._network = network
        self._topic = Topics(configuration.cluster).commands
        self._connected: dict[WorkerId, Worker] = {}
        self._polls = False
        self._looks_at: float | None = None
        self._next: dict[str, int] = {}
        self._enter(lambda: self._start(configuration))

    def _start(self, configuration: AgentConfiguration) -> None:
        # The daemon's event loop: what it wants to do later, or sends, comes here.
        self.call_soon: Callable[..., None] = lambda act, *given: self.timeline.after(0.0, self._own(act, *given))
        self.call_later: Callable[..., None] = lambda delay, act, *given: self.timeline.after(
            delay, self._own(act, *given)
        )
        self._agent = daemon.Agent(configuration, self)  # type: ignore[arg-type]
        self._agent._commands.resume()
        self._broker.watch(self._topic, self._poll_soon)
        self._poll_soon()
        for worker in self.machine.workers.values():
            self.timeline.soon(0.1, RECONNECT_S, worker.connect)
        self._tick()
        self._report_at_interval_end()

    def now(self) -> float:
        """This host's idea of the time."""
        return self.timeline.now + self.machine.clock_ahead_s

    def kill(self) -> None:
        """SIGKILL, and a crash of the machine: what was not durable may be gone, to the middle of a line."""
        if not self.alive:
            return
        self.alive = False
        self._broker.unwatch(self._poll_soon)
        self._connected.clear()
        written, durable = self.journal.stat().st_size, self.machine.durable_bytes
        if durable < written:
            with self.journal.open("r+b") as file:
                file.truncate(self.timeline.random.randint(durable, written))

    def turn_back(self, records: int) -> None:
        """Its reader begins again so many records earlier: what it has read comes once more."""
        if (known := self._next.get(self._topic)) is not None:
            self._next[self._topic] = max(0, known - records)
            self._poll_soon()

    # --- workers

    def connect(self, worker: Worker, hello: Hello) -> None:
        """A worker's plug-in presents itself."""
        self._connected[worker.id] = worker
        frame = of_type(Hello, decode_frame(encode_frame(hello)))
        self._enter(lambda: self._agent.worker_connected(frame, worker.process.pid))

    def disconnect(self, worker: Worker) -> None:
        """Its connection ended."""
        if self.alive and self._connected.get(worker.id) is worker:
            del self._connected[worker.id]
            self._enter(lambda: self._agent.worker_gone(worker.id))
            self._enter(self._tick_driver)

    def is_connected(self, worker: Worker) -> bool:
        """Whether frames of this worker are read."""
        return self.alive and self._connected.get(worker.id) is worker

    def take(self, worker: Worker, line: bytes) -> None:
        """A frame from a worker."""
        if not self.is_connected(worker):
            return
        frame = decode_frame(line)
        match frame:
            case Statistics():
                self._enter(lambda: self._agent.worker_reported(worker.id, frame))
            case Ack():
                self._enter(lambda: self._take_ack(worker, frame))
            case _:
                raise AssertionError(f"a worker sent {frame}")

    def _take_ack(self, worker: Worker, ack: Ack) -> None:
        try:
            self._agent.worker_acked(worker.id, ack)
        except BadMessage as error:
            if error.path != "command_id":  # else it has forgotten the command, as it may when its time is long over
                raise

    def tell(self, worker: WorkerId, command: Command) -> None:
        """The daemon's PluginServer.tell."""
        if (found := self._connected.get(worker)) is not None:
            line = encode_frame(command)
            self.timeline.soon(0.0005, 0.005, lambda: found.hear(line))

    # --- Kafka

    def produce(
        self,
        topic: str,
        key: str,
        payload: bytes,
        done: Callable[[str | None], None],
        headers: Headers = (),
        partition: int | None = None,
    ) -> None:
        """The daemon's KafkaLink.produce."""
        record = Unsent(topic=topic, key=key.encode(), value=payload, headers=headers)
        self._network.send(self.machine.host, record, lambda fault: self._own(done, fault)())

    def _poll_soon(self) -> None:
        if not self._polls:
            self._polls = True
            self.timeline.after(self._network.delay_s(), self._own(self._poll))

    def _poll(self) -> None:
        self._polls = False
        if not self._network.reaches(self.machine.host):
            self._polls = True
            self.timeline.after(1.0, self._own(self._poll))
            return
        for record in self._broker.read(self._topic, self._start_offset()):
            self._next[self._topic] = record.offset + 1
            position = Position(topic_id=TOPIC_ID, partition=0, offset=record.offset + 1)
            signatures = signatures_in(record.headers)
            envelope = Envelope(topic=record.topic, key=record.key, value=record.value or b"", signatures=signatures)
            self._agent.command_read(envelope, position)

    def _start_offset(self) -> int:
        """As `kafka_link` finds it: the journal's, or what the last ten minutes brought."""
        if self._topic in self._next:
            return self._next[self._topic]
        known = self._agent._commands.positions
        if known:
            return known[0].offset
        since = self.now() - 600.0
        return next(
            (r.offset for r in self._broker.read(self._topic, 0) if r.at >= since), self._broker.end(self._topic)
        )

    # --- time

    def _tick(self) -> None:
        self._tick_driver()
        self.timeline.after(TICK_S, self._own(self._tick))

    def _tick_driver(self) -> None:
        self._agent._commands._tick()

    def _watch_clock(self) -> None:
        wake_at = self._agent._commands._machine.wake_at
        if wake_at is None or wake_at - self.now() >= TICK_S:
            return
        due = self.timeline.now + max(0.01, wake_at - self.now())
        if self._looks_at is None or due < self._looks_at:
            self._looks_at = due
            self.timeline.at(due, self._own(self._look, due))

    def _look(self, due: float) -> None:
        if due == self._looks_at:
            self._looks_at = None
            self._tick_driver()

    def _report_at_interval_end(self) -> None:
        left_s = self._interval_s - self.now() % self._interval_s

        def settle() -> None:
            end = round(self.now() / self._interval_s) * self._interval_s
            self.timeline.after(SETTLE_S, self._own(self._report, end))
            self._report_at_interval_end()

        self.timeline.after(left_s, self._own(settle))

    def _report(self, end: float) -> None:
        host = HostSample(cpu_s=None, cores=None, basis=Basis.CONFIG, zone=self.machine.zone)
        self._agent._reporter._report(end, Use(host=host, workers={}))

    # --- running its code

    def _own(self, act: Callable[..., None], *given: Any) -> Callable[[], None]:
        return lambda: self._enter(lambda: act(*given))

    def _enter(self, act: Callable[[], None]) -> None:
        if not self.alive:
            return
        running.append(self)
        try:
            act()
            self._watch_clock()
        except Killed:
            self.kill()
        finally:
            running.pop()


class _Plugins:
    def __init__(self, *_: object) -> None:
        self._agent = running[-1]

    def tell(self, worker: WorkerId, command: Command) -> None:
        self._agent.tell(worker, command)


class _Link:
    def __init__(self, *_: object) -> None:
        self._agent = running[-1]

    def produce(self, *given: Any) -> None:
        self._agent.produce(*given)


def _identify(pid: int) -> ProcessId | None:
    workers = running[-1].machine.workers.values()
    return next((worker.process for worker in workers if worker.alive and worker.process.pid == pid), None)


LIMITS = UsableResources(basis=Basis.CONFIG, cores=1.0, host_cores=1.0, type="simulated", speed=1.0)


@contextmanager
def simulated_hosts() -> Iterator[None]:
    """The agent's modules meet a simulated host."""
    clock = SimpleNamespace(time=lambda: running[-1].now(), monotonic=lambda: running[-1].timeline.now)
    counters = SimpleNamespace(free_memory_bytes=lambda: None)
    with ExitStack() as stack:
        for module, name, value in (
            (daemon, "time", clock),
            (driver, "time", clock),
            (driver, "asyncio", SimpleNamespace(get_running_loop=lambda: running[-1])),
            (driver, "Journal", CrashingJournal),
            (driver, "WorkerProcesses", Processes),
            (daemon, "PluginServer", _Plugins),
            (daemon, "KafkaLink", _Link),
            (daemon, "CounterReader", lambda *_: counters),
            (daemon, "find_quotas", lambda: None),
            (daemon, "limits_of", lambda found, *_: replace(LIMITS, zone=found.machine.zone)),
            (daemon, "identify", _identify),
        ):
            stack.enter_context(patch.object(module, name, value))
        yield


def agent_configuration(
    cluster: str, machine: Machine, interval_s: float, workers: list[WorkerId], trust: Path, key: Path | None = None
) -> AgentConfiguration:
    """Its agent.toml; `key`: that of the host, if it has one."""
    return AgentConfiguration(
        cluster=cluster,
        host=machine.host,
        machine=HostConfiguration(zone=machine.zone),
        interval_s=interval_s,
        state_dir=machine.folder,
        socket=machine.folder / "agent.sock",
        trust=trust,
        key=key,
        kafka=KafkaSettings(bootstrap_servers="simulated:9092"),
        workers={worker: WorkerConfiguration(capacity=CAPACITY_CORES, command=("worker",)) for worker in workers},
    )
