"""What a worker follows, and what it must not."""

import asyncio
import functools
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import faust
import pytest
from faust.types import TP

from tests.agent.engines.faust.tables.followed import App, Consumer, Ownership, Table, key_group
from trimtab_agent.engines.faust.safety.troubles import Trouble, Troubles
from trimtab_agent.engines.faust.tables import changelog_reader
from trimtab_agent.engines.faust.tables import standbys as standbys_module
from trimtab_agent.engines.faust.tables.bulk_restore import BulkRestore
from trimtab_agent.engines.faust.tables.changelog_reader import ChangelogReader
from trimtab_agent.engines.faust.tables.standbys import Standbys

OWNED, OTHER = key_group(0), key_group(1)


class Positions:
    """Where aiokafka is in each changelog, in the place where it keeps that."""

    def __init__(self, **states: tuple[int, int]) -> None:
        """Position and end by topic."""
        self.states = states
        self.subscription = self.assignment = self

    def state_value(self, tp: TP) -> Any:
        position, end = self.states.get(tp.topic, (None, None))
        return SimpleNamespace(has_valid_position=position is not None, position=position, lso=end)


class Reader:
    """An aiokafka consumer; `reads` is called at each read with how many there have been."""

    _fetcher = SimpleNamespace(_proc_fetch_request=None)

    def __init__(self, positions: Positions, reads: Callable[[int], object]) -> None:
        self._subscription, self._reads = positions, reads
        self.asked: list[tuple[Any, ...]] = []

    async def getmany(self, *tps: Any, **limits: Any) -> dict[Any, Any]:
        self.asked.append(tps)
        self._reads(len(self.asked))
        return {}

    async def start(self) -> None: ...

    stop = start

    def __getattr__(self, name: str) -> Any:
        return lambda *_: None


def read_until_cancelled(
    reading: Awaitable[None], reader: Reader, monkeypatch: pytest.MonkeyPatch, *, idle_s: float = 3600.0
) -> list[Any]:
    """What the reader was asked for, one after the other; `idle_s` = the pause after a read that found nothing."""
    monkeypatch.setattr(changelog_reader, "AIOKafkaConsumer", lambda **_: reader)
    monkeypatch.setattr(changelog_reader, "IDLE_S", idle_s)
    with pytest.raises(asyncio.CancelledError):
        asyncio.run(asyncio.wait_for(reading, 30.0))
    return reader.asked


def test_what_is_active_is_not_followed_though_it_was_to_be_warm() -> None:
    tail = ChangelogReader({}, BulkRestore({}))
    ownership: Any = Ownership()

    asyncio.run(Standbys(App(), ownership, tail, Troubles().tell).warm([OWNED, OTHER], lambda: None))

    assert tail.followed == {TP("log", 1)}
    assert tail.applied(TP("log", 1)) == 4


def test_what_is_active_stays_open_though_it_was_to_be_cooled() -> None:
    tail, table = ChangelogReader({}, BulkRestore({})), Table()
    ownership: Any = Ownership()
    ownership.table = lambda _: table
    tail.follow(TP("log", 1), table, 4)

    Standbys(App(), ownership, tail, Troubles().tell).cool([OWNED, OTHER])

    assert set(table._dbs) == {OWNED.partition}
    assert tail.followed == frozenset()


def test_what_faust_itself_follows_is_neither_followed_a_second_time_nor_closed() -> None:
    tail, table = ChangelogReader({}, BulkRestore({})), Table()
    ownership: Any = Ownership()
    ownership.of_faust = frozenset({TP("log", 1)})
    ownership.table = lambda _: table
    standbys = Standbys(App(), ownership, tail, Troubles().tell)

    asyncio.run(standbys.warm([OTHER], lambda: None))
    standbys.cool([OTHER])

    assert tail.followed == frozenset()
    assert not standbys.is_followed([OTHER]), "so a hand-over to this worker is refused"
    assert set(table._dbs) == {0, 1}


def test_key_groups_whose_broker_is_silent_hold_up_others_only_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are made warm one after another, and commands for others wait for their turn."""
    monkeypatch.setattr(standbys_module, "ANSWER_LIMIT_S", 0.05)
    ownership: Any = Ownership()

    class Silent(Consumer):
        async def highwaters(self, *changelogs: TP) -> dict[TP, int]:
            await asyncio.sleep(60.0)  # Faust's broker_request_timeout is longer
            return {}

    reader = ChangelogReader({}, BulkRestore({}))
    standbys = Standbys(SimpleNamespace(consumer=Silent()), ownership, reader, Troubles().tell)

    with pytest.raises(TimeoutError, match="does not say within"):
        asyncio.run(asyncio.wait_for(standbys.warm([OTHER], lambda: None), 30.0))


def test_what_a_hand_over_waits_for_is_read_before_what_others_restore(monkeypatch: pytest.MonkeyPatch) -> None:
    waiting, restoring = TP("log", 1), TP("log", 2)
    tail = ChangelogReader({}, BulkRestore({}))

    def reads(count: int) -> None:
        if count == 1:
            tail.prefer([waiting, TP("log", 9)])
        if count == 2:
            tail.prefer_no_more([waiting])
        if count == 3:
            tail.prefer([restoring])
            tail.leave([restoring])  # taken over, or given up
        if count == 5:
            raise asyncio.CancelledError

    tail.follow(waiting, Table(), 4)
    tail.follow(restoring, Table(), 0)
    asked = read_until_cancelled(tail._follow(), Reader(Positions(log=(5, 5)), reads), monkeypatch, idle_s=0.01)
    assert asked == [(), (waiting,), (), (), ()]


def test_a_hand_over_ends_the_pause_after_a_read(monkeypatch: pytest.MonkeyPatch) -> None:
    waiting, tail = TP("log", 1), ChangelogReader({}, BulkRestore({}))
    tail.follow(waiting, Table(), 0)

    def reads(count: int) -> None:
        if count == 2:
            raise asyncio.CancelledError
        asyncio.get_running_loop().call_soon(tail.prefer, [waiting])

    assert len(read_until_cancelled(tail.run(), Reader(Positions(log=(1, 1)), reads), monkeypatch)) == 2


def test_a_reader_that_is_behind_reads_on_without_a_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    tail = ChangelogReader({}, BulkRestore({}))
    tail.follow(TP("log", 1), Table(), 0)

    def reads(count: int) -> None:
        if count == 5:
            raise asyncio.CancelledError

    assert len(read_until_cancelled(tail._follow(), Reader(Positions(log=(3, 900)), reads), monkeypatch)) == 5


def test_no_tracer_makes_a_span_of_each_record_that_a_standby_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    """As OpenTelemetry would, whose instrumentation of aiokafka wraps `getmany`; Faust's own standbys do not use it."""
    tail, traced = ChangelogReader({}, BulkRestore({})), list[Any]()
    tail.follow(TP("log", 1), Table(), 0)

    def reads(count: int) -> None:
        raise asyncio.CancelledError

    reader = Reader(Positions(), reads)
    getmany = reader.getmany

    @functools.wraps(getmany)
    async def trace(*arguments: Any, **options: Any) -> dict[Any, Any]:
        traced.append(arguments)
        return await getmany(*arguments, **options)

    monkeypatch.setattr(reader, "getmany", trace)

    assert (len(read_until_cancelled(tail._follow(), reader, monkeypatch)), traced) == (1, [])


def test_a_table_has_all_up_to_the_position_though_the_last_offsets_are_no_records() -> None:
    marker, behind, unknown = TP("marker", 0), TP("behind", 0), TP("unknown", 0)
    tail = ChangelogReader({}, BulkRestore({}))
    reader: Any = SimpleNamespace(_subscription=Positions(marker=(9, 9), behind=(7, 9)))
    for tp in (marker, behind, unknown):
        tail.follow(tp, Table(), 6)
    before = tail._advance(reader)
    tail._changed = False  # as after the next seek

    assert (before, tail._advance(reader)) == (False, False), "`behind` is not at the end"
    assert [tail.applied(tp) for tp in (marker, behind, unknown)] == [8, 6, 6]
    tail.leave([behind])
    tail._changed = False
    assert tail._advance(reader)


def test_a_changelog_that_has_lost_its_end_is_not_followed_past_what_is_written_there_now() -> None:
    """An unclean election: aiokafka reads it from its start, and what is new has offsets that the table has already."""
    cut, whole = TP("cut", 0), TP("whole", 0)
    shorter: list[frozenset[TP]] = []
    tail = ChangelogReader({}, BulkRestore({}), lambda: shorter.append(tail.followed))
    reader: Any = SimpleNamespace(_subscription=Positions(cut=(0, 5), whole=(7, 7)))
    for tp in (cut, whole):
        tail.follow(tp, Table(), 6)
    tail._changed = False

    tail._advance(reader)

    assert shorter == [{whole}]
    assert (tail.applied(cut), tail.applied(whole)) == (None, 6)


@pytest.mark.parametrize(("stored", "kept"), [(8, True), (9, False), (20, False)])
async def test_a_standby_that_is_ahead_of_its_changelog_is_set_aside_and_restored(
    tmp_path: Path, stored: int, kept: bool
) -> None:
    app = faust.App("ks", web_enabled=False, store="rocksdb://", datadir=str(tmp_path))
    table, changelog = app.Table("sums", partitions=2), TP("log", 1)
    store = table.data
    store._dbs[1] = store._open_for_partition(1)
    store.set_persisted_offset(changelog, stored)
    ownership: Any = Ownership()
    ownership.table = lambda _: table
    tail, troubles = ChangelogReader({}, BulkRestore({})), Troubles()

    standbys = Standbys(App(), ownership, tail, troubles.tell)
    assert (standbys.ahead({changelog: 9}) is None) is kept
    await standbys.warm([OTHER], lambda: None)

    assert tail.applied(changelog) == (stored if kept else -1)
    lost = f"the changelog log/1 ends at 9, this worker had written up to {stored}"
    assert (lost in str(troubles.worst(Trouble.STATE_LOST))) is not kept
    store._dbs.pop(1).close()
