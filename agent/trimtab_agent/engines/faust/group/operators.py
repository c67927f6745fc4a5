"""Operators of an app: the topics that must be co-partitioned, and the key group of each partition.  Pure.

An operator is a group of source (or repartition) topics with the changelogs of the tables that their agents write.
The app's author names operators.  Topics without a name form one operator per partition count, as in stock Faust.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from trimtab_protocol.messages.names import OperatorId

REST = "all"
"""Name of the operator of all topics that the author did not name."""


class MixedPartitions(Exception):
    """Topics of one named operator have different partition counts, so they cannot be co-partitioned."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AppOperator:
    """Co-partitioned topics: partition p of each of them is key group p."""

    id: OperatorId
    sources: frozenset[str]
    changelogs: frozenset[str]
    partitions: int

    @property
    def topics(self) -> frozenset[str]:
        """Sources and changelogs."""
        return self.sources | self.changelogs


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """The topics of an app: sources, changelogs, and the named operators among them."""

    named: Mapping[OperatorId, frozenset[str]]
    sources: frozenset[str]
    changelogs: frozenset[str]

    def __post_init__(self) -> None:
        seen: set[str] = set()
        for operator, topics in self.named.items():
            if twice := seen & topics:
                raise ValueError(f"operators[{operator!r}]: {sorted(twice)} belong to another operator already")
            if unknown := topics - self.sources - self.changelogs:
                raise ValueError(f"operators[{operator!r}]: {sorted(unknown)} are not topics or tables of this app")
            seen |= topics

    def operators(self, partitions_of: Callable[[str], int | None]) -> tuple[AppOperator, ...]:
        """The operators, sorted by id.  A topic whose partition count is unknown (None) is left out until it is known.

        Raises MixedPartitions.
        """
        groups: dict[OperatorId, dict[str, int]] = defaultdict(dict)
        for operator, partitions, topics in self.groups(partitions_of):
            groups[operator] |= dict.fromkeys(topics, partitions)
        return tuple(self._operator(operator, frozenset(counts), counts) for operator, counts in sorted(groups.items()))

    def groups(self, partitions_of: Callable[[str], int | None]) -> list[tuple[OperatorId, int, frozenset[str]]]:
        """(operator, partition count, topics) of every operator and partition count whose topics are known."""
        counts = {topic: count for topic in self.sources | self.changelogs if (count := partitions_of(topic))}
        found = []
        for operator, topics in self.named.items():
            found += [(operator, count, same) for count, same in _by_count(topics & counts.keys(), counts)]
        rest = _by_count(counts.keys() - frozenset[str]().union(*self.named.values()), counts)
        names = [REST] if len(rest) == 1 else [f"{REST}-{count}" for count, _ in rest]
        return found + [(OperatorId(name), count, topics) for name, (count, topics) in zip(names, rest, strict=True)]

    def _operator(self, operator: OperatorId, topics: frozenset[str], counts: Mapping[str, int]) -> AppOperator:
        if len({counts[topic] for topic in topics}) != 1:
            found = {topic: counts[topic] for topic in sorted(topics)}
            raise MixedPartitions(f"operator {operator!r}: partition counts differ: {found}")
        return AppOperator(
            id=operator,
            sources=topics & self.sources,
            changelogs=topics & self.changelogs,
            partitions=counts[next(iter(topics))],
        )


def _by_count(topics: Iterable[str], counts: Mapping[str, int]) -> list[tuple[int, frozenset[str]]]:
    found: defaultdict[int, set[str]] = defaultdict(set)
    for topic in topics:
        found[counts[topic]].add(topic)
    return [(count, frozenset(same)) for count, same in sorted(found.items())]
