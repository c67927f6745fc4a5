"""Real job 1: its input, what its operators compute, and the recomputation; pure.

The paper has the edit history of Wikipedia up to January 2008, without places, and spreads GeoHashes evenly over
Denmark.  No package ships that history, so the edits are generated: the popularity of articles follows Zipf's law and
drifts, and each edit has one of 100 cells.  Windows are counted in edits, so that results are certain.

With two choices (PoTC, "The Power of Both Choices"), whoever sends chooses between two partitions for each key the one
that it has sent less to, and what both have counted of a key is merged when a window has ended.
"""

import hashlib
import random
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate
from typing import Any

from flights.dataset import partition_of
from jobs.feed import Input

EDITS, PLACED, TOPPED, PARTS = "edits", "placed", "topped", "parts"
CELLS, ARTICLES, MERGED = "cells", "articles", "merged"
CELL_COUNT, ARTICLE_COUNT, ZIPF = 100, 5_000, 0.9
EDITS_PER_WINDOW = 9_000
"""A minute at the rate of the default."""
EDITS_PER_CHANGE = 1_500
"""After so many edits, an article that is edited often and one by chance change places in popularity."""
MOST = 400_000
SEED = 11
TOP = 10


def inputs(partitions: int) -> Iterator[Input]:
    """The edits, keyed by their number: the first operator is partitioned by nothing that the others know."""
    chance = random.Random(SEED)
    weights = list(accumulate(1.0 / rank**ZIPF for rank in range(1, ARTICLE_COUNT + 1)))
    ranks, articles = range(ARTICLE_COUNT), list(range(ARTICLE_COUNT))
    for number in range(MOST):
        if number % EDITS_PER_CHANGE == 0:
            [often], other = chance.choices(ranks, cum_weights=weights), chance.randrange(ARTICLE_COUNT)
            articles[often], articles[other] = articles[other], articles[often]
        article = articles[chance.choices(ranks, cum_weights=weights)[0]]
        key = f"edit-{number}"
        yield Input(topic=EDITS, key=key, value=f"{number} article-{article}", partition=partition_of(key, partitions))


def placed(edit: str) -> tuple[str, str, int]:
    """(cell, article, window) of an edit: a cell by chance, but the same each time."""
    number, article = edit.split()
    digest = hashlib.blake2b(number.encode(), digest_size=4).digest()
    return f"cell-{int.from_bytes(digest) % CELL_COUNT}", article, int(number) // EDITS_PER_WINDOW


def plus(value: list[Any] | None, article: str) -> list[Any]:
    """Edits, and edits by article, with one more edit."""
    count, articles = value or [0, {}]
    return [count + 1, {**articles, article: articles.get(article, 0) + 1}]


class TwoChoices:
    """Chooses partitions for keys, by what this sender has sent to each."""

    def __init__(self, partitions: int) -> None:
        self._sent = [0] * partitions

    def partition(self, key: str) -> int:
        """The partition of the next tuple of a key."""
        count = len(self._sent)
        chosen = min(partition_of(key, count), partition_of(f"second {key}", count), key=self._sent.__getitem__)
        self._sent[chosen] += 1
        return chosen


class EndedWindows:
    """Which keys of a partition are to be merged: all of a window, once a tuple of a later one has come."""

    def __init__(self) -> None:
        self._newest: dict[int, int] = {}
        self._keys: dict[int, set[str]] = {}

    def after(self, partition: int, key: str, window: int) -> list[str]:
        """The keys to merge after a tuple of `key`; one that comes late is merged again by itself."""
        newest = self._newest.get(partition, window)
        if window < newest:
            return [key]
        keys = self._keys.setdefault(partition, set())
        ended = sorted(keys) if window > newest else []
        keys.difference_update(ended)
        keys.add(key)
        self._newest[partition] = window
        return ended


def merged(value: Mapping[str, list[Any]] | None, partition: int, part: list[Any]) -> dict[str, list[Any]]:
    """What each partition has counted of a key, with the newest part of one."""
    return {**(value or {}), str(partition): part}


def together(one: list[Any], other: list[Any]) -> list[Any]:
    """What two partitions have counted of a key."""
    counts = [Counter(articles) for articles in (*one[1:], *other[1:])]
    return [one[0] + other[0], *([dict(sum(counts, Counter[str]()))] if counts else [])]


def top(articles: Mapping[str, int]) -> list[tuple[str, int]]:
    """The most edited articles, equal ones by name."""
    return sorted(articles.items(), key=lambda row: (-row[1], row[0]))[:TOP]


def job_1(sent: Sequence[Input]) -> dict[str, dict[str, list[Any]]]:
    """The tables of real job 1: edits of articles by `cell/window`, and by `article/window`."""
    return {CELLS: _by_cell(sent), ARTICLES: _by_article(sent)}


def _by_cell(sent: Iterable[Input]) -> dict[str, list[Any]]:
    table: dict[str, tuple[int, Counter[str]]] = {}
    for each in sent:
        cell, article, window = placed(each.value)
        count, articles = table.get(f"{cell}/{window}", (0, Counter()))
        articles[article] += 1
        table[f"{cell}/{window}"] = (count + 1, articles)
    return {key: [count, dict(articles)] for key, (count, articles) in table.items()}


def _by_article(sent: Iterable[Input]) -> dict[str, list[Any]]:
    counts = Counter(f"{article}/{window}" for _, article, window in (placed(each.value) for each in sent))
    return {key: [count] for key, count in counts.items()}
