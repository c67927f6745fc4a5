"""Arrow tables of rows, from Spark through the assembler to the snapshot.

A fleet has a million rows per batch, so they stay in columns; no Python object is made for a row.
"""

from collections.abc import Iterable
from itertools import zip_longest

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from trimtab_controller.stream.measures import (
    KEYS,
    KNOWN_COLUMNS,
    LEVEL_COLUMNS,
    LEVELS,
    NAMES,
    SUM_COLUMNS,
    SUMS,
    Kind,
    Row,
)

_TEXTS = ("host", "worker", "app", "operator", "target_operator")
_LISTS = {"sums": SUM_COLUMNS, "known_s": KNOWN_COLUMNS, "levels": LEVEL_COLUMNS}


def _type(name: str) -> pa.DataType:
    return pa.string() if name in _TEXTS else pa.int32() if name == "kind" else pa.int64()


SCHEMA = pa.schema(
    [
        *((name, _type(name)) for name in Row._fields if name not in (*_LISTS, "covered_s")),
        ("covered_s", pa.float64()),
        *((name, pa.float64()) for names in _LISTS.values() for name in names),
    ]
)


def table_of(rows: Iterable[Row]) -> pa.Table:
    """A table made of single rows; their lists may have fewer elements than there are columns."""
    listed = list(rows)
    columns = {name: [getattr(row, name) for row in listed] for name in Row._fields if name not in _LISTS}
    for field, names in _LISTS.items():
        padding = [0.0 if field == "known_s" else None] * len(names)
        values = zip_longest(padding, *(getattr(row, field) for row in listed))
        for name, (default, *column) in zip(names, values, strict=True):
            columns[name] = [default if value is None else value for value in column]
    return pa.table(columns, SCHEMA)


def of_kind(table: pa.Table, kind: Kind) -> pa.Table:
    """The rows of one kind, with the columns that it uses."""
    return where(table.select(_columns(kind)), table["kind"].to_numpy() == kind.value).combine_chunks()


def kinds_in(table: pa.Table) -> list[Kind]:
    """The kinds of which there are rows; most batches have rows of few kinds."""
    return [Kind(value) for value in np.flatnonzero(np.bincount(table["kind"].to_numpy())).tolist()]


def named(table: pa.Table, kind: Kind) -> pa.Table:
    """Rows of one kind with their measures under their own names, as in SUMS and LEVELS."""
    return table.rename_columns([NAMES[kind].get(column, column) for column in table.column_names])


def where(table: pa.Table, wanted: NDArray[np.bool_]) -> pa.Table:
    """The rows for which the mask is true."""
    if wanted.all():
        return table
    return table.filter(pa.array(wanted)) if wanted.any() else table.slice(0, 0)


def _columns(kind: Kind) -> list[str]:
    if kind is Kind.REJECTED:
        return ["host", "worker", "operator", "samples", "last_ms"]
    sums, levels = len(SUMS[kind]), len(LEVELS.get(kind, ()))
    measured = (*SUM_COLUMNS[:sums], *KNOWN_COLUMNS[:sums])
    return [*KEYS[kind], "samples", "last_ms", "covered_s", *measured, *LEVEL_COLUMNS[:levels]]


def added(before: pa.Table, later: pa.Table, kind: Kind) -> pa.Table:
    """Merge two tables into one row per thing; levels come from the newer row or, at equal times, from `later`."""
    if not (before.num_rows and later.num_rows):
        return before if before.num_rows else later
    both = pa.concat_tables([before, later])
    last_ms = both["last_ms"].to_numpy()
    newness = (last_ms - last_ms.min()) * both.num_rows + np.arange(both.num_rows)
    levels = ["last_ms", *(name for name in both.column_names if name in LEVEL_COLUMNS)]
    amounts = [name for name in both.column_names if name not in (*KEYS[kind], *levels)]
    # One thread: several would compete with Spark for the cores and use four times the CPU.
    summed = (
        both.append_column("newness", pa.array(newness))
        .group_by(list(KEYS[kind]), use_threads=False)
        .aggregate([*((name, "sum") for name in amounts), ("newness", "max")])
    )
    newest = both.select(levels).take(pa.array(summed["newness_max"].to_numpy() % both.num_rows))
    columns = {name: summed[name] for name in KEYS[kind]}
    columns |= {name: summed[f"{name}_sum"] for name in amounts} | {name: newest[name] for name in levels}
    return pa.table({name: columns[name] for name in both.column_names}).combine_chunks()


EMPTY = {kind: of_kind(SCHEMA.empty_table(), kind) for kind in KEYS}
"""A table without rows of each kind that a snapshot shows."""


def left_out_row(host: str | None, fault: str, start_ms: int, reports: int, last_ms: int) -> Row:
    """Reports that were refused before they were parsed."""
    return Row(
        start_ms=start_ms,
        kind=Kind.REJECTED,
        host=host,
        worker=None,
        app=None,
        operator=fault,
        partition=None,
        target_operator=None,
        target_partition=None,
        samples=reports,
        last_ms=last_ms,
        covered_s=0.0,
        sums=(),
        known_s=(),
        levels=(),
    )
