"""Copies of key groups' state on a worker's disk, besides what it owns and follows.

A worker that owned or followed a key group before still has its tables.  If it gets the key group again, it reads only
what the copy lacks.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated, NamedTuple

from trimtab_protocol.messages.codec import Columns, Range, WrittenAs
from trimtab_protocol.messages.names import MAX_PARTITIONS, OperatorId

MAX_COPIES = 200
"""Copies that a worker names; those with the most records count."""
MAX_RECORDS = 2**53
"""Changelog records of a copy; a float tells every such number from the next."""


class Copy(NamedTuple):
    """A copy of one key group of the worker's app; it has the first `records` of the key group's changelog records."""

    operator: OperatorId
    partition: Annotated[int, Range(0, MAX_PARTITIONS)]
    records: Annotated[int, Range(0, MAX_RECORDS)]


@dataclass(frozen=True, slots=True)
class CopyTable:
    """Copies as an object of their own."""

    copies: Annotated[tuple[Copy, ...], Columns(("o", "p", "n"), MAX_COPIES, naming=2)] = ()


Copies = Annotated[tuple[Copy, ...], WrittenAs(CopyTable, CopyTable, lambda table: table.copies)]


def largest(copies: Iterable[Copy]) -> tuple[Copy, ...]:
    """At most MAX_COPIES of them, sorted by key group."""
    return tuple(sorted(sorted(copies, key=lambda copy: (-copy.records, copy))[:MAX_COPIES]))
