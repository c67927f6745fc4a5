"""Measures what the agent costs its host: CPU and memory, with real reports to a real broker.

    python benchmarks/agent_cost.py [--key-groups 1000] [--pairs 1000] [--workers 4] [--seconds 30] [--interval 1 10]

Synthetic workers connect to the agent's socket and send statistics of all their key groups at every interval; the
agent samples, merges, encodes, compresses and sends them.  The first two intervals do not count.  CPU is the agent
process's own, in percent of one core; memory is its peak resident set.
"""

import argparse
import asyncio
import os
import random
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import psutil
from confluent_kafka import Consumer, TopicPartition

from trimtab_protocol.messages.local import Hello, Statistics, Welcome, decode_frame, encode_frame
from trimtab_protocol.messages.names import AppId, Epoch, KeyGroup, OperatorId, Topics, WorkerId, topic_settings
from trimtab_protocol.messages.report import KeyGroupSample, PairSample, WorkerState
from trimtab_sandbox.broker import Broker, Topic
from trimtab_sandbox.processes import Child, Processes

APP, OPERATORS = AppId("flights"), (OperatorId("extract"), OperatorId("sum"))
SEED = 7


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """The amount that all workers together report."""

    workers: int
    key_groups: int
    pairs: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """The cost of the agent."""

    interval_s: float
    seconds: float
    cpu_percent: float
    peak_mb: float
    report_kb: float
    reports: int


def statistics(worker: WorkerId, number: int, size: Size, interval_s: float) -> Statistics:
    """The statistics of a busy worker."""
    draw = random.Random(SEED + number)
    count = size.key_groups // size.workers
    owned = [KeyGroup(APP, OPERATORS[i % 2], number * count + i // 2) for i in range(count)]
    samples = [
        KeyGroupSample(
            key_group=key_group,
            worker=worker,
            cpu_s=draw.random() * interval_s / count,
            tuples_in=draw.randrange(100_000),
            tuples_out=draw.randrange(100_000),
            bytes_in=draw.randrange(10**8),
            bytes_out=draw.randrange(10**8),
            state_bytes=draw.randrange(10**9),
            lag_records=draw.randrange(1000),
            backlog=draw.randrange(1000),
        )
        for key_group in owned
    ]
    pairs = [
        PairSample(source=owned[i % count], target=draw.choice(owned), tuples=draw.randrange(10**6), bytes=10**6)
        for i in range(size.pairs // size.workers)
    ]
    return Statistics(
        at_ms=round(time.time() * 1000),
        interval_s=interval_s,
        state=WorkerState.RUNNING,
        cpu_s=0.5 * interval_s,
        epoch=Epoch(3, 14),
        generation=15,
        complete=True,
        key_groups=tuple(samples),
        pairs=tuple(pairs),
    )


async def play_worker(socket: Path, number: int, size: Size) -> None:
    """Connect and report for ever, at multiples of the interval that the agent asks for."""
    worker = WorkerId(f"w{number}")
    reader, writer = await asyncio.open_unix_connection(str(socket))
    hello = Hello(
        app=APP, worker=worker, pid=os.getpid(), steering=True, reason=None, operators={OPERATORS[0]: 1}, versions={}
    )
    writer.write(encode_frame(hello))
    welcome = decode_frame(await reader.readline())
    assert isinstance(welcome, Welcome)
    while True:
        await asyncio.sleep(welcome.interval_s - time.time() % welcome.interval_s)
        writer.write(encode_frame(statistics(worker, number, size, welcome.interval_s)))
        await writer.drain()


async def measure(agent: Child, socket: Path, size: Size, interval_s: float, seconds: float) -> tuple[float, float]:
    """(CPU percent of a core, largest resident set in MB) over `seconds`, after two intervals."""
    while not socket.exists():
        await asyncio.sleep(0.05)
    workers = [asyncio.create_task(play_worker(socket, number, size)) for number in range(size.workers)]
    await asyncio.sleep(2 * interval_s + 0.5)
    process = psutil.Process(agent.pid)
    before, began = process.cpu_times(), time.monotonic()
    peak = 0
    while time.monotonic() - began < seconds:
        await asyncio.sleep(0.2)
        peak = max(peak, process.memory_info().rss)
        failed = [task.exception() for task in workers if task.done()]
        if failed:
            raise RuntimeError(f"a synthetic worker ended: {failed}")
    after, elapsed = process.cpu_times(), time.monotonic() - began
    for task in workers:
        task.cancel()
    spent = after.user + after.system - before.user - before.system
    return 100 * spent / elapsed, peak / 1e6


def run(folder: Path, broker: Broker, processes: Processes, size: Size, interval_s: float, seconds: float) -> Cost:
    """Measure one agent at one interval."""
    cluster = f"cost{interval_s:g}".replace(".", "-")
    topics = Topics(cluster)
    broker.create_topics([Topic(name=topic.name, partitions=topic.partitions) for topic in topic_settings(topics)])
    home = folder / cluster
    home.mkdir()
    config = home / "agent.toml"
    config.write_text(
        f'[agent]\ncluster = "{cluster}"\nhost = "h0"\ninterval_s = {interval_s}\nstate_dir = "{home}"\n'
        f'socket = "{home}/a.sock"\n[kafka]\nbootstrap_servers = "{broker.address}"\n'
    )
    agent = processes.start(cluster, [sys.executable, "-m", "trimtab_agent.cli", "run", "--config", str(config)])
    cpu_percent, peak_mb = asyncio.run(measure(agent, home / "a.sock", size, interval_s, seconds))
    agent.stop()
    sizes = report_sizes(broker, topics.reports)
    return Cost(
        interval_s=interval_s,
        seconds=seconds,
        cpu_percent=cpu_percent,
        peak_mb=peak_mb,
        report_kb=max(sizes) / 1e3,
        reports=len(sizes),
    )


def report_sizes(broker: Broker, topic: str) -> list[int]:
    """Size in bytes of each report that arrived."""
    consumer = Consumer({"bootstrap.servers": broker.address, "group.id": "cost", "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, partition, 0) for partition in range(4)])
    sizes = []
    while (message := consumer.poll(3)) is not None:
        if message.error() is None:
            sizes.append(len(message.value()))
    consumer.close()
    return sizes


def main() -> None:
    """Measure at each interval and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--key-groups", type=int, default=1000)
    parser.add_argument("--pairs", type=int, default=1000)
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--seconds", type=float, default=30)
    parser.add_argument("--interval", type=float, nargs="+", default=[1.0, 10.0])
    options = parser.parse_args()
    size = Size(workers=options.workers, key_groups=options.key_groups, pairs=options.pairs)
    print(f"{size.key_groups} key groups, {size.pairs} pairs on {size.workers} workers of one host")
    print(f"{'interval':>10} {'CPU of a core':>14} {'memory':>10} {'report':>10} {'arrived':>8}")
    with tempfile.TemporaryDirectory() as name, Processes(Path(name) / "logs") as processes:
        folder = Path(name)
        with Broker(folder / "broker", processes) as broker:
            for interval_s in options.interval:
                cost = run(folder, broker, processes, size, interval_s, options.seconds)
                print(
                    f"{cost.interval_s:>8g} s {cost.cpu_percent:>12.2f} % {cost.peak_mb:>7.1f} MB "
                    f"{cost.report_kb:>7.1f} kB {cost.reports:>8}"
                )


if __name__ == "__main__":
    main()
