"""A group without offsets whose tables have state: told, because all records are about to be processed again."""

from types import SimpleNamespace
from typing import Any

import pytest
from faust.types import TP

from trimtab_agent.engines.faust.group.operators import Layout
from trimtab_agent.engines.faust.group.ownership import Ownership
from trimtab_agent.engines.faust.steering.lost_offsets import done_again
from trimtab_protocol.messages.names import AppId, OperatorId

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
    told = done_again(an_owner(), {ORDERS: 90, PAYMENTS: 0}, {SUMS: 41})

    assert told is not None
    assert told.startswith("shop/sums/0: the consumer group has no offsets of their topics")


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
    assert done_again(an_owner(), from_start, ends) is None
