"""What was done twice is dated by the fault that explains it."""

import math

import pytest

from tests.e2e.steering.repeats import oldest_repeat_local_s, oldest_repeat_s

ONCE = {number: [10.0] for number in range(3)}


def test_what_was_sent_twice_is_totalled_twice() -> None:
    sent_twice = {"outputs": ONCE, "regrouped": {1: [10.0, 14.0]}, "totals": {1: [10.5, 14.5]}}
    assert oldest_repeat_s({"outputs": ONCE, "regrouped": ONCE, "totals": ONCE}, [11.0]) is None
    assert oldest_repeat_s(sent_twice, [9.0, 10.25, 13.0]) == 0.25
    assert oldest_repeat_s(sent_twice, [9.0]) == math.inf
    assert oldest_repeat_s({**sent_twice, "regrouped": ONCE}, [11.0]) == 0.5


def local(
    faults: list[float],
    *,
    outputs: dict[int, list[float]] | None = None,
    totals: dict[int, list[float]] | None = None,
    regrouped: dict[int, list[float]] | None = None,
) -> float | None:
    """Numbers 0, 1 and 2 come from one partition."""
    done = {"outputs": {**ONCE, **(outputs or {})}, "regrouped": regrouped or {}, "totals": {**ONCE, **(totals or {})}}
    return oldest_repeat_local_s(done, faults, lambda _: 0)


def test_an_input_whose_direct_event_waited_counts_from_when_that_was_done() -> None:
    again = {1: [10.0, 15.0]}
    assert local([12.0]) is None
    assert local([12.0], outputs=again, totals={1: [10.0, 15.1]}) == 2.0
    assert local([12.0], outputs=again, totals={1: [11.5, 15.1]}) == 0.5
    assert local([12.0], outputs=again, totals={1: [15.1]}) == 0.0
    assert local([9.0], outputs=again) == math.inf


def test_an_offset_is_committed_only_when_all_before_it_are_done() -> None:
    assert local([12.0], outputs={1: [10.0, 15.0]}, totals={0: [11.5]}) == 0.5
    assert local([12.0], outputs={1: [10.0, 15.0]}, totals={2: [11.5]}) == 2.0


@pytest.mark.parametrize(
    ("totals", "changed", "found"),
    [
        ([10.5, 15.0], {}, 1.5),
        ([10.5, 15.0], {"regrouped": {1: [10.0]}}, 1.5),
        ([12.5, 15.0], {"regrouped": {1: [11.0]}}, 1.0),
        ([12.5, 15.0], {}, math.inf),
        ([12.5, 15.0], {"outputs": {1: [11.0, 14.5]}}, 0.0),
        ([10.5, 15.0, 15.1], {"outputs": {1: [11.5, 14.5]}}, 1.5),
    ],
    ids=["reader", "reader, by the broker", "sender", "nothing", "sender again", "once too often"],
)
def test_a_total_that_is_there_again_needs_a_cause(
    totals: list[float], changed: dict[str, dict[int, list[float]]], found: float
) -> None:
    assert local([12.0], totals={1: totals}, **changed) == found
