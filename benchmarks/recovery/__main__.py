"""Measures what a crash costs: seconds without a processed event after kill -9 of one of three workers.

    python -m benchmarks.recovery [--records 200000] [--kinds stock,planned] [--folder DIR]

A run has a fresh broker, a changelog of `--records` records, three workers, and inputs at a constant rate into every
partition.  When every partition has a warm standby, one worker after the other is killed and started again.  Kinds:
`stock` is Faust with `table_standby_replicas=1`; `planned` is the same app with the plug-in and the standbys that the
controller plans; `cold` has the plug-in and a placement without standbys.  For the killed worker's partitions it
measures the seconds from the kill to the first event that another worker processes (median partition, and the last
one); for all others the longest pause.  All figures include the session time-out of the group, which is the same for
all kinds.
"""

import argparse
import json
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from statistics import median

from confluent_kafka import Consumer, Producer, TopicPartition

from trimtab_controller.decider.owned import Owned
from trimtab_controller.decider.standby_rounds import ROUND
from trimtab_controller.decider.standbys import choose_standbys
from trimtab_controller.decider.view import AppView, Worker
from trimtab_controller.execution.state import placement_of
from trimtab_protocol.messages.names import AppId, Epoch, HostId, KeyGroup, OperatorId, Topics, WorkerId, topic_settings
from trimtab_protocol.messages.placement import Placement, encode_placement
from trimtab_sandbox.broker import Broker, Topic
from trimtab_sandbox.processes import Child, Processes

CLUSTER, APP, OPERATOR = "recovery", AppId("recovery"), OperatorId("all")
PARTITIONS = 24
WORKERS = [WorkerId(f"w{number}") for number in range(3)]
RATE = 240.0
SESSION_S = 8.0
CALM_S = 4.0
LIMIT_S = 120.0
VALUE = "x" * 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Crash:
    """Result of one kill: seconds for the median and the last of its partitions; longest pause of the others."""

    partitions: int
    median_s: float
    last_s: float
    others_s: float


class Seen:
    """The processed events by partition, read from the outputs: (epoch seconds, worker)."""

    def __init__(self, bootstrap: str) -> None:
        self.rows: dict[int, list[tuple[float, str]]] = {partition: [] for partition in range(PARTITIONS)}
        self._consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "seen"})
        self._consumer.assign([TopicPartition("outputs", partition, 0) for partition in range(PARTITIONS)])

    def read(self) -> None:
        """Read new outputs."""
        for message in self._consumer.consume(1000, timeout=0.05):
            if message.error() is None:
                self.rows[message.partition()].append((message.timestamp()[1] / 1000, message.value().decode()))

    def owner_at(self, partition: int, at: float) -> str:
        """The worker that processed the last event before this time."""
        return [worker for when, worker in self.rows[partition] if when < at][-1]

    def first_after(self, partition: int, at: float, *, but: str) -> float | None:
        """When a worker other than `but` processed the first event after this time."""
        return next((when for when, worker in self.rows[partition] if when >= at and worker != but), None)

    def close(self) -> None:
        """Close the consumer."""
        self._consumer.close()


class Rig:
    """A broker, three workers, and endless inputs."""

    def __init__(self, folder: Path, processes: Processes, broker: Broker, kind: str) -> None:
        self._folder, self._processes, self._broker, self._kind = folder, processes, broker, kind
        self.alive: dict[str, Child] = {}
        self.seen = Seen(broker.address)
        self._stop = threading.Event()
        self._load = threading.Thread(target=self._send, daemon=True)

    def prepare(self, records: int) -> None:
        """Create topics, the records of the changelog, and the placement."""
        compacted = {"cleanup.policy": "compact"}
        self._broker.create_topics(
            [Topic(name=name, partitions=PARTITIONS) for name in ("inputs", "outputs")]
            + [Topic(name="recovery-states-changelog", partitions=PARTITIONS, settings=compacted)]
            + [Topic(name=row.name, partitions=row.partitions) for row in topic_settings(Topics(CLUSTER))]
        )
        producer = Producer({"bootstrap.servers": self._broker.address, "queue.buffering.max.messages": 1_000_000})
        for number in range(records):
            key, value = json.dumps(f"k{number}"), json.dumps(VALUE)
            producer.produce("recovery-states-changelog", key=key, value=value, partition=number % PARTITIONS)
            producer.poll(0)
        if self._kind != "stock":
            placement = placement_with_standbys() if self._kind == "planned" else bare_placement()
            producer.produce(Topics(CLUSTER).placement, key=APP, value=encode_placement(placement))
        assert producer.flush(60) == 0

    def start(self, worker: str) -> None:
        """Start a worker."""
        setup = {
            "folder": str(self._folder),
            "bootstrap": self._broker.address,
            "partitions": PARTITIONS,
            "session_s": SESSION_S,
            "plugin": self._kind != "stock",
        }
        environment = {
            "RECOVERY_SETUP": json.dumps(setup),
            "TRIMTAB_CLUSTER": CLUSTER,
            "TRIMTAB_WORKER": worker,
        }
        (self._folder / f"{worker}.warm").unlink(missing_ok=True)
        command = [sys.executable, str(Path(__file__).parent / "app.py"), "worker", "-l", "info", "--without-web"]
        self.alive[worker] = self._processes.start(worker, command, environment=environment, folder=self._folder)

    def begin_load(self) -> None:
        """Start sending inputs."""
        self._load.start()

    def close(self) -> None:
        """Stop sending inputs."""
        self._stop.set()
        if self._load.is_alive():
            self._load.join()
        self.seen.close()

    def _send(self) -> None:
        producer = Producer({"bootstrap.servers": self._broker.address, "linger.ms": 5})
        number, began = 0, time.monotonic()
        while not self._stop.is_set():
            while number < (time.monotonic() - began) * RATE:
                producer.produce("inputs", key=f"k{number % 9600}", value=VALUE, partition=number % PARTITIONS)
                number += 1
            producer.poll(0.02)
        producer.flush(10)

    def wait_until_warm(self) -> None:
        """Wait until each running worker owns partitions, all partitions are processed, and all standbys are warm."""
        began = time.time()
        wanted = 0 if self._kind == "cold" else PARTITIONS

        def is_warm() -> bool:
            files = [self._folder / f"{worker}.warm" for worker in self.alive]
            if not all(file.exists() and file.stat().st_mtime > began + 1.0 for file in files):
                return False
            found = [json.loads(file.read_text()) for file in files]
            recent = {rows[-1][1] for rows in self.seen.rows.values() if rows and rows[-1][0] > time.time() - 1.0}
            flowing = sum(bool(rows) and rows[-1][0] > time.time() - 1.0 for rows in self.seen.rows.values())
            standbys, lag = (sum(row[name] for row in found) for name in ("standbys", "lag"))
            return (standbys, flowing, len(recent)) == (wanted, PARTITIONS, len(self.alive)) and lag < 2 * RATE

        self._wait("warm standbys", is_warm)
        self.rest()

    def rest(self) -> None:
        """Wait without doing anything."""
        until = time.monotonic() + CALM_S
        while time.monotonic() < until:
            self.seen.read()

    def crash(self, worker: str) -> Crash:
        """`kill -9` the worker; returns the result."""
        killed_at = time.time()
        self.alive.pop(worker).kill()
        self.seen.read()
        owner = {partition: self.seen.owner_at(partition, killed_at) for partition in range(PARTITIONS)}
        orphans = [partition for partition, name in owner.items() if name == worker]
        stayed = [partition for partition, name in owner.items() if name != worker]

        def back() -> list[float | None]:
            return [self.seen.first_after(partition, killed_at, but=worker) for partition in orphans]

        self._wait("taken over", lambda: None not in back())
        self.rest()
        gaps = sorted(at - killed_at for at in back() if at is not None)
        since = killed_at - 1.0
        others = (
            after - before
            for partition in stayed
            for (before, _), (after, _) in pairwise(row for row in self.seen.rows[partition] if row[0] >= since)
        )
        return Crash(partitions=len(orphans), median_s=median(gaps), last_s=gaps[-1], others_s=max(others))

    def _wait(self, what: str, done: Callable[[], bool]) -> None:
        deadline = time.monotonic() + LIMIT_S
        while not done():
            for name, child in self.alive.items():
                if not child.alive:
                    raise RuntimeError(f"{name} has ended, see {child.log}")
            if time.monotonic() > deadline:
                raise TimeoutError(f"no {what} within {LIMIT_S:g} s, see {self._folder}")
            self.seen.read()


def bare_placement() -> Placement:
    """A placement of the partitions in turn, without standbys."""
    owners = {KeyGroup(APP, OPERATOR, partition): WORKERS[partition % 3] for partition in range(PARTITIONS)}
    return placement_of(CLUSTER, APP, Epoch(1, 1), owners, None)


def placement_with_standbys() -> Placement:
    """The same with the standbys of the controller's first adoption, with one host per worker."""
    bare = bare_placement()
    view = AppView(
        app=APP,
        start_s=0.0,
        end_s=10.0,
        workers=tuple(Worker(id=name, host=HostId(f"h-{name}"), capacity=1.0, draining=False) for name in WORKERS),
        key_groups=[
            Owned(key_group=KeyGroup(APP, OPERATOR, partition), owner=row[0], load=1.0, state_bytes=None)
            for partition, row in enumerate(bare.owners[OPERATOR])
        ],
        flows={},
        standbys=1,
    )
    return bare.changed(Epoch(1, 2), choose_standbys(view, bare, 1, ROUND).rows)


@contextmanager
def rig(kind: str, records: int, folder: Path) -> Iterator[Rig]:
    """A rig whose workers are warm."""
    folder.mkdir(parents=True)
    with Processes(folder / "logs") as processes, Broker(folder / "broker", processes) as broker:
        made = Rig(folder, processes, broker, kind)
        try:
            made.prepare(records)
            for worker in WORKERS:
                made.start(worker)
            made.begin_load()
            made.wait_until_warm()
            yield made
        finally:
            made.close()


def run(kind: str, records: int, folder: Path) -> list[Crash]:
    """Kill each worker once."""
    crashes = []
    with rig(kind, records, folder) as made:
        for worker in WORKERS:
            found = made.crash(worker)
            crashes.append(found)
            print(
                f"{kind:8} kill -9 {worker}: {found.partitions} partitions, median {found.median_s:5.1f} s, "
                f"last {found.last_s:5.1f} s; others paused {found.others_s:5.1f} s",
                flush=True,
            )
            if worker != WORKERS[-1]:
                made.start(worker)
                made.wait_until_warm()
    return crashes


def main() -> None:
    """Run all kinds, and print the medians."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=200_000)
    parser.add_argument("--kinds", default="stock,planned", help="of stock, planned, cold")
    parser.add_argument("--folder", type=Path, help="keep logs here")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder = given.folder or Path(scratch)
        found = {kind: run(kind, given.records, folder / kind) for kind in given.kinds.split(",")}
    print(f"medians of {len(WORKERS)} kills, {given.records} records, session {SESSION_S:g} s")
    for kind, crashes in found.items():
        middle, last, others = (
            median(getattr(row, name) for row in crashes) for name in ("median_s", "last_s", "others_s")
        )
        print(f"{kind:8} median partition {middle:5.1f} s, last {last:5.1f} s, others paused {others:5.1f} s")


if __name__ == "__main__":
    main()
