"""Kills one of six workers of a whole cluster, and measures how long key groups lack an owner or a warm standby.

    PYTHONPATH=examples python -m benchmarks.restoring.redundant [METHOD ...] [--kills N]

Broker, Spark, controller, agents and Faust workers are the real ones.  Each worker owns ten key groups with unequal
states, 0.5 to 12 MB, and reads changelogs at 2 MB/s; each key group has one standby.  (What a worker reports of a state
is about 1 MB too much, since RocksDB takes memory in blocks: much smaller states would all seem to be the same.)  The
controller knows that rate from the beginning, as after a few restores.  Then w0 is killed, and nobody starts it again.

- `listed`: new standbys by loads alone (N-1), all named at once, so that each host restores all of its own together.
- `largest`: the same, named as hosts have room, the largest first.
- `trimtab`: what the loop does, which takes workers on which all are warm sooner.

Shown are seconds from the kill, and from the end of the window that shows the loss, until all key groups have an owner
and a standby that the workers call warm.  Reports come every second.  Beside it stand the plan, the bound and the
time that the controller measured itself, and what the links alone take: of all that was restored, shared evenly, or of
the largest.
"""

import argparse
import json
import os
import random
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from confluent_kafka import Producer, TopicPartition

from flights.watch import StatusWatch
from tests.e2e.paced_run import Jobs
from tests.paths import ROOT
from trimtab_controller.cli import main as trimtab
from trimtab_controller.decider.memory import standby_choice
from trimtab_controller.execution import machine, restore_costs
from trimtab_controller.kafka.connection import Connection
from trimtab_controller.kafka.follower import Follower
from trimtab_protocol.messages.codec import decoded
from trimtab_protocol.messages.names import KeyGroup, WorkerId, topic_settings
from trimtab_protocol.messages.placement_log import PlacementLog
from trimtab_protocol.messages.placement_parts import decode_record
from trimtab_protocol.messages.report import Report, WorkerSample, WorkerState
from trimtab_protocol.messages.status import DecisionStatus, Status
from trimtab_protocol.settings.kafka import KafkaSettings
from trimtab_sandbox.broker import Topic
from trimtab_sandbox.cluster import ClusterError, SandboxCluster
from trimtab_sandbox.configuration import SandboxSettings

METHODS = ("listed", "largest", "trimtab")
WORKERS, PARTITIONS = 6, 60
UNIT_BYTES, LARGEST = 500_000, 24
RECORD_BYTES = 20_000
LINK_BYTES_S = 2e6
SESSION_S, LOST_S = 10.0, 10.0
RATE = 1.0
LIMIT_S = 240.0
CHANGELOGS = ("redundant-counts-changelog", "redundant-ballast-changelog")


def sizes() -> list[int]:
    """Bytes of the ballast of each partition: one to LARGEST units, in no order."""
    units = [1 + (LARGEST - 1) * place / (PARTITIONS - 1) for place in range(PARTITIONS)]
    random.Random(7).shuffle(units)
    return [int(unit * UNIT_BYTES) for unit in units]


class Cluster:
    """What workers and controller say: who owns what, who should, and what is not warm."""

    def __init__(self, cluster: SandboxCluster, watch: StatusWatch) -> None:
        self.cluster, self._watch = cluster, watch
        topics = (cluster.topics.reports, cluster.topics.placement)
        connection = Connection(kafka=KafkaSettings(bootstrap_servers=cluster.broker.address))
        read = [each for each in topic_settings(cluster.topics) if each.name in topics]
        places = [TopicPartition(each.name, partition, 0) for each in read for partition in range(each.partitions)]
        self._follower = Follower(connection, "redundant", places)
        self._placed = PlacementLog()
        self.said: dict[WorkerId, tuple[float, WorkerSample, frozenset[KeyGroup]]] = {}
        """What each worker said last, when, and what it owns then."""
        self.status: Status | None = None

    def look(self) -> None:
        """Read what is new."""
        for message in self._follower.consume(500, 0.1):
            if message.error() is not None:
                continue
            if message.topic() == self.cluster.topics.placement:
                if message.value() is not None:
                    self._placed.take(decode_record(message.key(), message.value()))
                    self._placed.settle()
                continue
            report = decoded(message.value(), Report)
            for row in report.workers:
                owned = frozenset(each.key_group for each in report.key_groups if each.worker == row.worker)
                self.said[row.worker] = report.at_ms / 1000.0, row, owned
        self.status = self._watch.poll()

    @property
    def decisions(self) -> tuple[DecisionStatus, ...]:
        """The last ones of the controller."""
        return self.status.decisions if self.status is not None else ()

    @property
    def rows(self) -> dict[KeyGroup, tuple[WorkerId, ...]]:
        """Owner and standbys of each key group, as placed."""
        placed = self._placed.newest
        if placed is None:
            return {}
        return {
            KeyGroup(placed.app, operator, partition): tuple(row)
            for operator, rows in placed.owners.items()
            for partition, row in enumerate(rows)
        }

    def whole_at(self, alive: Sequence[WorkerId]) -> float | None:
        """When all key groups had an owner and a warm standby among these workers; None: they have not yet."""
        rows, placed = self.rows, self._placed.newest
        if len(rows) < PARTITIONS or placed is None or any(name not in self.said for name in alive):
            return None
        at, said, owned = zip(*(self.said[name] for name in alive), strict=True)
        owners = {each: name for name, its in zip(alive, owned, strict=True) for each in its}
        whole = (
            all(row.epoch is not None and row.epoch >= placed.epoch and row.cold == 0 for row in said)
            and all(row.state is WorkerState.RUNNING for row in said)
            and all(
                owners.get(each) == row[0] and len(row) > 1 and set(row) <= set(alive) for each, row in rows.items()
            )
        )
        return max(at) if whole else None

    def until(self, condition: Any, what: str, limit_s: float = LIMIT_S) -> Any:
        """The first true value of the condition."""
        deadline = time.monotonic() + limit_s
        while not (found := condition()):
            self.cluster.check()
            if time.monotonic() > deadline:
                texts = [row.text for row in self.decisions[-4:]]
                cold = {name: (row.cold, row.state) for name, (_, row, _) in self.said.items()}
                raise AssertionError(f"not within {limit_s:g} s: {what}; {texts}; {cold}")
            self.look()
        return found


@contextmanager
def started(method: str, folder: Path) -> Iterator[Cluster]:
    """The cluster with its states, under a controller that is set to the method."""
    settings = SandboxSettings(
        app="benchmarks.restoring.redundant_app:app",
        app_folder=ROOT,
        cluster="redundant",
        workers=WORKERS,
        environment={
            "PARTITIONS": str(PARTITIONS),
            "LINK_BYTES_S": str(LINK_BYTES_S),
            "SESSION_S": str(SESSION_S),
        },
        controller={
            "balance": {"min_interval_s": 10.0, "max_disk": 1.0, "load_distance": 60.0, "lost_worker_s": LOST_S}
        },
    )
    with SandboxCluster(settings, folder) as cluster:
        cluster.start_broker()
        compacted = [
            Topic(name=name, partitions=PARTITIONS, settings={"cleanup.policy": "compact"}) for name in CHANGELOGS
        ]
        cluster.broker.create_topics([Topic(name="jobs", partitions=PARTITIONS), *compacted])
        send_ballast(cluster.broker.address)
        config = cluster.write_controller_toml()
        cluster.start_load("benchmarks.restoring.redundant", "--controller", method, "--config", str(config))
        for index in range(WORKERS):
            cluster.start_agent(index)
            cluster.start_worker(index)
        jobs = Jobs(cluster.broker.address, RATE, PARTITIONS)
        try:
            with StatusWatch(cluster.broker.address, cluster.topics) as watch:
                yield Cluster(cluster, watch)
        finally:
            jobs.close()


def send_ballast(bootstrap: str) -> None:
    """Write the changelog of the table that the job only keeps."""
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 50})
    for partition, size in enumerate(sizes()):
        for number in range(size // RECORD_BYTES):
            value = json.dumps(os.urandom(RECORD_BYTES // 2 - 10).hex()).encode()
            producer.produce(CHANGELOGS[1], value, json.dumps(f"b{number}").encode(), partition)
            producer.poll(0)
    assert producer.flush(60.0) == 0


@dataclass(frozen=True, kw_only=True)
class Killed:
    """Seconds until all is whole again, after the kill and after the loss was known; the others as the status says."""

    method: str
    after_kill_s: float
    known_s: float
    planned_s: float | None
    bound_s: float | None
    measured_s: float
    restored: int
    links_s: float
    text: str

    def __str__(self) -> str:
        planned, bound = ("?" if each is None else f"{each:.1f}" for each in (self.planned_s, self.bound_s))
        return (
            f"{self.method:8} whole {self.after_kill_s:5.1f} s after the kill, {self.known_s:5.1f} s after it was "
            f"known; the controller: planned {planned} s, bound {bound} s, measured {self.measured_s:.1f} s; "
            f"{self.restored} new standbys, the links alone take {self.links_s:.1f} s; {self.text}"
        )


def lose(method: str, folder: Path) -> Killed:
    """Kill a worker once, in a cluster of its own."""
    with started(method, folder) as made:
        names = [WorkerId(f"w{number}") for number in range(WORKERS)]
        made.until(lambda: made.whole_at(names), "a whole app")
        made.until(lambda: (found := redundancy(made.status)) and not found.lacking, "a controller that knows it")
        before = made.rows
        killed = time.time()
        made.cluster.kill(names[0])
        alive = names[1:]
        whole = made.until(lambda: made.whole_at(alive), "a whole app again")
        gap = made.until(
            lambda: (found := redundancy(made.status)) and found.since > killed and not found.lacking and found,
            "a status without a lack",
            60.0,
        )
        after = made.rows
        new = [(each, next(name for name in row[1:])) for each, row in after.items() if row[1] not in before[each]]
        state = [sizes()[each.partition] for each, _ in new]
        texts = [row.text for row in made.decisions if row.at > killed and "new standby" in row.text]
        return Killed(
            method=method,
            after_kill_s=whole - killed,
            known_s=whole - gap.since,
            planned_s=gap.planned_s,
            bound_s=gap.bound_s,
            measured_s=gap.measured_s,
            restored=len(new),
            links_s=max(sum(state) / len(alive), max(state, default=0)) / LINK_BYTES_S,
            text=" | ".join(texts),
        )


def redundancy(status: Status | None) -> Any:
    """What the controller says of the only app."""
    return status.apps[0].redundancy if status is not None and status.apps else None


def control(method: str, config: str) -> int:
    """Run the controller that is set to a method."""
    restore_costs.BYTES_PER_S = LINK_BYTES_S
    if method != "trimtab":
        standby_choice.SOONER_S = float("inf")
    if method == "listed":
        begin = machine.ExecutionMachine.__init__

        def unscheduled(self: Any, cluster: str, limits: Any, *more: Any, **named: Any) -> None:
            begin(self, cluster, replace(limits, schedule_restores=False), *more, **named)

        machine.ExecutionMachine.__init__ = unscheduled  # type: ignore[method-assign]
    return trimtab(["controller", "run", "--config", config, "--act"])


def main() -> int:
    """Kill a worker with each method."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("methods", nargs="*", metavar="METHOD", help=", ".join(METHODS))
    parser.add_argument("--kills", type=int, default=1, help="with each method (1)")
    parser.add_argument("--controller", help=argparse.SUPPRESS)
    parser.add_argument("--config", help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.controller:
        return control(chosen.controller, chosen.config)
    with tempfile.TemporaryDirectory() as folder:
        for kill in range(chosen.kills):
            for method in chosen.methods or METHODS:
                try:
                    print(lose(method, Path(folder) / f"{method}-{kill}"), flush=True)
                except (AssertionError, ClusterError) as failure:
                    print(f"{method}: {failure}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
