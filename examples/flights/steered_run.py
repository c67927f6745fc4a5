"""Runs the steered flights job in a sandbox: starts it, watches it, operates it with `trimtab`, and ends it.

`flights.demo` and `tests/faults` are scenarios of such a run.
"""

import subprocess
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Protocol, Self

from flights.backlog import Backlog
from flights.dataset import read_flights
from flights.producer import FlightProducer
from flights.replay import Sent
from flights.watch import StatusWatch, read_snapshots
from flights.wire import APP, CHANGELOG, DELAYS, SOURCE, SUMS, partitions
from trimtab_protocol.messages.report import WorkerState
from trimtab_protocol.messages.status import Status
from trimtab_sandbox.broker import Topic
from trimtab_sandbox.cluster import SandboxCluster, program
from trimtab_sandbox.configuration import worker_name

TICK_S = 0.2
READY_LIMIT_S = 300.0
FINISH_LIMIT_S = 240.0


class RunError(Exception):
    """The run did not reach the expected state."""


class Viewer(Protocol):
    """Shows a run; seconds are since its start."""

    def phase(self, seconds: float, text: str) -> None:
        """A new part of the run begins."""

    def show(self, status: Status | None, seconds: float, sent: int) -> None:
        """The present state."""


class SteeredRun:
    """One run on one cluster.  `phases` = (start in epoch seconds, name).

    Entering the context starts everything, with the controller paused and flights being sent.  Leaving it stops
    sending.
    """

    def __init__(
        self, cluster: SandboxCluster, *, key_groups: int, rate: float, view: Viewer, more_topics: Sequence[Topic] = ()
    ) -> None:
        self.cluster = cluster
        self._topics = [*topics_of_the_job(key_groups), *more_topics]
        self.key_groups = key_groups
        self.phases: list[tuple[float, str]] = []
        self._rate = rate
        self._view = view
        self._started_at = time.time()
        self._open = ExitStack()

    def __enter__(self) -> Self:
        with ExitStack() as opening:
            self._start(opening)
            self._open = opening.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    def _start(self, opening: ExitStack) -> None:
        cluster = self.cluster
        self.phase("start broker, agents, workers, controller")
        cluster.start_broker()
        cluster.write_controller_toml()
        self.trimtab("pause", "--reason", "show the job unbalanced first")
        cluster.broker.create_topics(self._topics)
        cluster.start_controller(act=True)  # first, because Spark takes longest
        for index in range(cluster.settings.workers):
            cluster.start_agent(index)
        for index in cluster.settings.started:
            cluster.start_worker(index)
        bootstrap = cluster.broker.address
        flights = list(read_flights())
        self.watch = opening.enter_context(StatusWatch(bootstrap, cluster.topics))
        self.producer = opening.enter_context(
            FlightProducer(bootstrap, flights, key_groups=self.key_groups, rate=self._rate)
        )
        self.backlog = Backlog(bootstrap, APP, {SOURCE: self.key_groups, DELAYS: self.key_groups})
        self.until(self.all_run, READY_LIMIT_S, "all workers running")

    # ------------------------------------------------------------------ observing
    @property
    def last(self) -> Status:
        """The last status of the controller."""
        if self.watch.last is None:
            raise RunError(f"the controller publishes no status; logs: {self.cluster.logs}")
        return self.watch.last

    def all_run(self) -> bool:
        """Whether the controller sees every worker running that was started."""
        running = self.running()
        return all(worker_name(index) in running for index in self.cluster.settings.started)

    def running(self) -> set[str]:
        """The workers that the controller sees running."""
        nodes = self.watch.last.nodes if self.watch.last else ()
        return {node.worker for node in nodes if node.state is WorkerState.RUNNING}

    def key_groups_of(self, worker: str) -> list[int]:
        """Partitions of `sums` that the worker owns, most loaded first."""
        newest = read_snapshots(self.cluster.broker.address, self.cluster.topics)[-1]
        rows = [row for row in newest.key_groups if row.worker == worker and row.key_group.operator == SUMS]
        return [row.key_group.partition for row in sorted(rows, key=lambda row: -(row.cpu or 0.0))]

    # ------------------------------------------------------------------ acting
    def phase(self, text: str) -> None:
        """Start a new phase of the run."""
        self.phases.append((time.time(), text))
        self._view.phase(time.time() - self._started_at, text)

    def trimtab(self, *arguments: str) -> str:
        """Run a command of `trimtab`; returns what it says.  Raises RunError when it fails."""
        command = program("trimtab_controller.cli", *arguments, "--config", str(self.cluster.controller_toml))
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        if done.returncode:
            raise RunError(f"trimtab {' '.join(arguments)}: exit code {done.returncode}: {done.stderr.strip()}")
        return done.stdout

    def until(self, condition: Callable[[], bool], limit_s: float, what: str) -> None:
        """Wait for the condition.  Raises RunError with the controller's last decision."""
        if not self.holds_within(limit_s, condition):
            status = self.watch.last
            last = status.decisions[-1].text if status and status.decisions else "nothing"
            raise RunError(f"not within {limit_s:g} s: {what}; last decision of the controller: {last}")

    def holds_within(self, limit_s: float, condition: Callable[[], bool]) -> bool:
        """Wait for the condition; returns whether it became true in time.  Raises ClusterError when a process fails."""
        deadline = time.monotonic() + limit_s
        while not condition():
            if time.monotonic() > deadline:
                return False
            self.cluster.check()
            self.look()
            time.sleep(TICK_S)
        return True

    def look(self) -> None:
        """Read the status, and show it."""
        self._view.show(self.watch.poll(), time.time() - self._started_at, self.producer.count)

    def finish(self, limit_s: float = FINISH_LIMIT_S) -> Sent:
        """Stop sending and wait until everything has been processed and committed.  Raises NotDelivered, RunError."""
        self.phase("finish: the job processes what is left")
        sent = self.producer.stop()
        self.until(lambda: self.backlog.records() == 0, limit_s, "everything processed and committed")
        return sent


def topics_of_the_job(key_groups: int) -> list[Topic]:
    """The topics to create before the workers start."""
    compacted = {"cleanup.policy": "compact"}
    return [
        Topic(name=name, partitions=count, settings=compacted if name == CHANGELOG else {})
        for name, count in partitions(key_groups).items()
    ]
