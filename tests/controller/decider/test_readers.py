"""A placement is in parts only while all workers of its app read it so."""

from dataclasses import replace

from tests.controller.decider.decider_situations import APP, W0, W1
from tests.controller.decider.deciders import ON_W0, SETTINGS, execution, window
from trimtab_controller.decider.events import SnapshotArrived
from trimtab_controller.decider.machine import Decider
from trimtab_controller.decider.observing.readers import PlacementReaders
from trimtab_controller.decider.settings import Requirements
from trimtab_controller.execution.events import ReadersSeen
from trimtab_controller.execution.state import Execution
from trimtab_protocol.messages.names import WorkerId
from trimtab_protocol.messages.report import WorkerState
from trimtab_protocol.messages.snapshot import Snapshot

PRESENT = execution(ON_W0)
IN_PARTS = {APP: replace(PRESENT.placements[APP], part_size=2)}

ABLE, NOT_ABLE = [ReadersSeen(in_parts={APP: True})], [ReadersSeen(in_parts={APP: False})]


def seen(*able: WorkerId, older: tuple[WorkerId, ...] = (), end_s: float = 1010.0) -> Snapshot:
    found = window(ON_W0, end_s, workers=(*able, *older)).snapshot
    return replace(found, nodes=tuple(replace(row, app=APP, in_parts=row.worker in able) for row in found.nodes))


def test_all_must_read_it() -> None:
    readers = PlacementReaders()
    readers.observe(seen(W0, W1), PRESENT.placements)
    assert readers.news(PRESENT.placements) == ABLE
    assert readers.news(PRESENT.placements) == []
    readers.observe(seen(W0, older=(W1,)), IN_PARTS)
    assert (readers.news(IN_PARTS), readers.older) == (NOT_ABLE, {APP: (W1,)})


def test_an_owner_that_was_never_seen_keeps_the_form_as_it_is() -> None:
    for placements in (PRESENT.placements, IN_PARTS):
        readers = PlacementReaders()
        readers.observe(seen(W1), placements)
        assert readers.news(placements) == []
        assert readers.in_parts[APP] == (placements is IN_PARTS)


def test_an_owner_that_restarts_is_remembered() -> None:
    readers = PlacementReaders()
    readers.observe(seen(W0, older=(W1,)), PRESENT.placements)
    readers.observe(seen(W1), PRESENT.placements)  # W0, which owns all, is away; W1 was upgraded
    assert readers.news(PRESENT.placements) == ABLE


def test_an_owner_that_comes_back_with_a_plug_in_of_before_is_not() -> None:
    readers = PlacementReaders()
    readers.observe(seen(W0, W1), PRESENT.placements)
    readers.news(PRESENT.placements)
    readers.observe(seen(W1, older=(W0,)), IN_PARTS)
    readers.observe(seen(W1), IN_PARTS)  # away again
    assert readers.in_parts[APP], "as it is published at that time"
    readers = PlacementReaders()
    readers.observe(seen(W1, older=(W0,)), PRESENT.placements)
    readers.observe(seen(W1), PRESENT.placements)
    assert not readers.in_parts[APP]


def test_workers_that_are_away_or_of_no_app_say_nothing() -> None:
    found = seen(W0, older=(W1,))
    away = tuple(replace(row, state=WorkerState.AWAY) if row.worker == W1 else row for row in found.nodes)
    nowhere = tuple(replace(row, app=None) if row.worker == W1 else row for row in found.nodes)
    for nodes in (away, nowhere):
        readers = PlacementReaders()
        readers.observe(replace(found, nodes=nodes), PRESENT.placements)
        assert readers.in_parts == {APP: True}


def test_a_first_placement_needs_only_those_that_report() -> None:
    readers = PlacementReaders()
    readers.observe(seen(W1), {})
    assert readers.news({}) == ABLE
    readers.observe(replace(seen(W1), nodes=()), {})
    assert readers.in_parts == {}


def test_the_configuration_can_forbid_it() -> None:
    readers = PlacementReaders(allowed=False)
    readers.observe(seen(W0, W1), IN_PARTS)
    assert readers.news(IN_PARTS) == NOT_ABLE


def test_the_decider_says_it_before_it_decides_but_neither_on_hold_nor_in_a_dry_run() -> None:
    def told(acting: bool, state: Execution = PRESENT) -> list[bool]:
        decider = Decider(SETTINGS, Requirements(), state, acting=acting)
        actions = decider.on_event(1010.0, SnapshotArrived(snapshot=seen(W0, W1)))
        return [isinstance(action, ReadersSeen) for action in actions]

    assert told(True)[:1] == [True]
    assert not any(told(True)[1:])
    assert not any(told(False))
