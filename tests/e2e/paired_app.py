"""Two operators in pairs: for each job a key group of the first one sends PARTS events to one of the second.

That is all that they do, so what an event costs through the broker is most of the CPU.  At first a pair has the same
partition, and so the same worker; while the file APART exists, the receiver is that of the next one.  With LOCAL=1 the
topic between the operators is local.
"""

import os
from pathlib import Path
from typing import Any

import faust

from trimtab_agent.engines.faust import install

PARTITIONS, PARTS = int(os.environ["PARTITIONS"]), int(os.environ["PARTS"])
APART = Path(os.environ["APART"])

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
parts = app.topic("parts", key_serializer="raw", value_serializer="json", partitions=PARTITIONS)
counts = app.Table("counts", partitions=PARTITIONS)


@app.agent(jobs, name="head")
async def head(stream: Any) -> None:
    async for event in stream.events():
        partition = (event.message.partition + APART.exists()) % PARTITIONS
        for left in reversed(range(PARTS)):
            await parts.send(key=event.key, value=left, partition=partition)


@app.agent(parts, name="tail")
async def tail(stream: Any) -> None:
    """Count the jobs of which all parts have come."""
    async for event in stream.events():
        if event.value == 0:
            key = f"{event.key.decode()}@{event.message.partition}"
            counts[key] = (counts.get(key) or 0) + 1


install(
    app,
    operators={"head": [jobs], "tail": [parts, counts]},
    local=[parts] if os.environ["LOCAL"] == "1" else [],
)
