"""The app whose recovery is measured: one table on one topic, with stock Faust or with the plug-in.

Beside its work it writes down every half second which changelog partitions it stands by for, how far they lag, and of
which it has copies on its disk; and what Faust restores at each rebalance.
"""

import asyncio
import json
import os
from pathlib import Path
from typing import Any

import faust
from faust.tables.recovery import Recovery

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
async def say() -> None:
    """Write what is warm, and what is on the disk, to a file, replaced atomically."""
    while True:
        await asyncio.sleep(0.5)
        if plugin is not None:
            standbys = plugin.steering.standbys
            followed = standbys.followed()
            said = {
                "standbys": [each.partition for each in followed],
                "lag": await standbys.lag_records(followed),
                "copies": [copy.partition for copy in plugin.steering.status.copies],
            }
        else:
            recovery = app.tables.recovery
            said = {
                "standbys": [tp.partition for tp in recovery.standby_tps],
                "lag": recovery.standby_remaining_total(),
                "copies": [],
            }
        (FOLDER / f"{WORKER}.new").write_text(json.dumps(said))
        (FOLDER / f"{WORKER}.new").rename(FOLDER / f"{WORKER}.said")


seek = Recovery._seek_offsets


async def seek_and_note(self: Any, consumer: Any, tps: Any, offsets: Any, title: str) -> None:
    """Note how many records Faust has to read before the worker goes on."""
    if title == "active":
        with (FOLDER / f"{WORKER}.restored").open("a") as log:
            log.write(f"{self.active_remaining_total()}\n")
    await seek(self, consumer, tps, offsets, title)


Recovery._seek_offsets = seek_and_note

if __name__ == "__main__":
    app.main()
