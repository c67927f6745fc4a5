"""The job of `test_guard`: counts jobs per key, on a slow disk that each worker's writes and restores share.

A restore keeps the disk busy for STALL_S seconds per CHUNK records, as a store whose writes stall.  What the job writes
waits for that, with its whole event loop.
"""

import os
import threading
import time
from collections.abc import Collection
from typing import Any

import faust

from trimtab_agent.engines.faust import install
from trimtab_agent.engines.faust.tables.changelog_reader import ChangelogReader

PARTITIONS = int(os.environ["PARTITIONS"])
BURN_S = float(os.environ["BURN_S"])
STALL_S = float(os.environ["STALL_S"])
CHUNK = 50
BALLAST = b'"ballast'
"""How the keys of records begin that are there to be restored."""
DISK = threading.Lock()
APPLY = ChangelogReader._apply


def apply_slowly(reader: ChangelogReader, tp: Any, records: Collection[Any]) -> None:
    """Write what a restore has read."""
    restored = sum(record.key.startswith(BALLAST) for record in records)
    for _ in range(-(-restored // CHUNK)):
        with DISK:
            time.sleep(STALL_S)
    APPLY(reader, tp, records)


ChangelogReader._apply = apply_slowly  # type: ignore[assignment,method-assign]

app = faust.App(
    "paced",
    store="rocksdb://",
    topic_partitions=PARTITIONS,
    topic_replication_factor=1,
    consumer_auto_offset_reset="earliest",
    stream_wait_empty=True,
    table_standby_replicas=0,
)
jobs = app.topic("jobs", key_serializer="raw", value_serializer="raw", partitions=PARTITIONS)
counts = app.Table("counts", partitions=PARTITIONS)


@app.agent(jobs, name="count")
async def count(stream: Any) -> None:
    async for event in stream.events():
        until = time.thread_time() + BURN_S
        while time.thread_time() < until:
            pass
        key = event.key.decode()
        with DISK:
            counts[key] = (counts.get(key) or 0) + 1


install(app, operators={"jobs": [jobs, counts]})
