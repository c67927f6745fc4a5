"""Real job 2: one operator extracts delays, another sums them by airplane and year; both are keyed by the airplane."""

from typing import Any

from jobs.app import PARTITIONS, STEERING, app_of, local_of, source_of, table_of, topic_of, work
from jobs.delays import AIRPLANES, DELAYS, FLIGHTS, apart, extract, plus
from trimtab_agent.engines.faust import install

app = app_of("job2")
flights, delays = source_of(app, FLIGHTS), topic_of(app, DELAYS)
airplanes = table_of(app, AIRPLANES)


@app.agent(flights, name="extract")  # type: ignore[untyped-decorator]
async def extract_delays(stream: Any) -> None:
    """Send the delay of each flight to the operator that sums by airplane."""
    async for row in stream:
        work(row)
        flown = extract(row.decode())
        partition = apart(flown.airplane, PARTITIONS)
        await delays.send(key=flown.airplane, value=[flown.year, flown.minutes], partition=partition)


@app.agent(delays, name="sum")  # type: ignore[untyped-decorator]
async def sum_delays(stream: Any) -> None:
    """Sum flights and minutes late by airplane and year."""
    async for airplane, (year, minutes) in stream.items():
        work(airplane)
        key = f"{airplane.decode()}/{year}"
        airplanes[key] = plus(airplanes.get(key), minutes)


install(app, operators={"extract": [flights], "sum": [delays, airplanes]}, settings=STEERING, local=local_of(delays))
