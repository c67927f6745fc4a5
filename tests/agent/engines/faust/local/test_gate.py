"""When events to a partition may skip the broker, without a broker."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from faust.types import TP

from trimtab_agent.engines.faust.local.gate import GateState, LocalGate
from trimtab_agent.engines.faust.local.hop import Circles


@pytest.fixture
def gate() -> Any:
    async def make() -> LocalGate:
        return LocalGate(TP("regrouped", 3), [], {})

    return asyncio.run(make())


def sent(offset: int | None) -> Any:
    """The producer's future of a record that is in the log at this offset, or was refused."""
    return SimpleNamespace(
        cancelled=lambda: False,
        exception=lambda: None if offset is not None else RuntimeError("refused"),
        result=lambda: SimpleNamespace(offset=offset),
    )


def test_it_opens_when_the_queues_have_what_the_log_had(gate: LocalGate) -> None:
    assert not gate.try_open(given=100)
    gate.need = 10
    assert gate.lag(given=8) == 2
    assert not gate.try_open(given=9)
    assert gate.try_open(given=10)


def test_an_event_by_the_broker_closes_it_until_that_has_reached_the_queues(gate: LocalGate) -> None:
    gate.need = 10
    assert gate.try_open(given=10)
    gate.begin_send()
    assert gate.state is GateState.CLOSED
    assert not gate.try_open(given=50), "its offset is not known yet"
    gate.end_send(sent(12))
    assert not gate.try_open(given=12)
    assert gate.try_open(given=13)


def test_a_refused_record_is_not_waited_for(gate: LocalGate) -> None:
    gate.need = 0
    gate.begin_send()
    gate.end_send(sent(None))
    assert gate.try_open(given=0)


def test_an_arrival_needs_a_new_barrier_and_a_leaving_key_group_none(gate: LocalGate) -> None:
    gate.need = 0
    assert gate.try_open(given=0)
    gate.close()
    assert not gate.try_open(given=1000)
    gate.need = 5
    gate.turn_off()
    assert not gate.try_open(given=1000)
    assert gate.state is GateState.OFF


def test_it_knows_which_keys_are_unfinished(gate: LocalGate) -> None:
    for key in (b"a", b"a", b"b"):
        gate.begin(key)
    gate.finish(b"a", 1)
    assert gate.keys == {b"a": 1, b"b": 1}
    gate.finish(b"a", 2)
    assert (gate.keys, gate.unfinished, gate.finished_at) == ({b"b": 1}, 1, 2)
    gate.forget_unfinished()
    assert (gate.keys, gate.unfinished) == ({}, 0)


def test_the_link_that_closes_a_circle_is_refused() -> None:
    circles = Circles()
    assert circles.add(["a"], "b")
    assert circles.add(["b"], "c")
    assert not circles.add(["c"], "a")
    assert not circles.add(["b"], "b"), "an agent that feeds itself"
    assert circles.add(["c"], "d"), "a refused link leaves no trace"
