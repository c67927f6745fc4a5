"""Key groups of an app in columns: the same as row by row."""

import random
from dataclasses import replace

import pytest

from tests.controller.decider.decider_situations import a_worker, plannable
from trimtab_controller.decider.memory.evaluate import LoadHistory, evaluate, follow
from trimtab_controller.decider.window.owned import Owned, OwnedTable
from trimtab_controller.decider.window.view import PlannableView
from trimtab_protocol.messages.key_group_table import KeyGroupTable, KeyGroupWindow
from trimtab_protocol.messages.names import AppId, KeyGroup, OperatorId, WorkerId

APP = AppId("app")
WORKERS = tuple(WorkerId(f"w{number}") for number in range(3))


def kg(operator: str, partition: int) -> KeyGroup:
    return KeyGroup(APP, OperatorId(operator), partition)


def some_rows(draw: random.Random) -> list[Owned]:
    """Most of the key groups of two operators, in order, wherever they are."""
    return [
        Owned(
            key_group=kg(operator, partition),
            owner=draw.choice(WORKERS),
            load=draw.uniform(0.0, 50.0),
            state_bytes=draw.choice([None, 0, 2**40]),
        )
        for operator in ("counts", "sums")
        for partition in range(6)
        if draw.random() < 0.8
    ]


def view_of(rows: list[Owned]) -> PlannableView:
    return plannable([a_worker(name, "h0", 0.5) for name in WORKERS], rows)


def test_a_table_is_a_sequence_of_its_rows() -> None:
    rows = some_rows(random.Random(1))
    table = OwnedTable.of(APP, rows)
    assert OwnedTable.of(APP, table) is table
    assert (list(table), len(table), table[-1], table[1:3]) == (rows, len(rows), rows[-1], tuple(rows[1:3]))
    assert table == rows
    assert table.owners == {row.key_group: row.owner for row in rows}
    assert [table.owned_by(each) for each in WORKERS] == [sum(row.owner == each for row in rows) for each in WORKERS]
    assert table.owned_by(WorkerId("w9")) == 0


def test_blocks_become_rows_in_order_of_the_key_groups() -> None:
    given = [("sums", 1, "w2", 0.25, None), ("sums", 0, "w0", 0.5, 7), ("counts", 3, "w1", 0.125, 0)]
    blocks = KeyGroupTable.of(
        [
            KeyGroupWindow(
                key_group=kg(operator, partition),
                worker=WorkerId(worker),
                covered_s=1.0,
                cpu=cpu,
                tuples_in_s=None,
                state_bytes=state_bytes,
            )
            for operator, partition, worker, cpu, state_bytes in given
        ]
    ).blocks
    assert OwnedTable.of_blocks(APP, blocks) == [
        Owned(key_group=kg(operator, partition), owner=WorkerId(worker), load=100 * cpu, state_bytes=state_bytes)
        for operator, partition, worker, cpu, state_bytes in sorted(given)
    ]


def test_loads_are_followed_as_key_group_by_key_group_while_some_come_and_go() -> None:
    draw = random.Random(3)
    history, known = LoadHistory(), dict[KeyGroup, float]()
    rows = some_rows(draw)
    for window in range(20):
        if window % 3 == 0:
            rows = some_rows(draw)
        else:  # the same key groups as before, elsewhere and with other loads
            rows = [replace(row, owner=draw.choice(WORKERS), load=draw.uniform(0.0, 50.0)) for row in rows]
        view, history = follow(view_of(rows), history, 0.25)
        weight = max(0.25, 1 / (window + 1))
        known |= {row.key_group: known.get(row.key_group, row.load) * (1 - weight) + weight * row.load for row in rows}
        assert [row.load for row in view.key_groups] == pytest.approx([known[row.key_group] for row in rows])
        loads = {each: 2 * sum(known[row.key_group] for row in rows if row.owner == each) for each in WORKERS}
        assert evaluate(view).worker_loads == pytest.approx(loads)
