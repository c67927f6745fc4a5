"""Key groups of a window in columns: the same as row by row."""

import random
from collections import defaultdict
from collections.abc import Iterable
from typing import Any

from trimtab_controller.stream.contents import DECIMALS, key_group_windows
from trimtab_controller.stream.measures import KNOWN_COLUMNS, SUM_COLUMNS, Kind, Row
from trimtab_controller.stream.rows import of_kind, table_of
from trimtab_protocol.messages.key_group_table import LEVELS, RATES, KeyGroupWindow
from trimtab_protocol.messages.names import MAX_PARTITIONS, AppId, KeyGroup, OperatorId, WorkerId

WORKERS = {"w0": "h0", "w1": "h0", "w10": "h1", "W2": "h1"}


def some_rows(draw: random.Random) -> list[Row]:
    """Key groups that have one or several owners, with values that floats add up exactly."""
    found = {}
    for _ in range(draw.randrange(1, 40)):
        worker = draw.choice(list(WORKERS))
        row = Row(
            start_ms=0,
            kind=Kind.KEY_GROUP,
            host=WORKERS[worker],
            worker=worker,
            app=draw.choice(["b", "ab", "a"]),
            operator=draw.choice(["sums", "s", "counts"]),
            partition=draw.choice([0, 1, 2, MAX_PARTITIONS]),
            target_operator=None,
            target_partition=None,
            samples=draw.randrange(1, 4),
            last_ms=draw.randrange(3),
            covered_s=draw.randrange(1, 8) / 2,
            sums=tuple(draw.choice([None, 0.0, 1.5, 2.0**40, 2.0**80]) for _ in SUM_COLUMNS),
            known_s=tuple(draw.choice([0.0, 0.25, 0.5, 1.0]) for _ in KNOWN_COLUMNS),
            levels=tuple(draw.choice([None, 0.0, 7.0, 2.0**53, 2.0**62]) for _ in LEVELS),
        )
        found[row.thing] = row
    return list(found.values())


def rate(rows: Iterable[Row], place: int) -> float | None:
    known_s = sum(row.known_s[place] for row in rows)
    amount = sum(row.sums[place] or 0.0 for row in rows)
    return round(amount / known_s, DECIMALS) if known_s and amount / known_s <= 1e18 else None


def row_by_row(rows: Iterable[Row]) -> list[KeyGroupWindow]:
    """The dumb twin of `key_group_windows`."""
    owners = defaultdict(list)
    for row in rows:
        owners[KeyGroup(AppId(row.app or ""), OperatorId(row.operator or ""), row.partition or 0)].append(row)
    windows = []
    for key_group, found in sorted(owners.items()):
        last = max(found, key=lambda row: (row.last_ms, -row.samples, row.worker))
        values: dict[str, Any] = {name: rate(found, place) for place, name in enumerate(RATES)}
        for name, level in zip(LEVELS, last.levels, strict=True):
            values[name] = None if level is None or level > 2.0**53 else int(level)
        covered_s = sum(row.covered_s for row in found)
        windows.append(
            KeyGroupWindow(key_group=key_group, worker=WorkerId(last.worker or ""), covered_s=covered_s, **values)
        )
    return windows


def test_key_groups_are_made_as_row_by_row() -> None:
    draw = random.Random(7)
    for _ in range(100):
        rows = some_rows(draw)
        assert key_group_windows(of_kind(table_of(rows), Kind.KEY_GROUP)) == row_by_row(rows)


def test_of_no_rows_there_are_no_key_groups() -> None:
    assert key_group_windows(of_kind(table_of([]), Kind.KEY_GROUP)) == ()
