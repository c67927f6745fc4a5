"""A new app reads a source whose offsets are mostly no records: no worker is started for records that are not there.

The source is compacted by a real broker.  Its survivors lie evenly over the log, or most of them at its head: keys that
were written once, and then others again and again.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Producer

from flights.readback import read_topic
from flights.steered_run import READY_LIMIT_S
from flights.watch import StatusWatch
from tests.e2e.paced_run import CHANGELOG, Jobs, Run, counted
from tests.e2e.throttle import Throttle
from tests.paths import ROOT
from tests.shown import Show
from trimtab_protocol.messages.report import WorkerState
from trimtab_protocol.messages.status import NodeStatus, Status
from trimtab_sandbox.broker import Brokers, Topic
from trimtab_sandbox.cluster import SandboxCluster
from trimtab_sandbox.configuration import SandboxSettings

pytestmark = [pytest.mark.scenario, pytest.mark.timeout(900)]

PARTITIONS = 4
OFFSETS, SURVIVORS = 375_000, 7_552
"""Of each partition."""
CAPACITY, BURN_S = 0.5, 0.002
OFTEN = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.0", "segment.ms": "1000"}
EAGER = {"log.cleaner.backoff.ms": "100", "log.cleaner.min.cleanable.ratio": "0.001"}


def evenly(offset: int) -> bool:
    """Whether the record at this offset is the last one of its key: one in 50."""
    return offset % (OFFSETS // SURVIVORS) == 0


def at_the_head(offset: int) -> bool:
    """The first 7,500, and then one in 7,000."""
    return offset < SURVIVORS - OFFSETS // 7_000 or offset % 7_000 == 0


def fill(bootstrap: str, survives: Callable[[int], bool]) -> None:
    """Write all offsets, and wait until compaction has left hardly more than the survivors."""
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 50, "queue.buffering.max.messages": 500_000})
    for offset in range(OFFSETS):
        for partition in range(PARTITIONS):
            key = f"key-{partition}-{offset}" if survives(offset) else f"key-{partition}"
            producer.produce("jobs", b"{}", key, partition)
        if offset % 1_000 == 0:
            producer.poll(0)
            while len(producer) > 400_000:
                producer.poll(0.1)
    assert not producer.flush(120.0)
    deadline = time.monotonic() + 120.0
    while (left := sum(1 for _ in read_topic(bootstrap, "jobs"))) > 2 * PARTITIONS * SURVIVORS:
        assert time.monotonic() < deadline, f"{left} records left"
        time.sleep(2.0)
        for partition in range(PARTITIONS):  # the newest segment is not compacted, so there is a newer one
            producer.produce("jobs", b"{}", f"key-{partition}", partition)
        producer.flush()
    print(f"{left} records on {PARTITIONS * OFFSETS} offsets")


@contextmanager
def reading(folder: Path, survives: Callable[[int], bool]) -> Iterator[Run]:
    """The source, one worker that begins to read it, and a pool of three."""
    settings = SandboxSettings(
        app="tests.e2e.paced_app:app",
        app_folder=ROOT,
        cluster="compacted",
        workers=4,
        pool=3,
        app_id="paced",
        capacity_cores=CAPACITY,
        host_cores=1.0,
        interval_s=2.5,
        environment={"PARTITIONS": str(PARTITIONS), "BURN_S": str(BURN_S)},
        controller={"scaling": {"mode": "act", "scale_up_delay_s": 10.0}},
    )
    with ExitStack() as stack:
        cluster = stack.enter_context(SandboxCluster(settings, folder / "cluster"))
        cluster.broker = Brokers(folder / "broker", cluster.processes, settings=EAGER)
        cluster.start_broker()
        cluster.broker.create_topics(
            [
                Topic(name="jobs", partitions=PARTITIONS, settings=OFTEN),
                Topic(name=CHANGELOG, partitions=PARTITIONS, settings={"cleanup.policy": "compact"}),
            ]
        )
        fill(cluster.broker.address, survives)
        cluster.write_controller_toml()
        cluster.start_controller(act=True)
        for index in range(4):
            cluster.start_agent(index)
        watch = stack.enter_context(StatusWatch(cluster.broker.address, cluster.topics))
        jobs = Jobs(cluster.broker.address, 0.0, PARTITIONS)
        stack.callback(jobs.close)
        made = Run(cluster, jobs, watch, folder / "wait")
        made.until(lambda status: len(status.pool) == 3, "a pool", limit_s=READY_LIMIT_S)
        cluster.start_worker(0)
        stack.enter_context(Throttle([cluster.pids["w0"]], CAPACITY))
        yield made


def running(status: Status) -> list[NodeStatus]:
    return [row for row in status.nodes if row.state is WorkerState.RUNNING]


@pytest.mark.parametrize("survives", [evenly, at_the_head])
def test_no_worker_is_started_for_records_that_compaction_has_removed(
    tmp_path: Path, survives: Callable[[int], bool], show: Show
) -> None:
    with reading(tmp_path, survives) as run:
        begun = time.monotonic()
        seen: dict[float | None, Status] = {}

        def at_the_end(status: Status) -> bool:
            if status.window_end not in seen:
                seen[status.window_end] = status
                size = [app.size.text for app in status.apps if app.size]
                rows = [(row.worker, row.used_pct, row.demand_pct, row.backlog) for row in running(status)]
                print(f"{time.monotonic() - begun:.0f}", rows, size, flush=True)
            return bool(running(status)) and all(row.backlog == 0 for row in running(status))

        last = run.until(at_the_end, "all is read", limit_s=600.0)
        most = max((row.backlog or 0 for status in seen.values() for row in running(status)), default=0)
        show("largest backlog", f"about {PARTITIONS * SURVIVORS:,}", f"{most:,}")
        show("workers that were started", "0", str(len(running(last)) - 1))
        print([row.text for row in last.decisions if row.kind == "resize"])
        assert most < 3 * PARTITIONS * SURVIVORS
        assert len(running(last)) == 1
        assert len(last.pool) == 3
        assert len(counted(run.cluster.broker.address)) > PARTITIONS * (SURVIVORS - 60)
