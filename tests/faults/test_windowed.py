"""The judge of the day's windowed table: silent about what is right, loud about every planted violation."""

import json

import pytest

from tests.faults.recorded.facts import DELAYS, SOURCE, WRITER, read_facts
from tests.faults.recorded.history import History, Row, Strike
from tests.faults.recorded.verdict import Bounds, Broken
from tests.faults.recorded.windowed import CHANGELOG, wrong_windows

BOUNDS = Bounds(commit_s=1.0, session_s=10.0)
CELLS = ["2013", "1", "1", "5", "5", "7", "8", "8", "9", *["x"] * 10]
KILLED = Strike(case="w0", at=100.5, over_at=101.0, steered_at=110.0, dead=("w0",))

Counted = tuple[int, float, str, str, int]
"""Flight, time, writer, start of the window and count."""
RIGHT: list[Counted] = [(0, 100.0, "w0:1", "60", 1), (1, 100.2, "w0:1", "60", 2), (2, 130.0, "w1:1", "120", 1)]


def history(counted: list[Counted], strikes: tuple[Strike, ...] = (), noted_twice: tuple[int, ...] = ()) -> History:
    """Three flights of one airplane, and what the windowed table counted of them."""
    sent = [Row(0, number, 99.0, b"N1", f"{number},{','.join(CELLS)}".encode(), {}) for number in range(3)]
    noted = [*range(3), *noted_twice]
    given = [
        Row(0, at, 99.5, b"N1", json.dumps([number, 2013, 9]).encode(), {WRITER: b"w0:1"})
        for at, number in enumerate(noted)
    ]
    changed = [
        Row(
            0,
            at,
            when,
            json.dumps(["N1", window]).encode(),
            json.dumps([flight, count]).encode(),
            {WRITER: by.encode()},
        )
        for at, (flight, when, by, window, count) in enumerate(counted)
    ]
    rows = {SOURCE: tuple(sent), DELAYS: tuple(given), CHANGELOG: tuple(changed)}
    return History(cluster="day", rows=rows, strikes=strikes)


def broken(found: History) -> set[Broken]:
    return {row.broken for row in wrong_windows(found, read_facts(found), found.strikes, BOUNDS)}


def test_windows_that_count_each_flight_once_are_right() -> None:
    assert broken(history(RIGHT)) == set()


AGAIN: Counted = (1, 105.0, "w1:1", "60", 3)


@pytest.mark.parametrize(
    ("counted", "expected"),
    [
        pytest.param([], {Broken.NO_RECORD}, id="nothing recorded"),
        pytest.param(RIGHT[:2], {Broken.LOST, Broken.WRONG_SUM}, id="lost"),
        pytest.param([*RIGHT, AGAIN], {Broken.REPEATED}, id="counted again"),
        pytest.param([*RIGHT, (2, 140.0, "w1:1", "120", 1)], {Broken.REPEATED, Broken.STALE_STATE}, id="stepped back"),
        pytest.param([*RIGHT[:2], (2, 130.0, "w1:1", "120", 2)], {Broken.WRONG_SUM}, id="too many"),
    ],
)
def test_what_is_planted_is_found_and_nothing_else(counted: list[Counted], expected: set[Broken]) -> None:
    assert broken(history(counted)) == expected


def test_a_death_explains_what_its_worker_had_not_committed() -> None:
    assert broken(history([*RIGHT, AGAIN], strikes=(KILLED,))) == set()
    assert broken(history([*RIGHT, AGAIN], noted_twice=(1,))) == set()
