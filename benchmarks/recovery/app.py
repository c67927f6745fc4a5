"""The app whose recovery is measured: one table on one topic, with stock Faust or with the plug-in.

Beside its work it writes down every half second how many changelog partitions it stands by for, and how far they lag.
"""

import asyncio
import json
import os
from pathlib import Path
from typing import Any

import faust

SETUP = json.loads(os.environ["RECOVERY_SETUP"])
WORKER = os.environ["TRIMTAB_WORKER"]
FOLDER = Path(SETUP["folder"])

app = faust.App(
    "recovery",
    broker=f"kafka://{SETUP['bootstrap']}",
    store="rocksdb://",
    datadir=str(FOLDER / WORKER),
    canonical_url=f"http://{WORKER}:6066",
    web_enabled=False,
    topic_partitions=SETUP["partitions"],
    topic_replication_factor=1,
    table_standby_replicas=1,
    broker_client_id=WORKER,
    broker_session_timeout=SETUP["session_s"],
    broker_heartbeat_interval=1.0,
    broker_commit_interval=1.0,
)
raw = {"key_type": str, "value_type": str, "key_serializer": "raw", "value_serializer": "raw"}
inputs, outputs = app.topic("inputs", **raw), app.topic("outputs", **raw)
options = {"write_buffer_size": 4 << 20, "block_cache_size": 8 << 20}
states = app.Table("states", default=str, partitions=SETUP["partitions"], key_type=str, value_type=str, options=options)
plugin = None
if SETUP["plugin"]:
    from trimtab_agent.engines.faust import install

    plugin = install(app)


def text(raw: Any) -> str:
    """A raw key as text; Faust gives bytes or text."""
    return raw.decode() if isinstance(raw, bytes) else str(raw)


@app.agent(inputs)
async def follow(stream: Any) -> None:
    """Keep the newest value of each key, and send the name of the worker."""
    async for event in stream.events():
        key, value = text(event.key), text(event.value)
        states[key] = states[key][:1] + value
        await outputs.send(key=event.key, value=WORKER, partition=event.message.partition)


@app.task
async def write_what_is_warm() -> None:
    """Write the warm partitions to a file, replaced atomically."""
    while True:
        await asyncio.sleep(0.5)
        if plugin is not None:
            standbys = plugin.steering.standbys
            followed = standbys.followed()
            warm = {"standbys": len(followed), "lag": await standbys.lag_records(followed)}
        else:
            recovery = app.tables.recovery
            warm = {"standbys": len(recovery.standby_tps), "lag": recovery.standby_remaining_total()}
        (FOLDER / f"{WORKER}.new").write_text(json.dumps(warm))
        (FOLDER / f"{WORKER}.new").rename(FOLDER / f"{WORKER}.warm")


if __name__ == "__main__":
    app.main()
