"""Words for lines that people read."""

import time
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


def counted(count: int, noun: str) -> str:
    """A number of things: `1 key group`, `2 key groups`, `0 key groups`."""
    return f"{count} {noun}{'' if count == 1 else 's'}"


def what_there_is(names: Iterable[object]) -> str:
    """Which names are known, after one that is not: `there is w0`, `there are w0, w1`, as `first_few` has them."""
    known = list(names)
    return f"there {'are' if len(known) > 1 else 'is'} {first_few(known) or 'none'}"


def time_span(seconds: float) -> str:
    """A time span in its largest useful units: `119 s`, `2 min`, `2 h 0 min`; a negative one is `0 s`."""
    whole, minutes = max(0, round(seconds)), round(seconds / 60.0)
    if whole < 120:
        return f"{whole} s"
    return f"{minutes} min" if minutes < 120 else f"{minutes // 60} h {minutes % 60} min"


def local_time(at: float) -> str:
    """A time (epoch seconds) as date and time of day of the local time zone."""
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(at))
