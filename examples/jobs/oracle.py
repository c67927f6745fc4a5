"""Compares every result of a job with a recomputation; pure.

Each value of a table is a list whose first cell counts the tuples of its key.  A tuple adds one, so the changelog of a
key must count 1, 2, 3 and so on: a gap or a low end is a loss, a step back or a repetition is a tuple that was counted
twice or a state that was overwritten.  At the end every value must be the recomputed one.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import reduce
from typing import Any, NamedTuple

Table = Mapping[str, list[Any]]
EXAMPLES = 5


class Change(NamedTuple):
    """One record of a changelog."""

    partition: int
    key: str
    value: list[Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """`results` = records of the changelog, each one result; `keys` of the recomputation.

    `lost` = results that are missing, `repeated` = that are there again or step back; `wrong` = keys whose last value
    is not the recomputed one.
    """

    results: int
    keys: int
    lost: int
    repeated: int
    wrong: int
    examples: tuple[str, ...] = ()

    @property
    def right(self) -> bool:
        """Whether every result is as recomputed."""
        return not (self.lost or self.repeated or self.wrong)

    def plus(self, other: "Verdict") -> "Verdict":
        """Both together."""
        return Verdict(
            results=self.results + other.results,
            keys=self.keys + other.keys,
            lost=self.lost + other.lost,
            repeated=self.repeated + other.repeated,
            wrong=self.wrong + other.wrong,
            examples=(*self.examples, *other.examples)[:EXAMPLES],
        )


NOTHING = Verdict(results=0, keys=0, lost=0, repeated=0, wrong=0)


def later(_: list[Any], other: list[Any]) -> list[Any]:
    """The second value: where each key has one partition, it is not asked for."""
    return other


def judge(
    expected: Table, changes: Iterable[Change], together: Callable[[list[Any], list[Any]], list[Any]] = later
) -> Verdict:
    """Compare a table's changelog, in order per partition, with the table as it must be at the end.

    `together` = the value of a key from those of two partitions.
    """
    counts: dict[tuple[int, str], int] = {}
    parts: dict[str, dict[int, list[Any]]] = {}
    results, repeated, skipped, examples = 0, 0, 0, list[str]()
    for partition, key, value in changes:
        before, count = counts.get((partition, key), 0), value[0]
        results += 1
        if count != before + 1:
            repeated += count <= before
            skipped += max(0, count - before - 1)
            examples.append(f"{key}: {count} after {before}")
        counts[partition, key] = count
        parts.setdefault(key, {})[partition] = value
    last = {key: reduce(together, values.values()) for key, values in parts.items()}
    short = {key: value[0] - last[key][0] if key in last else value[0] for key, value in expected.items()}
    wrong = sorted(key for key in expected.keys() | last.keys() if expected.get(key) != last.get(key))
    examples += [f"{key}: found {last.get(key)}, expected {expected.get(key)}" for key in wrong[:EXAMPLES]]
    return Verdict(
        results=results,
        keys=len(expected),
        lost=skipped + sum(max(0, each) for each in short.values()),
        repeated=repeated,
        wrong=len(wrong),
        examples=tuple(examples[:EXAMPLES]),
    )
