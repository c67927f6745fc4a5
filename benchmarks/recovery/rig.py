"""A broker, a few workers and endless inputs; what one kill costs."""

import json
import random
import shutil
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from itertools import cycle, pairwise
from pathlib import Path
from statistics import median

from confluent_kafka import Consumer, Producer, TopicPartition

from trimtab_controller.decider.memory.standby_choice import Following
from trimtab_controller.decider.memory.standbys import ROUND
from trimtab_controller.decider.window.owned import Owned
from trimtab_controller.decider.window.view import PlannableView, Worker
from trimtab_controller.execution.state import placement_of
from trimtab_protocol.messages.codec import encoded
from trimtab_protocol.messages.names import AppId, Epoch, HostId, KeyGroup, OperatorId, Topics, WorkerId, topic_settings
from trimtab_protocol.messages.placement import Placement
from trimtab_sandbox.broker import Broker, Topic
from trimtab_sandbox.processes import Child, Processes

CLUSTER, APP, OPERATOR = "recovery", AppId("recovery"), OperatorId("all")
PARTITIONS = 24
RATE = 240.0
SESSION_S = 8.0
CALM_S = 5.0
LIMIT_S = 120.0
VALUE = "x" * 100
HEAVIEST = 4
"""The largest load of a partition, and the number of different ones."""
LARGEST = 20
"""The largest state of a partition beside the smallest, if they are unequal."""


class Kind(StrEnum):
    """What a run's workers have of each other's state."""

    STOCK = "stock"  # Faust with `table_standby_replicas=1`
    PLANNED = "planned"  # the plug-in, and the standbys that the controller plans
    COLD = "cold"  # the plug-in, no standbys, and no copies on disk
    COPIES = "copies"  # the plug-in, no standbys; workers that were standbys have copies on their disks


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """`records` = records of all changelogs together; `unequal` = states from 1 to LARGEST, else all are equal."""

    kind: Kind
    workers: int
    records: int
    unequal: bool

    @property
    def names(self) -> list[WorkerId]:
        """The workers."""
        return [WorkerId(f"w{number}") for number in range(self.workers)]

    @property
    def sizes(self) -> list[int]:
        """Records of each partition's changelog."""
        shares = [1 + (LARGEST - 1) * place / (PARTITIONS - 1) if self.unequal else 1.0 for place in range(PARTITIONS)]
        random.Random(7).shuffle(shares)
        return [int(self.records * share / sum(shares)) for share in shares]

    @property
    def placement(self) -> Placement:
        """The partitions in turn, without standbys."""
        owners = {KeyGroup(APP, OPERATOR, each): self.names[each % self.workers] for each in range(PARTITIONS)}
        return placement_of(CLUSTER, APP, Epoch(1, 1), owners, None)

    @property
    def with_standbys(self) -> Placement:
        """The same with the standbys of the controller's first adoption, with one host per worker."""
        bare = self.placement
        view = PlannableView(
            app=APP,
            start_s=0.0,
            end_s=10.0,
            workers=tuple(Worker(id=n, host=HostId(f"h-{n}"), capacity=1.0, draining=False) for n in self.names),
            key_groups=[
                Owned(
                    key_group=KeyGroup(APP, OPERATOR, partition), owner=row[0], load=load(partition), state_bytes=None
                )
                for partition, row in enumerate(bare.owners[OPERATOR])
            ],
            flows={},
            standbys=1,
        )
        return bare.changed(Epoch(1, 2), Following.of(view, bare).choose(view, 1, ROUND).rows)

    def planned_after(self, lost: str) -> float | None:
        """The share of the inputs that the busiest worker should have after this loss; None if nothing is planned."""
        if self.kind is not Kind.PLANNED:
            return None
        rows = self.with_standbys.owners[OPERATOR]
        return busiest(next(name for name in row if name != lost) for row in rows)


def load(partition: int) -> int:
    """How many inputs this partition gets beside the others."""
    return 1 + partition % HEAVIEST


def busiest(owners: Iterable[str]) -> float:
    """The share of the inputs that the busiest of the partitions' owners has."""
    loads: Counter[str] = Counter()
    for partition, owner in enumerate(owners):
        loads[owner] += load(partition)
    return max(loads.values()) / sum(loads.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class Crash:
    """Result of one kill.

    Seconds without an owner for the median and the last of its partitions, and the longest pause of the others.
    `records` = the most that a survivor had to restore.  The share of the inputs that the busiest survivor has
    afterwards, `planned` (None: nothing was) and `measured`.
    """

    partitions: int
    median_s: float
    last_s: float
    others_s: float
    records: int
    planned: float | None
    measured: float


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
    """A broker, workers, and endless inputs."""

    def __init__(self, folder: Path, processes: Processes, broker: Broker, job: Job) -> None:
        self._folder, self._processes, self._broker, self._job = folder, processes, broker, job
        self.alive: dict[str, Child] = {}
        self.seen = Seen(broker.address)
        self._stop = threading.Event()
        self._inputs = threading.Thread(target=self._send, daemon=True)

    def prepare(self) -> None:
        """Create topics, the records of the changelog, and the placement."""
        compacted = {"cleanup.policy": "compact"}
        self._broker.create_topics(
            [Topic(name=name, partitions=PARTITIONS) for name in ("inputs", "outputs")]
            + [Topic(name="recovery-states-changelog", partitions=PARTITIONS, settings=compacted)]
            + [Topic(name=row.name, partitions=row.partitions) for row in topic_settings(Topics(CLUSTER))]
        )
        producer = Producer({"bootstrap.servers": self._broker.address, "queue.buffering.max.messages": 1_000_000})
        for partition, size in enumerate(self._job.sizes):
            for number in range(size):
                key, value = json.dumps(f"k{number * PARTITIONS + partition}"), json.dumps(VALUE)
                producer.produce("recovery-states-changelog", key=key, value=value, partition=partition)
                producer.poll(0)
        assert producer.flush(60) == 0
        if self._job.kind is Kind.COLD:
            self._publish(self._job.placement)
        elif self._job.kind is not Kind.STOCK:
            self._publish(self._job.with_standbys)

    def start(self, worker: str) -> None:
        """Start a worker."""
        setup = {
            "folder": str(self._folder),
            "bootstrap": self._broker.address,
            "partitions": PARTITIONS,
            "session_s": SESSION_S,
            "plugin": self._job.kind is not Kind.STOCK,
        }
        environment = {
            "RECOVERY_SETUP": json.dumps(setup),
            "TRIMTAB_CLUSTER": CLUSTER,
            "TRIMTAB_WORKER": worker,
        }
        (self._folder / f"{worker}.said").unlink(missing_ok=True)
        command = [sys.executable, str(Path(__file__).parent / "app.py"), "worker", "-l", "info", "--without-web"]
        self.alive[worker] = self._processes.start(worker, command, environment=environment, folder=self._folder)

    def begin_load(self) -> None:
        """Start sending inputs."""
        self._inputs.start()

    def close(self) -> None:
        """Stop sending inputs."""
        self._stop.set()
        if self._inputs.is_alive():
            self._inputs.join()
        self.seen.close()

    def _publish(self, placement: Placement) -> None:
        producer = Producer({"bootstrap.servers": self._broker.address})
        producer.produce(Topics(CLUSTER).placement, key=APP, value=encoded(placement))
        assert producer.flush(20) == 0

    def _send(self) -> None:
        producer = Producer({"bootstrap.servers": self._broker.address, "linger.ms": 5})
        turn = cycle([each for each in range(PARTITIONS) for _ in range(load(each))])
        number, began = 0, time.monotonic()
        while not self._stop.is_set():
            while number < (time.monotonic() - began) * RATE:
                partition = next(turn)
                key = f"k{number % 400 * PARTITIONS + partition}"
                producer.produce("inputs", key=key, value=VALUE, partition=partition)
                number += 1
            producer.poll(0.02)
        producer.flush(10)

    def wait_until_ready(self) -> None:
        """Wait until each worker owns partitions, all partitions flow, and every one has what the kind says."""
        if self._job.kind is Kind.COLD:
            self._wait("flow", lambda: self._flows() and bool(self._said()))
            self._delete_copies()
        else:
            self._wait("warm standbys", lambda: self._is_ready(of_copies=False))
        if self._job.kind is Kind.COPIES:
            self._publish(self._job.placement.changed(Epoch(2, int(time.time())), {}))
            self._wait("copies on disk", lambda: self._is_ready(of_copies=True))
        self.rest()

    def _said(self) -> list[dict[str, list[int]]]:
        """What the workers said last; empty unless all have done so within a moment."""
        files = [self._folder / f"{worker}.said" for worker in self.alive]
        if not all(file.exists() and file.stat().st_mtime > time.time() - 1.5 for file in files):
            return []
        return [json.loads(file.read_text()) for file in files]

    def _flows(self) -> bool:
        since = time.time() - 1.5
        recent = {rows[-1][1] for rows in self.seen.rows.values() if rows and rows[-1][0] > since}
        return recent == set(self.alive) and all(rows and rows[-1][0] > since for rows in self.seen.rows.values())

    def _is_ready(self, *, of_copies: bool) -> bool:
        said = self._said()
        if not said or not self._flows():
            return False
        standbys = [each for row in said for each in row["standbys"]]
        if of_copies:
            return not standbys and len({each for row in said for each in row["copies"]}) == PARTITIONS
        return sorted(standbys) == list(range(PARTITIONS)) and sum(row["lag"] for row in said) < 2 * RATE  # type: ignore[misc]

    def _delete_copies(self) -> None:
        """Delete every database that is not its owner's."""
        now = time.time()
        for partition in range(PARTITIONS):
            owner = self.seen.owner_at(partition, now)
            for path in self._folder.glob(f"w*/**/states-{partition}.db"):
                if path.relative_to(self._folder).parts[0] != owner:
                    shutil.rmtree(path)

    def rest(self) -> None:
        """Wait without doing anything."""
        until = time.monotonic() + CALM_S
        while time.monotonic() < until:
            self.seen.read()

    def crash(self, worker: str) -> Crash:
        """`kill -9` the worker; returns the result."""
        noted = {name: len(self._restored(name)) for name in self.alive if name != worker}
        killed_at = time.time()
        self.alive.pop(worker).kill()
        self.seen.read()
        owner = {partition: self.seen.owner_at(partition, killed_at) for partition in range(PARTITIONS)}
        orphans = [partition for partition, name in owner.items() if name == worker]
        stayed = [partition for partition, name in owner.items() if name != worker]

        def back() -> list[float | None]:
            return [self.seen.first_after(partition, killed_at, but=worker) for partition in orphans]

        self._wait("taken over", lambda: None not in back())
        back_at = [at for at in back() if at is not None]
        self.rest()
        gaps = sorted(at - killed_at for at in back_at)
        since = killed_at - 1.0
        others = (
            after - before
            for partition in stayed
            for (before, _), (after, _) in pairwise(row for row in self.seen.rows[partition] if row[0] >= since)
        )
        return Crash(
            partitions=len(orphans),
            median_s=median(gaps),
            last_s=gaps[-1],
            others_s=max(others),
            records=max((each for name, count in noted.items() for each in self._restored(name)[count:]), default=0),
            planned=self._job.planned_after(worker),
            measured=busiest(self.seen.owner_at(partition, time.time()) for partition in range(PARTITIONS)),
        )

    def _restored(self, worker: str) -> list[int]:
        """Records that the worker had to restore, for each recovery so far."""
        log = self._folder / f"{worker}.restored"
        return [int(line) for line in log.read_text().split()] if log.exists() else []

    def _wait(self, what: str, done: Callable[[], bool]) -> None:
        deadline = time.monotonic() + LIMIT_S
        while not done():
            for name, child in self.alive.items():
                if not child.alive:
                    raise RuntimeError(f"{name} has ended, see {child.log}")
            if time.monotonic() > deadline:
                raise TimeoutError(f"no {what} within {LIMIT_S:g} s, see {self._folder}")
            self.seen.read()


@contextmanager
def rig(job: Job, folder: Path) -> Iterator[Rig]:
    """A rig whose workers are ready."""
    folder.mkdir(parents=True)
    with Processes(folder / "logs") as processes, Broker(folder / "broker", processes) as broker:
        made = Rig(folder, processes, broker, job)
        try:
            made.prepare()
            for worker in job.names:
                made.start(worker)
            made.begin_load()
            made.wait_until_ready()
            yield made
        finally:
            made.close()
