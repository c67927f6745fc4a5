"""A job that burns CPU, on a sandbox: how it is started, its load, what the controller says of it, and its counts."""

import json
import math
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from flights.readback import read_topic
from flights.watch import StatusWatch
from tests.e2e.confirmed import Confirmed, ConfirmedProducer
from tests.e2e.in_process import trimtab
from tests.paths import ROOT
from trimtab_protocol.messages.report import WorkerState
from trimtab_protocol.messages.status import Status
from trimtab_sandbox.broker import Topic
from trimtab_sandbox.cluster import SandboxCluster
from trimtab_sandbox.configuration import SandboxSettings

PARTITIONS = 12
CHANGELOG = "paced-counts-changelog"
LIMIT_S = 90.0


class Jobs:
    """Sends jobs to each partition at its rate (per second); `sent` = how many of each key the broker has confirmed."""

    def __init__(self, bootstrap: str, rate: float, partitions: int = PARTITIONS, topic: str = "jobs") -> None:
        self._topic = topic
        self.rates = dict.fromkeys(range(partitions), rate)
        self.sent: Counter[str] = Counter()
        self._producer = ConfirmedProducer(bootstrap, self._confirmed)
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, name="jobs", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        due = {partition: partition / len(self.rates) for partition in self.rates}
        at = time.monotonic()
        while not self._ending.wait(0.02):
            before, at = at, time.monotonic()
            for partition, rate in self.rates.items():
                due[partition] += rate * (at - before)
                while due[partition] >= 1.0:
                    due[partition] -= 1.0
                    self._producer.send(self._topic, "{}", f"key-{partition}", partition)
            self._producer.poll()

    def _confirmed(self, job: Confirmed) -> None:
        assert job.key is not None
        self.sent[job.key] += 1

    def close(self) -> None:
        """End, when everything that was sent is in Kafka."""
        self._ending.set()
        self._thread.join()
        self._producer.close()


@dataclass(frozen=True, slots=True)
class Run:
    cluster: SandboxCluster
    jobs: Jobs
    watch: StatusWatch
    wait: Path

    @property
    def last(self) -> Status:
        assert self.watch.last is not None
        return self.watch.last

    def trimtab(self, *arguments: str) -> str:
        code, said, errors = trimtab(*arguments, "--config", str(self.cluster.controller_toml))
        assert code == 0, errors
        return said

    def until(self, condition: Callable[[Status], object], what: str, limit_s: float = LIMIT_S) -> Status:
        deadline = time.monotonic() + limit_s
        while (status := self.watch.poll()) is None or not condition(status):
            self.cluster.check()
            if time.monotonic() > deadline:
                said = [row.text for row in status.decisions[-3:]] if status else []
                pytest.fail(f"not within {limit_s:g} s: {what}; {figures(status) if status else []}, {said}")
            time.sleep(0.2)
        return status

    def windows(self, count: int) -> list[Status]:
        """The status of each of the next windows."""
        found: dict[float | None, Status] = {self.last.window_end: self.last}
        while len(found) <= count:
            status = self.until(lambda status: status.window_end not in found, "the next window")
            found[status.window_end] = status
        return list(found.values())[1:]


def figures(status: Status) -> list[tuple[object, ...]]:
    """Per worker: used %, load %, demand %, backlog."""
    rows = ((row.worker, row.used_pct, row.load_pct, row.demand_pct, row.backlog) for row in status.nodes)
    return [tuple(round(value, 1) if isinstance(value, float) else value for value in row) for row in rows]


def backlog(status: Status) -> float:
    """The jobs that wait at the workers that run; infinite while one of them does not know."""
    running = [row.backlog for row in status.nodes if row.state is WorkerState.RUNNING]
    return sum(math.inf if each is None else each for each in running)


@contextmanager
def paced_run(
    folder: Path,
    name: str,
    *,
    app: str = "tests.e2e.paced_app:app",
    rate: float,
    workers: int = 3,
    partitions: int = PARTITIONS,
    environment: Mapping[str, str],
    more_topics: Collection[str] = (),
    **settings: Any,
) -> Iterator[Run]:
    """The job under load, on workers that start, under a controller that acts; `environment` = variables of the job."""
    wait = folder / "wait"
    sandbox = SandboxSettings(
        app=app,
        app_folder=ROOT,
        cluster=name,
        workers=workers,
        environment={"PARTITIONS": str(partitions), "WAIT": str(wait), **environment},
        **settings,
    )
    with ExitStack() as stack:
        cluster = stack.enter_context(SandboxCluster(sandbox, folder / "cluster"))
        cluster.start_broker()
        compacted = Topic(name=CHANGELOG, partitions=partitions, settings={"cleanup.policy": "compact"})
        plain = (Topic(name=topic, partitions=partitions) for topic in ("jobs", *more_topics))
        cluster.broker.create_topics([*plain, compacted])
        cluster.write_controller_toml()
        cluster.start_controller(act=True)
        for index in range(workers):
            cluster.start_agent(index)
        for index in sandbox.started:
            cluster.start_worker(index)
        watch = stack.enter_context(StatusWatch(cluster.broker.address, cluster.topics))
        jobs = Jobs(cluster.broker.address, rate, partitions)
        stack.callback(jobs.close)
        yield Run(cluster, jobs, watch, wait)


def key_groups_of(status: Status) -> list[int]:
    """How many key groups each worker that runs owns."""
    return [row.key_groups for row in status.nodes if row.state is WorkerState.RUNNING]


def longest_pause(bootstrap: str, start_s: float, end_s: float, changelog: str = CHANGELOG) -> float:
    """The longest time in which a key group counted nothing, between these times (epoch seconds)."""
    last: dict[int, float] = {}
    longest = 0.0
    for row in read_topic(bootstrap, changelog):
        if start_s <= row.at <= end_s:
            longest = max(longest, row.at - last.get(row.partition, row.at))
            last[row.partition] = row.at
    return longest


def counted(bootstrap: str, changelog: str = CHANGELOG) -> dict[str, int]:
    """How many jobs of each key the job has counted, by its changelog."""
    found = {}
    for row in read_topic(bootstrap, changelog):
        if row.key is not None and row.value is not None:
            found[json.loads(row.key)] = json.loads(row.value)
    return found
