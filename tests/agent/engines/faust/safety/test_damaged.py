"""A database that is broken is replaced by an empty one, which is restored from the changelog."""

import asyncio
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import faust
import pytest
from faust.types import TP

from tests.agent.engines.faust.safety.test_store_guard import OWN, SOURCE, SUMS, Event, changelog, within, writing
from trimtab_agent.engines.faust.safety.damaged import replace_damaged

LOG = TP("ks-sums-changelog", 0)


def a_store(folder: Path) -> Any:
    app = faust.App("ks", web_enabled=False, store="rocksdb://", datadir=str(folder))
    store = app.Table("sums", partitions=1).data
    replace_damaged(store)
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


def lose_manifest(path: Path) -> None:
    (manifest,) = path.glob("MANIFEST-*")
    manifest.unlink()


@pytest.mark.parametrize(
    ("damage", "why"),
    [(lose_current, "Corruption: "), (lose_data, "Corruption: "), (lose_manifest, "IO error: No such file")],
)
def test_a_damaged_database_is_begun_anew(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, damage: Callable[[Path], None], why: str
) -> None:
    damage(with_state(tmp_path))
    store = a_store(tmp_path)

    assert store.persisted_offset(LOG) is None
    assert store._db_for_partition(0).get(b"key") is None
    assert f"sums-0.db is damaged: it is deleted and restored from its changelog ({why}" in caplog.text
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


KEYS = 5000


def flip_a_byte(folder: Path) -> None:
    """A database of many blocks, one of which has a wrong bit in a file."""
    store = a_store(folder)
    for key in range(KEYS):
        store._db_for_partition(0).put(f'"k{key:05}"'.encode(), random.randbytes(20))
    store.set_persisted_offset(LOG, 7)
    store._db_for_partition(0).flush()
    store._dbs.pop(0).close()
    largest = max(store.partition_path(0).glob("*.sst"), key=lambda file: file.stat().st_size)
    data = bytearray(largest.read_bytes())
    data[len(data) // 3] ^= 1
    largest.write_bytes(data)


def started_again(folder: Path) -> Any:
    """The store of a new process; this one still has the files open."""
    return a_store(shutil.copytree(folder, folder / "again"))


def look_up(app: Any) -> object:
    return [app.tables["sums"].data._get(f'"k{key:05}"'.encode()) for key in range(KEYS)]


READS: dict[str, Callable[[Any], object]] = {
    "by an event": lambda app: within(Event(SOURCE, 12), lambda: look_up(app)),
    "by a page": look_up,
    "whether a key is there": lambda app: [f"k{key:05}" in app.tables["sums"].data for key in range(KEYS)],
    "all keys": lambda app: list(app.tables["sums"].data._iterkeys()),
    "all items": lambda app: list(app.tables["sums"].data._iteritems()),
    "how many": lambda app: len(app.tables["sums"].data),
}


@pytest.mark.parametrize("how", READS)
async def test_a_read_that_finds_damage_ends_the_worker_before_its_commit_and_the_table_is_restored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    monkeypatch.setattr("trimtab_agent.engines.faust.safety.fence.end_process_after", lambda _: None)
    flip_a_byte(tmp_path)

    app, consumer, _ = writing(tmp_path, active=OWN)
    app.assignor.assigned_actives = lambda: {SUMS}
    consumer._note_delivery(SOURCE, 10)
    consumer._acked_index[SOURCE].add(10)
    store = app.tables["sums"].data
    assert store.persisted_offset(SUMS) == 7

    with pytest.raises(Exception, match="Corruption: block checksum mismatch"):
        READS[how](app)
    await asyncio.sleep(0.1)

    assert (consumer.fence.broken, consumer._new_offset(SOURCE), app.crashed) == (True, None, True)
    again = started_again(tmp_path)
    assert again.persisted_offset(LOG) is None
    assert list(again._visible_keys(again._db_for_partition(0))) == []


async def test_a_standby_that_has_taken_over_ends_at_the_damage_and_lets_nothing_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trimtab_agent.engines.faust.safety.fence.end_process_after", lambda _: None)
    flip_a_byte(tmp_path)

    app, consumer, _ = writing(tmp_path, active=set())
    consumer._open = True
    changelog(app, SUMS)  # it follows without a word
    assert not consumer.fence.broken
    app.assignor._active_tps = OWN
    with pytest.raises(Exception, match="Corruption"):
        READS["by an event"](app)
    assert consumer.fence.broken
    assert started_again(tmp_path).persisted_offset(LOG) is None


async def test_a_whole_table_is_read_and_a_closed_one_ends_no_worker(tmp_path: Path) -> None:
    app, consumer, _ = writing(tmp_path, active=OWN)
    app.assignor.assigned_actives = lambda: {SUMS}
    within(Event(SOURCE, 12), lambda: app.tables["sums"].update(dict.fromkeys(map(str, range(100)), 1)))
    assert len(app.tables["sums"].data) == 100
    app.tables["sums"].data._dbs[0].close()
    with pytest.raises(Exception, match="closed"):
        len(app.tables["sums"].data)
    assert not consumer.fence.broken
