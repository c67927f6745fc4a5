"""A small steered app that reaches its broker as the [kafka] section of a file says."""

import os
from pathlib import Path
from typing import Any

import faust

from trimtab_agent.engines.faust import broker_options, install

app = faust.App(
    "shop",
    **broker_options(Path(os.environ["SHOP_KAFKA"])),
    store="rocksdb://",
    datadir=os.environ["SHOP_DATA"],
    web_enabled=False,
    topic_partitions=2,
    topic_replication_factor=1,
)
orders = app.topic("orders", key_type=str, value_type=int, key_serializer="raw", value_serializer="json")
counts = app.Table("counts", default=int, partitions=2, key_type=str, value_type=int)
install(app)


@app.agent(orders)
async def count(stream: Any) -> None:
    async for event in stream.events():
        counts[event.key.decode()] += event.value


if __name__ == "__main__":
    app.main()
