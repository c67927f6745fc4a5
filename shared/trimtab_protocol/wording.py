"""Words for lines that people read."""

from collections.abc import Iterable
from itertools import islice

NAMED = 5
"""Number of names shown in a line; the others are only counted."""


def first_few(names: Iterable[object], count: int | None = None, *, most: int = NAMED) -> str:
    """The first names, `most` of them, and how many more there are.

    `count` = total number, if `names` has only some of them.
    """
    if count is None:
        names = list(names)
        count = len(names)
    first = ", ".join(map(str, islice(names, most)))
    return first + (f" and {count - most} more" if count > most else "")
