"""Counts jobs per key, and keeps unequal ballast: the job of `redundant.py`, whose workers read changelogs slowly."""

import asyncio
import os
from typing import Any

import faust
from aiokafka import AIOKafkaConsumer

from trimtab_agent.engines.faust import install
from trimtab_agent.engines.faust.tables import changelog_reader

PARTITIONS = int(os.environ["PARTITIONS"])
LINK_BYTES_S = float(os.environ["LINK_BYTES_S"])


class SlowLink(AIOKafkaConsumer):  # type: ignore[misc]
    """Reads what standbys and hand-overs restore as if the host had a slow link of its own."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options, max_partition_fetch_bytes=200_000)  # else one partition has the link for seconds

    async def getmany(self, *tps: Any, timeout_ms: int = 0, max_records: int | None = None) -> Any:
        """At most ten records, and a pause for as long as the link takes for them."""
        batches = await super().getmany(*tps, timeout_ms=timeout_ms, max_records=10)
        size = sum(len(row.key or b"") + len(row.value or b"") for rows in batches.values() for row in rows)
        await asyncio.sleep(size / LINK_BYTES_S)
        return batches


changelog_reader.AIOKafkaConsumer = SlowLink  # type: ignore[attr-defined]

app = faust.App(
    "redundant",
    store="rocksdb://",
    topic_partitions=PARTITIONS,
    topic_replication_factor=1,
    consumer_auto_offset_reset="earliest",
    stream_wait_empty=True,
    table_standby_replicas=1,
    broker_session_timeout=float(os.environ["SESSION_S"]),
    broker_heartbeat_interval=1.0,
)
jobs = app.topic("jobs", key_serializer="raw", value_serializer="raw", partitions=PARTITIONS)
counts = app.Table("counts", partitions=PARTITIONS)
ballast = app.Table("ballast", partitions=PARTITIONS)


@app.agent(jobs, name="count")  # type: ignore[untyped-decorator]
async def count(stream: Any) -> None:
    """Count them."""
    async for event in stream.events():
        key = event.key.decode()
        counts[key] = (counts.get(key) or 0) + 1


install(app, operators={"jobs": [jobs, counts, ballast]})
