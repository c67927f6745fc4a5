import pytest

from flights.demo.pauses import Moved, Passage, Waits, around_handovers, in_calm, summarise
from trimtab_protocol.messages.names import KeyGroup

MOVED, OTHER = KeyGroup("a", "o", 0), KeyGroup("a", "o", 1)


def passages(*rows: tuple[float, float]) -> list[Passage]:
    return [Passage(arrived_at=arrived, processed_at=processed) for arrived, processed in rows]


def test_time_without_input_is_no_pause():
    waits = Waits(passages((0.0, 0.1), (9.0, 9.2)))
    assert waits.pause(0.0, 10.0) == pytest.approx(0.2)


def test_a_queue_behind_one_slow_event_counts_each_gap_once():
    waits = Waits(passages((0.0, 0.5), (0.0, 0.6), (0.0, 0.7)))
    assert waits.pause(0.0, 1.0) == pytest.approx(0.5)
    assert waits.pause(0.55, 1.0) == pytest.approx(0.1)


def test_a_pause_that_reaches_beyond_the_span_counts_whole():
    waits = Waits(passages((0.0, 0.1), (1.0, 5.0), (6.0, 6.1)))
    assert waits.pause(0.5, 1.5) == pytest.approx(4.0)


def test_a_wait_that_began_after_the_span_does_not_count():
    waits = Waits(passages((0.0, 0.1), (2.0, 5.0)))
    assert waits.pause(0.0, 1.0) == pytest.approx(0.1)


def test_nothing_processed_is_unknown_and_not_zero():
    assert Waits([]).pause(0.0, 1.0) is None
    assert summarise([None]).median_s is None


def test_moved_and_other_key_groups_are_told_apart():
    waits = {MOVED: Waits(passages((0.0, 0.1), (1.0, 1.3))), OTHER: Waits(passages((1.0, 1.05), (3.0, 3.02)))}
    moved, others = around_handovers(waits, [Moved(key_groups=(MOVED,), start=1.0, end=1.2)], slack_s=0.1)
    assert (moved.max_s, others.max_s) == (pytest.approx(0.3), pytest.approx(0.05))
    assert in_calm(waits, [(2.0, 4.0)]).max_s == pytest.approx(0.02)


def test_a_key_group_that_another_handover_moves_meanwhile_is_neither():
    waits = {MOVED: Waits(passages((1.0, 1.3))), OTHER: Waits(passages((1.0, 1.9)))}
    handovers = [Moved(key_groups=(MOVED,), start=1.0, end=1.2), Moved(key_groups=(OTHER,), start=1.1, end=1.9)]
    moved, others = around_handovers(waits, handovers, slack_s=0.1)
    assert (moved.count, others.count) == (2, 0)
