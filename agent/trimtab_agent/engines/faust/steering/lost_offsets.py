"""Notices that a worker reads its inputs from their start again although its tables have state.

Somebody has deleted the group's offsets, has reset them to the earliest records, or they have expired because the app
was stopped for longer than `offsets.retention.minutes`.  The app then begins at the oldest records, with tables that
count them already.  An app that ends before its first commit looks the same, so this can only be told.

An offset that a worker has committed (`COMMITTED_HERE`) is no reset, wherever the topic begins: retention, or somebody
who deletes records, may have removed exactly what has been processed.  Where no worker has committed it, positions
decide: if this worker itself has committed a later one before (`OwnCommits`), inputs are read again; and a topic that
begins at 0 still has all records of which the tables were made.  One that begins later may have
new ones only, and nobody knows: the dates of records are set by clients, and may be those of long ago.

The worker logs it, and reports it for a while: the operator of the cluster reads no logs of workers.
"""

import json
import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
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
    """Inputs are read again: `text` for the worker's log, `short` for its report; `certain` = not only perhaps."""

    text: str
    short: str
    certain: bool


def done_again(
    ownership: Ownership,
    from_start: Mapping[TP, range],
    set_by_others: Collection[TP],
    changelog_ends: Mapping[TP, int | None],
    now: float,
    shorter: Collection[TP] = (),
) -> Again | None:
    """What to tell of the owned key groups whose state has been made from records that are read again; None if none.

    `from_start` = source partitions without a committed offset, or with 0, and the offsets they have; `set_by_others` =
    those among all whose offset no worker has committed; `changelog_ends` = the last offset of each changelog
    partition, -1 if it is empty; `now` in epoch seconds; `shorter` = source partitions that end before what this worker
    has committed: made anew, so that their records may be new ones.
    """
    found = {
        each: certain and ownership.sources([each]).isdisjoint(shorter)
        for each in ownership.owned()
        if (certain := _reads_again(ownership, each, from_start, set_by_others, changelog_ends)) is not None
    }
    if not found:
        return None
    certain = any(found.values())
    told = [each for each in found if found[each] is certain]
    read = {
        tp: f"from its start on, offsets {from_start[tp].start} to {from_start[tp].stop - 1}"
        for tp in ownership.sources(told)
        if from_start.get(tp)
    }
    return Again(
        text=_describe(told, "the consumer group has no offsets of their topics, but their tables have state", certain),
        short=_short(now, f"there are no offsets{'' if certain else ', inputs may be done again'}", read, told),
        certain=certain,
    )


def set_back(
    ownership: Ownership,
    committed: Mapping[TP, int | None],
    before: Mapping[TP, int],
    ends: Mapping[TP, int],
    now: float,
) -> Again | None:
    """What to tell of owned key groups with tables that go on before what this worker has committed; None if none.

    `before` = what it has committed last, `ends` = where the partitions end, as far as that is known.  A log that is
    shorter than that is another one, or has lost records.
    """
    back = {
        tp: before[tp]
        for tp in committed.keys() & before.keys() & ends.keys()
        if (committed[tp] or 0) < before[tp] <= ends[tp]
    }
    found = [
        each
        for each in ownership.owned()
        if ownership.changelogs([each]) and not ownership.sources([each]).isdisjoint(back)
    ]
    if not found:
        return None
    read = {
        tp: f"from {committed[tp] or 'the start'} on, was at {back[tp]}"
        for tp in ownership.sources(found) & back.keys()
    }
    text = _describe(found, f"the consumer group reads {_first(read)}", certain=True)
    return Again(text=text, short=_short(now, "offsets were set back", read, found), certain=True)


def set_to_start(
    ownership: Ownership,
    committed: Mapping[TP, int | None],
    set_by_others: Collection[TP],
    firsts: Mapping[TP, FirstRecord],
) -> dict[KeyGroup, float]:
    """Owned key groups with tables that go on at the first record of all their topics, and the time of that record.

    `committed` = the committed offset of each source partition when this generation began, `set_by_others` = those that
    no worker has committed; `firsts` = the first record of each that has any.
    """
    found = {}
    for key_group in ownership.owned():
        first = {tp: firsts[tp] for tp in ownership.sources([key_group]) if tp in firsts}
        if (
            first
            and ownership.changelogs([key_group])
            and all(tp in set_by_others and committed.get(tp) == first[tp].offset for tp in first)
        ):
            found[key_group] = min(each.at_s for each in first.values())
    return found


async def tell_of_reset(
    ownership: Ownership,
    thread: Any,
    committed: Mapping[TP, int | None],
    set_by_others: Collection[TP],
    tell: Callable[[Again], None],
    clock: Callable[[], float],
) -> None:
    """Tell of the owned key groups whose offsets somebody may have set to the start of their topics.

    It runs beside the job: an error is logged and changes nothing.
    """
    if committed.keys().isdisjoint(set_by_others):
        return
    try:
        firsts = await thread.first_records(committed.keys(), LIMIT_S)
        at = set_to_start(ownership, committed, set_by_others, firsts)
        times = {tp: at[key_group] + SKEW_S for key_group in at for tp in ownership.changelogs([key_group])}
        newer = await thread.offsets_since(times, LIMIT_S) if times else {}
    except (KafkaError, TimeoutError, RuntimeError) as fault:  # RuntimeError: the worker ends
        log.info("it is not known whether offsets were set to the start of their topics: %r", fault)
        return
    if found := [each for each in at if ownership.changelogs([each]) & newer.keys()]:
        what = "the consumer group begins at the first record of their topics, but their tables have state"
        read = {
            tp: f"from {firsts[tp].offset} on, its first record, of {minute(firsts[tp].at_s)}"
            for tp in ownership.sources(found) & firsts.keys()
        }
        short = _short(clock(), "offsets may have been reset", read, found)
        tell(Again(text=_describe(found, what, certain=False), short=short, certain=False))


def _short(now: float, what: str, read: Mapping[TP, str], found: Iterable[KeyGroup]) -> str:
    """One line for the report, which holds 200 characters.  What matters most comes first."""
    return (
        f"{what}, seen {minute(now)}: reads {_first(read)}; the tables of {first_few(sorted(found), most=1)} have state"
    )


def _first(read: Mapping[TP, str]) -> str:
    first = min(read)
    more = f" (and {len(read) - 1} more partitions)" if len(read) > 1 else ""
    return f"{first.topic}/{first.partition} {read[first]}{more}"


def _describe(found: Iterable[KeyGroup], what: str, certain: bool) -> str:
    names = first_few(sorted(found), most=MAX_NAMED)
    if certain:
        return (
            f"{names}: {what}. All records that the topics still have are processed again, and state counts them "
            "twice. Were the offsets deleted or reset, or the app stopped for longer than offsets.retention.minutes? "
            "(The same is said after an app has ended before its first commit.)"
        )
    return (
        f"{names}: {what}. If somebody has deleted or reset the offsets, these records are processed again, and state "
        "counts them twice. If the records before them were processed and then deleted, which looks the same, nothing "
        "is counted twice"
    )


def _reads_again(
    ownership: Ownership,
    key_group: KeyGroup,
    from_start: Mapping[TP, range],
    set_by_others: Collection[TP],
    changelog_ends: Mapping[TP, int | None],
) -> bool | None:
    """Whether a key group certainly reads again what made its state; None if it does not.

    A key group of which one topic has an offset does not: the other topic is new to the app.
    """
    sources, changelogs = ownership.sources([key_group]), ownership.changelogs([key_group])
    has_state = any((end := changelog_ends.get(tp)) is not None and end >= 0 for tp in changelogs)
    filled = [tp for tp in sources if from_start.get(tp)]
    if not has_state or not filled or not sources <= from_start.keys() or not sources <= set(set_by_others):
        return None
    return all(from_start[tp].start == 0 for tp in filled)


class OwnCommits:
    """The offsets that this worker has committed last, in a file beside its tables: they are deleted together.

    Kafka does not know what a group's offset was before somebody has set it back.  These are at most what was
    committed, for another worker may have gone on since.  So a smaller offset in Kafka was set back, wherever the topic
    begins.
    """

    def __init__(self, app: Any) -> None:
        self._app = app

    @property
    def _path(self) -> Path:
        return Path(self._app.conf.tabledir) / f"{self._app.conf.id}.committed.json"

    def read(self) -> dict[TP, int]:
        """What was committed last; empty without a file, or with one that cannot be read."""
        try:
            rows = json.loads(self._path.read_text(encoding="utf-8"))
            return {TP(str(topic), int(partition)): int(offset) for topic, partition, offset in rows}
        except FileNotFoundError:
            return {}
        except (OSError, ValueError, TypeError) as fault:
            log.warning("it is not known what this worker has committed last: %r", fault)
            return {}

    def write(self, committed: Mapping[TP, int | None]) -> None:
        """Keep these, and what is known of other partitions.  Without them only less can be told later."""
        known = {**self.read(), **{tp: offset for tp, offset in committed.items() if offset is not None}}
        new = self._path.with_suffix(".new")
        try:
            new.write_text(json.dumps([[*tp, offset] for tp, offset in sorted(known.items())]), encoding="utf-8")
            new.replace(self._path)
        except OSError as fault:
            log.info("what this worker has committed is not kept: %r", fault)
