"""The demo's run: unbalanced, balanced, shifted, drained.  Drives a sandbox as an operator would, with `trimtab`."""

import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass

from flights.dataset import read_flights
from flights.demo.evidence import read_snapshots
from flights.demo.view import View
from flights.demo.watch import Backlog, StatusWatch
from flights.producer import FlightProducer
from flights.replay import Sent
from flights.wire import APP, CHANGELOG, DELAYS, SOURCE, SUMS, partitions
from trimtab_controller.cli.sandbox import EXAMPLES, FLIGHTS_APP, FLIGHTS_ENVIRONMENT
from trimtab_controller.sandbox.broker import Topic
from trimtab_controller.sandbox.cluster import Cluster, program
from trimtab_controller.sandbox.configuration import SandboxSettings, worker_name
from trimtab_models.messages.names import WorkerId
from trimtab_models.messages.report import WorkerState
from trimtab_models.messages.status import RoundStatus, Status

TICK_S = 0.2
QUIET_REASONS = frozenset({"inside_band", "nothing_better"})


class DemoError(Exception):
    """The run did not come as far as it should."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoSettings:
    """Rate in flights per second, spans in seconds, `work` as in `flights.settings`."""

    workers: int = 4
    key_groups: int = 64
    capacities: tuple[float, ...] = (0.2, 0.25, 0.35, 0.25)
    rate: float = 220.0
    work: int = 500
    surge_factor: float = 3.0
    surge_key_groups: int = 8
    window_s: float = 5.0
    unbalanced_s: float = 15.0
    ready_limit_s: float = 120.0
    round_limit_s: float = 90.0
    drain_limit_s: float = 75.0
    finish_limit_s: float = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What a run leaves beside the records in Kafka.  Times in epoch seconds."""

    sent: Sent
    phases: tuple[tuple[float, str], ...]
    calm: tuple[float, float]
    drain_started_at: float
    drained: WorkerId
    exit_code: int | None
    rounds: tuple[RoundStatus, ...]


def sandbox_settings(settings: DemoSettings) -> SandboxSettings:
    """The cluster of the demo."""
    return SandboxSettings(
        app=FLIGHTS_APP,
        app_folder=EXAMPLES,
        cluster="demo",
        workers=settings.workers,
        capacity_cores=settings.capacities,
        environment={
            **FLIGHTS_ENVIRONMENT,
            "FLIGHTS_KEY_GROUPS": str(settings.key_groups),
            "FLIGHTS_WORK": str(settings.work),
        },
        controller={
            "stream": {"window_s": settings.window_s, "watermark_s": 2.0},
            "balance": {"max_migrations": 20, "load_distance": 3.0, "min_interval_s": 5.0, "smoothing": 0.4},
        },
    )


def topics_of_the_job(settings: DemoSettings) -> list[Topic]:
    """To be created before the workers start."""
    compacted = {"cleanup.policy": "compact"}
    return [
        Topic(name=name, partitions=count, settings=compacted if name == CHANGELOG else {})
        for name, count in partitions(settings.key_groups).items()
    ]


class Scenario:
    """One run on one cluster; `run` does everything from the broker's start to the job's last commit."""

    def __init__(self, cluster: Cluster, settings: DemoSettings, view: View) -> None:
        self._cluster = cluster
        self._settings = settings
        self._view = view
        self._started_at = time.time()
        self._phases: list[tuple[float, str]] = []

    def run(self) -> Outcome:
        """Raises DemoError, ClusterError, NotDelivered."""
        self._phase("start broker, agents, workers, controller")
        self._cluster.start_broker()
        self._cluster.write_controller_toml()
        self._trimtab("pause", "--reason", "show the job unbalanced first")
        bootstrap, settings = self._cluster.broker.address, self._settings
        self._cluster.broker.create_topics(topics_of_the_job(settings))
        self._start_everything_else()
        producer = FlightProducer(bootstrap, list(read_flights()), key_groups=settings.key_groups, rate=settings.rate)
        with StatusWatch(bootstrap, self._cluster.topics) as watch, producer:
            self._watch, self._producer = watch, producer
            return self._act()

    def _start_everything_else(self) -> None:
        self._cluster.start_controller(act=True)  # first: Spark takes longest
        for index in range(self._settings.workers):
            self._cluster.start_agent(index)
        for index in range(self._settings.workers):
            self._cluster.start_worker(index)

    def _act(self) -> Outcome:
        settings = self._settings
        self._until(self._all_run, settings.ready_limit_s, "all workers running")
        self._phase("flights flow, the controller is paused")
        self._until(self._whole_windows(2), settings.ready_limit_s, "two windows with load")
        calm_from = time.time()
        self._wait(settings.unbalanced_s)
        calm = (calm_from, time.time())

        self._phase("balance")
        self._trimtab("resume")
        self._until_balanced()

        surge = self._key_groups_of(worker_name(0))[: settings.surge_key_groups]
        self._phase(f"{len(surge)} key groups of {worker_name(0)} grow by a factor of {settings.surge_factor:g}")
        self._producer.set_speed(surge, settings.surge_factor)
        self._wait(2 * settings.window_s)
        self._until_balanced()

        drained = worker_name(settings.workers - 1)
        self._phase(f"drain {drained}")
        drain_started_at = time.time()
        self._trimtab("drain", drained, "--reason", "kernel update")
        self._until(lambda: not self._cluster.child(drained).alive, settings.drain_limit_s, f"{drained} stopped")
        self._wait(2 * settings.window_s)  # one whole window without it

        self._phase("finish: the job works off what is left")
        sent = self._producer.stop()
        backlog = Backlog(self._cluster.broker.address, APP, {SOURCE: settings.key_groups, DELAYS: settings.key_groups})
        self._until(lambda: backlog.records() == 0, settings.finish_limit_s, "everything processed and committed")
        return Outcome(
            sent=sent,
            phases=tuple(self._phases),
            calm=calm,
            drain_started_at=drain_started_at,
            drained=WorkerId(drained),
            exit_code=self._cluster.child(drained).exit_code,
            rounds=tuple(sorted(self._watch.rounds.values(), key=lambda row: row.started_at)),
        )

    # ------------------------------------------------------------------ conditions
    def _all_run(self) -> bool:
        status = self._watch.last
        nodes = status.nodes if status else ()
        return len(nodes) == self._settings.workers and all(node.state is WorkerState.RUNNING for node in nodes)

    def _whole_windows(self, count: int) -> Callable[[], bool]:
        since = time.time()
        return lambda: (self._last().window_end or 0.0) > since + count * self._settings.window_s

    def _until_balanced(self) -> None:
        """Until a decision that was taken after a round has nothing more to do."""
        begun, known = time.time(), len(self._watch.rounds)

        def balanced() -> bool:
            decision = self._last().decisions[-1]
            quiet = decision.at > begun and decision.reason in QUIET_REASONS and self._last().plan_in_flight is None
            return quiet and len(self._watch.rounds) > known

        self._until(balanced, self._settings.round_limit_s, "a round, and nothing more to do after it")

    def _last(self) -> Status:
        if self._watch.last is None:
            raise DemoError(f"the controller says nothing; its log: {self._cluster.logs}")
        return self._watch.last

    def _key_groups_of(self, worker: str) -> list[int]:
        """Partitions of `sums` that the worker owns, those with the most load first."""
        newest = read_snapshots(self._cluster.broker.address, self._cluster.topics)[-1]
        rows = [row for row in newest.key_groups if row.worker == worker and row.key_group.operator == SUMS]
        return [row.key_group.partition for row in sorted(rows, key=lambda row: -(row.cpu or 0.0))]

    # ------------------------------------------------------------------ doing
    def _phase(self, text: str) -> None:
        self._phases.append((time.time(), text))
        self._view.phase(time.time() - self._started_at, text)

    def _wait(self, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        self._until(lambda: time.monotonic() >= deadline, seconds + 5, "time to pass")

    def _until(self, condition: Callable[[], bool], limit_s: float, what: str) -> None:
        deadline = time.monotonic() + limit_s
        while True:
            self._cluster.check()
            status = self._watch.poll()
            self._view.show(status, time.time() - self._started_at, self._producer.count)
            if condition():
                return
            if time.monotonic() > deadline:
                last = status.decisions[-1].text if status and status.decisions else "nothing"
                raise DemoError(f"not within {limit_s:g} s: {what}; the controller last said: {last}")
            time.sleep(TICK_S)

    def _trimtab(self, *arguments: str) -> None:
        command = program("trimtab_controller.cli", *arguments, "--config", str(self._cluster.controller_toml))
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        if done.returncode:
            raise DemoError(f"trimtab {' '.join(arguments)}: exit code {done.returncode}: {done.stderr.strip()}")
