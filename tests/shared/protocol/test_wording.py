"""Words for lines that people read."""

from collections.abc import Iterable

import pytest

from trimtab_protocol.wording import counted, time_span, what_there_is


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (-3.0, "0 s"),
        (0.4, "0 s"),
        (119.4, "119 s"),
        (119.6, "2 min"),
        (839.0, "14 min"),
        (7_160.0, "119 min"),
        (7_199.0, "2 h 0 min"),
        (36_000.0, "10 h 0 min"),
        (90_060.0, "25 h 1 min"),
    ],
)
def test_a_time_span_is_told_in_its_largest_useful_units(seconds: float, words: str) -> None:
    assert time_span(seconds) == words


@pytest.mark.parametrize(("count", "words"), [(0, "0 key groups"), (1, "1 key group"), (2, "2 key groups")])
def test_a_noun_agrees_with_its_number(count: int, words: str) -> None:
    assert counted(count, "key group") == words


@pytest.mark.parametrize(
    ("names", "words"),
    [
        ((), "there is none"),
        (("w0",), "there is w0"),
        (("w0", "w1"), "there are w0, w1"),
        (range(7), "there are 0, 1, 2, 3, 4 and 2 more"),
    ],
)
def test_what_there_is_agrees_in_number(names: Iterable[object], words: str) -> None:
    assert what_there_is(names) == words
