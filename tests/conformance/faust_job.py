"""The conformance test's job as a Faust app: counts records per key.  See docs/reference/engine-plugins.md."""

import os

import faust

from trimtab_agent.engines.faust import install

WORKER, APP = os.environ["TRIMTAB_WORKER"], os.environ["CONFORMANCE_APP"]
PARTITIONS = int(os.environ["CONFORMANCE_PARTITIONS"])

app = faust.App(
    APP,
    broker=f"kafka://{os.environ['CONFORMANCE_BOOTSTRAP']}",
    store="rocksdb://",
    datadir=os.environ["CONFORMANCE_FOLDER"],
    canonical_url=f"http://{WORKER}:6066",
    web_enabled=False,
    topic_partitions=PARTITIONS,
    topic_replication_factor=1,
    table_standby_replicas=1,
    broker_commit_interval=0.5,
    broker_session_timeout=float(os.environ["CONFORMANCE_SESSION_S"]),
    broker_heartbeat_interval=0.5,
    broker_rebalance_timeout=20.0,
)
inputs = app.topic(os.environ["CONFORMANCE_INPUT"], key_type=str, value_type=bytes, value_serializer="raw")
outputs = app.topic(os.environ["CONFORMANCE_OUTPUT"], key_type=str, value_serializer="json")
counts = app.Table(
    "counts",
    default=int,
    partitions=PARTITIONS,
    key_type=str,
    value_type=int,
    options={"write_buffer_size": 4 << 20, "block_cache_size": 8 << 20},
)
install(app, operators={"count": [inputs, counts]})


@app.agent(inputs)  # type: ignore[untyped-decorator]
async def count(stream: faust.StreamT[bytes]) -> None:
    async for event in stream.events():
        key = event.key
        counts[key] += 1
        await outputs.send(key=key, value={"count": counts[key], "worker": WORKER})


if __name__ == "__main__":
    app.main()
