"""Notices that the consumer group has no offsets although its tables have state.

Somebody has deleted the group's offsets, or they have expired because the app was stopped for longer than
`offsets.retention.minutes`.  Kafka then lets the app begin at the oldest records, with tables that count them already.
An app that ends before its first commit looks the same, so this can only be told.
"""

from collections.abc import Mapping

from faust.types import TP

from trimtab_agent.engines.faust.group.ownership import Ownership
from trimtab_protocol.messages.names import KeyGroup
from trimtab_protocol.wording import first_few

MAX_NAMED = 3
"""Key groups that the message names."""


def done_again(
    ownership: Ownership, from_start: Mapping[TP, int], changelog_ends: Mapping[TP, int | None]
) -> str | None:
    """What to tell of the owned key groups whose state has been made from records that are read again; None if none.

    `from_start` = source partitions without a committed offset, and their number of records; `changelog_ends` = the
    last offset of each changelog partition, -1 if it is empty.
    """
    found = sorted(
        each for each in ownership.owned() if _begins_with_state(ownership, each, from_start, changelog_ends)
    )
    if not found:
        return None
    return (
        f"{first_few(found, most=MAX_NAMED)}: the consumer group has no offsets of their topics, but their "
        "tables have state. All records that the topics still have are processed again, and state counts them twice. "
        "Were the offsets deleted, or the app stopped for longer than offsets.retention.minutes? (The same is said "
        "after an app has ended before its first commit.)"
    )


def _begins_with_state(
    ownership: Ownership, key_group: KeyGroup, from_start: Mapping[TP, int], changelog_ends: Mapping[TP, int | None]
) -> bool:
    """A key group of which one topic has an offset is none: the other topic is new to the app."""
    sources, changelogs = ownership.sources([key_group]), ownership.changelogs([key_group])
    has_state = any((end := changelog_ends.get(tp)) is not None and end >= 0 for tp in changelogs)
    return has_state and sources <= from_start.keys() and any(from_start[tp] > 0 for tp in sources)
