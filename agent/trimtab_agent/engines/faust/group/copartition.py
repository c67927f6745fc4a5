"""Finds the topics that must be co-partitioned while members run different versions of the app.  Pure.

During a rolling upgrade some members read topics that the others do not know.  An agent of the new version may write
any table of its operator.  So partition p of all the operator's topics belongs on one worker, for every version that
is running.  If that worker does not read one of the topics, the partition stays unassigned until it is upgraded.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from trimtab_agent.engines.faust.group.operators import Layout
from trimtab_agent.engines.faust.group.placing import Member
from trimtab_protocol.messages.names import OperatorId
from trimtab_protocol.messages.reason_text import WORKERS_DIFFER
from trimtab_protocol.wording import first_few

MAX_NAMED = 3
"""Largest number of versions, and of workers per version, named in the message about differing members."""

PartitionsOf = Callable[[str], int | None]
"""Partition count of a topic; None = not known from the broker yet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CoPartitioned:
    """A group of topics: partition p of all of them belongs on one worker.

    `operators` = the members' names for the group, the first member's name first.  `members` = members that may own
    partitions: they read at least one of the topics, and the broker knows every changelog that they would write.
    """

    operators: tuple[OperatorId, ...]
    topics: frozenset[str]
    partitions: int
    members: frozenset[Member]


def co_partitioned(layouts: Mapping[Member, Layout], partitions_of: PartitionsOf) -> tuple[CoPartitioned, ...]:
    """The groups of topics that satisfy all members' layouts, sorted by name and partition count.

    If all members run the same version of the app, these are its operators.
    """
    groups = {member: layout.groups(partitions_of) for member, layout in layouts.items()}
    merged: list[frozenset[str]] = []
    for topics in (topics for found in groups.values() for _, _, topics in found):
        overlapping = [other for other in merged if other & topics]
        merged = [other for other in merged if not other & topics]
        merged.append(topics.union(*overlapping))
    found = [_describe(topics, layouts, groups, partitions_of) for topics in merged]
    return tuple(sorted(found, key=lambda each: (each.operators, each.partitions)))


def _describe(
    topics: frozenset[str],
    layouts: Mapping[Member, Layout],
    groups: Mapping[Member, list[tuple[OperatorId, int, frozenset[str]]]],
    partitions_of: PartitionsOf,
) -> CoPartitioned:
    names: dict[OperatorId, None] = {}
    ready = []
    for member, layout in layouts.items():
        own = [operator for operator, _, part in groups[member] if part & topics]
        names.update(dict.fromkeys(own))
        if own and not any(_lacks_changelog(layout, operator, partitions_of) for operator in own):
            ready.append(member)
    return CoPartitioned(
        operators=tuple(names),
        topics=topics,
        partitions=next(count for topic in topics if (count := partitions_of(topic))),
        members=frozenset(ready),
    )


def _lacks_changelog(layout: Layout, operator: OperatorId, partitions_of: PartitionsOf) -> bool:
    """Whether the broker does not know the changelog of one of the operator's tables.  Its agents would fail."""
    of_others = frozenset[str]().union(*(topics for name, topics in layout.named.items() if name != operator))
    topics = layout.named.get(operator, layout.changelogs - of_others)
    return any(partitions_of(topic) is None for topic in topics & layout.changelogs)


def difference(layouts: Mapping[Member, Layout], names: Mapping[Member, str], json: Mapping[Member, str]) -> str | None:
    """Message that says which members run different versions of the app; None if all run the same.

    `names` = the workers' names by member, `json` = how they write JSON.
    """
    versions: dict[tuple[object, ...], list[str]] = {}
    layouts_seen = set()
    for member, layout in layouts.items():
        topics = (layout.sources, layout.changelogs, tuple(sorted(layout.named.items())))
        layouts_seen.add(topics)
        versions.setdefault((topics, json.get(member)), []).append(names.get(member) or member)
    if len(versions) <= 1:
        return None
    sides = sorted(versions.values(), key=lambda side: (-len(side), sorted(side)))
    what = WORKERS_DIFFER if len(layouts_seen) > 1 else f"{WORKERS_DIFFER}, or in how they write JSON (orjson)"
    return f"{what}: " + " against ".join(map(_first, sides[:MAX_NAMED]))


def _first(workers: list[str]) -> str:
    return first_few(sorted(workers), most=MAX_NAMED)
