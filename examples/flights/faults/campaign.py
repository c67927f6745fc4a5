"""Kills one part after the other of a steered cluster under load, and waits each time until it is steered again."""

import signal
import time
from collections.abc import Sequence
from dataclasses import dataclass

import psutil
from confluent_kafka import OFFSET_END, Consumer, KafkaException, TopicPartition

from flights.faults.cases import Case, Fault
from flights.steered_run import RunError, SteeredRun
from trimtab_controller.cli.sandbox import EXAMPLES, FLIGHTS_APP, FLIGHTS_ENVIRONMENT
from trimtab_controller.sandbox.configuration import BROKER, CONTROLLER, SandboxSettings, host_name, worker_name
from trimtab_models.messages.commands import Command, CommandKind, decode_command
from trimtab_models.messages.names import WorkerId

DOWN_S = 2.0
"""How long what was killed stays away."""
COMMAND_LIMIT_S = 90.0
"""From a shift of the load to the round it causes: some windows."""
RECOVERY_LIMIT_S = 120.0
CAUGHT_UP_S = 4.0
"""The job has caught up when so many seconds of traffic are not committed; one commit interval never is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultSettings:
    """Rate in flights per second, spans in seconds, `work` as in `flights.settings`."""

    workers: int = 3
    key_groups: int = 32
    rate: float = 150.0
    work: int = 400
    session_s: float = 10.0
    commit_s: float = 1.0
    window_s: float = 5.0
    surge_factor: float = 3.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Suffered:
    """A case that was gone through, in epoch seconds: killed at `at`, steered again at `steered_at`."""

    case: Case
    victim: WorkerId
    at: float
    steered_at: float


def sandbox_settings(settings: FaultSettings) -> SandboxSettings:
    """The cluster that suffers."""
    return SandboxSettings(
        app=FLIGHTS_APP,
        app_folder=EXAMPLES,
        cluster="faults",
        workers=settings.workers,
        capacity_cores=0.25,
        environment={
            **FLIGHTS_ENVIRONMENT,
            "FLIGHTS_KEY_GROUPS": str(settings.key_groups),
            "FLIGHTS_WORK": str(settings.work),
            "FLIGHTS_COMMIT_S": f"{settings.commit_s:g}",
            "FLIGHTS_SESSION_S": f"{settings.session_s:g}",
        },
        controller={
            "stream": {"window_s": settings.window_s, "watermark_s": 2.0},
            "balance": {"max_migrations": 12, "load_distance": 6.0, "min_interval_s": 2.0, "smoothing": 1.0},
        },
    )


class Campaign:
    """The cases, one after the other, on one running cluster."""

    def __init__(self, run: SteeredRun, settings: FaultSettings) -> None:
        self._run = run
        self._settings = settings
        self._surge: list[int] = []

    def play(self, cases: Sequence[Case]) -> list[Suffered]:
        """Raises RunError, ClusterError."""
        self._run.trimtab("resume")
        self._until_steered("the start")
        return [self._suffer(case) for case in cases]

    def _suffer(self, case: Case) -> Suffered:
        run = self._run
        run.phase(f"kill {case.fault}, {case.moment}")
        victim = worker_name(1)
        if case.moment.command is not None:
            victim = str(self._provoke(case.moment.command).worker)
        at = time.time()
        self._kill(case.fault, victim)
        time.sleep(DOWN_S)
        self._start(case.fault, victim)
        self._until_steered(str(case))
        return Suffered(case=case, victim=WorkerId(victim), at=at, steered_at=time.time())

    # ------------------------------------------------------------------ in the middle of a round
    def _provoke(self, kind: CommandKind) -> Command:
        """Shift the load, and return the first command of that kind that follows."""
        place = TopicPartition(self._run.cluster.topics.commands, 0, OFFSET_END)
        consumer = Consumer(
            {
                "bootstrap.servers": self._run.cluster.broker.address,
                "group.id": "faults",
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
                "fetch.wait.max.ms": 5,
            }
        )
        try:
            consumer.assign([place])
            consumer.poll(1.0)  # now it stands at the end
            self._shift()
            deadline = time.monotonic() + COMMAND_LIMIT_S
            while time.monotonic() < deadline:
                self._run.cluster.check()
                for message in consumer.consume(100, timeout=0.05):
                    if message.error() is None:
                        command = decode_command(message.value())
                        if command.kind is kind:
                            return command
        finally:
            consumer.close()
        raise RunError(f"the shifted load led to no {kind} within {COMMAND_LIMIT_S:g} s")

    def _shift(self) -> None:
        """Other key groups of the first worker than last time grow: whatever moved since, it is overloaded."""
        run, before = self._run, self._surge
        others = [partition for partition in run.key_groups_of(worker_name(0)) if partition not in before]
        self._surge = others[: self._settings.key_groups // 5]
        run.producer.set_speed(before, 1.0)
        run.producer.set_speed(self._surge, self._settings.surge_factor)

    # ------------------------------------------------------------------ kill, start, recovered
    def _kill(self, fault: Fault, victim: str) -> None:
        cluster = self._run.cluster
        match fault:
            case Fault.WORKER:
                cluster.kill(victim)
            case Fault.AGENT:
                cluster.kill(_host_of(victim))
            case Fault.BROKER:
                cluster.kill(BROKER)
            case Fault.CONTROLLER:
                children = psutil.Process(cluster.child(CONTROLLER).pid).children(recursive=True)
                cluster.kill(CONTROLLER)
                for child in children:
                    if child.is_running():
                        child.send_signal(signal.SIGKILL)

    def _start(self, fault: Fault, victim: str) -> None:
        cluster, index = self._run.cluster, int(victim[1:])
        match fault:
            case Fault.WORKER:
                cluster.start_worker(index)
            case Fault.AGENT:
                cluster.start_agent(index)
            case Fault.BROKER:
                cluster.start_broker()
            case Fault.CONTROLLER:
                cluster.start_controller(act=True)

    def _until_steered(self, after: str) -> None:
        since = time.time()
        if not self._run.holds_within(RECOVERY_LIMIT_S, lambda: self._lack(since) is None):
            raise RunError(f"not steered {RECOVERY_LIMIT_S:g} s after {after}: {self._lack(since)}")

    def _lack(self, since: float) -> str | None:
        """What is missing until all report in a whole window, all run, no plan hangs and the job has caught up."""
        status = self._run.watch.last
        if status is None or status.at <= since:
            return "the controller says nothing"
        if (status.window_end or 0.0) <= since + self._settings.window_s or status.coverage != 1.0:
            return f"no whole window of all hosts (the last one ended at {status.window_end})"
        if not self._run.all_run():
            return f"not all workers run: {[(node.worker, str(node.state)) for node in status.nodes]}"
        if status.plan_in_flight is not None:
            return f"plan {status.plan_in_flight.plan} is in flight"
        try:
            records = self._run.backlog.records()
        except KafkaException as error:
            return f"the backlog is unknown: {error}"
        return f"{records} records behind" if records > CAUGHT_UP_S * 2 * self._settings.rate else None


def _host_of(worker: str) -> str:
    return host_name(int(worker[1:]))
