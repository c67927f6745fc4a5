"""Measures what the plug-in costs: the flights job on one worker at full speed, with and without it, in turns.

    PYTHONPATH=examples python benchmarks/plugin_overhead.py [--runs 5] [--flights 40000] [--work 0]

A run has a fresh broker, an agent that takes statistics every second, and one worker.  Once the worker is ready, all
flights are sent at once; the time runs until the last output.  Only complete runs are compared, because stock Faust
processes a backlog operator by operator, so that a part of a run is mostly the work of one operator.

Without `--work` the job does nothing beyond the example, which gives the largest overhead to expect.  With it, each of
the two operators uses this many microseconds of CPU per tuple.  The output has the medians of flights per second (which
other load on the machine disturbs) and of the worker's CPU per flight (less disturbed), and their changes.  An overhead
below 0 is possible: the plug-in delivers and sends messages with less CPU than Faust (`SteeredConsumer._deliver`,
`SteeredProducer`), and that can outweigh measuring, guarding and steering.
"""

import argparse
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import psutil
from confluent_kafka import Consumer, TopicPartition

from flights.dataset import Flight, read_flights
from flights.producer import FlightProducer
from flights.wire import CHANGELOG, TOTALS, TOTALS_PARTITIONS, partitions
from trimtab_sandbox.broker import Topic
from trimtab_sandbox.cluster import SandboxCluster
from trimtab_sandbox.command import EXAMPLES, FLIGHTS_ENVIRONMENT
from trimtab_sandbox.configuration import SandboxSettings, worker_name
from trimtab_sandbox.parser import FLIGHTS_APP

KEY_GROUPS = 16
READY_LIMIT_S = 60.0
SETTLE_S = 2.0
"""Wait from readiness to the first flight, for deferred work of the start."""
RUN_LIMIT_S = 300.0
AT_ONCE = 1e9
"""Flights per second, so many that all are due at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Speed:
    """The result of one run."""

    flights_per_s: float
    cpu_ms_per_flight: float


@contextmanager
def one_worker(
    *, plugin: bool, work: int = 0, key_groups: int = KEY_GROUPS, interval_s: float = 1.0
) -> Iterator[SandboxCluster]:
    """A broker, an agent and one worker of the flights job that is ready."""
    environment = {
        **FLIGHTS_ENVIRONMENT,
        "FLIGHTS_KEY_GROUPS": str(key_groups),
        "FLIGHTS_WORK": str(work),
        "FLIGHTS_PLUGIN": str(int(plugin)),
    }
    settings = SandboxSettings(
        app=FLIGHTS_APP,
        app_folder=EXAMPLES,
        workers=1,
        capacity_cores=1.0,
        interval_s=interval_s,
        environment=environment,
    )
    with tempfile.TemporaryDirectory() as folder, SandboxCluster(settings, Path(folder)) as cluster:
        cluster.start_broker()
        compacted = {"cleanup.policy": "compact"}
        cluster.broker.create_topics(
            [
                Topic(name=name, partitions=count, settings=compacted if name == CHANGELOG else {})
                for name, count in partitions(key_groups).items()
            ]
        )
        cluster.start_agent(0)
        worker = cluster.start_worker(0)
        deadline = time.monotonic() + READY_LIMIT_S
        while "Worker ready" not in worker.log.read_text(encoding="utf-8"):
            cluster.check()
            if time.monotonic() > deadline:
                raise TimeoutError(f"the worker is not ready after {READY_LIMIT_S:g} s")
            time.sleep(0.1)
        yield cluster


def run(flights: list[Flight], *, plugin: bool, work: int) -> Speed:
    """Run once."""
    with one_worker(plugin=plugin, work=work) as cluster:
        worker = psutil.Process(cluster.pids[worker_name(0)])
        outputs = Consumer({"bootstrap.servers": cluster.broker.address, "group.id": "overhead"})
        time.sleep(SETTLE_S)
        began, used_before = time.monotonic(), worker.cpu_times()
        with FlightProducer(cluster.broker.address, flights, key_groups=KEY_GROUPS, rate=AT_ONCE) as producer:
            while (done := count(outputs)) < len(flights):
                cluster.check()
                if time.monotonic() > began + RUN_LIMIT_S:
                    raise TimeoutError(f"{done} of {len(flights)} flights after {RUN_LIMIT_S:g} s")
                time.sleep(0.05)
            ended, used_after = time.monotonic(), worker.cpu_times()
            producer.stop()
        outputs.close()
    used_s = used_after.user + used_after.system - used_before.user - used_before.system
    return Speed(flights_per_s=len(flights) / (ended - began), cpu_ms_per_flight=1000 * used_s / len(flights))


def count(consumer: Consumer) -> int:
    """Outputs so far."""
    places = [TopicPartition(TOTALS, partition) for partition in range(TOTALS_PARTITIONS)]
    return sum(consumer.get_watermark_offsets(place, timeout=10)[1] for place in places)


def main() -> None:
    """Run in turns and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=5, help="of each kind")
    parser.add_argument("--flights", type=int, default=40_000)
    parser.add_argument("--work", type=int, default=0, help="CPU microseconds per tuple and operator")
    given = parser.parse_args()
    flights = list(read_flights(limit=given.flights))
    speeds: dict[bool, list[Speed]] = {False: [], True: []}
    for number in range(given.runs):
        for plugin in (False, True) if number % 2 == 0 else (True, False):
            speed = run(flights, plugin=plugin, work=given.work)
            speeds[plugin].append(speed)
            name = "with plug-in" if plugin else "stock"
            print(f"{name:14}{speed.flights_per_s:8.0f} flights/s {speed.cpu_ms_per_flight:8.3f} ms CPU per flight")
    stock, steered = (
        Speed(
            flights_per_s=median(speed.flights_per_s for speed in speeds[plugin]),
            cpu_ms_per_flight=median(speed.cpu_ms_per_flight for speed in speeds[plugin]),
        )
        for plugin in (False, True)
    )
    print(
        f"medians: throughput {stock.flights_per_s:.0f} -> {steered.flights_per_s:.0f} flights/s "
        f"(overhead {100 * (1 - steered.flights_per_s / stock.flights_per_s):+.1f} %), CPU per flight "
        f"{stock.cpu_ms_per_flight:.3f} -> {steered.cpu_ms_per_flight:.3f} ms "
        f"({100 * (steered.cpu_ms_per_flight / stock.cpu_ms_per_flight - 1):+.1f} %)"
    )


if __name__ == "__main__":
    main()
