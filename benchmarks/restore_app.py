"""The app of `benchmarks.restore`: one table, with stock Faust or with the plug-in; it says when its table is there."""

import json
import os
import time
from pathlib import Path
from typing import Any

import faust
import psutil

from benchmarks.restore import APP, INPUTS, PARTITIONS, TABLE

SETUP = json.loads(os.environ["RESTORE_SETUP"])
FOLDER = Path(SETUP["folder"])
NAME = f"{APP}-{SETUP['size']}"

app = faust.App(
    NAME,
    broker=f"kafka://{SETUP['bootstrap']}",
    store="rocksdb://",
    datadir=FOLDER / "data",
    web_enabled=False,
    topic_partitions=PARTITIONS,
    topic_replication_factor=1,
    table_standby_replicas=0,
    topic_allow_declare=False,
)
inputs = app.topic(f"{NAME}-{INPUTS}", key_type=str, value_type=str)
state = app.Table(TABLE, key_type=str, value_type=str, partitions=PARTITIONS)
if SETUP["plugin"]:
    from trimtab_agent.engines.faust import install

    install(app)
assigned: list[tuple[float, float]] = []


def cpu_s() -> float:
    """Of the worker and of the processes that it has waited for."""
    times = psutil.Process().cpu_times()
    return float(times.user + times.system + times.children_user + times.children_system)


@app.on_partitions_assigned.connect
async def begin(*_: Any, **__: Any) -> None:
    """The worker gets its partitions."""
    assigned.append((time.monotonic(), cpu_s()))


@app.on_rebalance_complete.connect
async def end(*_: Any, **__: Any) -> None:
    """Its tables are restored."""
    if assigned:
        [began, before] = assigned[-1]
        (FOLDER / "saying").write_text(json.dumps([time.monotonic() - began, cpu_s() - before]))
        (FOLDER / "saying").rename(FOLDER / "said")


@app.agent(inputs)
async def use(stream: Any) -> None:
    """An app without agents reads nothing."""
    async for _ in stream:
        pass


if __name__ == "__main__":
    app.main()
