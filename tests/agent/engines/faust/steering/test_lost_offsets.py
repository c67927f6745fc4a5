"""A group that begins at the start of its topics with state: told, because all records are processed again."""

import asyncio
import time
from collections.abc import Collection, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from faust.types import TP

from tests.agent.engines.faust.steering.test_commands_to_worker import Reconciler, Worker
from trimtab_agent.engines.faust.group.operators import Layout
from trimtab_agent.engines.faust.group.ownership import Ownership
from trimtab_agent.engines.faust.safety.troubles import TOLD_S
from trimtab_agent.engines.faust.steering import group_watcher
from trimtab_agent.engines.faust.steering.lost_offsets import (
    SKEW_S,
    Again,
    OwnCommits,
    done_again,
    set_back,
    tell_of_reset,
)
from trimtab_agent.engines.faust.transport.thread import FirstRecord
from trimtab_protocol.messages.names import AppId, OperatorId
from trimtab_protocol.messages.reason_text import reason_text

NOW = 1_000_000_000.0
AGAIN = Again(text="the long text", short="the short one", certain=True)
ORDERS, PAYMENTS, SUMS, ALERTS = (TP(topic, 0) for topic in ("orders", "payments", "sums-changelog", "alerts"))

ALL = frozenset({ORDERS, PAYMENTS, SUMS, ALERTS})


def an_owner() -> Ownership:
    """A worker that owns key group 0 of two operators; only the first has a table."""
    partitions = SimpleNamespace(partition_count=lambda topic: 4)
    owned: Any = SimpleNamespace(_active_tps={ORDERS, PAYMENTS, SUMS, ALERTS})
    app: Any = SimpleNamespace(consumer=SimpleNamespace(thread=partitions), assignor=owned)
    ownership = Ownership(app, AppId("shop"))
    named = {"sums": {ORDERS, PAYMENTS, SUMS}, "alerts": {ALERTS}}
    ownership.learn(
        Layout(
            named={OperatorId(name): frozenset(tp.topic for tp in tps) for name, tps in named.items()},
            sources=frozenset({"orders", "payments", "alerts"}),
            changelogs=frozenset({"sums-changelog"}),
        )
    )
    return ownership


def test_state_without_any_offset_is_told() -> None:
    told = done_again(an_owner(), {ORDERS: range(90), PAYMENTS: range(0)}, ALL, {SUMS: 41}, NOW)

    assert told is not None
    assert told.certain
    assert told.text.startswith("shop/sums/0: the consumer group has no offsets of their topics")
    assert (
        told.short
        == reason_text(told.short)
        == (
            "there are no offsets, seen 2001-09-09 01:46 UTC: reads orders/0 from its start on, offsets 0 to 89; "
            "the tables of shop/sums/0 have state"
        )
    )


def test_without_any_offset_and_without_the_first_records_it_is_only_possible() -> None:
    """The app was stopped until its offsets and its inputs had expired: what is there now is new."""
    told = done_again(an_owner(), {ORDERS: range(500, 590), PAYMENTS: range(7, 7)}, ALL, {SUMS: 41}, NOW)

    assert told is not None
    assert not told.certain
    assert "may" not in told.text.split(".")[0]
    assert "nothing is counted twice" in told.text
    assert told.short == reason_text(told.short)
    assert told.short.startswith("there are no offsets, inputs may be done again, seen 2001-09-09 01:46 UTC: reads")


def test_of_a_topic_that_was_made_anew_it_is_only_possible() -> None:
    """It ends before what this worker has committed: its records may be new ones."""
    from_start = {ORDERS: range(90), PAYMENTS: range(0)}
    told = done_again(an_owner(), from_start, ALL, {SUMS: 41}, NOW, shorter={ORDERS})
    assert told is not None
    assert not told.certain


@pytest.mark.parametrize(
    ("from_start", "ends"),
    [
        pytest.param({}, {SUMS: 41}, id="all topics have offsets"),
        pytest.param({PAYMENTS: 5}, {SUMS: 41}, id="a topic is new to the app"),
        pytest.param({ORDERS: 90, PAYMENTS: 5}, {SUMS: -1}, id="the app is new"),
        pytest.param({ORDERS: 90, PAYMENTS: 5}, {}, id="the changelog's end is not known"),
        pytest.param({ORDERS: 0, PAYMENTS: 0}, {SUMS: 41}, id="the topics have no records"),
        pytest.param({ALERTS: 5}, {SUMS: 41}, id="an operator without tables"),
    ],
)
def test_what_counts_nothing_twice_is_not_told(from_start: dict[TP, int], ends: dict[TP, int]) -> None:
    offsets = {tp: range(count) for tp, count in from_start.items()}
    assert done_again(an_owner(), offsets, ALL, ends, NOW) is None


class Broker:
    """The first records of the sources, and when each changelog was written last."""

    def __init__(self, firsts: Mapping[TP, FirstRecord], written: Mapping[TP, float]) -> None:
        self._firsts, self._written = firsts, written

    async def first_records(self, tps: Collection[TP], limit_s: float) -> dict[TP, FirstRecord]:
        return {tp: first for tp, first in self._firsts.items() if tp in tps}

    async def offsets_since(self, times: Mapping[TP, float], limit_s: float) -> dict[TP, int]:
        return {tp: 9 for tp, at in times.items() if self._written.get(tp, 0.0) >= at}


FIRST = FirstRecord(offset=50, at_s=1_000.0)
LATER = FIRST.at_s + SKEW_S


def told_of(
    committed: dict[TP, int | None],
    *,
    written: float = LATER,
    firsts: Mapping[TP, FirstRecord] | None = None,
    by_workers: frozenset[TP] = frozenset(),
) -> list[Again]:
    told: list[Again] = []
    broker = Broker(firsts or {ORDERS: FIRST}, {SUMS: written})
    asyncio.run(tell_of_reset(an_owner(), broker, committed, ALL - by_workers, told.append, lambda: NOW))
    return told


def test_offsets_that_were_set_to_the_start_are_told() -> None:
    [told] = told_of({ORDERS: 50, PAYMENTS: 7})

    assert not told.certain
    assert told.text.startswith("shop/sums/0: the consumer group begins at the first record of their topics")
    assert (
        told.short
        == reason_text(told.short)
        == (
            "offsets may have been reset, seen 2001-09-09 01:46 UTC: reads orders/0 from 50 on, its first record, of "
            "1970-01-01 00:16 UTC; the tables of shop/sums/0 have state"
        )
    )


def test_a_worker_says_for_an_hour_that_it_began_at_the_start_with_state(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def begun(*, from_start: bool, set_back: bool) -> Worker:
        async def tell(*given: Any) -> None:
            if set_back:
                given[-2](AGAIN)

        async def play() -> Worker:
            worker = Worker()
            shared, app = worker.parts.shared, worker.parts.app
            shared.layout = Layout(named={}, sources=frozenset({"in"}), changelogs=frozenset())
            worker.parts.ownership.learn = lambda layout: None  # type: ignore[method-assign]
            worker.parts.ownership.sources = lambda key_groups: set()  # type: ignore[method-assign]
            app.tables = SimpleNamespace(recovery=SimpleNamespace(active_highwaters={}))
            app.consumer = SimpleNamespace(from_start={}, set_by_others=frozenset(), thread=None, _committed_offset={})
            kept: Any = SimpleNamespace(conf=SimpleNamespace(tabledir=tmp_path, id="shop"))
            worker.watcher._own_commits = OwnCommits(kept)
            worker.parts.reconciler.settle = Reconciler().cool  # type: ignore[assignment, method-assign]
            monkeypatch.setattr(group_watcher, "set_back", lambda *_: None)
            monkeypatch.setattr(group_watcher, "done_again", lambda *_: AGAIN if from_start else None)
            worker.parts.work.attach(asyncio.get_running_loop())
            worker.watcher.stable()
            for _ in range(5):
                await asyncio.sleep(0)
            return worker

        monkeypatch.setattr(group_watcher, "tell_of_reset", tell)
        return asyncio.run(play())

    assert not begun(from_start=False, set_back=False).status.reset
    for reasons in ({"from_start": True, "set_back": False}, {"from_start": False, "set_back": True}):
        worker = begun(**reasons)
        assert worker.status.reset
        assert worker.status.waits_for == AGAIN.short
        later = time.monotonic() + TOLD_S
        with monkeypatch.context() as patched:
            patched.setattr(time, "monotonic", lambda later=later: later)
            assert not worker.status.reset


def test_of_two_topics_both_must_begin_anew() -> None:
    firsts = {ORDERS: FIRST, PAYMENTS: FirstRecord(offset=3, at_s=900.0)}

    assert told_of({ORDERS: 50, PAYMENTS: 7}, firsts=firsts) == []
    [told] = told_of({ORDERS: 50, PAYMENTS: 3}, firsts=firsts)
    assert "reads orders/0 from 50 on, its first record, of 1970-01-01 00:16 UTC (and 1 more partitions)" in told.short


@pytest.mark.parametrize(
    ("committed", "written"),
    [
        pytest.param({ORDERS: 51}, LATER, id="it goes on behind the first record"),
        pytest.param({ORDERS: None}, LATER, id="it has no offset: told otherwise"),
        pytest.param({ORDERS: 50}, LATER - 1.0, id="retention has deleted what was processed: the state is older"),
        pytest.param({}, LATER, id="it owns nothing"),
    ],
)
def test_what_goes_on_where_it_was_is_not_told(committed: dict[TP, int | None], written: float) -> None:
    assert told_of(committed, written=written) == []


def test_a_broker_that_does_not_answer_ends_nothing(caplog: pytest.LogCaptureFixture) -> None:
    class Away(Broker):
        async def first_records(self, tps: Collection[TP], limit_s: float) -> dict[TP, FirstRecord]:
            raise TimeoutError

    caplog.set_level("INFO")
    told: list[Again] = []
    asyncio.run(tell_of_reset(an_owner(), Away({}, {}), {ORDERS: 50}, ALL, told.append, lambda: NOW))

    assert told == []
    assert "it is not known whether offsets were set to the start" in caplog.text


def test_an_offset_before_what_this_worker_has_committed_was_set_back_and_both_are_told() -> None:
    """Also where the topic no longer begins at 0, and in the middle of it."""
    told = set_back(an_owner(), {ORDERS: 50, PAYMENTS: 7}, {ORDERS: 314, PAYMENTS: 7}, {ORDERS: 400, PAYMENTS: 7}, NOW)

    assert told is not None
    assert told.certain
    assert (
        told.short
        == reason_text(told.short)
        == (
            "offsets were set back, seen 2001-09-09 01:46 UTC: reads orders/0 from 50 on, was at 314; "
            "the tables of shop/sums/0 have state"
        )
    )


@pytest.mark.parametrize(
    ("committed", "before", "ends"),
    [
        pytest.param({ORDERS: 314}, {ORDERS: 314}, {ORDERS: 400}, id="where it was"),
        pytest.param({ORDERS: 350}, {ORDERS: 314}, {ORDERS: 400}, id="another worker has gone on"),
        pytest.param({ORDERS: 50}, {}, {}, id="a new disk"),
        pytest.param({ORDERS: 50}, {ORDERS: 314}, {ORDERS: 60}, id="the topic was made anew"),
        pytest.param({ORDERS: 50}, {ORDERS: 314}, {}, id="the broker did not say where it ends"),
        pytest.param({ALERTS: 5}, {ALERTS: 9}, {ALERTS: 9}, id="an operator without tables"),
    ],
)
def test_what_was_not_set_back_is_not_told(
    committed: dict[TP, int | None], before: dict[TP, int], ends: dict[TP, int]
) -> None:
    assert set_back(an_owner(), committed, before, ends, NOW) is None


def test_what_a_worker_has_committed_is_kept_beside_its_tables(tmp_path: Path) -> None:
    app = SimpleNamespace(conf=SimpleNamespace(tabledir=tmp_path, id="shop"))
    commits = OwnCommits(app)
    assert commits.read() == {}
    commits.write({ORDERS: 50, PAYMENTS: 3})
    commits.write({ORDERS: 40, PAYMENTS: None, ALERTS: 1})
    assert OwnCommits(app).read() == {ORDERS: 40, PAYMENTS: 3, ALERTS: 1}

    [file] = tmp_path.iterdir()
    file.write_text("no json")
    assert commits.read() == {}
