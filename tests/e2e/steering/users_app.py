"""An app as users write it, with what public apps use: sinks, batches, `group_by`, timers, pages, windows, signals.

Each order adds the same to all tables, so the sums at the end say what was lost or done twice.
"""

import asyncio
import json
import os
import time
from collections import Counter
from datetime import timedelta
from pathlib import Path
from typing import Any

import faust
from faust.sensors.prometheus import setup_prometheus_sensors

from trimtab_agent.engines.faust import install
from trimtab_agent.engines.faust.safety.store_guard import LateWrite

SETUP = json.loads(os.environ["APP_SETUP"])
FOLDER, WORKER = Path(SETUP["folder"]), os.environ["TRIMTAB_WORKER"]
SLOW_SIGNAL_S = 5.0
"""Longer than the source of a hand-over waits for its target."""
LINGER_S = 5.0
ASKS_EVERY, ASKS_S = 50, 0.5
WINDOW_S, EXPIRES_S = 2.0, 20.0


class Order(faust.Record, serializer="json", coerce=True):  # type: ignore[call-arg]
    number: int
    customer: str
    cents: int
    country: str | None = None


class Customer(faust.Record):
    orders: int = 0
    newest: int | None = None
    country: str | None = None


app = faust.App(
    "users",
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
    producer_linger=LINGER_S,
    table_cleanup_interval=1.0,
)
setup_prometheus_sensors(app)
seen: Counter[str] = Counter()
"""Signals that this worker got."""

orders = app.topic("orders", key_type=str, value_type=Order)
billed, batched, ticks, windows = (app.topic(name, value_type=int) for name in ("billed", "batched", "ticks", "closed"))
small = {"write_buffer_size": 4 << 20, "block_cache_size": 8 << 20}


async def closed(key: Any, value: int) -> None:
    await windows.send(key=key[0], value=value)


spent = app.Table("spent", default=int, help="cents by customer", options=small)
customers = app.Table("customers", key_type=str, value_type=Customer, options=small)
baskets = app.Table("baskets", default=int, options=small)
visits = app.Table("visits", default=int, options=small)
per_country = app.Table("per_country", default=int, options=small)
recent = (
    app.Table("recent", default=int, key_type=str, value_type=int, on_window_close=closed, options=small)
    .tumbling(timedelta(seconds=WINDOW_S), expires=timedelta(seconds=EXPIRES_S))
    .relative_to_stream()
)


def note(what: str, line: object) -> None:
    with (FOLDER / f"{WORKER}.{what}").open("a") as log:
        log.write(f"{line}\n")


@app.agent()
async def archive(numbers: Any) -> None:
    async for number in numbers:
        note("archived", number)


async def write_down(number: Any) -> None:
    note("printed", number)


@app.agent(orders, sink=[billed, archive, write_down])
async def bill(stream: Any) -> Any:
    async for order in stream:
        if order.number % ASKS_EVERY == 0:
            time.sleep(ASKS_S)  # as users call a service: nothing else in the worker goes on meanwhile
        spent[order.customer] += order.cents
        recent[order.customer] += 1
        before = customers.get(order.customer) or Customer()
        customers[order.customer] = Customer(before.orders + 1, order.number, order.country)
        if order.number % 5 == 0:
            baskets.pop(order.customer, None)
        else:
            baskets[order.customer] += 1
        yield order.number


@app.agent(orders)
async def count_countries(stream: Any) -> None:
    async for order in stream.group_by(Order.country):
        per_country[order.country] += order.cents


@app.agent(orders)
async def batches(stream: Any) -> None:
    async for some in stream.take(20, within=0.5):
        await asyncio.gather(*(batched.send(value=order.number) for order in some))


working: set[Any] = set()


@app.agent(orders)
async def look_up(stream: Any) -> None:
    async for event in stream.events():
        task = asyncio.create_task(visit(event))
        working.add(task)
        task.add_done_callback(working.discard)


async def visit(event: Any) -> None:
    """As if a service had been asked."""
    await asyncio.sleep(0.3)
    try:
        visits[event.value.customer] += 1
    except LateWrite:
        note("late", event.value.customer)


@app.timer(interval=1.0)
async def tick() -> None:
    await app.send("ticks", value=1)


@app.crontab("* * * * *", on_leader=True)
async def every_minute() -> None:
    await ticks.send(value=60)


@app.task()
async def watch_tables() -> None:
    while not app.should_stop:
        await asyncio.sleep(0.5)
        list(spent.items())
        note("read", sum(recent.get(key).now() for key in ("c1", "c2")))


@app.page("/order/{customer}/{number}/")
async def order_page(web: Any, request: Any, customer: str, number: str) -> Any:
    await orders.send(key=customer, value=Order(number=int(number), customer=customer, cents=100, country="DE"))
    return web.json({"ok": True})


@app.page("/spent/{customer}/")
@app.table_route(table=spent, match_info="customer")
async def spent_page(web: Any, request: Any, customer: str) -> Any:
    return web.json({"value": spent[customer]})


@app.page("/offsets/")
async def offsets(web: Any, request: Any) -> Any:
    """What Faust's monitor says of partitions, as its own exporters do."""
    monitor = app.monitor
    told = {"committed": monitor.tp_committed_offsets, "read": monitor.tp_read_offsets, "end": monitor.tp_end_offsets}
    return web.json(
        {"signals": seen} | {what: ["/".join(map(str, tp)) for tp in known] for what, known in told.items()}
    )


@app.on_partitions_assigned.connect
async def on_assigned(app: Any, assigned: Any, **_: Any) -> None:
    seen["assigned"] += 1
    if (FOLDER / "slow-signal").exists():
        await asyncio.sleep(SLOW_SIGNAL_S)


@app.on_partitions_revoked.connect
async def on_revoked(app: Any, revoked: Any, **_: Any) -> None:
    seen["revoked"] += 1


@app.on_rebalance_complete.connect
def on_complete(app: Any, **_: Any) -> None:
    seen["complete"] += 1


install(app)

if __name__ == "__main__":
    app.main()
