"""A table that cannot or must not be written: nothing of the worker counts from then on, and it ends."""

import asyncio
import functools
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import faust
import pytest
from aiokafka.errors import CorruptRecordException, InvalidTimestampError
from aiokafka.partitioner import DefaultPartitioner
from faust.exceptions import PartitionsMismatch
from faust.types import TP
from faust.types.tuples import ConsumerMessage

from tests.agent.engines.faust.steered import consumer_of, nothing, processing, transport_of
from trimtab_agent.engines.faust.group.routes import Routes
from trimtab_agent.engines.faust.safety.fence import WorkerFenced
from trimtab_agent.engines.faust.safety.store_guard import LateWrite, StateBreach, StoreGuard
from trimtab_agent.engines.faust.safety.troubles import Trouble
from trimtab_agent.engines.faust.transport.consumer import SteeredConsumer

SOURCE = TP("events", 0)


@pytest.fixture(autouse=True)
def stays_alive(monkeypatch: pytest.MonkeyPatch) -> None:
    """The process that would end is that of the tests."""
    monkeypatch.setattr("trimtab_agent.engines.faust.safety.fence.end_process_after", lambda _: None)


class Failing:
    """A database of which nothing can be deleted."""

    def __init__(self, error: Exception) -> None:
        self.error = error

    def delete(self, key: bytes) -> None:
        raise self.error


FULL_DISK = Failing(OSError("No space left on device"))


def worker(
    folder: Path, database: object | None, prepare: Callable[[Any], object] = lambda table: None
) -> tuple[Any, SteeredConsumer, Callable[[], None]]:
    """An app, its consumer, and the writing of its table."""
    app = faust.App("ks", web_enabled=False, store="rocksdb://", datadir=str(folder))
    table = app.Table("sums", partitions=1)
    prepare(table)
    watcher: Any = SimpleNamespace(
        breached=lambda: app.__dict__.update(breaches=app.__dict__.get("breaches", 0) + 1),
        tell=lambda *_: None,
        rebalancing=lambda: None,
        stable=lambda: None,
    )
    transport = transport_of(app, watcher)
    app.loop = asyncio.get_running_loop()
    store = table.data
    if database is not None:
        store._dbs_for_key = lambda _: [database]
    consumer = app._consumer = consumer_of(transport)
    app.topics._acking_topics.add(SOURCE.topic)
    return app, consumer, lambda: store._del(b"n14228")


async def test_nothing_is_committed_after_a_write_that_failed_and_the_worker_ends(tmp_path: Path) -> None:
    app, consumer, write = worker(tmp_path, FULL_DISK)
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
    consumer.fence.renew()
    assert not consumer.fence.lets_through(), "a new generation does not mend the state"


async def test_an_error_of_the_app_is_its_own(tmp_path: Path) -> None:
    app, consumer, write = worker(tmp_path, Failing(AssertionError("no event")))
    with pytest.raises(AssertionError, match="no event"):
        write()
    await asyncio.sleep(0.1)
    assert not consumer.fence.over
    assert not app.crashed


class Written:
    """A database that notes what is written to it."""

    def __init__(self) -> None:
        self.batches = 0

    def write(self, batch: object) -> None:
        self.batches += 1


def record(tp: TP, key: bytes | None = b"k", value: bytes = b"1", offset: int = 7) -> Any:
    """A record of a changelog, as a table is given it."""
    message = SimpleNamespace(tp=tp, partition=tp.partition, offset=offset, key=key, value=value, headers=None)
    return SimpleNamespace(message=message)


def changelog(app: Any, *partitions: TP) -> None:
    """Apply records of these partitions to the table."""
    app.tables["sums"].apply_changelog_batch([record(tp) for tp in partitions])


def stateful(folder: Path, *, active: bool, restored: bool) -> tuple[Any, SteeredConsumer, Written]:
    app, consumer, _ = worker(folder, FULL_DISK)
    database = Written()
    store = app.tables["sums"].data
    store._db_for_partition = lambda _: database
    store.set_persisted_offset = lambda *_: None
    app.assignor._active_tps = {SUMS} if active else set()
    consumer._open = restored
    return app, consumer, database


SUMS, OTHER = TP("ks-sums-changelog", 0), TP("ks-other-changelog", 0)


@pytest.mark.parametrize("in_thread", [False, True], ids=["in the app's loop", "in another thread"])
async def test_a_changelog_is_never_applied_to_what_the_worker_writes_itself(tmp_path: Path, in_thread: bool) -> None:
    app, consumer, database = stateful(tmp_path, active=True, restored=True)

    with pytest.raises(StateBreach, match="ks-sums-changelog"):
        await asyncio.to_thread(changelog, app, SUMS) if in_thread else changelog(app, SUMS)
    await asyncio.sleep(0.1)

    assert database.batches == 0
    assert (consumer.fence.broken, app.breaches) == (True, 1)
    assert app.crashed


async def test_only_faust_restores_what_is_active_and_only_before_it_is_open(tmp_path: Path) -> None:
    app, consumer, database = stateful(tmp_path, active=True, restored=False)

    changelog(app, SUMS)
    assert database.batches == 1
    with pytest.raises(StateBreach):
        await asyncio.to_thread(changelog, app, SUMS)

    assert consumer.fence.broken


async def test_standbys_follow_and_records_of_other_changelogs_are_left_out(tmp_path: Path) -> None:
    app, consumer, database = stateful(tmp_path, active=False, restored=True)

    await asyncio.to_thread(changelog, app, SUMS, OTHER)
    assert database.batches == 1
    changelog(app, OTHER)

    assert (database.batches, consumer.fence.broken) == (1, False)


async def test_what_other_workers_change_in_a_global_table_is_read(tmp_path: Path) -> None:
    """The app is not steered.  Faust calls all partitions active on every worker, and goes on to read them."""
    app, consumer, _ = worker(tmp_path, None, lambda table: table.app.GlobalTable("rates", partitions=1))
    rates, tp = app.tables["rates"], TP("ks-rates-changelog", 0)
    app.assignor._active_tps, consumer._open = {tp}, True
    rates.apply_changelog_batch([record(tp, b'"EUR"', b"1.1")])
    assert (rates.data._dbs[0].get(b'"EUR"'), consumer.fence.broken) == (b"1.1", False)


class Grown(faust.Record):
    """What a table's values are since the last deployment."""

    amount: int
    currency: str


@pytest.mark.parametrize(
    ("types", "key", "value"),
    [
        ({"value_type": Grown}, b'"a"', b'{"amount": 7}'),  # Faust: "missing field", and the key is gone
        ({"key_type": uuid.UUID}, b'"5b1d2a0e-6f0c-4c55-9f5e-0d1c3a8c9b11"', b"1"),
        ({"key_type": Grown}, b"null", b"1"),
        ({}, b'"a"', b"not JSON"),
        ({"schema": faust.Schema(value_type=Grown)}, b'"a"', b"{}"),
    ],
)
async def test_a_recovery_leaves_out_nothing_that_the_app_cannot_decode(
    types: dict[str, Any], key: bytes, value: bytes, tmp_path: Path
) -> None:
    app, _, _ = worker(tmp_path, None, lambda table: table.app.Table("grown", partitions=1, **types))
    table = app.tables["grown"]
    channel = table.changelog_topic.clone_using_queue(asyncio.Queue())
    message = record(TP("ks-grown-changelog", 0), key, value).message
    table.apply_changelog_batch([await channel.decode(message, propagate=True)])
    stored: bytes | None = table.data._dbs[0].get(key)
    assert stored == value


async def test_a_topic_that_shares_its_schema_with_a_table_is_decoded(tmp_path: Path) -> None:
    schema = faust.Schema(key_type=str, value_type=int, value_serializer="json")
    app, _, _ = worker(tmp_path, None, lambda table: table.app.Table("other", schema=schema))
    topic = app.topic("events", schema=schema)
    assert (await topic.decode(SimpleNamespace(key=b'"a"', value=b"7", headers=None))).value == 7


@pytest.mark.parametrize("types", [{}, {"key_type": str, "value_type": int}])
async def test_an_agent_that_reads_a_changelog_gets_what_was_written(types: dict[str, Any], tmp_path: Path) -> None:
    """The app is not steered.  For readers of the same types Faust decodes a record once."""
    app, _, _ = worker(tmp_path, None, lambda table: table.app.Table("totals", partitions=1, **types))
    table, tp = app.tables["totals"], TP("ks-totals-changelog", 0)
    app.producer = SimpleNamespace(buffer=SimpleNamespace(wait_until_ebb=nothing))
    agent = app.agent(table.changelog_topic)(nothing)
    readers = {agent.channel_iterator, table.changelog_topic.clone_using_queue(app.tables.changelog_queue)}
    handler = app.topics._build_handler(tp, readers)
    app.flow_control.resume()
    await handler(ConsumerMessage(*tp, 7, 1.0, 0, None, b'"a"', b"7", None, tp=tp))
    found = [reader.queue.get_nowait() for reader in readers]
    assert {(event.key, event.value) for event in found} == {("a", 7), (b'"a"', b"7")}


async def test_a_record_without_a_key_does_not_hold_up_the_others(tmp_path: Path) -> None:
    """A tool may have written it while the changelog was not compacted.  There is no state that it could be."""
    app, _, _ = worker(tmp_path, None)
    table = app.tables["sums"]
    app.assignor._active_tps = set()
    table.apply_changelog_batch([record(SUMS, key, offset=offset) for offset, key in enumerate((b"a", None, b"b"))])
    assert (table.data._dbs[0].get(b"b"), table.persisted_offset(SUMS)) == (b"1", 2)


async def test_after_a_recovery_faust_applies_no_records_of_the_worker_itself(tmp_path: Path) -> None:
    """With a buffer of one record it would: `Recovery._restart_recovery` goes on to read the changelogs."""

    app, _, _ = worker(tmp_path, None, lambda table: setattr(table, "recovery_buffer_size", 1))
    size: int = app.tables["sums"].recovery_buffer_size
    assert size == 2


class Sent:
    """The app's producer, which keeps what it should send."""

    def __init__(self, transport: Any) -> None:
        self.records: list[Any] = []
        producer = transport.app.producer = transport.create_producer()
        producer.buffer.put = self.put
        producer.flush = self.flush

    def put(self, future: Any) -> None:
        self.records.append(future)

    async def flush(self) -> None: ...

    @property
    def keys(self) -> list[Any]:
        return [future.message.key for future in self.records]


def writing(
    folder: Path,
    *,
    active: set[TP],
    counts: dict[str, int] | None = None,
    prepare: Callable[[Any], object] = lambda table: None,
) -> tuple[Any, SteeredConsumer, Sent]:
    """An app with real stores, its consumer that owns partition 0 of `events` from offset 10 on, and what it sends.

    `counts` = how many partitions the broker knows of each topic.
    """
    app, consumer, _ = worker(folder, None, prepare)
    app.assignor._active_tps = active
    consumer.topic_partitions = (counts or EVEN).get
    consumer.start_at({SOURCE: 10})
    return app, consumer, Sent(consumer.transport)


class Event:
    """An event of a source, as an agent sees it."""

    def __init__(self, tp: TP, offset: int) -> None:
        self.message = SimpleNamespace(
            tp=tp, topic=tp.topic, partition=tp.partition, offset=offset, timestamp=1e9, key=b"k"
        )


def within(event: Event, do: Callable[[], object]) -> None:
    """Do it while this event is processed."""
    with processing(event):
        do()


def write(app: Any, tp: TP, offset: int = 12) -> None:
    """Write the table while an event of this partition is processed."""
    within(Event(tp, offset), lambda: app.tables["sums"].update({"k": 1}))


def stored(app: Any) -> dict[str, Any]:
    """What the local table has."""
    app.assignor._active_tps, app.assignor.assigned_actives = {SUMS}, lambda: {SUMS}
    return dict(app.tables["sums"].data.items())


EVEN = {"events": 1, "ks-sums-changelog": 1}
OWN = {SOURCE, SUMS}


async def test_a_table_partition_of_this_worker_is_written(tmp_path: Path) -> None:
    app, consumer, sent = writing(tmp_path, active=OWN)
    write(app, SOURCE)
    assert (sent.keys, stored(app), consumer.fence.broken) == ([b'"k"'], {"k": 1}, False)


async def test_nothing_is_written_to_a_table_partition_of_another_worker(tmp_path: Path) -> None:
    app, consumer, sent = writing(tmp_path, active={SOURCE})

    with pytest.raises(StateBreach, match="owns partition 0 of the first topic only"):
        write(app, SOURCE)
    await asyncio.sleep(0.1)

    assert (sent.keys, consumer.fence.broken, app.breaches) == ([], True, 1)
    assert app.crashed


@pytest.mark.parametrize(
    ("counts", "owned", "ends"),
    [
        ({"events": 4, "ks-prices-changelog": 4}, OWN, True),  # the app has put it into another operator
        ({"events": 4, "ks-prices-changelog": 4}, {*OWN, TP("ks-prices-changelog", 0)}, False),
        ({"events": 4, "ks-prices-changelog": 1}, OWN, False),  # as in stock Faust, which has it elsewhere, too
    ],
)
async def test_an_event_reads_nothing_that_stock_faust_would_have_here_and_is_elsewhere(
    tmp_path: Path, counts: dict[str, int], owned: set[TP], *, ends: bool
) -> None:
    """It would get what an empty table or a standby has, and go on with that."""

    app, consumer, _ = writing(
        tmp_path, active=owned, prepare=lambda table: table.app.Table("prices", default=int, partitions=1)
    )
    consumer._thread = SimpleNamespace(partition_count=counts.get)  # type: ignore[assignment]
    prices = app.tables["prices"]
    found: list[object] = []
    told = pytest.raises(StateBreach, match="reads a table of ks-prices-changelog") if ends else nullcontext()
    for look_up in (lambda: found.append(prices["k"]), lambda: found.append("k" in prices)):
        with told:
            within(Event(SOURCE, 12), look_up)
    await asyncio.sleep(0.1)
    assert found == ([] if ends else [0, False])
    assert (consumer.fence.broken, app.crashed, bool(app.__dict__.get("breaches"))) == (ends, ends, ends)


async def test_the_apps_own_tests_may_write_and_read_tables_without_a_broker(tmp_path: Path) -> None:
    """They use `agent.test_context()`, and often the store that the app has."""

    app, consumer, _ = worker(tmp_path, None, lambda table: setattr(table, "default", int))
    Sent(consumer.transport)
    app.flow_control.resume()
    sums = app.tables["sums"]

    @app.agent(app.topic("events"))
    async def add(stream: Any) -> Any:
        async for key, value in stream.items():
            sums[key] += value
            yield {key: sums[key]}

    async with add.test_context() as agent:
        await agent.put(3, key="a")
        await agent.put(4, key="a")
        found = list(agent.results.values())
    assert found == [{"a": 3}, {"a": 7}]


async def finished(consumer: SteeredConsumer) -> None:
    assert await consumer.drain({SOURCE}, 60.0)


async def revoked(consumer: SteeredConsumer) -> None:
    await consumer.on_partitions_revoked({SOURCE})


async def given_away(consumer: SteeredConsumer) -> None:
    consumer.forget({SOURCE})
    consumer.app.assignor._active_tps = set()


async def away_and_back(consumer: SteeredConsumer) -> None:
    consumer.forget({SOURCE})
    consumer.start_at({SOURCE: 40})


async def membership_lost(consumer: SteeredConsumer) -> None:
    consumer.fence.lose()


WRITES: dict[str, Callable[[Any], object]] = {
    "set": lambda table: table.__setitem__("k", 2),
    "delete": lambda table: table.__delitem__("k"),
    "pop": lambda table: table.pop("k"),
    "update": lambda table: table.update({"k": 2}),
    "default": lambda table: table.setdefault("new", 2),
    "changelog": lambda table: table.send_changelog(0, "k", 2),
    "store": lambda table: table.data.__setitem__("k", 2),
    "store delete": lambda table: table.data.__delitem__("k"),
}


@pytest.mark.parametrize("leaves", [finished, revoked, given_away, away_and_back, membership_lost])
@pytest.mark.parametrize("how", WRITES)
async def test_an_event_whose_key_group_has_left_writes_nothing_and_ends_no_worker(
    tmp_path: Path, leaves: Callable[[SteeredConsumer], Any], how: str
) -> None:
    app, consumer, sent = writing(tmp_path, active=OWN)
    write(app, SOURCE)
    await leaves(consumer)
    with pytest.raises((LateWrite, WorkerFenced)) as told:
        within(Event(SOURCE, 12), lambda: WRITES[how](app.tables["sums"]))
    await asyncio.sleep(0.1)
    assert (len(sent.records), stored(app)) == (1, {"k": 1})
    assert (consumer.fence.broken, app.crashed) == (False, False)
    if leaves is not membership_lost:
        assert "table sums, key" in str(told.value)
        assert "event events/0 offset 12" in str(told.value)


@pytest.mark.parametrize("where", ["a task, timer or page", "a thread"])
@pytest.mark.parametrize("how", ["set", "delete", "pop", "update", "default"])
async def test_outside_of_an_event_nothing_is_written(tmp_path: Path, how: str, where: str) -> None:
    app, consumer, sent = writing(tmp_path, active=OWN)
    write(app, SOURCE)
    do = functools.partial(WRITES[how], app.tables["sums"])
    with ThreadPoolExecutor(1) as threads, pytest.raises(TypeError, match="outside of stream iteration"):
        threads.submit(do).result() if where == "a thread" else do()
    assert (len(sent.records), stored(app)) == (1, {"k": 1})
    assert (consumer.fence.broken, app.crashed) == (False, False)


IN_MEMORY = TP(None, 0)  # type: ignore[arg-type]
OF_NO_LOG: dict[str, Callable[[Any], None]] = {
    "an event of a channel in memory": lambda app: write(app, IN_MEMORY, -1),  # Faust: it writes partition 0
    "a timer or page, which can write no table": lambda app: WRITES["changelog"](app.tables["sums"]),
}


@pytest.mark.parametrize("leaves", [finished, revoked, given_away, membership_lost])
@pytest.mark.parametrize("how", OF_NO_LOG)
async def test_what_is_in_no_log_writes_partition_0_while_it_is_here(
    tmp_path: Path, leaves: Callable[[SteeredConsumer], Any], how: str
) -> None:
    app, consumer, sent = writing(tmp_path, active=OWN)
    OF_NO_LOG[how](app)
    assert len(sent.records) == 1
    await leaves(consumer)
    with pytest.raises((LateWrite, WorkerFenced)):
        OF_NO_LOG[how](app)
    assert (len(sent.records), consumer.fence.broken) == (1, False)


async def test_a_table_that_cannot_be_cleared_gets_no_tombstones(tmp_path: Path) -> None:
    app, _, sent = writing(tmp_path, active=OWN)
    write(app, SOURCE)
    app.assignor.assigned_actives = lambda: {SUMS}
    with pytest.raises(NotImplementedError):
        within(Event(SOURCE, 13), app.tables["sums"].clear)
    assert (len(sent.records), stored(app)) == (1, {"k": 1})


def test_another_event_loop_that_keeps_an_event_writes_nothing_late(tmp_path: Path) -> None:
    async def leave() -> None:
        async def write_there() -> None:
            write(app, SOURCE)

        app, consumer, sent = writing(tmp_path, active=OWN)
        write(app, SOURCE)
        await given_away(consumer)
        with ThreadPoolExecutor(1) as threads, pytest.raises(LateWrite):
            threads.submit(lambda: asyncio.run(write_there())).result()
        assert (len(sent.records), stored(app)) == (1, {"k": 1})

    asyncio.run(leave())


def test_late_writes_are_counted_and_told_once_a_minute(tmp_path: Path) -> None:
    told: list[tuple[Trouble, str | None]] = []

    async def leave() -> int:
        app, consumer, _ = writing(tmp_path, active=OWN)
        app.transport = consumer.transport
        consumer.transport.watcher.tell = lambda *what: told.append(what)
        await given_away(consumer)
        for _ in range(3):
            with pytest.raises(LateWrite):
                write(app, SOURCE)
        return int(consumer.transport.guard.late_writes.count)

    assert asyncio.run(leave()) == 3
    assert [trouble for trouble, _ in told] == [Trouble.LATE_WRITE]
    assert "late writes were refused, 1 until" in str(told[0][1])


async def test_what_stays_here_through_a_rebalance_is_written_by_events_from_before_it(tmp_path: Path) -> None:
    app, consumer, _ = writing(tmp_path, active=OWN)
    await revoked(consumer)
    consumer._open, consumer._sought = False, True  # Faust has restored, and opens the sources
    consumer.resume_flow()
    write(app, SOURCE)
    assert stored(app) == {"k": 1}


async def test_the_windows_of_a_key_group_that_has_left_are_not_written(tmp_path: Path) -> None:
    windows: list[Any] = []
    _, consumer, sent = writing(
        tmp_path, active=OWN, prepare=lambda table: windows.append(table.tumbling(10.0, expires=60.0))
    )
    within(Event(SOURCE, 12), lambda: windows[0].__setitem__("k", 2))
    await given_away(consumer)
    with pytest.raises(LateWrite):
        within(Event(SOURCE, 12), lambda: windows[0].__setitem__("k", 2))
    assert len(sent.records) == 1


async def test_a_deletion_leaves_the_same_key_of_other_partitions_alone(tmp_path: Path) -> None:
    app, _, _ = writing(tmp_path, active=OWN)
    store = app.tables["sums"].data
    store._db_for_partition(1).put(b'"k"', b"7")  # a standby
    write(app, SOURCE)
    store._key_index.clear()
    within(Event(SOURCE, 13), lambda: app.tables["sums"].__delitem__("k"))
    assert stored(app) == {}
    assert store._db_for_partition(1).get(b'"k"') == b"7"


async def test_the_key_none_is_in_the_changelog_as_it_is_on_the_disk(tmp_path: Path) -> None:
    app, consumer, sent = writing(tmp_path, active=OWN)
    table = app.tables["sums"]
    within(Event(SOURCE, 12), lambda: table.update({"good": 1, None: 2}))
    assert (sent.keys, stored(app)) == ([b'"good"', b"null"], {"good": 1, None: 2})
    within(Event(SOURCE, 13), lambda: table.pop(None))
    assert (sent.keys[2:], sent.records[2].message.value, stored(app)) == ([b"null"], None, {"good": 1})
    assert (consumer.fence.broken, app.crashed) == (False, False)


async def test_a_table_of_raw_keys_has_no_key_none(tmp_path: Path) -> None:
    app, _, sent = writing(tmp_path, active=OWN, prepare=lambda table: setattr(table, "key_serializer", "raw"))
    with pytest.raises(TypeError, match="Table key cannot be None"):
        within(Event(SOURCE, 12), lambda: app.tables["sums"].__setitem__(None, 1))
    assert (sent.keys, stored(app)) == ([], {})


async def test_a_worker_ends_where_faust_would_count_the_event_as_done(tmp_path: Path) -> None:
    app, consumer, sent = writing(tmp_path, active=OWN, counts={**EVEN, "events": 2})

    with pytest.raises(PartitionsMismatch, match="has 2 partitions"):
        write(app, SOURCE)
    await asyncio.sleep(0.1)

    assert (sent.keys, consumer.fence.broken, app.breaches) == ([], True, 1)
    assert app.crashed


@pytest.mark.parametrize(
    ("name", "error", "ends"),
    [
        pytest.param("sums", CorruptRecordException(), True, id="it is not written, and nobody knows why"),
        pytest.param("sums", WorkerFenced(), False, id="the worker has lost its membership"),
        pytest.param("sums", None, False, id="it is written"),
        pytest.param("out", InvalidTimestampError(), False, id="an output that is refused is the app's own loss"),
    ],
)
async def test_a_changelog_record_that_is_not_written_ends_the_worker_without_a_commit(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, name: str, error: Exception | None, ends: bool
) -> None:
    app, consumer, _ = worker(tmp_path, FULL_DISK)
    app.assignor._active_tps = {SUMS}
    topic = app.tables["sums"].changelog_topic if name == "sums" else app.topic("out", value_type=bytes)
    future = topic.as_future_message(key=b"k", value=b"1", partition=0)
    sent: asyncio.Future[object] = asyncio.get_running_loop().create_future()
    if error is None:
        sent.set_result(SimpleNamespace(topic_partition=SUMS, offset=3))
    else:
        sent.set_exception(error)

    topic._on_published(sent, message=future, producer=None, state=None)
    await asyncio.sleep(0.1)

    assert future.done()
    assert (consumer.fence.broken, app.crashed) == (ends, ends)
    told = [record.getMessage() for record in caplog.records if record.levelname == "CRITICAL"]
    assert [text.split(",")[0] for text in told] == (
        ["a record of changelog ks-sums-changelog/0 was not written"] if ends else []
    )


async def test_outputs_that_are_refused_are_counted_and_told_and_changelog_records_are_not(tmp_path: Path) -> None:
    app, consumer, _ = worker(tmp_path, FULL_DISK)
    told: list[tuple[Trouble, str | None]] = []
    guard = StoreGuard(app, consumer.fence, on_breach=lambda: None, tell=lambda *what: told.append(what))
    guard.outputs_lost("ks-sums-changelog", 0, InvalidTimestampError(), [b"k"])
    guard.outputs_lost("out", 1, InvalidTimestampError(), [b"k", b"n"])
    guard.outputs_lost("out", 1, InvalidTimestampError(), [b"k"])
    [(trouble, text)] = told
    assert trouble is Trouble.OUTPUTS_LOST
    assert str(text).startswith("outputs are lost, 2 until")
    why = "Kafka refuses out/1 (InvalidTimestamp: its time is too far from the broker's), first key b'k'"
    assert str(text).endswith(why)


AS_KEY: dict[str, Callable[[bytes], Any]] = {"text": bytes.decode, "number": int, "bytes": bytes}


@pytest.mark.parametrize("restarted", [False, True], ids=["by its writes", "by its rows"])
@pytest.mark.parametrize("as_key", AS_KEY.values(), ids=AS_KEY)
async def test_the_router_asks_for_all_keys_where_their_events_are(
    tmp_path: Path, as_key: Callable[[bytes], Any], restarted: bool
) -> None:
    """All has Faust's defaults: raw keys of events, JSON for those of tables, and texts in the addresses of pages."""
    count, keys = 4, [str(number).encode() for number in range(20)]
    log = {TP("ks-totals-changelog", partition) for partition in range(count)}
    counts = {"events": count, "ks-totals-changelog": count}
    active = {TP("events", partition) for partition in range(count)} | log

    def place(key: bytes) -> int:
        found: int = DefaultPartitioner()(key, list(range(count)), [])
        return found

    def add_table(table: Any) -> None:
        table.app.Table("totals", default=float, partitions=count)

    app, consumer, sent = writing(tmp_path, active=active, counts=counts, prepare=add_table)
    consumer.start_at(dict.fromkeys(active - log, 10))
    for key in keys:
        event = Event(TP("events", place(key)), 12)
        event.message.key = key
        within(event, lambda key=key: app.tables["totals"].update({as_key(key): 1.0}))  # type: ignore[misc]
    assert len(sent.records) == len(keys)
    if restarted:
        consumer.transport.guard.placed.clear()

    app.transport = consumer.transport
    app.producer.key_partition = lambda topic, key: TP(topic, place(key))
    routes = Routes(app, active.__contains__)
    routes.stable(active)
    for key in keys:
        asked, _ = app.tables["totals"].changelog_topic.prepare_key(key.decode(), None)
        assert routes.place("ks-totals-changelog", asked, dict.fromkeys(log, "http://w0")).partition == place(key)
