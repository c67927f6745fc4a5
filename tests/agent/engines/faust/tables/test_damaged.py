"""A database with missing files is replaced by an empty one, which is restored from the changelog."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import faust
import pytest
from faust.types import TP

from trimtab_agent.engines.faust.tables.damaged import replace_damaged

LOG = TP("ks-sums-changelog", 0)


def a_store(folder: Path) -> Any:
    app = faust.App("ks", web_enabled=False, store="rocksdb://", datadir=str(folder))
    store = app.Table("sums", partitions=1).data
    replace_damaged(app)
    return store


def with_state(folder: Path) -> Path:
    """What a worker leaves on its disk; returns the folder of its database."""
    store = a_store(folder)
    for _ in range(2):  # a new log file begins each time
        store._db_for_partition(0).put(b"key", b"old")
        store.set_persisted_offset(LOG, 7)
        store._dbs.pop(0).close()
    path: Path = store.partition_path(0)
    return path


def lose_current(path: Path) -> None:
    (path / "CURRENT").unlink()


def lose_data(path: Path) -> None:
    files = list(path.glob("*.sst"))
    assert files
    for each in files:
        each.unlink()


@pytest.mark.parametrize("damage", [lose_current, lose_data])
def test_a_damaged_database_is_begun_anew(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, damage: Callable[[Path], None]
) -> None:
    damage(with_state(tmp_path))
    store = a_store(tmp_path)

    assert store.persisted_offset(LOG) is None
    assert store._db_for_partition(0).get(b"key") is None
    assert "sums-0.db is damaged: it is deleted and restored from its changelog (Corruption: " in caplog.text
    store._dbs.pop(0).close()


def test_a_whole_database_and_one_in_use_are_left_alone(tmp_path: Path) -> None:
    path = with_state(tmp_path)
    first, second = a_store(tmp_path), a_store(tmp_path)
    assert first.persisted_offset(LOG) == 7

    with pytest.raises(Exception, match="lock"):
        second._open_for_partition(0)

    assert path.exists()
    assert first._db_for_partition(0).get(b"key") == b"old"
    first._dbs.pop(0).close()
