"""Measures what the local hop saves: CPU per event of one worker and of its broker, with and without it, in turns.

    python -m benchmarks.local_hop [--runs 5] [--events 20000] [--workers 1] [--records] [--no-table]

The job has two agents: one re-keys, the other counts in a table and forwards.  A run has a fresh broker.  With one
worker, which owns everything, all events between the agents are direct with the local hop; with n workers about 1/n
are, since keys do not follow the workers.  All events are sent before the clocks start; they stop when the last output
is in the log, or when nothing more comes.  `stock` is Faust alone, `plug-in` without local topics, `local` with them.
The output has medians, and the range of the runs; the CPU of workers is that of all of them.
"""

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from statistics import median
from typing import Any

import psutil
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from tests.paths import ROOT, python_path
from trimtab_sandbox.broker import Broker, Topic
from trimtab_sandbox.processes import Child, Processes

MODES = ("stock", "plug-in", "local")
PARTITIONS = 8
SETTLE_S = 2.0
LIMIT_S = 90.0
POLL_S = 0.25
STALL_S = 8.0
COMMAND = [sys.executable, "-m", "benchmarks.local_hop_app", "worker", "-l", "warn", "--without-web"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """The result of one run, per event."""

    worker_us: float
    broker_us: float
    events_per_s: float
    by_broker: int
    """How many events between the agents went by the broker."""
    lost: int
    """Stock Faust may lose events that it has fetched before its first seek."""


def measure(mode: str, *, events: int, workers: int, records: bool, table: bool) -> Cost:
    """One run."""
    with (
        tempfile.TemporaryDirectory() as name,
        Processes(Path(name) / "logs") as processes,
        Broker(Path(name) / "broker", processes) as broker,
    ):
        folder = Path(name)
        logged = ("numbers", "regrouped", "outputs", "local-hop-counts-changelog")
        broker.create_topics([Topic(name=topic, partitions=PARTITIONS) for topic in logged])
        setup = {
            "bootstrap": broker.address,
            "partitions": PARTITIONS,
            "mode": mode,
            "records": records,
            "table": table,
            "gate": str(folder / "gate"),
        }
        started = [_start(processes, f"w{number}", folder, setup) for number in range(workers)]
        for worker in started:
            _wait(lambda worker=worker: _owns(folder) == workers or not worker.alive, "the workers are not ready")  # type: ignore[misc]
            if not worker.alive:
                raise RuntimeError(f"a worker has ended: {worker.log.read_text()[-2000:]}")
        _send(broker.address, events)
        time.sleep(SETTLE_S)
        measured = [psutil.Process(broker.process.pid), *(psutil.Process(worker.pid) for worker in started)]
        admin = AdminClient({"bootstrap.servers": broker.address})
        before, began = [_cpu_s(each) for each in measured], time.monotonic()
        (folder / "gate").touch()
        done, grown_at, used = 0, began, [0.0] * len(measured)
        while done < events and time.monotonic() - grown_at < STALL_S:
            time.sleep(POLL_S)
            if (now := _end(admin, "outputs")) > done:
                done, grown_at = now, time.monotonic()
                used = [_cpu_s(each) - was for each, was in zip(measured, before, strict=True)]
        return Cost(
            worker_us=sum(used[1:]) / done * 1e6,
            broker_us=used[0] / done * 1e6,
            events_per_s=done / (grown_at - began),
            by_broker=_end(admin, "regrouped"),
            lost=events - done,
        )


def _start(processes: Processes, name: str, folder: Path, setup: dict[str, Any]) -> Child:
    own = {**setup, "worker": name, "owns": str(folder / f"{name}.owns"), "data": str(folder / name)}
    environment = {
        "LOCAL_HOP_SETUP": json.dumps(own),
        "PYTHONPATH": python_path(ROOT),
        "TRIMTAB_CLUSTER": "bench",
        "TRIMTAB_WORKER": name,
    }
    return processes.start(name, COMMAND, environment=environment, folder=folder)


def _owns(folder: Path) -> int:
    """How many workers own something, once each partition of the inputs has one owner; 0 before."""
    owned = [path.read_text().split() for path in folder.glob("*.owns")]
    return sum(map(bool, owned)) if sorted(chain(*owned)) == sorted(map(str, range(PARTITIONS))) else 0


def _send(address: str, events: int) -> None:
    producer = Producer({"bootstrap.servers": address, "linger.ms": 20})
    for number in range(events):
        producer.produce("numbers", str(number).encode(), key=f"k{number}".encode(), partition=number % PARTITIONS)
        producer.poll(0)
    producer.flush()


def _end(admin: AdminClient, topic: str) -> int:
    wanted = {TopicPartition(topic, partition): OffsetSpec.latest() for partition in range(PARTITIONS)}
    return sum(found.result().offset for found in admin.list_offsets(wanted).values())


def _cpu_s(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


def _wait(done: Callable[[], bool], complaint: str) -> None:
    deadline = time.monotonic() + LIMIT_S
    while not done():
        if time.monotonic() > deadline:
            raise TimeoutError(f"{complaint} after {LIMIT_S:g} s")
        time.sleep(0.1)


def _row(values: list[float]) -> str:
    return f"{median(values):9.1f} ({min(values):.0f}-{max(values):.0f})"


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--events", type=int, default=20_000)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--records", action="store_true", help="values are records, which are encoded and decoded")
    parser.add_argument("--no-table", action="store_true", help="the second agent only forwards")
    parser.add_argument("--modes", nargs="+", choices=MODES, default=MODES)
    given = parser.parse_args()
    costs: dict[str, list[Cost]] = {mode: [] for mode in given.modes}
    for _ in range(given.runs):
        for mode in given.modes:
            options = {"workers": given.workers, "records": given.records, "table": not given.no_table}
            costs[mode].append(measure(mode, events=given.events, **options))
            print(mode, costs[mode][-1], flush=True)
    print("mode       worker us/event     broker us/event       events/s     by broker")
    for mode, found in costs.items():
        print(
            f"{mode:8s} {_row([c.worker_us for c in found]):>18s} {_row([c.broker_us for c in found]):>18s} "
            f"{_row([c.events_per_s for c in found]):>20s} {median(c.by_broker for c in found):9.0f}"
        )


if __name__ == "__main__":
    main()
