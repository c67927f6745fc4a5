"""Real job 3: job 2, and one more operator that sums delays by route.  Routes do not follow airplanes."""

from typing import Any

from flights.dataset import partition_of
from jobs.app import PARTITIONS, STEERING, app_of, local_of, source_of, table_of, topic_of, work
from jobs.delays import AIRPLANES, DELAYS, FLIGHTS, LEGS, ROUTES, apart, extract, plus
from trimtab_agent.engines.faust import install

app = app_of("job3")
flights, delays, legs = source_of(app, FLIGHTS), topic_of(app, DELAYS), topic_of(app, LEGS)
airplanes, routes = table_of(app, AIRPLANES), table_of(app, ROUTES)


@app.agent(flights, name="extract")  # type: ignore[untyped-decorator]
async def extract_delays(stream: Any) -> None:
    """Send the delay of each flight to both operators that sum."""
    async for row in stream:
        work(row)
        flown = extract(row.decode())
        partition = apart(flown.airplane, PARTITIONS)
        await delays.send(key=flown.airplane, value=[flown.year, flown.minutes], partition=partition)
        await legs.send(key=flown.route, value=flown.minutes, partition=partition_of(flown.route, PARTITIONS))


@app.agent(delays, name="sum")  # type: ignore[untyped-decorator]
async def sum_delays(stream: Any) -> None:
    """Sum flights and minutes late by airplane and year."""
    async for airplane, (year, minutes) in stream.items():
        work(airplane)
        key = f"{airplane.decode()}/{year}"
        airplanes[key] = plus(airplanes.get(key), minutes)


@app.agent(legs, name="route")  # type: ignore[untyped-decorator]
async def sum_routes(stream: Any) -> None:
    """Sum flights and minutes late by route."""
    async for route, minutes in stream.items():
        work(route)
        key = route.decode()
        routes[key] = plus(routes.get(key), minutes)


install(
    app,
    operators={"extract": [flights], "sum": [delays, airplanes], "route": [legs, routes]},
    settings=STEERING,
    local=local_of(delays, legs),
)
