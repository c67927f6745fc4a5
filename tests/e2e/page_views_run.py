"""The page view count on a sandbox: its clicks, the cluster, and what it has counted."""

import json
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from flights.readback import read_topic
from flights.watch import StatusWatch
from tests.e2e.confirmed import Confirmed, ConfirmedProducer
from tests.paths import ROOT
from trimtab_protocol.messages.report import WorkerState
from trimtab_protocol.messages.status import Status
from trimtab_sandbox.broker import Topic
from trimtab_sandbox.cluster import SandboxCluster
from trimtab_sandbox.configuration import SandboxSettings

PARTITIONS, WORKERS, RATE, PAGES = 8, 3, 60.0, 200
LIMIT_S = 120.0
START_LIMIT_S = 240.0
"""How long the first window may take on a busy machine: Spark starts meanwhile."""
TOPICS = ("clicks", "looked", "views", "counted")
CHANGELOG = "pages-counts-changelog"


class Clicks:
    """Clicks at a constant rate, evenly over partitions and pages; `sent` = how many of each page are in Kafka."""

    def __init__(self, bootstrap: str) -> None:
        self.sent: Counter[str] = Counter()
        self._producer = ConfirmedProducer(bootstrap, self._confirmed)
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, name="clicks", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        begun, number = time.monotonic(), 0
        while not self._ending.wait(0.02):
            while number < RATE * (time.monotonic() - begun):
                self._producer.send("clicks", f"page-{number % PAGES} user-{number}", partition=number % PARTITIONS)
                number += 1
            self._producer.poll()

    def _confirmed(self, click: Confirmed) -> None:
        self.sent[click.value.split()[0]] += 1

    def close(self) -> None:
        """End, when everything that was sent is in Kafka."""
        self._ending.set()
        self._thread.join()
        self._producer.close()


@dataclass(frozen=True, slots=True)
class Run:
    """A cluster whose job may have been started already."""

    cluster: SandboxCluster
    watch: StatusWatch

    def start_job(self) -> Clicks:
        """Start all workers, and the clicks."""
        clicks = Clicks(self.cluster.broker.address)
        for index in range(WORKERS):
            self.cluster.start_worker(index)
        return clicks

    def until(self, condition: Callable[[Status], object], what: str, limit_s: float = LIMIT_S) -> Status:
        """The first status that fulfils the condition."""
        deadline = time.monotonic() + limit_s
        while (status := self.watch.poll()) is None or not condition(status):
            self.cluster.check()
            if time.monotonic() > deadline:
                last = self.watch.last
                pytest.fail(
                    f"not within {limit_s:g} s: {what}; {[row.text for row in last.decisions[-4:]] if last else ''}"
                )
            time.sleep(0.2)
        return status

    def counted(self, sent: Counter[str]) -> Counter[str]:
        """What the job has counted, when it is all that was sent or no more comes."""
        deadline, found = time.monotonic() + 30.0, Counter[str]()
        while time.monotonic() < deadline and found != sent:
            rows = read_topic(self.cluster.broker.address, CHANGELOG)
            pairs = {json.loads(row.key): json.loads(row.value) for row in rows if row.key and row.value}
            found = Counter(pairs)
            time.sleep(0.5)
        return found


def all_run(status: Status) -> bool:
    """Whether all workers run and own key groups."""
    return sum(row.state is WorkerState.RUNNING and row.key_groups > 0 for row in status.nodes) == WORKERS


@contextmanager
def page_views(
    folder: Path, name: str, *, session_s: float, controller: Mapping[str, Mapping[str, object]]
) -> Iterator[Run]:
    """Broker, agents and an acting controller that has published a window; the job has not been started."""
    settings = SandboxSettings(
        app="tests.e2e.page_views_app:app",
        app_folder=ROOT,
        cluster=name,
        workers=WORKERS,
        capacity_cores=0.5,
        environment={"PARTITIONS": str(PARTITIONS), "SESSION_S": str(session_s)},
        controller=controller,  # type: ignore[arg-type]
    )
    with SandboxCluster(settings, folder / "cluster") as cluster:
        cluster.start_broker()
        compacted = Topic(name=CHANGELOG, partitions=PARTITIONS, settings={"cleanup.policy": "compact"})
        cluster.broker.create_topics([*(Topic(name=topic, partitions=PARTITIONS) for topic in TOPICS), compacted])
        cluster.write_controller_toml()
        cluster.start_controller(act=True)
        for index in range(WORKERS):
            cluster.start_agent(index)
        with StatusWatch(cluster.broker.address, cluster.topics) as watch:
            run = Run(cluster, watch)
            run.until(lambda status: status.window_end is not None, "a window", START_LIMIT_S)
            yield run
