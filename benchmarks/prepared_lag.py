"""Measures how far a warm standby is behind its changelogs while they grow, and whether that counts as prepared.

    python -m benchmarks.prepared_lag [RATE ...]

A real broker, the reader of standbys, and two changelogs that grow by so many records per second in all.  Each look
compares what is applied with fresh ends of the logs, as a hand-over does.  It begins with 20,000 records to catch up.
"""

import asyncio
import statistics
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

from aiokafka import AIOKafkaConsumer, TopicPartition
from confluent_kafka import Producer
from faust.types import TP

from trimtab_agent.engines.faust.settings import SteeringSettings
from trimtab_agent.engines.faust.tables.bulk_restore import BulkRestore
from trimtab_agent.engines.faust.tables.changelog_reader import ChangelogReader
from trimtab_sandbox.broker import Broker, Topic
from trimtab_sandbox.processes import Processes

RATES = (490, 990, 1_640, 5_000, 16_400)
LOGS = (TP("counts", 0), TP("sums", 0))
BEHIND, VALUE = 10_000, b"x" * 100
LOOKS, LOOK_EVERY_S = 200, 0.02


class Table:
    """Counts what is applied, and takes as long as a small database."""

    def apply_changelog_batch(self, events: list[Any]) -> None:
        """One chunk."""


def grow(bootstrap: str, rate: float, over: threading.Event) -> None:
    """Write to both logs in turn at this rate."""
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 5})
    began, sent = time.monotonic(), 0
    while not over.wait(0.005):
        while sent < (time.monotonic() - began) * rate:
            producer.produce(LOGS[sent % 2].topic, VALUE, b"%d" % (sent % 500), 0)
            sent += 1
        producer.poll(0)
    producer.flush(30.0)


async def measured(bootstrap: str, rate: float) -> str:
    """One row."""
    settings, connection = SteeringSettings(), {"bootstrap_servers": bootstrap}
    reader = ChangelogReader(connection, BulkRestore(connection))
    async with AIOKafkaConsumer(bootstrap_servers=bootstrap) as consumer:

        async def ends() -> dict[Any, int]:
            found: dict[Any, int] = await consumer.end_offsets([TopicPartition(*tp) for tp in LOGS])
            return found

        for tp in LOGS:
            reader.follow(tp, Table(), -1)
        following = asyncio.ensure_future(reader.run())
        began, first, start = time.monotonic(), None, sum((await ends()).values())
        lags: list[int] = []
        good = 0
        while len(lags) < LOOKS:
            now = await ends()
            lag = sum(max(0, now[TopicPartition(*tp)] - 1 - (reader.applied(tp) or 0)) for tp in LOGS)
            allowed = max(settings.prepared_lag_records, settings.prepared_lag_s * reader.records_s)
            if first is None and lag <= allowed:
                first = time.monotonic() - began
            if first is not None or time.monotonic() - began > settings.prepare_limit_s:
                lags.append(lag)
                good += lag <= allowed
            await asyncio.sleep(LOOK_EVERY_S)
        written = (sum((await ends()).values()) - start) / (time.monotonic() - began)
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)
    when = "never" if first is None else f"{first:.1f} s"
    return (
        f"{rate:8,.0f} {written:9,.0f} {reader.records_s:9,.0f} {when:>9} {statistics.median(lags):7.0f} "
        f"{max(lags):7} {allowed:8.0f} {good / len(lags):9.0%} {sum(lag <= 50 for lag in lags) / len(lags):9.0%}"
    )


def main() -> None:
    """Print the table."""
    print("    rate   written     reads  prepared  behind    most  allowed  prepared within 50")
    for rate in map(float, sys.argv[1:] or RATES):
        with tempfile.TemporaryDirectory() as folder:
            place = Path(folder)
            with Processes(place / "logs") as processes, Broker(place / "broker", processes) as broker:
                broker.create_topics([Topic(name=tp.topic, partitions=1) for tp in LOGS])
                fill = Producer({"bootstrap.servers": broker.address})
                for number in range(BEHIND):
                    for tp in LOGS:
                        fill.produce(tp.topic, VALUE, b"%d" % (number % 500), 0)
                fill.flush(60.0)
                over = threading.Event()
                growing = threading.Thread(target=grow, args=(broker.address, rate, over))
                growing.start()
                try:
                    print(asyncio.run(measured(broker.address, rate)), flush=True)
                finally:
                    over.set()
                    growing.join()


if __name__ == "__main__":
    main()
