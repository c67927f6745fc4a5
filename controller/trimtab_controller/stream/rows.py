"""From what Spark hands over to the assembler's rows."""

import sys
from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from trimtab_controller.stream.measures import KNOWN_COLUMNS, LEVEL_COLUMNS, SUM_COLUMNS, Kind, Row
from trimtab_models.messages.decode import Fault


def rows_of(table: pa.Table) -> Iterator[Row]:
    """The rows of a batch; column by column, which is several times faster than row by row."""
    for part in table.to_batches():
        single = (_values(part.column(name)) for name in Row._fields[:-3])
        lists = (
            [_values(part.column(name)) for name in names] for names in (SUM_COLUMNS, KNOWN_COLUMNS, LEVEL_COLUMNS)
        )
        yield from map(Row._make, zip(*single, *(zip(*columns, strict=True) for columns in lists), strict=True))


def _values(column: pa.Array) -> list[Any]:
    """What `to_pylist` gives, in a fraction of its time, and one object for equal texts."""
    if column.null_count == len(column):
        return [None] * len(column)
    if pa.types.is_string(column.type):
        coded = column.dictionary_encode()
        names = [sys.intern(name) for name in coded.dictionary.to_pylist()]
        return [None if code is None else names[code] for code in _values(coded.indices)]
    if column.null_count == 0:
        return list(column.to_numpy().tolist())
    known = column.is_valid().to_numpy(zero_copy_only=False).tolist()
    values = column.fill_null(0).to_numpy().tolist()
    return [value if valid else None for value, valid in zip(values, known, strict=True)]


def flood_row(host: str | None, start_ms: int, reports: int, _bytes: int, last_ms: int) -> Row:
    """The refused reports of a host that floods."""
    return Row(
        start_ms=start_ms,
        kind=Kind.REJECTED,
        host=host,
        worker=None,
        app=None,
        operator=Fault.FLOODING,
        partition=None,
        target_operator=None,
        target_partition=None,
        samples=reports,
        last_ms=last_ms,
        covered_s=0.0,
        sums=(None,) * len(SUM_COLUMNS),
        known_s=(0.0,) * len(KNOWN_COLUMNS),
        levels=(None,) * len(LEVEL_COLUMNS),
    )
