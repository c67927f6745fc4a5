"""Measures what the same hardware does: workers of unequal capacity and skewed keys, stock Faust and Trimtab.

    PYTHONPATH=examples python -m benchmarks.throughput [--capacities 0.4 0.2 0.1] [--events 3000] [--skew 1]

As root, since each worker gets a cgroup with its CPU quota, once it runs, and goes before everything else.  The job is
that of the demo, with `--work` microseconds of CPU per flight and operator; the rates of key groups differ (lognormal,
sigma `--skew`).  A run has a fresh broker.  First a steady load of half of what the quotas could do; with Trimtab until
it has found nothing better for `--calm` seconds.  Then `--events` are sent at once, and the clock runs until the last
output: in the long run a job does what its busiest worker can do.

The bound is what the quotas would do if no worker ever waited: their sum / CPU per event, by the run that needs less.
*used* = the share of the quotas that the workers have used.
"""

import argparse
import os
import random
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka import Consumer

from benchmarks.plugin_overhead import count
from flights.cpu import CpuMeter, Part
from flights.dataset import read_flights
from flights.producer import FlightProducer
from flights.steered_run import topics_of_the_job
from flights.watch import StatusWatch
from trimtab_sandbox.cluster import SandboxCluster
from trimtab_sandbox.command import EXAMPLES, FLIGHTS_ENVIRONMENT
from trimtab_sandbox.configuration import SandboxSettings, worker_name
from trimtab_sandbox.parser import FLIGHTS_APP

STOCK, TRIMTAB = "stock", "trimtab"
KINDS = (STOCK, TRIMTAB)
KEY_GROUPS = 48
STEADY = 0.5
"""The first load, as a share of what the quotas could do."""
BURST_S = 1.0
IDLE = 1e-6
"""A rate of next to nothing."""
LIMIT_S = 240.0
TICK_S = 0.1
PERIOD_US = 20_000
CGROUPS = Path("/sys/fs/cgroup")


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """The load and the workers: `capacities` in cores, `speeds` of the key groups."""

    capacities: tuple[float, ...]
    speeds: tuple[float, ...]
    events: int
    work_us: int
    calm_s: float

    @property
    def steady(self) -> float:
        """The first load, in events per second."""
        return STEADY * sum(self.capacities) / (2e-6 * self.work_us)


@dataclass(frozen=True, slots=True, kw_only=True)
class Speed:
    """What a run came to: events per second, CPU seconds per event, and the share of the quotas that was used."""

    events_per_s: float
    cpu_s: float
    used: float


@contextmanager
def quota(name: str, cores: float) -> Iterator[Path]:
    """A cgroup with this CPU quota, which it gets first, for processes that end before it does."""
    new = (CGROUPS / "cgroup.controllers").exists()
    group = (CGROUPS if new else CGROUPS / "cpu") / name
    group.mkdir()
    try:
        if new:
            (group / "cpu.max").write_text(f"{round(cores * PERIOD_US)} {PERIOD_US}")
            (group / "cpu.weight").write_text("10000")
        else:
            (group / "cpu.cfs_period_us").write_text(str(PERIOD_US))
            (group / "cpu.cfs_quota_us").write_text(str(round(cores * PERIOD_US)))
            (group / "cpu.shares").write_text("100000")
        yield group / "cgroup.procs"
    finally:
        group.rmdir()


def run(load: Load, *, steered: bool, folder: Path) -> Speed:
    """One run."""
    settings = SandboxSettings(
        app=FLIGHTS_APP,
        app_folder=EXAMPLES,
        workers=len(load.capacities),
        capacity_cores=load.capacities,
        environment={
            **FLIGHTS_ENVIRONMENT,
            "FLIGHTS_KEY_GROUPS": str(KEY_GROUPS),
            "FLIGHTS_WORK": str(load.work_us),
            "FLIGHTS_PLUGIN": str(int(steered)),
        },
    )
    with ExitStack() as stack:
        names = (f"trimtab-{os.getpid()}-{worker_name(index)}" for index in settings.started)
        groups = [stack.enter_context(quota(*each)) for each in zip(names, load.capacities, strict=True)]
        cluster = stack.enter_context(SandboxCluster(settings, folder))
        cpu = stack.enter_context(CpuMeter(lambda: cluster.pids))
        if steered:
            cluster.start(topics_of_the_job(KEY_GROUPS), act=True)
        else:
            cluster.start_broker()
            cluster.broker.create_topics(topics_of_the_job(KEY_GROUPS))
            for index in settings.started:
                cluster.start_worker(index)
        workers = [cluster.child(worker_name(index)) for index in settings.started]
        wait(cluster, lambda: all("Worker ready" in worker.log.read_text("utf-8") for worker in workers))
        for group, worker in zip(groups, workers, strict=True):
            group.write_text(str(worker.pid))
        address = cluster.broker.address
        producer = FlightProducer(address, list(read_flights()), key_groups=KEY_GROUPS, rate=load.steady)
        for key_group, speed in enumerate(load.speeds):
            producer.set_speed([key_group], speed)
        outputs = Consumer({"bootstrap.servers": address, "group.id": "throughput"})
        stack.callback(outputs.close)
        stack.enter_context(producer)
        if steered:
            settle(cluster, stack.enter_context(StatusWatch(address, cluster.topics)), load.calm_s)
        else:
            rest(cluster, load.calm_s)
        producer.set_rate(IDLE)
        wait(cluster, lambda: count(outputs) >= producer.count)
        began, sent, used_s = time.monotonic(), producer.count, cpu.seconds()[Part.WORKERS]
        producer.set_rate(load.events / BURST_S)
        rest(cluster, BURST_S)
        producer.set_rate(IDLE)
        wait(cluster, lambda: count(outputs) >= producer.count)
        took, events = time.monotonic() - began, producer.count - sent
        used_s = cpu.seconds()[Part.WORKERS] - used_s
        producer.stop()
    return Speed(events_per_s=events / took, cpu_s=used_s / events, used=used_s / took / sum(load.capacities))


def settle(cluster: SandboxCluster, watch: StatusWatch, calm_s: float) -> None:
    """Wait until Trimtab has moved something, and then nothing for so long."""

    def settled() -> bool:
        watch.poll()
        ends = [row.ended_at for row in watch.rounds.values()]
        return bool(ends) and all(end is not None and time.time() - end >= calm_s for end in ends)

    wait(cluster, settled)


def rest(cluster: SandboxCluster, seconds: float) -> None:
    """Wait, and check that everything runs."""
    until = time.monotonic() + seconds
    wait(cluster, lambda: time.monotonic() >= until)


def wait(cluster: SandboxCluster, done: Callable[[], bool]) -> None:
    """Wait until it is done.  Raises TimeoutError, and ClusterError when a process fails."""
    deadline = time.monotonic() + LIMIT_S
    while not done():
        cluster.check()
        if time.monotonic() > deadline:
            raise TimeoutError(f"not within {LIMIT_S:g} s")
        time.sleep(TICK_S)


def main() -> None:
    """Run both, and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--capacities", type=float, nargs="+", default=(0.4, 0.2, 0.1), help="of the workers, in cores")
    parser.add_argument("--events", type=int, default=3_000, help="how many are sent at once")
    parser.add_argument("--work", type=int, default=1_500, help="CPU microseconds per flight and operator")
    parser.add_argument("--skew", type=float, default=1.0, help="standard deviation of the logarithm of the rates")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--calm", type=float, default=20.0, help="seconds without a plan before the burst")
    parser.add_argument("--only", nargs="+", choices=KINDS, default=KINDS)
    given = parser.parse_args()
    draw = random.Random(given.seed)
    speeds = [draw.lognormvariate(0.0, given.skew) for _ in range(KEY_GROUPS)]
    load = Load(
        capacities=tuple(given.capacities),
        speeds=tuple(KEY_GROUPS * each / sum(speeds) for each in speeds),
        events=given.events,
        work_us=given.work,
        calm_s=given.calm,
    )
    found = {}
    for name in given.only:
        with tempfile.TemporaryDirectory() as folder:
            found[name] = run(load, steered=name == TRIMTAB, folder=Path(folder))
        print(
            f"{name:12}{found[name].events_per_s:8.1f} events/s, {1000 * found[name].cpu_s:.2f} ms of CPU each, "
            f"{found[name].used:.0%} of the quotas used",
            flush=True,
        )
    bound = sum(load.capacities) / min(each.cpu_s for each in found.values())
    print(f"{'bound':12}{bound:8.1f} events/s")
    for name, speed in found.items():
        print(f"{name} does {speed.events_per_s / bound:.0%} of the bound")


if __name__ == "__main__":
    main()
