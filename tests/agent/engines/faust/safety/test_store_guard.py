"""A table that cannot or must not be written: nothing of the worker counts from then on, and it ends."""

import asyncio
import weakref
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import faust
import pytest
from aiokafka.errors import InvalidTimestampError
from faust.exceptions import PartitionsMismatch
from faust.streams import _current_event
from faust.types import TP

from trimtab_agent.engines.faust.safety.fence import Fence, Fenced
from trimtab_agent.engines.faust.safety.store_guard import StateBreach
from trimtab_agent.engines.faust.settings import SteeringSettings
from trimtab_agent.engines.faust.transport.consumer import SteeredConsumer
from trimtab_agent.engines.faust.transport.steered import SteeredTransport

SOURCE = TP("events", 0)


@pytest.fixture(autouse=True)
def stays_alive(monkeypatch: pytest.MonkeyPatch) -> None:
    """The process that would end is that of the tests."""
    monkeypatch.setattr("trimtab_agent.engines.faust.safety.ending.end_process_after", lambda _: None)


class FullDisk:
    """A database that takes nothing more."""

    def delete(self, key: bytes) -> None:
        raise OSError(f"No space left on device: while deleting {key!r}")


class BadApp:
    """A database that is written by an app which must not."""

    def delete(self, key: bytes) -> None:
        raise AssertionError(f"no event, but {key!r}")


def worker(folder: Path, database: object) -> tuple[Any, SteeredConsumer, Callable[[], None]]:
    """An app, its consumer, and the writing of its table."""
    app = faust.App("ks", web_enabled=False, store="rocksdb://", datadir=str(folder))
    table = app.Table("sums", partitions=1)
    watcher: Any = SimpleNamespace(breached=lambda: app.__dict__.update(breaches=app.__dict__.get("breaches", 0) + 1))
    transport = SteeredTransport(app, fence=Fence(10.0), settings=SteeringSettings(), watcher=watcher)

    async def nothing(*_: object) -> None: ...

    app.loop = asyncio.get_running_loop()
    store = table.data
    store._dbs_for_key = lambda _: [database]
    consumer = transport.create_consumer(
        callback=nothing, on_partitions_revoked=nothing, on_partitions_assigned=nothing
    )
    app._consumer = consumer
    return app, consumer, lambda: store._del(b"n14228")


def test_nothing_is_committed_after_a_write_that_failed_and_the_worker_ends(tmp_path: Path) -> None:
    async def fail() -> None:
        app, consumer, write = worker(tmp_path, FullDisk())
        consumer.start_at({SOURCE: 10})
        consumer._note_delivery(SOURCE, 10)
        consumer._note_delivery(SOURCE, 11)
        consumer._acked_index[SOURCE].add(10)
        assert consumer._new_offset(SOURCE) == 11
        consumer._acked_index[SOURCE].add(11)

        with pytest.raises(OSError, match="No space left"):
            write()
        await asyncio.sleep(0.1)

        assert consumer._new_offset(SOURCE) is None
        assert consumer.fence.over
        assert not consumer.fence.lets_through()
        assert app.crashed

    asyncio.run(fail())


def test_a_new_generation_does_not_mend_the_state(tmp_path: Path) -> None:
    async def fail() -> None:
        _, consumer, write = worker(tmp_path, FullDisk())
        with pytest.raises(OSError, match="No space left"):
            write()
        consumer.fence.renew()
        assert not consumer.fence.lets_through()

    asyncio.run(fail())


def test_an_error_of_the_app_is_its_own(tmp_path: Path) -> None:
    async def fail() -> None:
        app, consumer, write = worker(tmp_path, BadApp())
        with pytest.raises(AssertionError, match="no event"):
            write()
        await asyncio.sleep(0.1)
        assert not consumer.fence.over
        assert not app.crashed

    asyncio.run(fail())


class Written:
    """A database that notes what is written to it."""

    def __init__(self) -> None:
        self.batches = 0

    def write(self, batch: object) -> None:
        self.batches += 1


def changelog(app: Any, *records: TP) -> None:
    """Apply records of these partitions to the table."""
    table = app.tables["sums"]
    events = [
        SimpleNamespace(message=SimpleNamespace(tp=tp, partition=tp.partition, offset=7, key=b"k", value=b"1"))
        for tp in records
    ]
    table.apply_changelog_batch(events)


def stateful(folder: Path, *, active: bool, restored: bool) -> tuple[Any, SteeredConsumer, Written]:
    app, consumer, _ = worker(folder, FullDisk())
    database = Written()
    store = app.tables["sums"].data
    store._db_for_partition = lambda _: database
    store.set_persisted_offset = lambda *_: None
    app.assignor._active_tps = {SUMS} if active else set()
    consumer._open = restored
    return app, consumer, database


SUMS, OTHER = TP("ks-sums-changelog", 0), TP("ks-other-changelog", 0)


@pytest.mark.parametrize("in_thread", [False, True], ids=["in the app's loop", "in another thread"])
def test_a_changelog_is_never_applied_to_what_the_worker_writes_itself(tmp_path: Path, in_thread: bool) -> None:
    async def follow() -> None:
        app, consumer, database = stateful(tmp_path, active=True, restored=True)

        with pytest.raises(StateBreach, match="ks-sums-changelog"):
            await asyncio.to_thread(changelog, app, SUMS) if in_thread else changelog(app, SUMS)
        await asyncio.sleep(0.1)

        assert database.batches == 0
        assert (consumer.fence.broken, app.breaches) == (True, 1)
        assert app.crashed

    asyncio.run(follow())


def test_only_faust_restores_what_is_active_and_only_before_it_is_open(tmp_path: Path) -> None:
    async def restore() -> None:
        app, consumer, database = stateful(tmp_path, active=True, restored=False)

        changelog(app, SUMS)
        assert database.batches == 1
        with pytest.raises(StateBreach):
            await asyncio.to_thread(changelog, app, SUMS)

        assert consumer.fence.broken

    asyncio.run(restore())


def test_standbys_follow_and_records_of_other_changelogs_are_left_out(tmp_path: Path) -> None:
    async def follow() -> None:
        app, consumer, database = stateful(tmp_path, active=False, restored=True)

        await asyncio.to_thread(changelog, app, SUMS, OTHER)
        assert database.batches == 1
        changelog(app, OTHER)

        assert (database.batches, consumer.fence.broken) == (1, False)

    asyncio.run(follow())


def writing(folder: Path, *, active: set[TP], counts: dict[str, int]) -> tuple[Any, SteeredConsumer, list[int]]:
    """An app whose table is written from an event of partition 0 of `events`; the offsets of its changelog's records.

    `counts` = how many partitions the broker knows of each topic.
    """
    app, consumer, _ = worker(folder, FullDisk())
    app.assignor._active_tps = active
    consumer.topic_partitions = counts.get
    sent: list[int] = []
    table = app.tables["sums"]

    def send(partition: int, *_: object, **__: object) -> Any:
        sent.append(partition)
        return SimpleNamespace(message=SimpleNamespace(partition=partition))

    table.send_changelog = send
    table.data._db_for_partition = lambda _: SimpleNamespace(put=lambda *_: None)
    return app, consumer, sent


class Event:
    """An event of a source, as an agent sees it."""

    def __init__(self, tp: TP) -> None:
        self.message = SimpleNamespace(tp=tp, topic=tp.topic, partition=tp.partition)


def write(app: Any, tp: TP) -> None:
    """Write the table while an event of this partition is processed."""
    event = Event(tp)
    token = _current_event.set(weakref.ref(event))
    try:
        app.tables["sums"][b"k"] = b"1"
    finally:
        _current_event.reset(token)


EVEN = {"events": 1, "ks-sums-changelog": 1}


def test_a_table_partition_of_this_worker_is_written(tmp_path: Path) -> None:
    async def own() -> None:
        app, consumer, sent = writing(tmp_path, active={SOURCE, SUMS}, counts=EVEN)
        write(app, SOURCE)
        assert (sent, consumer.fence.broken) == ([0], False)

    asyncio.run(own())


def test_nothing_is_written_to_a_table_partition_of_another_worker(tmp_path: Path) -> None:
    async def foreign() -> None:
        app, consumer, sent = writing(tmp_path, active={SOURCE}, counts=EVEN)

        with pytest.raises(StateBreach, match="owns partition 0 of the first topic only"):
            write(app, SOURCE)
        await asyncio.sleep(0.1)

        assert (sent, consumer.fence.broken, app.breaches) == ([], True, 1)
        assert app.crashed

    asyncio.run(foreign())


def test_an_event_that_was_begun_before_its_partition_left_ends_no_worker(tmp_path: Path) -> None:
    async def left() -> None:
        app, consumer, _ = writing(tmp_path, active=set(), counts=EVEN)
        write(app, SOURCE)
        assert not consumer.fence.broken

    asyncio.run(left())


def test_a_worker_ends_where_faust_would_count_the_event_as_done(tmp_path: Path) -> None:
    async def grown() -> None:
        app, consumer, sent = writing(tmp_path, active={SOURCE, SUMS}, counts={**EVEN, "events": 2})

        with pytest.raises(PartitionsMismatch, match="has 2 partitions"):
            write(app, SOURCE)
        await asyncio.sleep(0.1)

        assert (sent, consumer.fence.broken, app.breaches) == ([], True, 1)
        assert app.crashed

    asyncio.run(grown())


@pytest.mark.parametrize(
    ("error", "ends"),
    [
        pytest.param(InvalidTimestampError(), True, id="the broker refuses it"),
        pytest.param(Fenced(), False, id="the worker has lost its membership"),
        pytest.param(None, False, id="it is written"),
    ],
)
def test_a_changelog_record_that_is_not_written_ends_the_worker_without_a_commit(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, error: Exception | None, ends: bool
) -> None:
    async def publish() -> None:
        app, consumer, _ = worker(tmp_path, FullDisk())
        topic = app.tables["sums"].changelog_topic
        future = topic.as_future_message(key=b"k", value=b"1", partition=0)
        sent: asyncio.Future[object] = asyncio.get_running_loop().create_future()
        if error is None:
            sent.set_result(SimpleNamespace(topic_partition=SUMS, offset=3))
        else:
            sent.set_exception(error)

        topic._on_published(sent, message=future, producer=None, state=None)
        await asyncio.sleep(0.1)

        assert future.done()
        assert consumer.fence.broken == ends
        assert app.crashed == ends

    asyncio.run(publish())
    told = [record.getMessage() for record in caplog.records if record.levelname == "CRITICAL"]
    assert [text.split(",")[0] for text in told] == (
        ["a record of changelog ks-sums-changelog/0 was not written"] if ends else []
    )


def test_an_output_that_is_refused_is_the_app_s_own_loss(tmp_path: Path) -> None:
    async def publish() -> None:
        app, consumer, _ = worker(tmp_path, FullDisk())
        topic = app.topic("out", value_type=bytes)
        future = topic.as_future_message(key=b"k", value=b"1", partition=0)
        sent: asyncio.Future[object] = asyncio.get_running_loop().create_future()
        sent.set_exception(InvalidTimestampError())

        topic._on_published(sent, message=future, producer=None, state=None)
        await asyncio.sleep(0.1)

        assert (consumer.fence.broken, app.crashed) == (False, False)

    asyncio.run(publish())
