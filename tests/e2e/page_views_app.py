"""The page view count of the L/F paper (Electronics 2020, 9, 1857, figure 11), for `test_first_placement`.

Source, view, count and sink with PARTITIONS key groups each.  Source and sink get their tuples from the same partition
number of the operator before (the paper's local stream partitioning), count gets them by page.
"""

import os
from typing import Any

import faust

from trimtab_agent.engines.faust import install

PARTITIONS = int(os.environ["PARTITIONS"])
SESSION_S = float(os.environ["SESSION_S"])

app = faust.App(
    "pages",
    store="rocksdb://",
    topic_partitions=PARTITIONS,
    topic_replication_factor=1,
    topic_disable_leader=True,
    consumer_auto_offset_reset="earliest",
    broker_session_timeout=SESSION_S,
    broker_heartbeat_interval=2,
    stream_wait_empty=True,
    table_standby_replicas=0,
)
RAW: dict[str, Any] = {"key_serializer": "raw", "value_serializer": "raw", "partitions": PARTITIONS}
clicks, looked, views, counted = (app.topic(name, **RAW) for name in ("clicks", "looked", "views", "counted"))
counts = app.Table("counts", partitions=PARTITIONS, options={"block_cache_size": 1 << 20, "write_buffer_size": 1 << 20})


@app.agent(clicks, name="source")
async def source(stream: Any) -> None:
    async for event in stream.events():
        await looked.send(value=event.value, partition=event.message.partition)


@app.agent(looked, name="view")
async def view(stream: Any) -> None:
    async for click in stream:
        await views.send(key=click.split()[0], value=click)


@app.agent(views, name="count")
async def count(stream: Any) -> None:
    async for event in stream.events():
        page = event.key.decode()
        counts[page] = (counts.get(page) or 0) + 1
        await counted.send(key=event.key, value=str(counts[page]).encode())


@app.agent(counted, name="sink")
async def sink(stream: Any) -> None:
    async for _ in stream:
        pass


install(app, operators={"source": [clicks], "view": [looked], "count": [views, counts], "sink": [counted]})
