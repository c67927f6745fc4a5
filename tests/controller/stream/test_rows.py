"""Rows from an Arrow table: every value where it belongs, unknown ones as None."""

from typing import Any

import pyarrow as pa

from trimtab_controller.stream.measures import KNOWN_COLUMNS, LEVEL_COLUMNS, SUM_COLUMNS, Kind, Row
from trimtab_controller.stream.rows import flood_row, rows_of
from trimtab_models.messages.decode import Fault

TEXTS = ("host", "worker", "app", "operator", "target_operator")
NUMBERS = (*SUM_COLUMNS, *KNOWN_COLUMNS, *LEVEL_COLUMNS, "covered_s")


def row(partition: int | None, **fields: Any) -> Row:
    plain = Row(
        start_ms=10_000,
        kind=Kind.KEY_GROUP,
        host="h0",
        worker="w0",
        app="app",
        operator="sums",
        partition=partition,
        target_operator=None,
        target_partition=None,
        samples=3,
        last_ms=19_500,
        covered_s=3.0,
        sums=(0.5, 10.0, None, None, 2.0**52),
        known_s=(3.0, 3.0, 0.0, 0.0, 3.0),
        levels=(4096.0, None, 1.0, None, None, None, None),
    )
    return plain._replace(**fields)


def table(rows: list[Row]) -> pa.Table:
    """As Spark would hand them over."""
    columns: dict[str, list[object]] = {name: [getattr(one, name) for one in rows] for name in Row._fields[:-3]}
    lists = ((SUM_COLUMNS, "sums"), (KNOWN_COLUMNS, "known_s"), (LEVEL_COLUMNS, "levels"))
    for names, field in lists:
        for index, name in enumerate(names):
            columns[name] = [getattr(one, field)[index] for one in rows]
    kinds = {
        name: pa.string() if name in TEXTS else pa.float64() if name in NUMBERS else pa.int64() for name in columns
    }
    return pa.table({name: pa.array(values, kinds[name]) for name, values in columns.items()})


def test_rows_come_back_as_they_were_over_several_parts() -> None:
    rows = [
        row(1),
        row(2, worker="w1", sums=(None, 0.0, 1.0, None, 3.5)),
        row(None, kind=Kind.HOST, worker=None, app=None, operator=None),
        row(4, kind=Kind.PAIR, worker=None, target_operator="out", target_partition=7, levels=(None,) * 7),
    ]
    parts = pa.concat_tables([table(rows[:3]), table(rows[3:])])
    assert list(rows_of(parts)) == rows
    assert list(rows_of(parts.slice(0, 0))) == []


def test_a_flood_is_a_refused_row_of_its_host() -> None:
    found = flood_row("h7", 10_000, 3_001, 15_005, 19_000)
    assert (found.kind, found.host, found.operator, found.samples) == (Kind.REJECTED, "h7", Fault.FLOODING, 3_001)
    assert (found.start_ms, found.last_ms, found.covered_s) == (10_000, 19_000, 0.0)
    assert list(map(len, (found.sums, found.known_s, found.levels))) == [5, 5, 7]
