"""A job that Trimtab only measures: an operator's topics differ in their partitions.  Faust keeps its standbys."""

import asyncio
import os

import faust

from trimtab_agent.engines.faust import install
from trimtab_agent.engines.faust.transport.consumer import SteeredConsumer

NAME = os.environ["UNFIT_NAME"]
PARTITIONS = 4
SEEK_S = 1.0
"""How long the seek to the committed offsets takes, as with many partitions and a busy broker."""
SEEK = SteeredConsumer.perform_seek

app = faust.App(
    NAME,
    broker=os.environ["UNFIT_BROKER"],
    store="rocksdb://",
    datadir=os.environ["UNFIT_DATA"],
    web_enabled=False,
    topic_disable_leader=True,
    topic_partitions=PARTITIONS,
    table_standby_replicas=1,
)
events = app.topic(f"{NAME}-events", key_type=str, value_type=int, partitions=PARTITIONS)
others = app.topic(f"{NAME}-others", key_type=str, value_type=int, partitions=PARTITIONS - 1)
counts = app.Table("counts", default=int, partitions=PARTITIONS)


@app.agent(events)
async def count(stream: faust.StreamT[int]) -> None:
    """Keep the last value of each key."""
    async for key, value in stream.items():
        counts[key] = value


@app.agent(others)
async def ignore(stream: faust.StreamT[int]) -> None:
    """Make the operator unfit."""
    async for _ in stream:
        pass


@app.timer(0.5)
async def tell() -> None:
    """How many changelog records the standbys lack."""
    recovery = app.tables.recovery
    print(f"standbys: {len(recovery.standby_tps)}, lacking {recovery.standby_remaining_total()}", flush=True)


async def seek_slowly(consumer: SteeredConsumer) -> None:
    """Standbys are read meanwhile."""
    await asyncio.sleep(SEEK_S)
    await SEEK(consumer)


SteeredConsumer.perform_seek = seek_slowly  # type: ignore[assignment,method-assign]
install(app, operators={"all": [events, others, counts]})
