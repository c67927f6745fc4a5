"""A worker that comes back with the disk of an app that was reset meanwhile does not go on with the old state."""

import asyncio
from collections.abc import Collection, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import faust
import pytest
from aiokafka.errors import KafkaConnectionError
from faust.types import TP

from trimtab_agent.engines.faust.safety.troubles import Trouble, Troubles
from trimtab_agent.engines.faust.tables.other_logs import SKEW_S, watch

LOG, OTHER = TP("ks-sums-changelog", 0), TP("ks-other-changelog", 0)
OFFSET = 7


class Broker:
    """Answers which record is the first since a time; `fault` instead, if there is one."""

    def __init__(
        self, first: int | None, fault: Exception | None = None, start: int = 0, end: int = OFFSET + 1
    ) -> None:
        self.first, self.fault, self.start, self.end = first, fault, start, end
        self.asked: list[Mapping[TP, float]] = []

    async def offsets_since(self, times: Mapping[TP, float], limit_s: float) -> dict[TP, int]:
        self.asked.append(times)
        if self.fault is not None:
            raise self.fault
        return {} if self.first is None else dict.fromkeys(times, self.first)

    async def ends(self, tps: Collection[TP], limit_s: float) -> dict[TP, int]:
        if self.fault is not None:
            raise self.fault
        return dict.fromkeys(tps, self.end)

    async def highwaters(self, *tps: TP) -> dict[TP, int]:
        return dict.fromkeys(tps, self.end)

    async def beginnings(self, tps: Collection[TP], limit_s: float) -> dict[TP, int]:
        if self.fault is not None:
            raise self.fault
        return dict.fromkeys(tps, self.start)


def a_worker(folder: Path, broker: Any, troubles: Troubles | None = None, *, windowed: bool = False) -> Any:
    """The store of a table whose worker has just started."""
    app = faust.App("ks", web_enabled=False, store="rocksdb://", datadir=str(folder))
    table = app.Table("sums", partitions=1)
    store = table.tumbling(10.0, expires=60.0).table.data if windowed else table.data
    app._consumer = SimpleNamespace(thread=broker, highwaters=getattr(broker, "highwaters", None))
    app._assignor = SimpleNamespace(assigned_standbys=set, _active_tps=set())
    watch(app, (troubles or Troubles()).tell)
    return store


async def assigned(store: Any) -> None:
    await store.on_rebalance({LOG, OTHER}, set(), {LOG, OTHER}, generation_id=1)


def with_state(folder: Path) -> Path:
    """What a worker leaves on its disk; returns the folder of its database."""
    store = a_worker(folder, Broker(None))

    async def work() -> None:
        await assigned(store)
        store._dbs[0].put(b"key", b"old")
        store.set_persisted_offset(LOG, OFFSET)
        store._dbs.pop(0).close()

    asyncio.run(work())
    path: Path = store.partition_path(0)
    return path


@pytest.mark.parametrize(
    ("broker", "kept"),
    [
        pytest.param(Broker(OFFSET + 1), True, id="its changelog went on"),
        pytest.param(Broker(None), True, id="nothing was written since"),
        pytest.param(Broker(0), False, id="a changelog that is longer than the old one"),
        pytest.param(Broker(OFFSET), False, id="the offset was written since"),
        pytest.param(Broker(0, KafkaConnectionError()), True, id="the broker does not answer"),
        pytest.param(Broker(0, TimeoutError()), True, id="the broker takes too long"),
    ],
)
def test_state_of_another_changelog_is_not_used(tmp_path: Path, broker: Broker, kept: bool) -> None:
    path = with_state(tmp_path)
    last = max(each.stat().st_mtime for each in path.iterdir())
    store = a_worker(tmp_path, broker)

    asyncio.run(assigned(store))

    assert store.persisted_offset(LOG) == (OFFSET if kept else None)
    assert store._dbs[0].get(b"key") == (b"old" if kept else None)
    assert broker.asked == [{LOG: pytest.approx(last + SKEW_S, abs=1.0)}]
    store._dbs.pop(0).close()


def test_a_copy_is_not_used_that_has_more_than_its_changelog_had_when_that_grew_again(tmp_path: Path) -> None:
    """Its owner has set its own database aside, and has written since; this worker opens its copy only now."""
    path = with_state(tmp_path)
    last = max(each.stat().st_mtime for each in path.iterdir())

    class GrownAgain(Broker):
        async def offsets_since(self, times: Mapping[TP, float], limit_s: float) -> dict[TP, int]:
            return {tp: OFFSET - 2 for tp, at in times.items() if at <= last + 10.0}

    store = a_worker(tmp_path, GrownAgain(None, end=OFFSET + 20))
    asyncio.run(assigned(store))

    assert (store.persisted_offset(LOG), store._dbs[0].get(b"key")) == (None, None)
    store._dbs.pop(0).close()


@pytest.mark.parametrize("end", [OFFSET, 3, 0])
def test_a_database_ahead_of_its_changelog_is_set_aside_and_the_table_restored_from_what_is_left(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, end: int
) -> None:
    """Faust's recovery ends the worker at each start."""
    path = with_state(tmp_path)
    for _ in range(2):  # the second time, too, and only the newest is kept
        troubles = Troubles()
        store = a_worker(tmp_path, Broker(None, end=end), troubles)
        asyncio.run(assigned(store))

        assert store.persisted_offset(LOG) is None
        assert store._dbs[0].get(b"key") is None
        assert (path.parent / "sums-0.db.ahead").is_dir()
        said = f"the changelog ks-sums-changelog/0 ends at {end}, this worker had written up to 7"
        assert said in str(troubles.worst(Trouble.STATE_LOST))
        assert said in caplog.text
        store.set_persisted_offset(LOG, OFFSET)
        store._dbs.pop(0).close()


async def test_an_open_database_is_set_aside_too(tmp_path: Path) -> None:
    """The log was cut under a running worker: the next generation notices it."""
    broker = Broker(None)
    store = a_worker(tmp_path, broker)

    await assigned(store)
    store._dbs[0].put(b"key", b"old")
    store.set_persisted_offset(LOG, OFFSET)
    broker.end = 5
    await assigned(store)
    assert (store.persisted_offset(LOG), store._dbs[0].get(b"key")) == (None, None)
    store._dbs.pop(0).close()


async def test_an_owner_that_writes_where_it_has_written_already_asks_for_a_rebalance_and_restores(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The log was cut under an idle worker; it is longer again when the next generation begins."""
    broker, rejoins = Broker(None), list[str]()
    app = faust.App("ks", web_enabled=False, store="rocksdb://", datadir=str(tmp_path))
    table = app.Table("sums", partitions=1)
    store = table.data

    async def run(step: str) -> None:
        rejoins.append(step)

    broker.run, broker.request_rejoin = run, "rejoin"  # type: ignore[attr-defined]
    app._consumer = SimpleNamespace(thread=broker)
    app._assignor = SimpleNamespace(assigned_standbys=set, _active_tps=set())
    table.changelog_topic._on_published = lambda sent, message: store.set_persisted_offset(LOG, sent.result().offset)
    watch(app, Troubles().tell)

    async def write(offset: int) -> None:
        sent = asyncio.get_running_loop().create_future()
        sent.set_result(SimpleNamespace(topic=LOG.topic, partition=0, offset=offset))
        table.changelog_topic._on_published(sent, message=None)
        await asyncio.sleep(0)

    app.add_future = asyncio.ensure_future
    await assigned(store)
    for offset in (OFFSET - 1, OFFSET):
        await write(offset)
    assert rejoins == []
    await write(3)
    await write(4)
    assert (rejoins, store.persisted_offset(LOG)) == (["rejoin"], OFFSET)
    broker.end = OFFSET + 5
    await assigned(store)
    assert store.persisted_offset(LOG) is None
    await write(OFFSET + 5)
    broker.end = OFFSET + 6
    await assigned(store)
    assert (rejoins, store.persisted_offset(LOG)) == (["rejoin"], OFFSET + 5)
    assert "the changelog ks-sums-changelog/0 ends at 3, this worker had written up to 7" in caplog.text
    store._dbs.pop(0).close()


async def test_a_new_disk_and_an_open_database_are_not_asked_about(tmp_path: Path) -> None:
    broker = Broker(0)
    store = a_worker(tmp_path, broker)

    await assigned(store)
    store.set_persisted_offset(LOG, OFFSET)
    await assigned(store)

    assert broker.asked == []
    assert store.persisted_offset(LOG) == OFFSET
    store._dbs.pop(0).close()


@pytest.mark.parametrize(
    ("start", "old_disk", "said"),
    [
        pytest.param(OFFSET + 2, True, "ks-sums-changelog/0 (begins at 9, read up to 7)", id="a gap"),
        pytest.param(OFFSET + 1, True, None, id="the next record is there"),
        pytest.param(1, False, "ks-sums-changelog/0 (begins at 1, read from the beginning)", id="a new disk"),
        pytest.param(0, False, None, id="a new disk and a whole changelog"),
    ],
)
def test_records_that_a_changelog_has_lost_are_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, start: int, old_disk: bool, said: str | None
) -> None:
    if old_disk:
        with_state(tmp_path)
    troubles = Troubles()
    store = a_worker(tmp_path, Broker(None, start=start), troubles)

    asyncio.run(assigned(store))

    told = [record.getMessage() for record in caplog.records if "state is lost" in record.getMessage()]
    assert told == [] if said is None else said in told[0]
    reported = troubles.worst(Trouble.STATE_LOST)
    assert reported is None if said is None else reported is not None and said in reported
    store._dbs.pop(0).close()


@pytest.mark.parametrize(
    ("start", "kept"),
    [(OFFSET + 1, True), (OFFSET + 2, False), (20, True)],
    ids=["it has all", "a gap", "all has expired, and nobody has more"],
)
def test_a_copy_that_may_have_closed_windows_is_restored(tmp_path: Path, start: int, kept: bool) -> None:
    """The changelog of a windowed table deletes by design: tombstones of closed windows, too."""
    path = with_state(tmp_path)
    store = a_worker(tmp_path, Broker(None, start=start, end=20), windowed=True)

    asyncio.run(assigned(store))

    assert store.partition_path(0) == path
    assert store._dbs[0].get(b"key") == (b"old" if kept else None)
    store._dbs.pop(0).close()


def test_a_changelog_that_deletes_by_design_has_lost_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    store = a_worker(tmp_path, Broker(None, start=5), windowed=True)

    asyncio.run(assigned(store))

    assert 0 in store._dbs
    assert not [record for record in caplog.records if "state is lost" in record.getMessage()]
    store._dbs.pop(0).close()
