"""Checks that every flight was counted exactly once and that the sums are right, by recomputing them; pure.

Correct final sums do not prove that they always were.  So no count in the table's changelog may step back either.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from flights.dataset import Flight, parse_row, partition_of
from flights.replay import Sent
from flights.wire import Sums, Total, table_key

EXAMPLES = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Events:
    """The flights sent, compared with the outputs; `foreign` = outputs of flights that were not sent."""

    sent: int
    processed: int
    lost: int
    duplicated: int
    foreign: int
    lost_examples: tuple[int, ...]
    duplicated_examples: tuple[int, ...]


class Change(NamedTuple):
    """One record of the changelog; `sums` None = the key was deleted."""

    partition: int
    key: str
    sums: Sums | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """The table `sums` after all records of its changelog: the last of each key.

    `stepped_back` = records whose count is not above the previous one of their key and partition.  Every flight adds
    one, so there an older state overwrote a newer one.
    """

    sums: Mapping[str, Sums]
    stepped_back: int
    examples: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Answers:
    """The comparison of sums, one per airplane and year; `wrong` = missing, superfluous or different sums.

    `stepped_back` = see `Table`.
    """

    checked: int
    wrong: int
    stepped_back: int
    examples: tuple[str, ...]


def flights_sent(flights: Iterable[Flight], sent: Sent) -> list[Flight]:
    """The flights that the replay sent."""
    key_groups = len(sent.clocks)
    return [f for f in flights if (partition_of(f.airplane, key_groups), f.sequence) in sent]


def expected_sums(flights: Iterable[Flight]) -> dict[str, Sums]:
    """The content that the table `sums` must have after these flights."""
    table: dict[str, Sums] = {}
    for flight in flights:
        delay = parse_row(flight.row)
        key = table_key(delay.airplane, delay.year)
        table[key] = table.get(key, Sums()).plus(delay.minutes)
    return table


def count_events(sent: Iterable[Flight], totals: Iterable[Total]) -> Events:
    """Compare flights with outputs.  Lost = sent without output; duplicated = outputs of a flight after the first."""
    numbers = {flight.sequence for flight in sent}
    seen = Counter(total.sequence for total in totals)
    lost = sorted(numbers - seen.keys())
    twice = sorted(sequence for sequence, times in seen.items() if times > 1 and sequence in numbers)
    return Events(
        sent=len(numbers),
        processed=len(numbers & seen.keys()),
        lost=len(lost),
        duplicated=sum(seen[sequence] - 1 for sequence in twice),
        foreign=sum(times for sequence, times in seen.items() if sequence not in numbers),
        lost_examples=tuple(lost[:EXAMPLES]),
        duplicated_examples=tuple(twice[:EXAMPLES]),
    )


def table_of(changes: Iterable[Change]) -> Table:
    """The table of a changelog, whose records are in order per partition.  Compacted records are not checked."""
    sums: dict[str, Sums] = {}
    flights: dict[tuple[int, str], int] = {}
    stepped_back, examples = 0, list[str]()
    for change in changes:
        place, found = (change.partition, change.key), change.sums.flights if change.sums else 0
        if found <= flights.get(place, 0):
            stepped_back += 1
            examples.append(f"{change.key}: {found} flights after {flights.get(place, 0)}")
        flights[place] = found
        if change.sums is None:
            sums.pop(change.key, None)
        else:
            sums[change.key] = change.sums
    return Table(sums=sums, stepped_back=stepped_back, examples=tuple(examples[:EXAMPLES]))


def compare(expected: Mapping[str, Sums], table: Table) -> Answers:
    """Compare the expected sums with the table."""
    found = table.sums
    wrong = sorted(key for key in expected.keys() | found.keys() if expected.get(key) != found.get(key))
    different = (f"{key}: found {found.get(key)}, expected {expected.get(key)}" for key in wrong[:EXAMPLES])
    return Answers(
        checked=len(expected),
        wrong=len(wrong),
        stepped_back=table.stepped_back,
        examples=(*different, *table.examples),
    )
