"""The job as a Faust app.  `python -m flights.app worker` starts a worker with `flights.settings`."""

import hashlib
import os
import time
from typing import Any

import faust

from flights.dataset import parse_row
from flights.settings import from_environment
from flights.wire import (
    APP,
    DELAYS,
    EXTRACT,
    SOURCE,
    SUMS,
    TOTALS,
    TOTALS_PARTITIONS,
    decode_source,
    table_key,
)
from trimtab_agent.engines.faust import SteeringSettings, install

HASHES_PER_LOOK = 10
"""About 10 µs of work between two reads of the clock, which take 0.3 µs each."""

settings = from_environment(os.environ)

app = faust.App(
    APP,
    broker=f"kafka://{settings.broker}",
    datadir=settings.data_dir,
    store="rocksdb://",
    topic_partitions=settings.key_groups,
    topic_replication_factor=1,
    topic_disable_leader=True,
    consumer_auto_offset_reset="earliest",
    broker_commit_interval=settings.commit_s,
    broker_session_timeout=settings.session_s,
    stream_wait_empty=True,
    producer_linger=0.025,  # fewer, larger requests: small records cost little, requests much
    web_enabled=False,
    web_port=settings.web_port,
)
flights = app.topic(SOURCE, key_serializer="raw", value_serializer="raw", partitions=settings.key_groups)
delays = app.topic(DELAYS, key_serializer="raw", value_serializer="json", partitions=settings.key_groups)
totals = app.topic(TOTALS, key_serializer="raw", value_serializer="json", partitions=TOTALS_PARTITIONS)
sums = app.Table(
    "sums",
    partitions=settings.key_groups,
    # There is a database per partition; Faust's defaults are for one large database.
    options={"block_cache_size": 1 << 20, "write_buffer_size": 1 << 20, "max_open_files": 64},
)


def work(value: bytes) -> None:
    """Use CPU like heavier business logic; the same CPU time on any machine."""
    end_ns = time.thread_time_ns() + settings.work * 1000
    while time.thread_time_ns() < end_ns:
        for _ in range(HASHES_PER_LOOK):
            hashlib.blake2b(value, digest_size=16)


@app.agent(flights)  # type: ignore[untyped-decorator]
async def extract(stream: Any) -> None:
    """Send the delay of each flight, keyed by its airplane."""
    async for value in stream:
        sequence, row = decode_source(value)
        work(value)
        delay = parse_row(row)
        await delays.send(key=delay.airplane.encode(), value=[sequence, delay.year, delay.minutes])


@app.agent(delays)  # type: ignore[untyped-decorator]
async def sum_delays(stream: Any) -> None:
    """Sum flights and minutes late per airplane and year."""
    async for airplane, (sequence, year, minutes) in stream.items():
        work(airplane)
        key = table_key(airplane.decode(), year)
        count, late = sums.get(key) or (0, 0)
        sums[key] = [count + 1, late + minutes]
        await totals.send(key=airplane, value=[sequence, year, count + 1, late + minutes])


if settings.plugin:
    install(
        app,
        operators={EXTRACT: [flights], SUMS: [delays, sums]},
        settings=SteeringSettings(
            fetch_min_bytes=1 << 16,  # larger fetches, as above
            fetch_max_wait_ms=60,
            in_place=settings.in_place,
        ),
        local=[delays] if settings.local else [],
    )

if __name__ == "__main__":
    app.main()
