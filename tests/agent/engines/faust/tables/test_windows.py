"""Each window is closed once, by the owner of its partition: real tables with RocksDB, records by hand, no broker."""

import asyncio
import operator
from collections.abc import Awaitable, Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import faust
import pytest
from faust.types import TP

from tests.agent.engines.faust.steered import consumer_of, processing, transport_of
from trimtab_agent.engines.faust.group.operators import AppOperator
from trimtab_agent.engines.faust.group.ownership import Ownership
from trimtab_agent.engines.faust.measure.sensor import KeyGroupSensor
from trimtab_agent.engines.faust.safety.fence import uptime
from trimtab_agent.engines.faust.tables import windows
from trimtab_agent.engines.faust.tables.own_partitions import answer_from_own_partitions
from trimtab_agent.engines.faust.tables.windows import close_each_once
from trimtab_protocol.messages.names import AppId, OperatorId

NOW = 1_700_000_000.0
SIZE_S, EXPIRES_S = 10.0, 60.0
PAST = NOW - 86_400.0
LOG, SOURCE = "ks-sums-changelog", "events"
SUMS = OperatorId("sums")


class Page(faust.Record):
    site: str
    number: int


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The clock of the cleanup; `clock.now` sets it."""
    cleanup: Any = SimpleNamespace(now=NOW)
    cleanup.time = lambda: cleanup.now
    monkeypatch.setattr(windows, "time", cleanup)
    return cleanup


class Event:
    def __init__(self, partition: int, at: float) -> None:
        tp = TP(SOURCE, partition)
        self.message = SimpleNamespace(tp=tp, topic=tp.topic, partition=partition, offset=7, timestamp=at, key=b"k")
        self.value = SimpleNamespace(at=at)


class Worker:
    """A worker with a windowed table.  `closed` = what its app was told: key, start of the window, value."""

    def __init__(self, folder: Path, name: str, *, key_type: Any = str, step_s: float = SIZE_S) -> None:
        self.closed: list[tuple[Any, float, int]] = []
        self.while_closing: Callable[[], Awaitable[None]] | None = None
        self.app = app = faust.App("ks", web_enabled=False, store="rocksdb://", datadir=str(folder / name))
        small = {"write_buffer_size": 1 << 20, "block_cache_size": 1 << 20}
        table = app.Table(
            "sums", default=int, key_type=key_type, value_type=int, on_window_close=self._close, options=small
        )
        self.sums = table.hopping(SIZE_S, step_s, expires=EXPIRES_S)
        self.table = self.sums.table
        app.transport = transport_of(app, SimpleNamespace())
        app.loop = asyncio.get_running_loop()
        self.consumer = app._consumer = consumer_of(app.transport)
        self.consumer.topic_partitions = lambda _: 4  # type: ignore[method-assign]
        self.consumer._open = True
        self.waiting: int | None = 0
        # The consumer's thread knows it, which does not run here.
        self.consumer.backlog = lambda _: self.waiting  # type: ignore[assignment, method-assign]
        self.consumer.log_end = lambda tp: self.consumer.next_offset(tp) + (self.waiting or 0)  # type: ignore[method-assign]
        ownership = Ownership(app, AppId("ks"))
        operator = AppOperator(id=SUMS, sources=frozenset({SOURCE}), changelogs=frozenset({LOG}), partitions=4)
        ownership._operators, ownership._by_topic = {SUMS: operator}, {LOG: operator, SOURCE: operator}
        close_each_once(app, ownership, answer_from_own_partitions(app))

    async def _close(self, key: Any, value: int) -> None:
        if self.while_closing is not None:
            await self.while_closing()
        self.closed.append((key[0], key[1][0], value))

    def own(self, *partitions: int) -> "Worker":
        self.app.assignor._active_tps = {TP(topic, p) for p in partitions for topic in (LOG, SOURCE)}
        for partition in partitions:
            self.table.data._db_for_partition(partition)
            self.consumer.start_at({TP(SOURCE, partition): 0})
        return self

    def event(self, partition: int, key: Any, at: float, *, by: Any = None) -> None:
        """Count an event of this partition with this time."""
        table = self.sums if by is None else by
        self.during(partition, at, lambda: table[key].apply(operator.add, 1))

    def during(self, partition: int, at: float, do: Callable[[], Any]) -> Any:
        with processing(Event(partition, at)):
            return do()

    async def look(self, times: int = 2) -> None:
        """What Faust does every `table_cleanup_interval`; twice: in between the partition was not written."""
        for _ in range(times):
            await self.table._del_old_keys()

    def sent(self) -> list[Any]:
        """The changelog records that this worker has sent since the last call, as a reader gets them."""
        pending, found = self.app.producer.buffer.pending, []
        while not pending.empty():
            message = pending.get_nowait().message
            tp = TP(message.channel.get_topic_name(), message.partition)
            found.append(SimpleNamespace(tp=tp, partition=tp.partition, key=message.key, value=message.value))
        return found

    def follows(self, records: Iterable[Any]) -> None:
        """Apply changelog records, as a standby or a recovery."""
        for number, record in enumerate(records):
            record.offset = number
            self.table.apply_changelog_batch([SimpleNamespace(message=record)])

    def rows(self, *partitions: int) -> int:
        store = self.table.data
        return sum(len(list(store._visible_keys(store._dbs[p]))) for p in partitions)


async def test_what_the_app_does_with_a_closed_window_is_charged_to_its_partition(tmp_path: Path, clock: Any) -> None:
    worker = Worker(tmp_path, "a").own(0, 1)
    sensor = KeyGroupSensor(worker.app)
    worker.app.sensors.add(sensor)
    causes = []

    async def pass_on() -> None:
        causes.append(sensor.on_send_initiated(None, "results", None, 1, 1)[0])

    worker.while_closing = pass_on
    for partition in (0, 1):
        worker.event(partition, "k", NOW)

    clock.now = NOW + SIZE_S + EXPIRES_S + 1.0
    await worker.look()

    assert causes == [TP(LOG, 0), TP(LOG, 1)]
    found = sensor.take().agents_ns
    assert found.keys() == {TP(LOG, 0), TP(LOG, 1)}
    assert min(found.values()) > 0


async def test_windows_of_one_key_in_two_partitions_are_closed_each_by_itself(tmp_path: Path, clock: Any) -> None:
    worker = Worker(tmp_path, "a").own(0, 1)
    for partition, times in ((0, 2), (1, 3)):
        for _ in range(times):
            worker.event(partition, "k", NOW)
    for _ in range(5):
        worker.event(1, "k", NOW + SIZE_S)
    worker.sent()

    clock.now = NOW + SIZE_S + EXPIRES_S + 1.0
    await worker.look()

    assert worker.closed == [("k", NOW, 2), ("k", NOW, 3)]
    assert [(r.partition, r.value) for r in worker.sent()] == [(0, None), (1, None)]
    assert (worker.rows(0), worker.rows(1)) == (0, 1)
    clock.now += SIZE_S
    await worker.look()
    assert worker.closed[2:] == [("k", NOW + SIZE_S, 5)]


async def test_hopping_windows_are_closed_each_once(tmp_path: Path, clock: Any) -> None:
    worker = Worker(tmp_path, "a", step_s=5.0).own(0)
    for second in range(20):
        worker.event(0, "k", NOW + second)

    clock.now = NOW + 1_000.0
    await worker.look()

    assert worker.closed == [
        ("k", NOW - 5, 5),
        ("k", NOW, 10),
        ("k", NOW + 5, 10),
        ("k", NOW + 10, 10),
        ("k", NOW + 15, 5),
    ]


async def test_windows_that_are_taken_over_are_closed_however_old_they_are(tmp_path: Path, clock: Any) -> None:
    """After a backfill that moved, rows that looked closed long ago stayed for ever."""
    source, target = Worker(tmp_path, "a").own(0), Worker(tmp_path, "b")
    for number in range(40):
        source.event(0, f"k{number % 4}", PAST + number)
    target.follows(source.sent())
    source.own()

    target.own(0)
    await target.look()
    await source.look()

    assert sorted(target.closed) == sorted(
        (f"k{k}", PAST + window, sum(n % 4 == k for n in range(int(window), int(window) + 10)))
        for k in range(4)
        for window in (0.0, 10.0, 20.0, 30.0)
    )
    assert source.closed == []
    assert target.rows(0) == 0
    source.follows(target.sent())
    assert source.rows(0) == 0, "a standby's rows go by the changelog"


async def test_what_returns_is_closed_where_it_is_and_only_if_it_is_open(tmp_path: Path, clock: Any) -> None:
    """There and back between two looks: the first owner's memory is out of date."""
    first, second = Worker(tmp_path, "a").own(0), Worker(tmp_path, "b")
    first.event(0, "early", NOW)
    await first.look()
    second.follows(first.sent())
    first.own()
    second.own(0)
    second.event(0, "late", NOW)
    clock.now = NOW + 1_000.0
    second.event(0, "newest", clock.now)
    await second.look()
    second.event(0, "newer", clock.now)
    first.follows(second.sent())
    second.own()
    first.own(0)

    clock.now += 1_000.0
    await first.look()

    assert sorted(key for key, *_ in second.closed) == ["early", "late"]
    assert sorted(key for key, *_ in first.closed) == ["newer", "newest"]


async def test_a_backfill_closes_a_window_when_its_own_time_has_passed(tmp_path: Path, clock: Any) -> None:
    """By the clock everything has expired: each look would close a part of each window."""
    worker = Worker(tmp_path, "a").own(0)
    by_field = worker.sums.relative_to(lambda event=None: event.value.at)
    for number in range(300):
        worker.event(0, "k", PAST + number, by=by_field)
        if number % 3 == 0:
            await worker.look(1)
    assert worker.closed == [("k", PAST + start, 10) for start in range(0, 230, 10)]

    await worker.look()

    assert worker.closed == [("k", PAST + start, 10) for start in range(0, 300, 10)], "no event comes any more"
    assert worker.rows(0) == 0


async def test_an_event_dated_in_the_future_does_not_end_a_backfill(tmp_path: Path, clock: Any) -> None:
    """One device with a wrong clock would let all windows of its partition expire before they are full."""
    worker = Worker(tmp_path, "a").own(0)
    worker.event(0, "wrong", NOW + 86_400.0)
    for number in range(100):
        worker.event(0, "k", PAST + number)
        await worker.look(1)
    assert worker.closed == [("k", PAST + start, 10) for start in range(0, 30, 10)]

    await worker.look()

    assert worker.closed == [("k", PAST + start, 10) for start in range(0, 100, 10)]
    assert worker.rows(0) == 1


async def test_no_pause_of_the_worker_ends_a_backfill(tmp_path: Path, clock: Any) -> None:
    worker = Worker(tmp_path, "a").own(0)
    worker.event(0, "k", PAST)
    await worker.look(1)
    worker.consumer._open = False
    await worker.look()
    worker.consumer._open = True
    worker.consumer.block({TP(SOURCE, 0)})
    await worker.look()
    worker.consumer.unblock({TP(SOURCE, 0)})
    await worker.look(1)
    assert worker.closed == []
    await worker.look(1)
    assert worker.closed == [("k", PAST, 1)]


async def test_windows_wait_for_events_that_wait(tmp_path: Path, clock: Any) -> None:
    """A worker that is behind, and stands still for a moment, has not seen the end of a window."""
    worker = Worker(tmp_path, "a").own(0)
    worker.event(0, "k", PAST)
    worker.waiting = 5
    await worker.look(4)
    worker.waiting = None
    await worker.look(4)
    assert worker.closed == []
    worker.waiting = 5
    await worker.look(1)
    worker.consumer.start_at({TP(SOURCE, 0): 6})  # others wait now, which have come since
    await worker.look(1)
    assert worker.closed == [("k", PAST, 1)]


async def test_a_late_event_does_not_close_a_window_twice(tmp_path: Path, clock: Any) -> None:
    worker = Worker(tmp_path, "a").own(0)
    worker.event(0, "k", NOW)
    clock.now = NOW + 1_000.0
    await worker.look()
    worker.event(0, "now", clock.now)
    worker.event(0, "k", NOW)
    worker.event(0, "other", NOW)
    await worker.look()
    assert worker.closed == [("k", NOW, 1), ("other", NOW, 1)]
    assert worker.rows(0) == 1


async def test_what_the_app_deletes_is_not_closed(tmp_path: Path, clock: Any) -> None:
    worker = Worker(tmp_path, "a").own(0)
    worker.event(0, "k", NOW)
    worker.during(0, NOW, lambda: worker.sums.__delitem__("k"))
    clock.now = NOW + 1_000.0
    await worker.look()
    assert worker.closed == []


async def test_a_hand_over_waits_until_a_window_is_closed_and_its_row_is_deleted(tmp_path: Path, clock: Any) -> None:
    worker = Worker(tmp_path, "a").own(0, 1)
    for partition in (0, 1):
        worker.event(partition, "k", NOW)
    worker.sent()
    clock.now = NOW + 1_000.0
    reached, go_on = asyncio.Event(), asyncio.Event()

    async def slowly() -> None:
        reached.set()
        await go_on.wait()

    worker.while_closing = slowly
    look = asyncio.ensure_future(worker.look())
    await reached.wait()
    moved = {TP(SOURCE, 0)}
    worker.consumer.block(moved)
    assert not await worker.consumer.drain(moved, 0.02)
    go_on.set()
    assert await worker.consumer.drain(moved, 5.0)
    assert [r.value for r in worker.sent() if r.partition == 0] == [None]
    await look
    assert len(worker.closed) == 2


async def test_who_was_too_slow_leaves_the_window_to_the_next_owner(tmp_path: Path, clock: Any) -> None:
    worker = Worker(tmp_path, "a").own(0)
    worker.event(0, "k", NOW)
    worker.sent()
    clock.now = NOW + 1_000.0

    async def too_slowly() -> None:
        worker.consumer.forget({TP(SOURCE, 0)})

    worker.while_closing = too_slowly
    await worker.look()
    assert worker.sent() == []
    assert worker.rows(0) == 1


@pytest.mark.parametrize("why", ["fenced", "not open", "not owned"])
async def test_who_may_not_write_closes_nothing(why: str, tmp_path: Path, clock: Any) -> None:
    worker = Worker(tmp_path, "a").own(0)
    worker.event(0, "k", NOW)
    clock.now = NOW + 1_000.0
    if why == "fenced":
        worker.consumer.fence.heard(uptime() - 11.0)
    elif why == "not open":
        worker.consumer._open = False
    else:
        worker.own()
    await worker.look(2)
    assert (worker.closed, worker.rows(0)) == ([], 1)


async def test_an_error_of_the_app_closes_one_window_only(
    tmp_path: Path, clock: Any, caplog: pytest.LogCaptureFixture
) -> None:
    worker = Worker(tmp_path, "a").own(0)
    for key in ("a", "b"):
        worker.event(0, key, NOW)

    async def fail() -> None:
        worker.while_closing = None
        raise RuntimeError("no such table")

    worker.while_closing = fail
    clock.now = NOW + 1_000.0
    await worker.look()
    assert len(worker.closed) == 1
    assert worker.rows(0) == 0
    assert "on_window_close has failed" in caplog.text


@pytest.mark.parametrize(
    ("key_type", "key"),
    [
        (str, "a"),
        (None, "a"),
        (int, 7),
        (float, 1.5),
        (Page, Page("x", 1)),
        (None, Page("x", 1)),
        (None, ("a", ("b", 1))),
    ],
)
async def test_the_next_owner_gets_the_key_as_the_app_wrote_it(
    key_type: Any, key: Any, tmp_path: Path, clock: Any
) -> None:
    source, target = Worker(tmp_path, "a", key_type=key_type).own(0), Worker(tmp_path, "b", key_type=key_type)
    source.event(0, key, NOW)
    target.follows(source.sent())
    target.own(0)
    clock.now = NOW + 1_000.0
    await target.look()
    assert target.closed == [(key, NOW, 1)]
    assert target.rows(0) == 0


async def test_faust_can_restore_windows_with_keys_of_any_type(tmp_path: Path, clock: Any) -> None:
    worker = Worker(tmp_path, "a", key_type=int).own(0)
    worker.event(0, 7, NOW)
    (record,) = worker.sent()
    record.headers = {}
    changelog = worker.table.changelog_topic.clone_using_queue(asyncio.Queue())
    assert (await changelog.decode(record)).key == record.key


async def test_the_time_of_the_stream_moves_with_the_partition(tmp_path: Path, clock: Any) -> None:
    """`now()` is asked before the first look of the new owner."""
    source, target = Worker(tmp_path, "a").own(0), Worker(tmp_path, "b")
    source.event(0, "k", NOW - 30.0)
    source.event(0, "k", NOW)
    target.follows(source.sent())
    target.own(0)
    assert target.during(0, NOW, lambda: target.sums["k"].now()) == source.during(
        0, NOW, lambda: source.sums["k"].now()
    )
    assert target.during(0, NOW, lambda: target.sums["k"].now()) == 1
    by_stream = target.sums.relative_to_now()
    target.event(0, "k", 0.0, by=by_stream)
    assert target.during(0, NOW, lambda: target.sums["k"].current()) == 2


async def test_an_event_reads_and_deletes_in_its_own_partition(tmp_path: Path, clock: Any) -> None:
    worker = Worker(tmp_path, "a").own(0, 1)
    for partition, times in ((0, 2), (1, 3)):
        for _ in range(times):
            worker.event(partition, "k", NOW)
    read = {
        p: worker.during(
            p, NOW, lambda: (worker.sums["k"].now(), worker.sums["k"].current(), worker.sums["k"].value(),
                             worker.sums["k"].delta(0.0), "k" in worker.sums)
        )
        for p in (0, 1)
    }  # fmt: skip
    assert read == {0: (2, 2, 2, 2, True), 1: (3, 3, 3, 3, True)}

    worker.during(0, NOW, lambda: worker.sums.__delitem__("k"))  # the key was used last in partition 1

    assert (worker.rows(0), worker.rows(1)) == (0, 1)
    assert worker.during(0, NOW, lambda: worker.sums["k"].current()) == 0
    assert worker.during(1, NOW, lambda: worker.sums["k"].current()) == 3


async def test_who_goes_through_a_table_gets_what_is_here_while_key_groups_come_and_go(
    tmp_path: Path, clock: Any
) -> None:
    worker = Worker(tmp_path, "a").own(0, 1, 2)
    for partition in range(3):
        worker.event(partition, f"k{partition}", NOW)

    keys = iter(worker.table.keys())
    assert next(keys)[0] == "k0"
    worker.own(0, 2, 3)  # 1 has left, 3 has come
    del worker.table.data._dbs[1]

    assert [key for key, _ in keys] == ["k2"]
    assert len(worker.table) == 2


async def test_outside_of_an_event_only_active_partitions_answer(tmp_path: Path, clock: Any) -> None:
    worker = Worker(tmp_path, "a").own(0, 1)
    for partition, times in ((0, 2), (1, 3)):
        for _ in range(times):
            worker.event(partition, "k", NOW)
    worker.event(1, "gone", NOW)
    key, gone = [(name, worker.table.window.current(NOW)) for name in ("k", "gone")]
    assert worker.table[key] == 3

    worker.own(0)  # partition 1 stays open, as a standby

    assert (worker.table[key], key in worker.table) == (2, True)
    assert gone not in worker.table
    assert gone not in worker.table.data
    worker.own(0, 1)
    assert worker.table[gone] == 1


async def test_a_page_in_a_thread_of_its_own_is_answered_while_a_window_of_another_partition_is_closed(
    tmp_path: Path, clock: Any
) -> None:
    """`web_in_thread=True`, or a web framework's pool of threads."""
    worker = Worker(tmp_path, "a").own(0, 1)
    worker.event(1, "k", NOW)
    key = "k", worker.table.window.current(NOW)
    own = answer_from_own_partitions(worker.app)[LOG]

    with own.only(0), ThreadPoolExecutor(1) as page:
        assert page.submit(lambda: worker.table[key]).result() == 1
        assert worker.table[key] == 0


async def test_a_page_in_a_thread_of_its_own_is_answered_while_databases_are_opened(tmp_path: Path, clock: Any) -> None:
    worker = Worker(tmp_path, "a").own(0, 1)
    worker.event(1, "k", NOW)
    key = "k", worker.table.window.current(NOW)
    active = worker.app.assignor._active_tps

    class Opening(set[TP]):
        """While it is looked at, the worker gets a standby."""

        def __contains__(self, tp: object) -> bool:
            worker.table.data._db_for_partition(2)
            return tp in active

    worker.app.assignor._active_tps = Opening()

    assert worker.table[key] == 1
