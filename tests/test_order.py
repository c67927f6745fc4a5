"""The order in which files of end-to-end tests begin."""

from tests.conftest import files_in_turn
from tests.paths import LONGEST, ROOT


def test_the_longest_begin_first_and_then_those_with_most_tests() -> None:
    one, two, three = (ROOT / "tests/e2e" / name for name in ("test_a.py", "test_b.py", "test_c.py"))
    longest = [ROOT / name for name in LONGEST]

    assert files_in_turn([one, two, two, *reversed(longest), three]) == [*longest, two, one, three]


def test_the_longest_are_there() -> None:
    assert [name for name in LONGEST if not (ROOT / name).is_file()] == []
