"""Counts jobs per key, and spends CPU on each, or waits for something else: the job of several end-to-end tests.

Each job burns BURN_S seconds of CPU, and twice as much on the worker SLOW, as if its host were half as fast.  While
the file WAIT exists, it also waits WAIT_S seconds, as for a database.

A worker that starts while the file GROWN exists is of a later version: it has one more topic and table, in the same
operator, or, if that is what the file says, `apart`.
"""

import asyncio
import os
import time
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import faust

from trimtab_agent.engines.faust import install

PARTITIONS = int(os.environ["PARTITIONS"])
BURN_S = float(os.environ["BURN_S"])
SLOW = os.environ.get("SLOW")
COST_S = 2.0 * BURN_S if os.environ.get("TRIMTAB_WORKER") == SLOW else BURN_S
GROWN = Path(os.environ.get("GROWN", "/nowhere"))
WAIT, WAIT_S = Path(os.environ.get("WAIT", "/nowhere")), float(os.environ.get("WAIT_S", "0.4"))

disk: AbstractContextManager[object] = nullcontext()
"""What a write to the table holds; `slow_disk_app` has one that others use too."""

app = faust.App(
    "paced",
    store="rocksdb://",
    topic_partitions=PARTITIONS,
    topic_replication_factor=1,
    consumer_auto_offset_reset="earliest",
    stream_wait_empty=True,
    table_standby_replicas=int(os.environ.get("STANDBYS", "0")),
)
jobs = app.topic("jobs", key_serializer="raw", value_serializer="raw", partitions=PARTITIONS)
counts = app.Table("counts", partitions=PARTITIONS)


@app.agent(jobs, name="count")
async def count(stream: Any) -> None:
    async for event in stream.events():
        until = time.thread_time() + COST_S
        while time.thread_time() < until:
            pass
        if WAIT.exists():
            await asyncio.sleep(WAIT_S)
        key = event.key.decode()
        with disk:
            counts[key] = (counts.get(key) or 0) + 1


named: list[Any] = [jobs, counts]
if GROWN.exists():
    refunds = app.topic("refunds", key_serializer="raw", value_serializer="raw", partitions=PARTITIONS)
    refunded = app.Table("refunded", partitions=PARTITIONS)
    named += [] if GROWN.read_text() == "apart" else [refunds, refunded]

    @app.agent(refunds, name="refund")
    async def refund(stream: Any) -> None:
        async for event in stream.events():
            key = event.key.decode()
            refunded[key] = (refunded.get(key) or 0) + 1


install(app, operators={"jobs": named})
