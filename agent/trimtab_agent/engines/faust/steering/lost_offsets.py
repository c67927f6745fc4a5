"""Notices that a worker reads its inputs from their start again although its tables have state.

Somebody has deleted the group's offsets, has reset them to the earliest records, or they have expired because the app
was stopped for longer than `offsets.retention.minutes`.  The app then begins at the oldest records, with tables that
count them already.  An app that ends before its first commit looks the same, so this can only be told.

A committed offset at which a topic begins shows nothing by itself: retention may have deleted exactly what has been
processed.  But then the state is older than the first record that is left.

The worker logs it, and reports it for a while: the operator of the cluster reads no logs of workers.  Kafka does not
know what the offsets were before.
"""

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from aiokafka.errors import KafkaError
from faust.types import TP

from trimtab_agent.engines.faust.group.ownership import Ownership
from trimtab_agent.engines.faust.safety.troubles import minute
from trimtab_agent.engines.faust.transport.thread import FirstRecord
from trimtab_protocol.messages.names import KeyGroup
from trimtab_protocol.wording import first_few

log = logging.getLogger(__name__)

MAX_NAMED = 3
"""Key groups that the message names."""
SKEW_S = 60.0
"""State that is not that much newer than the first record may be older: clocks differ, and the record waited."""
LIMIT_S = 5.0
"""How long the broker may take for one answer; nothing is told otherwise."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Again:
    """Inputs are read again: `text` for the worker's log, `short` for its report."""

    text: str
    short: str


def done_again(
    ownership: Ownership, from_start: Mapping[TP, int], changelog_ends: Mapping[TP, int | None], now: float
) -> Again | None:
    """What to tell of the owned key groups whose state has been made from records that are read again; None if none.

    `from_start` = source partitions without a committed offset, and their number of records; `changelog_ends` = the
    last offset of each changelog partition, -1 if it is empty; `now` in epoch seconds.
    """
    found = [each for each in ownership.owned() if _begins_with_state(ownership, each, from_start, changelog_ends)]
    if not found:
        return None
    read = {tp: f"from its start on, {from_start[tp]} records" for tp in ownership.sources(found) & from_start.keys()}
    return Again(
        text=_describe(found, "the consumer group has no offsets of their topics, but their tables have state"),
        short=_short(now, "there are no offsets", read, found),
    )


def set_to_start(
    ownership: Ownership, committed: Mapping[TP, int | None], firsts: Mapping[TP, FirstRecord]
) -> dict[KeyGroup, float]:
    """Owned key groups with tables that go on at the first record of all their topics, and the time of that record.

    `committed` = the committed offset of each source partition when this generation began; `firsts` = the first record
    of each that has any.
    """
    found = {}
    for key_group in ownership.owned():
        first = {tp: firsts[tp] for tp in ownership.sources([key_group]) if tp in firsts}
        if first and ownership.changelogs([key_group]) and all(committed.get(tp) == first[tp].offset for tp in first):
            found[key_group] = min(each.at_s for each in first.values())
    return found


async def tell_of_reset(
    ownership: Ownership,
    thread: Any,
    committed: Mapping[TP, int | None],
    tell: Callable[[Again], None],
    clock: Callable[[], float],
) -> None:
    """Tell of the owned key groups whose offsets somebody has set to the start of their topics.

    It runs beside the job: an error is logged and changes nothing.
    """
    if not committed:
        return
    try:
        firsts = await thread.first_records(committed.keys(), LIMIT_S)
        at = set_to_start(ownership, committed, firsts)
        times = {tp: at[key_group] + SKEW_S for key_group in at for tp in ownership.changelogs([key_group])}
        newer = await thread.offsets_since(times, LIMIT_S) if times else {}
    except (KafkaError, TimeoutError, RuntimeError) as fault:  # RuntimeError: the worker ends
        log.info("it is not known whether offsets were set to the start of their topics: %r", fault)
        return
    if found := [each for each in at if ownership.changelogs([each]) & newer.keys()]:
        what = (
            "the consumer group begins at the first record of their topics, but their tables have state of later ones"
        )
        read = {
            tp: f"from {firsts[tp].offset} on, of {minute(firsts[tp].at_s)}"
            for tp in ownership.sources(found) & firsts.keys()
        }
        tell(Again(text=_describe(found, what), short=_short(clock(), "offsets were reset", read, found)))


def _short(now: float, what: str, read: Mapping[TP, str], found: Iterable[KeyGroup]) -> str:
    """One line for the report, which holds 200 characters.  What matters most comes first."""
    partitions = sorted(read, key=lambda tp: (tp.topic, tp.partition))
    more = f" (and {len(partitions) - 1} more partitions)" if len(partitions) > 1 else ""
    first = partitions[0]
    return (
        f"{what}, seen {minute(now)}: reads {first.topic}/{first.partition} {read[first]}{more}; "
        f"the tables of {first_few(sorted(found), most=1)} have later state"
    )


def _describe(found: Iterable[KeyGroup], what: str) -> str:
    return (
        f"{first_few(sorted(found), most=MAX_NAMED)}: {what}. All records that the topics still have are processed "
        "again, and state counts them twice. Were the offsets deleted or reset, or the app stopped for longer than "
        "offsets.retention.minutes? (The same is said after an app has ended before its first commit.)"
    )


def _begins_with_state(
    ownership: Ownership, key_group: KeyGroup, from_start: Mapping[TP, int], changelog_ends: Mapping[TP, int | None]
) -> bool:
    """A key group of which one topic has an offset is none: the other topic is new to the app."""
    sources, changelogs = ownership.sources([key_group]), ownership.changelogs([key_group])
    has_state = any((end := changelog_ends.get(tp)) is not None and end >= 0 for tp in changelogs)
    return has_state and sources <= from_start.keys() and any(from_start[tp] > 0 for tp in sources)
