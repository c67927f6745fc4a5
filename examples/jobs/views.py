"""The simple and the unique page view count: their input, what their operators compute, and the recomputation; pure.

The clicks are generated with the paper's distributions: three pages (70, 20 and 10 %), 5 % failures, two zip codes and
100 users.  The paper sends one click per millisecond.
"""

import random
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from jobs.feed import Input

CLICKS, LOOKED, VIEWS, COUNTED = "clicks", "looked", "views", "counted"
COUNTS, VISITORS = "counts", "visitors"
PAGES, WEIGHTS = ("home", "list", "item"), (70, 20, 10)
USERS, ZIPS, FAILURES = 100, ("24341", "06234"), 0.05
CLICKS_PER_WINDOW = 750
"""The paper's window of 3 s, at the rate of the default; windows are counted in clicks, so that results are certain."""
MOST = 400_000
SEED = 7


def inputs(partitions: int) -> Iterator[Input]:
    """The clicks, one partition after the other: source and view get them by place, not by key."""
    chance = random.Random(SEED)
    for number in range(MOST):
        [page] = chance.choices(PAGES, WEIGHTS)
        status = 404 if chance.random() < FAILURES else 200
        user = f"user-{chance.randrange(USERS)}"
        value = f"{number} {page} {status} {chance.choice(ZIPS)} {user}"
        yield Input(topic=CLICKS, key=page, value=value, partition=number % partitions)


def viewed(click: str) -> tuple[str, str, int]:
    """(page, user, window) of a click."""
    number, page, _status, _zip, user = click.split()
    return page, user, int(number) // CLICKS_PER_WINDOW


def with_visitor(now: list[Any] | None, user: str) -> list[Any]:
    """Clicks, and the users that they are of, with one more click."""
    count, users = now or (0, [])
    return [count + 1, sorted({*users, user})]


def simple(sent: Sequence[Input]) -> dict[str, dict[str, list[Any]]]:
    """Views by page."""
    table: dict[str, list[Any]] = {}
    for each in sent:
        page = viewed(each.value)[0]
        table[page] = [table.get(page, [0])[0] + 1]
    return {COUNTS: table}


def unique(sent: Iterable[Input]) -> dict[str, dict[str, list[Any]]]:
    """Views and users by `page/window`."""
    table: dict[str, list[Any]] = {}
    for each in sent:
        page, user, window = viewed(each.value)
        key = f"{page}/{window}"
        table[key] = with_visitor(table.get(key), user)
    return {VISITORS: table}
