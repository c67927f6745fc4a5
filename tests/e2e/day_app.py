"""The flights job with a local topic and a windowed table more: the job of the day.

`note` reads the flights too, and sends each on over a topic that skips the broker where its reader is in the same
worker.  `daily` counts them per airplane in windows.  Both belong to the two operators that there are.
"""

from typing import Any

import faust

from tests.faults.recorded.attributed import app  # isort: skip - before what it attributes
from flights.app import delays, flights, settings, sums
from flights.dataset import parse_row
from flights.wire import EXTRACT, SUMS, decode_source
from tests.faults.recorded.windowed import NOTED
from trimtab_agent.engines.faust import SteeringSettings, install

WINDOW_S, EXPIRES_S = 60.0, 7200.0

noted = app.topic(NOTED, key_serializer="raw", value_serializer="json", partitions=settings.key_groups)
windows = app.Table(
    "daily",
    default=lambda: (0, 0),
    partitions=settings.key_groups,
    options={"block_cache_size": 1 << 20, "write_buffer_size": 1 << 20, "max_open_files": 64},
).tumbling(WINDOW_S, expires=EXPIRES_S)


@app.agent(flights)  # type: ignore[untyped-decorator]
async def note(stream: faust.StreamT[bytes]) -> None:
    """Send the number of each flight, keyed by its airplane."""
    async for value in stream:
        sequence, row = decode_source(value)
        await noted.send(key=parse_row(row).airplane.encode(), value=sequence)


@app.agent(noted)  # type: ignore[untyped-decorator]
async def daily(stream: Any) -> None:
    """Count flights per airplane and window; the table says which was the last."""
    async for airplane, sequence in stream.items():
        window = windows[airplane.decode()]
        _, count = window.value()
        windows[airplane.decode()] = [sequence, count + 1]


# flights.app has not: FLIGHTS_PLUGIN is 0.
install(
    app,
    operators={EXTRACT: [flights], SUMS: [delays, sums, noted, windows]},
    settings=SteeringSettings(fetch_min_bytes=1 << 16),
    local=[noted],
)
