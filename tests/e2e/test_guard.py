"""Jobs that suffer from hand-overs: pace and guard keep their p99 latency within a limit.

Two empty workers join one that does everything, and a plan moves two thirds of the key groups to them.

- *Slow restores.*  The restores keep the disks of the new workers busy, which the job needs as well.  A plan begins
  slowly and becomes faster only while the job bears it, so no run without that exists to compare with.
- *Slow workers.*  The new workers wait for something else at each job, which no load shows, so they cannot do what they
  are given at any pace.  The run is played with pace and without the guard, and with both: the guard has to end the
  plan, and to move back what it has moved.
"""

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from confluent_kafka import Producer

from flights.readback import read_topic
from flights.watch import StatusWatch
from tests.e2e.confirmed import Confirmed
from tests.e2e.paced_run import CHANGELOG, Jobs, Run, backlog, counted, key_groups_of
from tests.paths import ROOT
from trimtab_protocol.messages.codec import decoded
from trimtab_protocol.messages.events import Event
from trimtab_sandbox.broker import Topic
from trimtab_sandbox.cluster import SandboxCluster
from trimtab_sandbox.configuration import SandboxSettings

pytestmark = [pytest.mark.scenario, pytest.mark.timeout(1500)]

MEASURED_S = 120.0
"""From the begin of the plan."""
IN_FLIGHT = 8

GUARD: Mapping[str, Any] = {"max_lag_s": 2.0, "max_pause_s": 5.0}
NO_GUARD: Mapping[str, Any] = {**GUARD, "guard": "off"}


@dataclass(frozen=True, kw_only=True)
class Job:
    """A job, its load, and what its new workers suffer from.

    `rate` = jobs per second of a key group, `burn_s` = CPU of each.  `ballast` = records of a key group that its new
    worker restores, 50 of which keep its disk busy for `stall_s`; a job does so for `write_s`.  `slow` = workers that
    wait 1 s at each job.
    """

    name: str
    app: str
    partitions: int
    moves: int
    rate: float
    burn_s: float
    limit_s: float
    ballast: int = 0
    stall_s: float = 0.0
    write_s: float = 0.0
    slow: tuple[str, ...] = ()


RESTORES = Job(
    name="restores", app="tests.e2e.slow_disk_app:app", partitions=48, moves=32, rate=0.5, burn_s=0.004,
    ballast=200, stall_s=0.5, write_s=0.01, limit_s=6.0,
)  # fmt: skip
"""One restore holds its worker up for 2 s, which nothing spares.  All 16 of a worker take 32 s."""
WORKERS = Job(
    name="workers", app="tests.e2e.slow_disk_app:app", partitions=24, moves=16, rate=1.0, burn_s=0.004,
    ballast=200, stall_s=0.5, write_s=0.01, slow=("w1", "w2"), limit_s=40.0,
)  # fmt: skip
"""A new worker does one job per second, and its eight key groups get 8: it falls behind by 0.9 s per second."""


@dataclass(frozen=True, kw_only=True)
class Found:
    """Latencies of the jobs sent while the plan ran (seconds), and what became of the plan."""

    p50_s: float
    p99_s: float
    longest_s: float
    jobs: int
    moved: int
    told: tuple[str, ...]


class TimedJobs(Jobs):
    """Remembers when each job of a key was sent; none is before their rates are set."""

    def __init__(self, bootstrap: str, job: Job) -> None:
        self.sent_at: dict[str, list[float]] = defaultdict(list)
        super().__init__(bootstrap, 0.0, job.partitions)

    def _confirmed(self, job: Confirmed) -> None:
        super()._confirmed(job)
        self.sent_at[job.key or ""].append(job.sent_at)


def fill(bootstrap: str, job: Job) -> None:
    """State to restore."""
    producer = Producer({"bootstrap.servers": bootstrap, "log_level": 0})
    for partition in range(job.partitions):
        for number in range(job.ballast):
            producer.produce(CHANGELOG, b"0", json.dumps(f"ballast-{number}").encode(), partition)
    assert producer.flush(30.0) == 0


def settings_of(job: Job, name: str, slow: Path, pace: Mapping[str, Any]) -> SandboxSettings:
    """Three workers, of which `slow`-NAME makes NAME wait at each job."""
    execution = {
        "handovers_in_flight": IN_FLIGHT,
        "key_groups_per_handover": 1,
        "prepare_timeout_s": 300.0,
        **pace,
    }
    return SandboxSettings(
        app=job.app,
        app_folder=ROOT,
        cluster=name,
        workers=3,
        capacity_cores=0.5,
        host_cores=IN_FLIGHT,  # a host has as many restore slots
        interval_s=2.5,
        environment={
            "PARTITIONS": str(job.partitions),
            "BURN_S": str(job.burn_s),
            "STALL_S": str(job.stall_s),
            "WRITE_S": str(job.write_s),
            "WAIT": f"{slow}-{{worker}}",
            "WAIT_S": "1.0",
        },
        controller={
            "balance": {"max_migrations": job.moves, "min_interval_s": 600.0},
            "execution": execution,
        },
    )


@contextmanager
def cluster_with(job: Job, cluster: SandboxCluster, folder: Path) -> Iterator[tuple[Run, TimedJobs]]:
    """One worker that does everything, and two that have just joined; nothing moves yet."""
    with ExitStack() as stack:
        stack.enter_context(cluster)
        cluster.start_broker()
        compacted = Topic(name=CHANGELOG, partitions=job.partitions, settings={"cleanup.policy": "compact"})
        cluster.broker.create_topics([Topic(name="jobs", partitions=job.partitions), compacted])
        fill(cluster.broker.address, job)
        cluster.write_controller_toml()
        cluster.start_controller(act=True)
        for index in range(3):
            cluster.start_agent(index)
        cluster.start_worker(0)
        watch = stack.enter_context(StatusWatch(cluster.broker.address, cluster.topics))
        jobs = TimedJobs(cluster.broker.address, job)
        stack.callback(jobs.close)
        made = Run(cluster, jobs, watch, folder / "wait")
        everything = job.partitions
        made.until(lambda status: key_groups_of(status) == [everything], "one worker with everything", 180.0)
        placed = "first placement"
        made.until(lambda status: any(placed in row.text for row in status.decisions), placed, 60.0)
        made.trimtab("pause", "--reason", "until all workers run")
        for index in (1, 2):
            cluster.start_worker(index)
        made.until(lambda status: sorted(key_groups_of(status)) == [0, 0, everything], "two empty workers", 180.0)
        jobs.rates = dict.fromkeys(range(everything), job.rate)
        made.windows(2)
        made.until(lambda status: backlog(status) < 2 * everything, "a job that keeps up", 240.0)
        yield made, jobs


def play(job: Job, folder: Path, name: str, pace: Mapping[str, Any]) -> Found:
    """One run: the plan, the latencies while it runs, and that no job is lost or doubled."""
    slow = folder / f"{name}-slow"
    files = [Path(f"{slow}-{worker}") for worker in job.slow]
    for each in files:
        each.touch()
    cluster = SandboxCluster(settings_of(job, name, slow, pace), folder / name)
    with cluster_with(job, cluster, folder / name) as (run, jobs):
        run.trimtab("resume")
        run.until(lambda status: status.rounds, "a plan", 120.0)
        begun = run.last.rounds[-1].started_at
        run.until(lambda status: status.at > begun + MEASURED_S, "the time that is measured", 2 * MEASURED_S)
        moved = sum(row.key_groups for row in run.last.nodes if row.worker != "w0")
        for each in files:
            each.unlink()
        run.until(lambda status: all(row.ended_at for row in status.rounds), "the end of all plans", 300.0)
        jobs.close()
        run.until(lambda status: backlog(status) == 0, "no backlog", 300.0)
        run.windows(2)
        broker = run.cluster.broker.address
        assert counted(broker).items() >= run.jobs.sent.items(), "no job is lost or doubled"
        took = latencies(broker, jobs.sent_at, begun, begun + MEASURED_S)
        events = [decoded(row.value, Event) for row in read_topic(broker, run.cluster.topics.events)]
        return Found(
            p50_s=float(np.percentile(took, 50)),
            p99_s=float(np.percentile(took, 99)),
            longest_s=max(took),
            jobs=len(took),
            moved=moved,
            told=tuple(f"{row.phase}: {row.text}" for row in events if row.kind == "plan"),
        )


def latencies(bootstrap: str, sent_at: Mapping[str, list[float]], start_s: float, end_s: float) -> list[float]:
    """From the sending of each job until its count was written, of those sent between these times."""
    found = []
    for row in read_topic(bootstrap, CHANGELOG):
        key = json.loads(row.key) if row.key else ""
        if key in sent_at and row.value:
            sent = sent_at[key][json.loads(row.value) - 1]
            if start_s <= sent < end_s:
                found.append(max(0.0, row.at - sent))
    return found


def told(name: str, found: Found) -> Found:
    """Print it."""
    print(
        f"\n{name}: p50 {found.p50_s:.2f} s, p99 {found.p99_s:.1f} s, longest {found.longest_s:.1f} s "
        f"of {found.jobs} jobs; {found.moved} key groups moved",
        *found.told,
        sep="\n  ",
        flush=True,
    )
    return found


def test_pace_keeps_the_latency_within_its_limit(tmp_path: Path) -> None:
    paced = told("slow restores, pace and guard", play(RESTORES, tmp_path, "paced", GUARD))
    assert paced.p99_s <= RESTORES.limit_s
    assert paced.moved >= 0.8 * RESTORES.moves, "the plan has moved what evens the load"


def test_the_guard_ends_a_plan_and_takes_it_back(tmp_path: Path) -> None:
    alone = told("slow workers, pace, no guard", play(WORKERS, tmp_path, "alone", NO_GUARD))
    guarded = told("slow workers, pace and guard", play(WORKERS, tmp_path, "guarded", GUARD))
    assert alone.p99_s > 2.0 * WORKERS.limit_s
    assert guarded.p99_s <= WORKERS.limit_s
    assert alone.moved >= 0.8 * WORKERS.moves
    assert any("ended by the guard" in each for each in guarded.told)
    assert any("the guard rolls plan" in each for each in guarded.told)
