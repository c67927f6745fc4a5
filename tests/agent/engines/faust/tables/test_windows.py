"""Windows come and go with their key group: a real table with RocksDB, no broker."""

import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import faust
import pytest

from trimtab_agent.engines.faust.tables import windows
from trimtab_agent.engines.faust.tables.windows import _forget, _remember, _stored

PARTITION = 3
NOW = time.time() // 10 * 10


@pytest.fixture
def table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(windows, "time", SimpleNamespace(time=lambda: NOW))
    app = faust.App("ks", store="rocksdb://", datadir=str(tmp_path), table_cleanup_interval=1.0)
    wrapped = app.Table("sums", default=int, key_type=str, value_type=int).tumbling(10.0, expires=60.0)
    store = wrapped.table.data
    database = store._db_for_partition(PARTITION)
    for key, start in (("a", NOW), ("b", NOW), ("a", NOW - 30), ("c", NOW - 600)):
        database.put(store._encode_key((key, (start, start + 9.9))), b"1")
    store.set_persisted_offset(faust.types.TP("ks-sums-changelog", PARTITION), 7)
    return wrapped.table


def test_the_new_owner_knows_all_windows_that_are_not_closed(table: Any) -> None:
    found = _stored(table, PARTITION)
    assert sorted(found) == [("a", (NOW - 30, NOW - 20.1)), ("a", (NOW, NOW + 9.9)), ("b", (NOW, NOW + 9.9))]

    table._maybe_set_key_ttl(("d", (NOW, NOW + 9.9)), PARTITION)  # written meanwhile
    _remember(table, PARTITION, found)

    assert table._partition_timestamps[PARTITION] == [NOW - 20.1, NOW + 9.9]
    assert {k for k, _ in table._partition_timestamp_keys[(PARTITION, NOW + 9.9)]} == {"a", "b", "d"}
    assert table._partition_latest_timestamp[PARTITION] == NOW + 9.9


def test_the_old_owner_forgets_them(table: Any) -> None:
    _remember(table, PARTITION, _stored(table, PARTITION))
    table._maybe_set_key_ttl(("e", (NOW, NOW + 9.9)), 5)

    _forget(table, PARTITION)

    assert table._partition_timestamps[PARTITION] == []
    assert set(table._partition_timestamp_keys) == {(5, NOW + 9.9)}
    assert PARTITION not in table._partition_latest_timestamp


def test_a_partition_that_is_not_open_here_has_none(table: Any) -> None:
    assert _stored(table, 0) == []
