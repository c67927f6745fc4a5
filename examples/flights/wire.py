"""Names and record formats of the job's topics.  Every record has the number of its row in the data set."""

import json
from dataclasses import dataclass
from typing import Any

APP = "flights"
SOURCE = "flights"
"""Key: airplane.  Value: `sequence,row`."""
DELAYS = "flights-delays"
"""Key: airplane.  Value: JSON `[sequence, year, minutes]`."""
TOTALS = "flights-totals"
"""Key: airplane.  Value: JSON `[sequence, year, flights, minutes]`: the sums after this flight."""
CHANGELOG = "flights-sums-changelog"
"""Key: JSON `airplane/year`.  Value: JSON `[flights, minutes]`.  The table `sums`."""
TOTALS_PARTITIONS = 4
EXTRACT, SUMS = "extract", "sums"


def partitions(key_groups: int) -> dict[str, int]:
    """Topic -> number of partitions.  The changelog must be compacted."""
    return {SOURCE: key_groups, DELAYS: key_groups, CHANGELOG: key_groups, TOTALS: TOTALS_PARTITIONS}


@dataclass(frozen=True, slots=True, kw_only=True)
class Sums:
    """Number of flights and sum of their delays in minutes."""

    flights: int = 0
    minutes: int = 0

    def plus(self, minutes: int) -> "Sums":
        """The sums with one more flight."""
        return Sums(flights=self.flights + 1, minutes=self.minutes + minutes)


@dataclass(frozen=True, slots=True, kw_only=True)
class Total:
    """One record of TOTALS: the sums of its airplane and year after flight `sequence`."""

    sequence: int
    airplane: str
    year: int
    sums: Sums


def encode_source(sequence: int, row: str) -> bytes:
    """A value of SOURCE."""
    return f"{sequence},{row}".encode()


def decode_source(value: bytes) -> tuple[int, str]:
    """(sequence, row) of a value of SOURCE."""
    sequence, _, row = value.decode().partition(",")
    return int(sequence), row


def table_key(airplane: str, year: int) -> str:
    """Key of the table `sums`."""
    return f"{airplane}/{year}"


def decode_total(key: bytes, value: bytes) -> Total:
    """A record of TOTALS."""
    sequence, year, flights, minutes = json.loads(value)
    return Total(sequence=sequence, airplane=key.decode(), year=year, sums=Sums(flights=flights, minutes=minutes))


def decode_changelog(key: bytes, value: bytes | None) -> tuple[str, Sums | None]:
    """(table key, sums) of a record of CHANGELOG; sums None = deletes the key."""
    if value is None:
        return str(json.loads(key)), None
    cells: Any = json.loads(value)
    return str(json.loads(key)), Sums(flights=cells[0], minutes=cells[1])
