"""An app that people and programs ask: pages with table routes, `ask()`, a channel in memory, a timer of the leader."""

import asyncio
import json
import os
import time
from pathlib import Path
from typing import Any

import faust

from trimtab_agent.engines.faust import install

SETUP = json.loads(os.environ["APP_SETUP"])
FOLDER, WORKER = Path(SETUP["folder"]), os.environ.get("TRIMTAB_WORKER", "")
ASK_LIMIT_S = 20.0

app = faust.App(
    "answers",
    broker=f"kafka://{SETUP['bootstrap']}",
    store="rocksdb://",
    datadir=str(FOLDER / WORKER),
    canonical_url=f"http://127.0.0.1:{SETUP['port']}",
    web_bind="127.0.0.1",
    web_port=SETUP["port"],
    topic_partitions=SETUP["partitions"],
    topic_replication_factor=1,
    broker_client_id=WORKER,
    broker_commit_interval=1.0,
    broker_session_timeout=SETUP["session_s"],
    broker_heartbeat_interval=0.5,
    broker_rebalance_timeout=60.0,
    reply_create_topic=SETUP["asks"],
    table_standby_replicas=SETUP["standbys"],
)
given = {"key_type": str, "value_type": int, "key_serializer": "json"}  # the router takes keys to be JSON
numbers = app.topic("numbers", **given)
questions = app.topic("questions", **given)
answered = app.channel()
small = {"write_buffer_size": 4 << 20, "block_cache_size": 8 << 20}
totals = app.Table("totals", default=int, key_type=str, value_type=int, options=small)
plain = app.topic("plain")  # these have Faust's defaults: raw keys of events, and those of tables in JSON
by_text, by_number, by_bytes = (app.Table(f"by_{kind}", default=float) for kind in ("text", "number", "bytes"))
by_value = app.Table("by_value", default=float)
install(app)


@app.agent(numbers)
async def add(stream: Any) -> Any:
    async for key, value in stream.items():
        await asyncio.sleep(SETUP["slow_s"])
        totals[key] += value
        yield totals[key]


@app.agent(questions)
async def ask_on(stream: Any) -> None:
    """Asks another agent in the middle of an event."""
    async for key, value in stream.items():
        await add.ask(value=1, key=key)
        with (FOLDER / "asked-on").open("a") as log:
            log.write(f"{value}\n")
        await answered.send(value=value)


@app.agent(answered)
async def read_on(stream: Any) -> None:
    async for value in stream:
        await asyncio.sleep(0.5)  # some wait in the channel
        with (FOLDER / "read-on").open("a") as log:
            log.write(f"{value}\n")


@app.page("/total/{key}/")
@app.table_route(table=totals, match_info="key")
async def total(web: Any, request: Any, key: str) -> Any:
    return web.json({"value": totals[key], "worker": WORKER})


@app.agent(plain)
async def add_plain(stream: Any) -> None:
    async for key, value in stream.items():
        by_text[key.decode()] += value
        by_number[int(key)] += value
        by_bytes[key] += value
        by_value[str(value)] += value


@app.page("/text/{key}/")
@app.table_route(table=by_text, match_info="key")
async def text(web: Any, request: Any, key: str) -> Any:
    return web.json({"value": by_text[key]})


@app.page("/number/{key}/")
@app.table_route(table=by_number, match_info="key")
async def number(web: Any, request: Any, key: str) -> Any:
    return web.json({"value": by_number[int(key)]})


@app.page("/bytes/{key}/")
@app.table_route(table=by_bytes, match_info="key")
async def bytes_(web: Any, request: Any, key: str) -> Any:
    return web.json({"value": by_bytes[key.encode()]})


@app.page("/value/{key}/")
@app.table_route(table=by_value, match_info="key")
async def value(web: Any, request: Any, key: str) -> Any:
    return web.json({"value": by_value[key]})


@app.page("/ask/{key}/")
async def ask(web: Any, request: Any, key: str) -> Any:
    return web.json({"value": await asyncio.wait_for(add.ask(value=1, key=key), ASK_LIMIT_S)})


@app.timer(0.2, on_leader=True)
async def lead() -> None:
    with (FOLDER / "leaders").open("a") as log:
        log.write(f"{time.time()} {WORKER}\n")


if __name__ == "__main__":
    app.main()
