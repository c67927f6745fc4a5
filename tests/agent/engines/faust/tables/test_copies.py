"""What a worker finds on its disk, in real databases."""

import asyncio
import os
import time
from collections.abc import Coroutine
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka.errors import KafkaConnectionError
from faust.types import TP
from rocksdict import Options, Rdict

from trimtab_agent.engines.faust.group.operators import AppOperator
from trimtab_agent.engines.faust.tables import copies as copies_module
from trimtab_agent.engines.faust.tables.copies import MAX_AGE_S, DiskCopies, databases, open_database, stored_offset
from trimtab_protocol.messages.copies import Copy
from trimtab_protocol.messages.names import OperatorId

KEY = b"__faust\0offset__"
SUMS = OperatorId("sums")
TABLES = ("sums", "counts-10")


class Store:
    """As Faust's, but for what is not needed here."""

    offset_key = KEY

    def __init__(self, folder: Path, name: str) -> None:
        self._folder = folder
        self._name = name
        self._dbs: dict[int, Any] = {}

    def partition_path(self, partition: int) -> Path:
        return self._folder / f"{self._name}-{partition}.db"

    def _open_for_partition(self, partition: int) -> Any:
        options = Options(raw_mode=True)
        options.create_if_missing(True)
        return Rdict(str(self.partition_path(partition)), options=options)

    def write(self, partition: int, offset: int | None) -> None:
        options = Options(raw_mode=True)
        options.create_if_missing(True)
        database = Rdict(str(self.partition_path(partition)), options=options)
        database.put(b"key", b"value")
        if offset is not None:
            database.put(KEY, str(offset).encode())
        database.close()


class Worker:
    """Two tables of one operator with 12 partitions."""

    def __init__(self, folder: Path) -> None:
        self.stores = {f"{name}-changelog": Store(folder, name) for name in TABLES}
        operator = AppOperator(id=SUMS, sources=frozenset({"in"}), changelogs=frozenset(self.stores), partitions=12)
        ownership: Any = SimpleNamespace(
            operators=lambda: {SUMS: operator}, table=lambda tp: SimpleNamespace(data=self.stores[tp.topic])
        )
        self.shared: Any = SimpleNamespace(copies=())
        self.ends: dict[TP, int] = {}
        self.begun: list[Coroutine[Any, Any, None]] = []
        self.app: Any = SimpleNamespace(consumer=self, should_stop=False)
        self.copies = DiskCopies(self.app, self.shared, ownership, self.begun.append)

    def write(self, partition: int, *offsets: int | None) -> None:
        for store, offset in zip(self.stores.values(), offsets, strict=False):
            store.write(partition, offset)

    async def highwaters(self, *tps: TP) -> dict[TP, int]:
        return {tp: self.ends.get(tp, 1000) for tp in tps}

    def found(self) -> tuple[Copy, ...]:
        asyncio.run(self.copies.look())
        return tuple(self.shared.copies)


@pytest.fixture
def worker(tmp_path: Path) -> Worker:
    return Worker(tmp_path)


def test_records_of_all_tables_of_a_key_group_count(worker: Worker) -> None:
    worker.write(3, 9, 4)
    worker.write(11, 19)
    worker.write(5, None, None)
    assert worker.found() == (Copy(SUMS, 3, 15), Copy(SUMS, 11, 20))


def test_what_is_open_here_is_no_copy_and_is_read_again_when_it_is_closed(worker: Worker) -> None:
    worker.write(3, 9, 4)
    first = worker.stores["sums-changelog"]
    first._dbs[3] = object()
    assert worker.found() == ()
    first._dbs.clear()
    assert worker.found() == (Copy(SUMS, 3, 15),)
    first._dbs[3] = object()
    assert worker.found() == ()
    first._dbs.clear()
    first.write(3, 99)
    assert worker.found() == (Copy(SUMS, 3, 105),)
    first.write(3, 199)
    assert worker.found() == (Copy(SUMS, 3, 205),), "opened and closed between two looks"


def test_a_deleted_database_and_one_beyond_its_changelog_are_no_copies(worker: Worker) -> None:
    worker.write(1, 99)
    worker.write(2, 99)
    worker.ends[TP("sums-changelog", 1)] = 50
    assert worker.found() == (Copy(SUMS, 2, 100),)
    (worker.stores["sums-changelog"].partition_path(2) / "CURRENT").unlink()
    assert worker.found() == ()


def test_an_old_database_is_none(worker: Worker) -> None:
    worker.write(1, 9)
    path = worker.stores["sums-changelog"].partition_path(1)
    old = time.time() - MAX_AGE_S - 60
    stored_offset(path, KEY)
    for each in path.iterdir():
        os.utime(each, (old, old))
    stored_offset(path, KEY)  # as a look does before a restart
    assert worker.found() == ()


def test_a_database_that_cannot_be_read_is_none_and_nothing_is_made(tmp_path: Path) -> None:
    broken = tmp_path / "sums-0.db"
    broken.mkdir()
    (broken / "CURRENT").write_text("nonsense")
    assert stored_offset(broken, KEY) == -1
    assert databases(tmp_path / "none" / "sums-0.db", 0.0) == {}
    (tmp_path / "sums-backups").mkdir()
    (tmp_path / "sums-x.db").mkdir()
    (tmp_path / "sums-7.db").mkdir()
    assert {at: found.path for at, found in databases(tmp_path / "sums-0.db", 1.0).items()} == {0: broken}


async def test_one_look_follows_many_changes_and_goes_on_while_much_is_unread(
    worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(copies_module, "LOOK_AFTER_S", 0.0)
    monkeypatch.setattr(copies_module, "READ_AT_ONCE", 1)
    worker.write(1, 9)
    worker.write(2, 9)

    worker.copies.changed()
    worker.copies.changed()
    counts = []
    for _ in range(3):
        await asyncio.sleep(0.01)
        counts.append(len(worker.begun))
        while worker.begun:
            await worker.begun.pop()
    worker.copies.close()
    assert counts == [1, 1, 0]
    assert worker.shared.copies == (Copy(SUMS, 1, 10), Copy(SUMS, 2, 10))


async def test_without_a_change_it_looks_again_and_while_the_broker_is_away(
    worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(copies_module, "LOOK_AGAIN_S", 0.0)
    monkeypatch.setattr(copies_module, "LOOK_AFTER_S", 0.0)
    worker.write(1, 9)

    async def away(*_: TP) -> dict[TP, int]:
        raise KafkaConnectionError

    found = []
    for _ in range(3):
        await worker.copies.look()
        found.append(worker.shared.copies)
        await asyncio.sleep(0.01)
        assert len(worker.begun) == 1
        worker.begun.pop().close()
        worker.highwaters = away  # type: ignore[method-assign]
    worker.copies.close()
    assert found == [(Copy(SUMS, 1, 10),)] * 3, "what it knows stays"


def opens_with_its_rows(
    folder: Path, *, end: int, since: int | None = None, begins: int | None = None, oldest_s: float = 0.0,
    written_at: float | None = None,
) -> bool:  # fmt: skip
    """Whether a database with the records up to 7 still has its rows and its offset once it has been opened."""
    store = Store(folder, "sums")
    store.write(3, 7)
    for path in store.partition_path(3).iterdir():
        os.utime(path, None if written_at is None else (written_at, written_at))
    opened = open_database(store, 3, end=end, since=since, oldest_s=oldest_s, begins=begins)
    found = {opened.get(key) is not None for key in (b"key", KEY)}
    opened.close()
    assert len(found) == 1, "both, or neither"
    return found.pop()


@pytest.mark.parametrize(
    ("age_s", "end", "kept"),
    [(MAX_AGE_S + 60, 9, False), (MAX_AGE_S - 60, 9, True), (MAX_AGE_S + 60, 8, True)],
    ids=["old and behind", "behind", "old and whole"],
)
def test_an_old_database_that_lacks_records_is_restored_from_the_beginning(
    tmp_path: Path, age_s: float, end: int, kept: bool
) -> None:
    now = time.time()
    assert opens_with_its_rows(tmp_path, end=end, written_at=now - age_s, oldest_s=now - MAX_AGE_S) is kept


@pytest.mark.parametrize(("since", "kept"), [(8, True), (7, False), (0, False), (None, True)])
def test_a_database_of_another_changelog_is_restored_from_the_beginning(
    tmp_path: Path, since: int | None, kept: bool
) -> None:
    """It has the records up to 7, so the first one since it was written is 8 or later, unless the topic is new."""
    assert opens_with_its_rows(tmp_path, end=20, since=since) is kept


@pytest.mark.parametrize(("begins", "end", "kept"), [(8, 20, True), (9, 20, False), (20, 20, True), (None, 20, True)])
def test_a_copy_that_may_have_closed_windows_is_restored_from_the_beginning(
    tmp_path: Path, begins: int | None, end: int, kept: bool
) -> None:
    """It has the records up to 7.  If all later ones have expired, nobody has more."""
    assert opens_with_its_rows(tmp_path, end=end, begins=begins) is kept


def test_a_database_that_is_not_there_is_made(tmp_path: Path) -> None:
    opened = open_database(Store(tmp_path, "sums"), 3, end=9, since=0, oldest_s=time.time())
    assert opened.get(KEY) is None
    opened.close()


def test_a_look_that_the_end_of_the_worker_overtakes_is_no_error(tmp_path: Path) -> None:
    """The consumer's thread ends first; with its event loop closed nothing can be asked any more."""
    worker = Worker(tmp_path)
    worker.write(0, 5)

    async def closed(*tps: TP) -> dict[TP, int]:
        raise RuntimeError("Event loop is closed")

    worker.highwaters = closed  # type: ignore[method-assign]
    with pytest.raises(RuntimeError):
        asyncio.run(worker.copies.look())
    worker.app.should_stop = True
    asyncio.run(worker.copies.look())
