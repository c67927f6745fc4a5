"""The job of `local_hop.py`: `again` re-keys, `count` counts per key and forwards.  Set up by the environment."""

import asyncio
import json
import os
from pathlib import Path
from typing import Any

import faust

from trimtab_agent.engines.faust import install

SETUP = json.loads(os.environ["LOCAL_HOP_SETUP"])
PARTITIONS = SETUP["partitions"]
GATE = Path(SETUP["gate"])

app = faust.App(
    "local-hop",
    broker=f"kafka://{SETUP['bootstrap']}",
    store="rocksdb://",
    datadir=SETUP["data"],
    canonical_url=f"http://{SETUP['worker']}:6066",  # Faust assigns by it
    web_enabled=False,
    topic_partitions=PARTITIONS,
    topic_replication_factor=1,
    topic_disable_leader=True,
    table_standby_replicas=0,
)


class Order(faust.Record, serializer="json"):  # type: ignore[call-arg, misc]
    """What the readers get if values are records."""

    number: int
    text: str


plain = {"key_type": str, "value_type": int, "key_serializer": "raw", "value_serializer": "json"}
typed: dict[str, Any] = {"key_type": str, "value_type": Order, "key_serializer": "raw"}
numbers, outputs = app.topic("numbers", **plain), app.topic("outputs", **plain)
regrouped = app.topic("regrouped", **(typed if SETUP["records"] else plain))
counts = app.Table("counts", default=int, partitions=PARTITIONS, key_type=str, value_type=int,
                   options={"write_buffer_size": 4 << 20, "block_cache_size": 8 << 20})  # fmt: skip
if SETUP["mode"] != "stock":
    install(app, local=[regrouped] if SETUP["mode"] == "local" else [])


@app.agent(numbers)  # type: ignore[untyped-decorator]
async def again(stream: Any) -> None:
    """Re-key, once the gate file exists."""
    while not GATE.exists():
        await asyncio.sleep(0.05)
    async for number in stream:
        await regrouped.send(key=f"g{number % 997}", value=Order(number, "x" * 20) if SETUP["records"] else number)


@app.agent(regrouped)  # type: ignore[untyped-decorator]
async def count(stream: Any) -> None:
    """Count, and pass on."""
    async for key, value in stream.items():
        if SETUP["table"]:
            counts[key] += 1
        await outputs.send(key=key, value=value.number if SETUP["records"] else value)


@app.on_rebalance_complete.connect  # type: ignore[untyped-decorator]
async def say_what_it_owns(*_: Any, **__: Any) -> None:
    """Tell the benchmark which partitions of the inputs the worker has."""
    owned = sorted(tp.partition for tp in app.consumer.assignment() if tp.topic == "numbers")
    Path(SETUP["owns"]).write_text(" ".join(map(str, owned)))


if __name__ == "__main__":
    app.main()
