"""Tables of rows: every value where it belongs, and two tables added up as row by row."""

import random
from typing import Any

import pyarrow as pa

from tests.controller.stream.assembler_situations import host, key_group
from trimtab_controller.stream.measures import KEYS, KNOWN_COLUMNS, LEVEL_COLUMNS, SUM_COLUMNS, Kind, Row
from trimtab_controller.stream.rows import SCHEMA, added, left_out_row, of_kind, table_of
from trimtab_protocol.messages.decode import Fault


def row(partition: int | None, **fields: Any) -> Row:
    plain = key_group(0, host("h0", 10_000, 3.0, last_ms=19_500))._replace(
        partition=partition,
        sums=(0.5, 10.0, None, None, 2.0**52),
        known_s=(3.0, 3.0, 0.0, 0.0, 3.0),
        levels=(4096.0, None, 1.0, None, None, None, None, None),
    )
    return plain._replace(**fields)


def plus(before: Row, later: Row) -> Row:
    """The dumb twin of `added`: both rows' samples of the same thing; levels are the newer row's."""
    newer = later if later.last_ms >= before.last_ms else before
    return newer._replace(
        samples=before.samples + later.samples,
        covered_s=before.covered_s + later.covered_s,
        sums=[a if b is None else b if a is None else a + b for a, b in zip(before.sums, later.sums, strict=True)],
        known_s=[a + b for a, b in zip(before.known_s, later.known_s, strict=True)],
    )


def some_rows(draw: random.Random) -> dict[tuple[object, ...], Row]:
    """Key groups of a few workers, each once, with values that floats add up exactly."""
    found = {}
    for _ in range(draw.randrange(1, 30)):
        one = row(
            draw.randrange(5),
            worker=draw.choice(["w0", "w1"]),
            samples=draw.randrange(1, 4),
            last_ms=draw.randrange(10_000, 10_004),
            covered_s=draw.randrange(1, 8) / 2,
            sums=tuple(draw.choice([None, 0.0, 1.5, 2.0**40]) for _ in SUM_COLUMNS),
            known_s=tuple(draw.randrange(8) / 4 for _ in KNOWN_COLUMNS),
            levels=tuple(draw.choice([None, 7.0, 8.0]) for _ in LEVEL_COLUMNS[:3]),
        )
        found[one.thing] = one
    return found


def told(table: pa.Table) -> list[dict[str, object]]:
    return sorted(table.to_pylist(), key=repr)


def test_tables_are_added_as_row_by_row() -> None:
    draw = random.Random(5)
    for _ in range(50):
        before, later = some_rows(draw), some_rows(draw)
        both = before | {key: plus(before[key], one) if key in before else one for key, one in later.items()}
        tables = [of_kind(table_of(rows.values()), Kind.KEY_GROUP) for rows in (before, later, both)]
        assert told(added(tables[0], tables[1], Kind.KEY_GROUP)) == told(tables[2])


def test_each_kind_has_the_columns_that_it_uses() -> None:
    rows = [
        row(1),
        row(None, kind=Kind.HOST, worker=None, app=None, operator=None, sums=(2.0, None, 3.0), known_s=(), levels=()),
        row(4, kind=Kind.PAIR, worker=None, target_operator="out", target_partition=7, levels=()),
    ]
    table = pa.concat_tables([table_of(rows[:1]), table_of([]), table_of(rows[1:])])
    assert table.schema == SCHEMA
    assert told(of_kind(table, Kind.HOST)) == [
        {
            "host": "h0",
            "operator": None,
            "target_operator": None,
            "samples": 3,
            "last_ms": 19_500,
            "covered_s": 3.0,
            "sum_0": 2.0,
            "sum_1": None,
            "sum_2": 3.0,
            "known_0": 0.0,
            "known_1": 0.0,
            "known_2": 0.0,
            **dict.fromkeys(LEVEL_COLUMNS[:8]),
        }
    ]
    (pair,) = of_kind(table, Kind.PAIR).to_pylist()
    assert [pair[name] for name in (*KEYS[Kind.PAIR], "sum_1")] == ["h0", None, "app", "count", 4, "out", 7, 10.0]
    (group,) = of_kind(table, Kind.KEY_GROUP).to_pylist()
    assert [group[name] for name in (*KEYS[Kind.KEY_GROUP], "sum_4")] == ["h0", "w0", "app", "count", 1, 2.0**52]
    assert of_kind(table, Kind.WORKER).num_rows == 0


def test_a_flood_is_a_refused_row_of_its_host() -> None:
    found = left_out_row("h7", Fault.FLOODING, 10_000, 3_001, 19_000)
    assert (found.kind, found.host, found.operator, found.samples) == (Kind.REJECTED, "h7", Fault.FLOODING, 3_001)
    assert (found.start_ms, found.last_ms, found.covered_s) == (10_000, 19_000, 0.0)
