"""The job of `test_job_change`: amounts per customer and per country.

OPERATORS=named names its operators, PARTITIONS says how many key groups each has, APP_ID makes another app of it, and
so does APP_VERSION.
"""

import os
from typing import Any

import faust

from trimtab_agent.engines.faust import install

PARTITIONS = int(os.environ["PARTITIONS"])
APP_ID, VERSION = os.environ.get("APP_ID", "orders"), int(os.environ.get("APP_VERSION", "1"))
PER_COUNTRY = "per_country" if (APP_ID, VERSION) == ("orders", 1) else f"{APP_ID}{VERSION}_per_country"
"""It names the repartition topic, which two apps at once must not share: app.id is no part of that."""


class Order(faust.Record, serializer="json"):  # type: ignore[call-arg]
    """One order."""

    customer: str
    country: str
    cents: int


app = faust.App(
    APP_ID,
    version=VERSION,
    store="rocksdb://",
    topic_partitions=PARTITIONS,
    topic_replication_factor=1,
    consumer_auto_offset_reset="earliest",
    stream_wait_empty=True,
    broker_session_timeout=30,  # nobody crashes here, and a worker that is given up would do events twice
    broker_heartbeat_interval=1,
    broker_commit_interval=1.0,
)
orders = app.topic("orders", key_type=str, value_type=Order, partitions=PARTITIONS)
customers = app.Table("customers", partitions=PARTITIONS)
countries = app.Table("countries", partitions=PARTITIONS)


def add(table: Any, key: str, order: Order) -> None:
    count, cents = table.get(key) or (0, 0)
    table[key] = [count + 1, cents + order.cents]


@app.agent(orders, name="per_customer")
async def per_customer(stream: Any) -> None:
    async for key, order in stream.items():
        add(customers, key, order)


@app.agent(orders, name=PER_COUNTRY)
async def per_country(stream: Any) -> None:
    async for order in stream.group_by(Order.country):
        add(countries, order.country, order)


named = {
    "customers": [orders, customers],
    "countries": [f"{PER_COUNTRY}-orders-Order.country-repartition", countries],
}
install(app, operators=named if os.environ.get("OPERATORS") == "named" else None)
