"""Real job 1: its input, what its operators compute, and the recomputation; pure.

The paper has the edit history of Wikipedia up to January 2008, without places, and spreads GeoHashes evenly over
Denmark.  No package ships that history, so the edits are generated: the popularity of articles follows Zipf's law, and
each edit has one of 100 cells.  Windows of a minute are counted in edits, so that results are certain.
"""

import hashlib
import random
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate
from typing import Any

from flights.dataset import partition_of
from jobs.feed import Input

EDITS, PLACED, TOPPED = "edits", "placed", "topped"
CELLS, ARTICLES = "cells", "articles"
CELL_COUNT, ARTICLE_COUNT, ZIPF = 100, 5_000, 0.9
EDITS_PER_WINDOW = 15_000
"""A minute at the rate of the default."""
MOST = 400_000
SEED = 11
TOP = 10


def inputs(partitions: int) -> Iterator[Input]:
    """The edits, keyed by their number: the first operator is partitioned by nothing that the others know."""
    chance = random.Random(SEED)
    weights = list(accumulate(1.0 / rank**ZIPF for rank in range(1, ARTICLE_COUNT + 1)))
    for number in range(MOST):
        [article] = chance.choices(range(ARTICLE_COUNT), cum_weights=weights)
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
