"""A job with one table, for situations in which a worker must not say what it cannot know."""

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
    broker_request_timeout=15.0,
    broker_session_timeout=10.0,
    broker_heartbeat_interval=0.5,
    stream_buffer_maxsize=50,
)
events = app.topic(f"{NAME}-in", key_type=str, value_type=int, partitions=PARTITIONS)
counts = app.Table("counts", default=int, partitions=PARTITIONS)


@app.agent(events)
async def count(stream: faust.StreamT[int]) -> None:
    """Count the events of each key, at most so many a second."""
    async for key, _ in stream.items():
        counts[key] += 1
        if wait_s := float(os.environ.get("HONEST_WAIT_S", "0")):
            await app.loop.run_in_executor(None, __import__("time").sleep, wait_s)


install(app)
