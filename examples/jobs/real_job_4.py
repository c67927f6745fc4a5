"""Real job 4: job 3, with the rain of each flight's hour joined, delays summed by route and rain, and stored.

`rain` scores the weather, `join` adds the score to each flight that `route` passes on, `efficiency` sums by route and
rain, and `store` writes the results to a SQLite database of its worker.
"""

import os
import sqlite3
from typing import Any

from flights.dataset import partition_of
from jobs.app import PARTITIONS, STEERING, app_of, local_of, source_of, table_of, topic_of, work
from jobs.delays import AIRPLANES, DELAYS, FLIGHTS, LEGS, ROUTES, apart, extract, plus
from jobs.rain import (
    EFFECTS,
    EFFICIENCY,
    HOURS,
    HOURS_IN,
    STORE,
    STORED,
    WEATHER,
    effect_key,
    hour_of_flight,
    joined,
    rain_of,
)
from trimtab_agent.engines.faust import install

COMMIT_EVERY = 200
app = app_of("job4")
flights, weather = source_of(app, FLIGHTS), source_of(app, WEATHER)
delays, legs, flown_in = topic_of(app, DELAYS), topic_of(app, LEGS), topic_of(app, HOURS_IN)
effects, stored = topic_of(app, EFFECTS), topic_of(app, STORED)
airplanes, routes, hours = table_of(app, AIRPLANES), table_of(app, ROUTES), table_of(app, HOURS)
efficiency, store_table = table_of(app, EFFICIENCY), table_of(app, STORE)


@app.agent(flights, name="extract")  # type: ignore[untyped-decorator]
async def extract_delays(stream: Any) -> None:
    """Send the delay of each flight to both operators that sum."""
    async for row in stream:
        work(row)
        text = row.decode()
        flown = extract(text)
        partition = apart(flown.airplane, PARTITIONS)
        await delays.send(key=flown.airplane, value=[flown.year, flown.minutes], partition=partition)
        place = partition_of(flown.route, PARTITIONS)
        await legs.send(key=flown.route, value=[hour_of_flight(text), flown.minutes], partition=place)


@app.agent(weather, name="rain")  # type: ignore[untyped-decorator]
async def score_rain(stream: Any) -> None:
    """Send the rain score of each hour."""
    async for row in stream:
        hour, score = rain_of(row.decode())
        await flown_in.send(key=hour, value=["rain", score], partition=partition_of(hour, PARTITIONS))


@app.agent(delays, name="sum")  # type: ignore[untyped-decorator]
async def sum_delays(stream: Any) -> None:
    """Sum flights and minutes late by airplane and year."""
    async for airplane, (year, minutes) in stream.items():
        work(airplane)
        key = f"{airplane.decode()}/{year}"
        airplanes[key] = plus(airplanes.get(key), minutes)


@app.agent(legs, name="route")  # type: ignore[untyped-decorator]
async def sum_routes(stream: Any) -> None:
    """Sum flights and minutes late by route, and pass each on to be joined."""
    async for route, (hour, minutes) in stream.items():
        work(route)
        key = route.decode()
        routes[key] = plus(routes.get(key), minutes)
        await flown_in.send(key=hour, value=["flight", key, minutes], partition=partition_of(hour, PARTITIONS))


@app.agent(flown_in, name="join")  # type: ignore[untyped-decorator]
async def join_rain(stream: Any) -> None:
    """Join flights with the rain of their hour."""
    async for hour, arrived in stream.items():
        key = hour.decode()
        value, known = joined(hours.get(key), arrived)
        hours[key] = value
        for route, minutes in known:
            effect = effect_key(route, value[1])
            await effects.send(key=effect, value=minutes, partition=partition_of(effect, PARTITIONS))


@app.agent(effects, name="efficiency")  # type: ignore[untyped-decorator]
async def sum_effects(stream: Any) -> None:
    """Sum flights and minutes late by route and rain."""
    async for effect, minutes in stream.items():
        key = effect.decode()
        efficiency[key] = value = plus(efficiency.get(key), minutes)
        await stored.send(key=key, value=value, partition=apart(key, PARTITIONS))


@app.agent(stored, name="store")  # type: ignore[untyped-decorator]
async def store(stream: Any) -> None:
    """Write results to a local database, some at a time."""
    database = sqlite3.connect(os.path.join(app.conf.datadir, "efficiency.sqlite"))  # noqa: PTH118
    database.execute("CREATE TABLE IF NOT EXISTS efficiency (key TEXT PRIMARY KEY, flights INTEGER, minutes INTEGER)")
    written = 0
    async for effect, value in stream.items():
        key = effect.decode()
        store_table[key] = value
        database.execute("INSERT OR REPLACE INTO efficiency VALUES (?, ?, ?)", (key, *value))
        written += 1
        if written % COMMIT_EVERY == 0:
            database.commit()


install(
    app,
    operators={
        "extract": [flights],
        "rain": [weather],
        "sum": [delays, airplanes],
        "route": [legs, routes],
        "join": [flown_in, hours],
        "efficiency": [effects, efficiency],
        "store": [stored, store_table],
    },
    settings=STEERING,
    local=local_of(delays, legs, flown_in, effects, stored),
)
