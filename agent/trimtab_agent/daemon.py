"""The agent daemon: runs sampler, plug-in socket, commands and Kafka clients around one event loop."""

import asyncio
import fcntl
import logging
import os
import signal
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from trimtab_agent.commands.driver import CommandDriver
from trimtab_agent.commands.events import (
    Position,
    ProcessId,
    WorkerAcked,
    WorkerConnected,
    WorkerDisconnected,
    WorkerReported,
)
from trimtab_agent.commands.processes import identify
from trimtab_agent.commands.verifier import CommandVerifier
from trimtab_agent.configuration import AgentConfiguration
from trimtab_agent.kafka_link import DELIVERY_LIMIT_S, KafkaLink, LinkSettings
from trimtab_agent.metrics import AgentMetrics
from trimtab_agent.plugin_server import PluginServer
from trimtab_agent.reporting.report import ReportHead
from trimtab_agent.reporting.reporter import Reporter
from trimtab_agent.reporting.roster import Roster
from trimtab_agent.sampler.derive import UsableResources
from trimtab_agent.sampler.hardware import measure_speed
from trimtab_agent.sampler.readings import CounterReader, Quotas, find_limits, find_quotas
from trimtab_process.credential_files import load_signing_key
from trimtab_process.health import LIVE, READY, HealthVerdict
from trimtab_process.logs import fields
from trimtab_process.metrics_port import serve_metrics
from trimtab_process.service_manager import ServiceManager
from trimtab_process.trust_file import TrustFile
from trimtab_protocol.messages.codec import encoded
from trimtab_protocol.messages.commands import Ack
from trimtab_protocol.messages.decode import BadMessage
from trimtab_protocol.messages.local import PROTOCOL, Hello, Statistics, Welcome
from trimtab_protocol.messages.names import NO_EPOCH, THE_PARTITION, Epoch, Topics, WorkerId
from trimtab_protocol.messages.rate_limit import RateLimit
from trimtab_protocol.signing.envelope import Envelope
from trimtab_protocol.signing.hosts import HostSigner
from trimtab_protocol.signing.keys import BadKey

END_LIMIT_S = 1.0
"""How long a stopping agent waits for Kafka deliveries.  The whole stop takes less than two seconds."""

STUCK_S = 60.0
"""How long an agent may make no report, or three intervals."""

log = logging.getLogger(__name__)


class StartError(Exception):
    """The agent cannot start here; the message is one line."""


class Agent:
    """One running agent; implements `plugin_server.Listener` and `kafka_link.LinkHandler`."""

    def __init__(self, configuration: AgentConfiguration, loop: asyncio.AbstractEventLoop) -> None:
        self._host = configuration.host
        self._cluster = configuration.cluster
        self._brokers = configuration.kafka.bootstrap_servers
        self._topics = Topics(configuration.cluster)
        self._metrics = AgentMetrics(configuration.workers)
        self._stop = asyncio.Event()
        self._fault: str | None = None
        quotas = find_quotas()
        limits = limits_of(configuration, quotas)
        reader = CounterReader(quotas, limits.basis, configuration.data_folders)
        capacities = {worker: settings.capacity for worker, settings in configuration.workers.items()}
        workers = configuration.workers.items()
        declared = {worker: settings.app for worker, settings in workers if settings.app and settings.command}
        self._roster = Roster(capacities, min(1.0, limits.cores), declared)
        head = ReportHead(cluster=self._cluster, host=self._host, interval_s=configuration.interval_s)
        self._reporter = Reporter(
            head,
            self._roster,
            limits,
            reader=reader,
            metrics=self._metrics,
            produce=self._produce_report,
            absences=lambda: self._commands.absences(),
        )
        welcome = Welcome(
            cluster=self._cluster, host=self._host, interval_s=configuration.interval_s, protocol=PROTOCOL
        )
        self._plugins = PluginServer(configuration.socket, welcome, self, configuration.workers.keys())
        try:
            self._commands = CommandDriver(
                configuration,
                self._metrics,
                tell=self._plugins.tell,
                produce=self._produce_ack,
                free_memory_bytes=reader.free_memory_bytes,
                fail=self._fail,
            )
        except OSError as exc:
            raise StartError(f"agent.state_dir: {configuration.state_dir}: the journal: {exc.strerror}") from exc
        settings = LinkSettings(
            kafka=configuration.kafka,
            commands_topic=self._topics.commands,
        )
        self._link = KafkaLink(settings, self, loop, self._commands.positions)
        self._reaches_kafka = False
        self._reported_at = time.monotonic()
        self._stuck_s = max(STUCK_S, 3 * configuration.interval_s)
        self._steering: dict[WorkerId, bool] = {}
        self._breaches: dict[WorkerId, int] = {}
        self._complaints = RateLimit(rate=1, burst=100)
        self._loop_complaints = RateLimit(rate=1, burst=100)
        trust = self._find_trust(configuration.trust)
        self._signer = self._find_signer(configuration.key, trust)
        self._listen = configuration.metrics
        self._verifier = CommandVerifier(cluster=self._cluster, host=self._host, trust=trust)
        told = {"cores": limits.cores, "basis": limits.basis, "type": limits.type, "speed": limits.speed}
        told["zone"] = limits.zone
        log.info("capacity found", **fields(host=self._host, **told))

    def _find_trust(self, path: Path | None) -> TrustFile | None:
        self._metrics.commands_verified.set(path is not None)
        if path is None:
            log.warning(
                "commands are not verified: anyone who can write to their topic can steer this host; see [trust]"
            )
            return None
        try:
            trust = TrustFile(path)
        except BadKey as exc:
            raise StartError(f"trust.file: {exc}") from exc
        self._metrics.trust_file_faulty.set_function(lambda: not trust.usable)
        log.info("commands are verified", **fields(keys=",".join(trust.keys)))
        return trust

    def _find_signer(self, path: Path | None, trust: TrustFile | None) -> HostSigner | None:
        if path is None:
            return None
        try:
            key = load_signing_key(path)
        except BadKey as exc:
            raise StartError(f"signing.key_file: {exc}; `trimtab-agent enroll` creates a key") from exc
        log.info("reports and acks are signed", **fields(key=key.public.id))
        return HostSigner(key, self._host, None if trust is None else lambda: trust.keys.values())

    async def run(self, manager: ServiceManager) -> None:
        """Run until SIGTERM or SIGINT.  Raises StartError, also for a fault that ends the agent later."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stop.set)
        loop.set_exception_handler(self.loop_failed)
        self._serve_metrics()
        try:
            await self._plugins.start()
        except OSError as exc:
            raise StartError(f"agent.socket: {exc}") from exc
        self._link.start()
        self._commands.resume()
        tasks = [
            asyncio.create_task(each) for each in (self._reporter.run(), self._commands.run(), self._tell(manager))
        ]
        stopped = asyncio.create_task(self._stop.wait())
        await asyncio.wait([stopped, *tasks], return_when=asyncio.FIRST_COMPLETED)
        for task in (stopped, *tasks):
            task.cancel()
        outcomes = await asyncio.gather(*tasks, return_exceptions=True)
        faults = [outcome for outcome in outcomes if isinstance(outcome, Exception)]
        if not self._fault and not faults:
            self._reporter.end()
        await self._end()
        for fault in faults:
            raise fault
        if self._fault:
            raise StartError(self._fault)

    async def _end(self) -> None:
        await self._plugins.stop()
        await asyncio.to_thread(self._link.stop, END_LIMIT_S)
        await asyncio.sleep(0)  # let the callbacks of the last deliveries run
        self._commands.close()
        log.info("agent stopped; its workers keep running", **fields(**self._commands.left_running()))

    def _fail(self, fault: str) -> None:
        self._fault = fault
        self._stop.set()

    async def _tell(self, manager: ServiceManager) -> None:
        while True:
            if self.live().well:
                manager.tell(lambda: self.ready().text)
            await asyncio.sleep(manager.interval_s)

    def _serve_metrics(self) -> None:
        if self._listen is None:
            return
        try:
            labels = {"cluster": self._cluster, "host": self._host}
            serve_metrics(self._listen, self._metrics.registry, labels, {LIVE: self.live, READY: self.ready})
        except OSError as exc:
            raise StartError(str(exc)) from exc

    def live(self) -> HealthVerdict:
        """Whether reports are made.  Called by a thread of the metrics port."""
        age_s = time.monotonic() - self._reported_at
        return HealthVerdict(age_s < self._stuck_s, f"the last report was made {age_s:.0f} s ago")

    def ready(self) -> HealthVerdict:
        """Whether the agent reaches Kafka and reads its commands.  Called by a thread of the metrics port."""
        if not self._reaches_kafka:
            return HealthVerdict(False, f"Kafka at {self._brokers} does not answer, or commands cannot be read")
        steered = sum(self._steering.copy().values())
        return HealthVerdict(True, f"reaches Kafka; {len(self._steering)} workers connected, {steered} of them steered")

    def _produce_report(self, payload: bytes, done: Callable[[str | None], None]) -> None:
        self._reported_at = time.monotonic()
        self._send(self._topics.reports, payload, done, None)

    def _produce_ack(self, ack: Ack, done: Callable[[str | None], None]) -> None:
        self._send(self._topics.acks, encoded(ack), done, THE_PARTITION)

    def _send(self, topic: str, payload: bytes, done: Callable[[str | None], None], partition: int | None) -> None:
        headers = [] if self._signer is None else [self._signer.sign(topic, payload)]
        self._link.produce(topic, self._host, payload, done, headers, partition)

    # --- plug-ins

    def worker_connected(self, hello: Hello, pid: int | None) -> None:
        """Start to sample and report a worker that has connected, and let it get commands."""
        self._reporter.follow(hello.worker, pid)
        process = _find_process(pid)
        if process is not None:
            self._commands.watch(hello.worker, process)
        difference = self._roster.connect(hello)
        self._steering[hello.worker] = hello.steering
        self._metrics.see_worker(hello.worker)
        self._count_workers()
        told = {"app": hello.app, "pid": pid, "steering": hello.steering, "reason": hello.reason}
        self._say(logging.INFO, "worker connected", worker=hello.worker, **told)
        if difference is not None:
            self._say(logging.WARNING, "worker runs another app than declared", worker=hello.worker, detail=difference)
        self._commands.handle(
            WorkerConnected(
                worker=hello.worker, app=hello.app, process=process, steering=hello.steering, reason=hello.reason
            )
        )

    def worker_reported(self, worker: WorkerId, statistics: Statistics) -> None:
        """Put a worker's measurements into the next report, and tell the command machine what the worker owns."""
        newest = self._commands.newest_generation
        if newest > (statistics.epoch or NO_EPOCH).generation:
            statistics = replace(statistics, epoch=Epoch(newest, 0))  # of no placement
        self._roster.report(worker, statistics)
        for reason, count in statistics.refused.items():
            self._metrics.worker_refused.labels(worker, reason).follow(count)
        if statistics.breaches:
            self._state_breached(worker, statistics.breaches)
        self._metrics.offsets_reset.labels(worker).set(
            1.0 if statistics.reset else 0.5 if statistics.maybe_reset else 0.0
        )
        self._metrics.records_lost.labels(worker).set(bool(statistics.lost))
        owned = frozenset(sample.key_group for sample in statistics.key_groups)
        self._commands.handle(WorkerReported(worker=worker, owned=owned, complete=statistics.complete))

    def _state_breached(self, worker: WorkerId, count: int) -> None:
        new = count - self._breaches.get(worker, 0)
        self._breaches[worker] = count
        if new > 0:
            self._metrics.state_breaches.labels(worker).inc(new)
            self._say(logging.CRITICAL, "worker stops to protect its tables, its log names the table", worker=worker)

    def worker_acked(self, worker: WorkerId, ack: Ack) -> None:
        """Pass a worker's answer to the command machine."""
        self._commands.handle(WorkerAcked(worker=worker, ack=ack))

    def worker_gone(self, worker: WorkerId) -> None:
        """Note that a worker's connection has ended.  Its measurements are then unknown, not zero."""
        self._roster.disconnect(worker)
        self._reporter.leave(worker)
        self._steering.pop(worker, None)
        self._count_workers()
        self._metrics.forget_worker(worker)
        self._breaches.pop(worker, None)
        self._say(logging.WARNING, "worker disconnected", worker=worker)
        self._commands.handle(WorkerDisconnected(worker=worker))

    def frame_refused(self, worker: WorkerId | None, reason: str, detail: str) -> None:
        """Count a dropped frame, and log it at a limited rate."""
        self._metrics.bad_frames.labels(reason).inc()
        self._say(logging.WARNING, "bad frame", worker=worker, reason=reason, detail=detail)

    def loop_failed(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """Log an error of the event loop at a limited rate: without free descriptors every connection causes one.

        It has a rate limit of its own, so that a flood of other lines cannot hide a fault of the agent.
        """
        if self._loop_complaints.spend(time.monotonic()):
            loop.default_exception_handler(context)

    def _say(self, level: int, event: str, **told: object) -> None:
        """Log what another process did, at a limited rate, so that it cannot fill this host's disk."""
        if self._complaints.spend(time.monotonic()):
            log.log(level, event, **fields(**told))

    def _count_workers(self) -> None:
        self._metrics.workers_connected.set(len(self._steering))
        self._metrics.workers_steering.set(sum(self._steering.values()))

    # --- Kafka

    def command_read(self, record: Envelope, position: Position) -> None:
        """Handle a record of the commands topic.  A bad one is counted, logged and skipped."""
        try:
            if (command := self._verifier.read(record)) is not None:
                self._commands.receive(command)
        except BadMessage as exc:
            self._metrics.bad_commands.labels(exc.fault).inc()
            place = f"{position.partition}:{position.offset - 1}"
            self._say(logging.WARNING, "bad command", reason=exc.fault, detail=exc, offset=place)
            if (notice := self._verifier.notice(record, exc.fault, time.time())) is not None:
                self._produce_ack(
                    notice, lambda _: None
                )  # the notice may be lost: the next bad record triggers another one
        self._commands.advance(position)

    def broker_changed(self, *, there: bool, detail: str) -> None:
        """Log that the broker went away or came back.  Called once per change."""
        self._reaches_kafka = there
        self._metrics.broker_connected.set(there)
        told = fields(broker=self._brokers, detail=detail)
        if there:
            log.info("connected to Kafka", **told)
        else:
            waiting = f"reports wait {DELIVERY_LIMIT_S:g} s, acks until they are delivered"
            log.warning(f"broker away, or commands cannot be read; {waiting}", **told)

    def reader_failed(self, fault: Exception) -> None:
        """End the agent.  Its service manager restarts it, and then it reads commands again."""
        log.error("reading commands failed, the agent stops", exc_info=fault)
        self._fail(f"reading commands failed: {fault!r}")


def _find_process(pid: int | None) -> ProcessId | None:
    """The process with this pid; None if there is none, or if it cannot be inspected now (no free descriptor)."""
    try:
        return identify(pid) if pid is not None else None
    except OSError:
        return None


def limits_of(configuration: AgentConfiguration, quotas: Quotas) -> UsableResources:
    """What this host may use and what it is, as configured, or else as it is found; measuring its speed takes 0.1 s."""
    host = configuration.machine
    found = find_limits(quotas, host.cores)
    return replace(
        found,
        link_bytes_s=host.link_bytes_s or found.link_bytes_s,
        type=host.type or found.type,
        speed=host.speed or round(measure_speed(), 3),
        zone=host.zone,
    )


def run_agent(configuration: AgentConfiguration) -> None:
    """Run an agent until SIGTERM or SIGINT.  Raises StartError."""
    try:
        configuration.state_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
        lock = lock_folder(configuration.state_dir)
    except OSError as exc:
        raise StartError(f"agent.state_dir: {configuration.state_dir}: {exc.strerror}") from exc

    manager = ServiceManager()

    async def run() -> None:
        await Agent(configuration, asyncio.get_running_loop()).run(manager)

    try:
        asyncio.run(run())
    finally:
        os.close(lock)


def lock_folder(folder: Path) -> int:
    """Lock the folder for this process, and return the lock's descriptor.  Raises OSError if another agent has it."""
    descriptor = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        raise OSError(0, "another agent uses this folder") from None
    return descriptor
