"""Copies of key groups' state on a worker's disk, besides what it owns and follows.

A worker that owned or followed a key group before still has its tables.  If it gets the key group again, it reads only
what the copy lacks.
"""

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from trimtab_protocol.messages.columns import check_once, read_integers, read_names, read_size
from trimtab_protocol.messages.decode import BadMessage, Fault, Fields
from trimtab_protocol.messages.names import MAX_PARTITIONS, OperatorId

MAX_COPIES = 200
"""Copies that a worker names; those with the most records count."""
MAX_RECORDS = 2**53
"""Changelog records of a copy; a float tells every such number from the next."""
KEYS = ("o", "p", "n")


class Copy(NamedTuple):
    """A copy of one key group of the worker's app; it has the first `records` of the key group's changelog records."""

    operator: OperatorId
    partition: int
    records: int


def largest(copies: Iterable[Copy]) -> tuple[Copy, ...]:
    """At most MAX_COPIES of them, sorted by key group."""
    return tuple(sorted(sorted(copies, key=lambda copy: (-copy.records, copy))[:MAX_COPIES]))


def copy_columns(copies: Sequence[Copy], keys: tuple[str, str, str] = KEYS) -> dict[str, Any]:
    """One array for operators, partitions and records each, under these wire keys; nothing if there are no copies."""
    return {key: list(column) for key, column in zip(keys, zip(*copies, strict=True), strict=True)} if copies else {}


def read_copies(fields: Fields, keys: tuple[str, str, str] = KEYS) -> tuple[Copy, ...]:
    """Read what `copy_columns` wrote; raises BadMessage."""
    if not any(map(fields.has, keys)):
        return ()
    operators, partitions, records = keys
    size = read_size(fields, partitions, limit=MAX_COPIES)
    named = read_names(fields, operators, limit=MAX_COPIES) if fields.has(operators) else []
    if len(named) != size:
        raise BadMessage(Fault.RANGE, fields.at(operators), f"{len(named)} elements", f"{size}, as many as the others")
    found = list(
        map(
            Copy,
            map(OperatorId, named),
            read_integers(fields, partitions, size, high=MAX_PARTITIONS),
            read_integers(fields, records, size, high=MAX_RECORDS),
        )
    )
    check_once(fields.at(partitions), [copy[:2] for copy in found])
    return tuple(found)
