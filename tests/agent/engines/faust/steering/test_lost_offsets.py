"""A group that begins at the start of its topics with state: told, because all records are processed again."""

import asyncio
import time
from collections.abc import Callable, Collection, Mapping
from types import SimpleNamespace
from typing import Any

import pytest
from faust.types import TP

from tests.agent.engines.faust.steering.test_commands_to_worker import Reconciler, Worker
from trimtab_agent.engines.faust.group.operators import Layout
from trimtab_agent.engines.faust.group.ownership import Ownership
from trimtab_agent.engines.faust.safety.troubles import TOLD_S
from trimtab_agent.engines.faust.steering import group_watcher
from trimtab_agent.engines.faust.steering.lost_offsets import SKEW_S, Again, done_again, tell_of_reset
from trimtab_agent.engines.faust.transport.thread import FirstRecord
from trimtab_protocol.messages.names import AppId, OperatorId
from trimtab_protocol.messages.reason_text import reason_text

NOW = 1_000_000_000.0
AGAIN = Again(text="the long text", short="the short one")
ORDERS, PAYMENTS, SUMS, ALERTS = (TP(topic, 0) for topic in ("orders", "payments", "sums-changelog", "alerts"))


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
    told = done_again(an_owner(), {ORDERS: 90, PAYMENTS: 0}, {SUMS: 41}, NOW)

    assert told is not None
    assert told.text.startswith("shop/sums/0: the consumer group has no offsets of their topics")
    assert (
        told.short
        == reason_text(told.short)
        == (
            "there are no offsets, seen 2001-09-09 01:46 UTC: reads orders/0 from its start on, 90 records "
            "(and 1 more partitions); the tables of shop/sums/0 have later state"
        )
    )


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
    assert done_again(an_owner(), from_start, ends, NOW) is None


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
) -> list[Again]:
    told: list[Again] = []
    broker = Broker(firsts or {ORDERS: FIRST}, {SUMS: written})
    asyncio.run(tell_of_reset(an_owner(), broker, committed, told.append, lambda: NOW))
    return told


def test_offsets_that_were_set_to_the_start_are_told() -> None:
    [told] = told_of({ORDERS: 50, PAYMENTS: 7})

    assert told.text.startswith("shop/sums/0: the consumer group begins at the first record of their topics")
    assert (
        told.short
        == reason_text(told.short)
        == (
            "offsets were reset, seen 2001-09-09 01:46 UTC: reads orders/0 from 50 on, of 1970-01-01 00:16 UTC; "
            "the tables of shop/sums/0 have later state"
        )
    )


def test_a_worker_says_for_an_hour_that_it_began_at_the_start_with_state(monkeypatch: pytest.MonkeyPatch) -> None:
    def begun(*, from_start: bool, set_back: bool) -> Worker:
        async def tell(_owner: object, _thread: object, _at: object, told: Callable[[Again], None], _: object) -> None:
            if set_back:
                told(AGAIN)

        async def play() -> Worker:
            worker = Worker()
            shared, app = worker.parts.shared, worker.parts.app
            shared.layout = Layout(named={}, sources=frozenset({"in"}), changelogs=frozenset())
            worker.parts.ownership.learn = lambda layout: None  # type: ignore[method-assign]
            worker.parts.ownership.sources = lambda key_groups: set()  # type: ignore[method-assign]
            app.tables = SimpleNamespace(recovery=SimpleNamespace(active_highwaters={}))
            app.consumer = SimpleNamespace(from_start={}, thread=None, _committed_offset={})
            worker.parts.reconciler.settle = Reconciler().cool  # type: ignore[method-assign]
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
    assert "reads orders/0 from 50 on, of 1970-01-01 00:16 UTC (and 1 more partitions)" in told.short


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
    asyncio.run(tell_of_reset(an_owner(), Away({}, {}), {ORDERS: 50}, told.append, lambda: NOW))

    assert told == []
    assert "it is not known whether offsets were set to the start" in caplog.text
