"""A job with one table, for situations in which a worker must not say what it cannot know."""

import asyncio
import os

import faust

from trimtab_agent.engines.faust import install

NAME = os.environ["HONEST_NAME"]
PARTITIONS = 2

app = faust.App(
    NAME,
    broker=os.environ["HONEST_BROKER"],
    store="rocksdb://",
    datadir=os.environ["HONEST_DATA"],
    web_enabled=False,
    topic_disable_leader=True,
    topic_partitions=PARTITIONS,
    broker_commit_interval=0.5,
    broker_request_timeout=50.0,
    broker_session_timeout=45.0,
    broker_heartbeat_interval=0.5,
    stream_buffer_maxsize=50,
)
events = app.topic(f"{NAME}-in", key_type=str, value_type=int, partitions=PARTITIONS)
counts = app.Table("counts", default=int, partitions=PARTITIONS)


@app.agent(events)
async def count(stream: faust.StreamT[int]) -> None:
    """Count the events of each key, of which each takes so many milliseconds."""
    async for key, value in stream.items():
        counts[key] += 1
        await asyncio.sleep(value / 1000)


install(app)
