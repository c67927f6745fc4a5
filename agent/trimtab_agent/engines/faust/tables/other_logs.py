"""Finds databases that have more or less than their changelog, or were made from another one of the same name.

Whoever resets an app deletes its changelogs, and easily forgets the disk of a worker that is away.  When the new
changelog is longer than the offset stored on that disk, the old state would count as the beginning of the new one, and
nobody would notice.

What a database has was in its changelog when it was written last.  So the first record of the changelog since then has
a larger offset than the database.  If it has not, the changelog was created again.

A changelog that is only compacted begins at offset 0 for ever.  If it begins later, its records were deleted by
retention or by hand.  What a database has not seen of them it lacks: the values of keys that were not written since are
lost, and Faust goes on with what is left.  The changelog of a windowed table deletes by design.

A database whose offset is at or beyond the end of its changelog needs no such proof: the changelog has lost records (a
broker's disk, an unclean election, a backup), or was created again.  Faust would end the worker at each start.  Only
this database has what the changelog lacks, so it is set aside and not deleted.  A worker that runs notices it when it
writes, gives the key group away, or follows the changelog as a standby.
"""

import asyncio
import logging
import shutil
import time
from collections.abc import Awaitable, Callable, Collection, Mapping
from pathlib import Path
from typing import Any

from faust.stores.rocksdb import Store
from faust.types import TP

from trimtab_agent.engines.faust.safety.troubles import Tell, Trouble, minute
from trimtab_agent.engines.faust.tables.copies import BEHIND, OF_ANOTHER_LOG, written_at
from trimtab_agent.engines.faust.waiting import in_own_thread
from trimtab_protocol.wording import first_few

log = logging.getLogger(__name__)

SKEW_S = 5.0
"""By how much the clocks of workers may differ; `trimtab doctor` warns from 2 s on.  A larger difference only makes a
worker restore state that it has.  A changelog that is cut and grows again within this time is taken for the old one."""
LIMIT_S = 3.0
"""How long the broker may take to answer; databases are not checked, and nothing is told, otherwise."""
AHEAD = "%s ends at %d, this worker had written up to %d"


def watch(app: Any, tell: Tell) -> Mapping[TP, int]:
    """Check every database that Faust opens at a rebalance.  Call it once, when all tables are known.

    Returns where each assigned changelog ended at the last rebalance, as far as the broker has said it.
    """
    ends: dict[TP, int] = {}
    for table in app.tables.values():
        if isinstance(table.data, Store):
            overwritten: dict[TP, tuple[int, int]] = {}
            table.data.on_rebalance = _open_or_begin_anew(app, table, table.data.on_rebalance, tell, overwritten, ends)
            topic = table.changelog_topic
            topic._on_published = _note_where_it_is(app, table, topic._on_published, overwritten)
    return ends


def _note_where_it_is(
    app: Any, table: Any, on_published: Callable[..., None], overwritten: dict[TP, tuple[int, int]]
) -> Callable[..., None]:
    """Ask for a rebalance, which restores the table, when a record gets an offset that its database has already."""
    newest: dict[TP, int] = {}

    def note_where_it_is(sent: asyncio.Future[Any], message: Any, **known: Any) -> None:
        written = None if sent.cancelled() or sent.exception() is not None else sent.result()
        if written is None or written.offset < 0:  # it is a repetition, and the broker does not know of what
            on_published(sent, message=message, **known)
            return
        tp, offset = TP(written.topic, written.partition), written.offset
        if tp not in overwritten and offset <= newest.get(tp, offset):
            stored = _stored(table, tp)
            if stored is not None and offset <= stored:
                overwritten[tp] = stored, offset
                thread = app.consumer.thread
                app.add_future(thread.run(thread.request_rejoin))
        newest[tp] = offset
        on_published(sent, message=message, **known)
        if tp in overwritten and tp.partition in table.data._dbs:  # also whoever opens it after a crash shall see it
            table.data.set_persisted_offset(tp, overwritten[tp][0])

    return note_where_it_is


def _open_or_begin_anew(
    app: Any,
    table: Any,
    on_rebalance: Callable[..., Awaitable[None]],
    tell: Tell,
    overwritten: dict[TP, tuple[int, int]],
    known_ends: dict[TP, int],
) -> Callable[..., Any]:
    async def open_or_begin_anew(assigned: Collection[TP], *others: Any, **options: Any) -> None:
        tables = {tp: table for tp in assigned if tp.topic == table.changelog_topic_name}
        closed = [tp for tp in tables if tp.partition not in table.data._dbs]
        written = await in_own_thread(last_writes, tables)
        await on_rebalance(assigned, *others, **options)
        opened = [tp for tp in closed if tp.partition in table.data._dbs]
        stored = {tp: at for tp in tables if (at := _stored(table, tp)) is not None}
        first, starts, ends = await asyncio.gather(
            first_since(app.consumer, written), starts_of(app.consumer, opened), ends_of(app.consumer, tables)
        )
        for tp in tables:
            known_ends.pop(tp, None)
        known_ends.update(ends)
        ahead = {tp: (at, ends[tp]) for tp, at in stored.items() if tp in ends and at >= ends[tp]}
        ahead |= {tp: found for tp, found in overwritten.items() if tp in stored}
        overwritten.clear()
        await set_aside_those_ahead(table, ahead, tell)
        await _replace_those_of_other_logs(tables, {tp: at for tp, at in first.items() if tp not in ahead})
        if table.changelog_topic.deleting:
            await _replace_those_behind(app, table, {tp: starts[tp] for tp in opened if tp in written and tp in starts})
        report([found for tp in opened if (found := gap(tp, table, starts.get(tp)))], tell)

    return open_or_begin_anew


def _stored(table: Any, tp: TP) -> int | None:
    """The offset up to which an open database has its changelog; None = it is not open, or has none."""
    at: int | None = table.persisted_offset(tp) if tp.partition in table.data._dbs else None
    return at


async def ends_of(consumer: Any, tps: Collection[TP]) -> dict[TP, int]:
    """Where these logs end; nothing if the broker does not say it in time."""
    if not tps:
        return {}
    try:
        found: dict[TP, int] = await consumer.thread.ends(tps, LIMIT_S)
    except Exception as fault:  # whatever it is, Faust's recovery asks as well
        log.debug("it is not known where %d logs end: %r", len(tps), fault)
        return {}
    return found


def ahead_of(table: Any, tp: TP, end: int) -> str | None:
    """That a changelog ends before what an open database has of it; None if it does not."""
    at = _stored(table, tp)
    return None if at is None or at < end else AHEAD % (f"{tp.topic}/{tp.partition}", end, at)


async def set_aside_those_ahead(table: Any, ahead: Mapping[TP, tuple[int, int]], tell: Tell) -> None:
    """Let databases begin anew that have offsets which their changelogs do not have; say so."""
    store = table.data
    for tp, (offset, end) in sorted(ahead.items()):
        store._dbs[tp.partition] = await in_own_thread(_begin_anew, store, tp.partition)
        what = AHEAD % (f"{tp.topic}/{tp.partition}", end, offset)
        tell(Trouble.STATE_LOST, f"state is lost, seen {minute(time.time())}: the changelog {what}")
        log.critical(
            "state is lost: the changelog %s. It has lost records (a broker's disk, an unclean leader election, an old "
            "backup), or was created again. The table is restored from what is left, and its database is kept in %s",
            what,
            _aside(store, tp.partition),
        )


def last_writes(tables: Mapping[TP, Any]) -> dict[TP, float]:
    """When the database of each changelog partition was written last (epoch seconds); only closed ones with files.

    RocksDB writes when it opens, so this must come first.
    """
    closed = {tp: table.data for tp, table in tables.items() if tp.partition not in table.data._dbs}
    found = {tp: written_at(store.partition_path(tp.partition)) for tp, store in closed.items()}
    return {tp: at for tp, at in found.items() if at > 0.0}


async def first_since(consumer: Any, written: Mapping[TP, float]) -> dict[TP, int]:
    """The offset of the first record of each changelog since its database was written; none if there is none."""
    if not written:
        return {}
    try:
        found: dict[TP, int] = await consumer.thread.offsets_since(
            {tp: at + SKEW_S for tp, at in written.items()}, LIMIT_S
        )
    except Exception as fault:  # whatever it is, it must not end the rebalance: the databases are used unchecked
        log.warning("cannot tell whether %d databases belong to these changelogs: %r", len(written), fault)
        return {}
    return found


async def _replace_those_of_other_logs(tables: Mapping[TP, Any], firsts: Mapping[TP, int]) -> None:
    """Replace open databases that are of other changelogs; `firsts` = the first record since each was written."""
    for tp, first in sorted(firsts.items()):
        offset = tables[tp].persisted_offset(tp)
        if offset is not None and first <= offset:
            store = tables[tp].data
            store._dbs[tp.partition] = await in_own_thread(_begin_anew, store, tp.partition, OF_ANOTHER_LOG)


async def _replace_those_behind(app: Any, table: Any, starts: Mapping[TP, int]) -> None:
    """Replace databases of a windowed table that end before its changelog begins: see `open_database`."""
    store = table.data
    offsets = {tp: table.persisted_offset(tp) for tp in starts}
    behind = [tp for tp, at in sorted(offsets.items()) if starts[tp] > (0 if at is None else at + 1)]
    ends = await app.consumer.highwaters(*behind) if behind else {}
    for tp in behind:
        if starts[tp] < (ends.get(tp) or 0):
            store._dbs[tp.partition] = await in_own_thread(_begin_anew, store, tp.partition, BEHIND)


def _begin_anew(store: Any, partition: int, why: str | None = None) -> Any:
    """Delete an open database and log why, or (None) set it aside instead of the one before; open an empty one."""
    path: Path = store.partition_path(partition)
    store._dbs.pop(partition).close()
    if why is None:
        shutil.rmtree(_aside(store, partition), ignore_errors=True)
        path.rename(_aside(store, partition))
    else:
        log.warning(why, path.name)
        shutil.rmtree(path)
    return store._open_for_partition(partition)


def _aside(store: Any, partition: int) -> Path:
    path: Path = store.partition_path(partition)
    return path.with_name(f"{path.name}.ahead")


def gap(tp: TP, table: Any, start: int | None) -> str | None:
    """What an open table lacks of its changelog, which begins at offset `start`; None if nothing, or unknown."""
    at = table.persisted_offset(tp)
    if start is None or start <= (0 if at is None else at + 1) or table.changelog_topic.deleting:
        return None
    return (
        f"{tp.topic}/{tp.partition} (begins at {start}, read {'from the beginning' if at is None else f'up to {at}'})"
    )


def report(gaps: Collection[str], tell: Tell) -> None:
    """Log what tables lack, and tell it."""
    if gaps:
        lacking, seen = first_few(sorted(gaps), most=1), minute(time.time())
        tell(Trouble.STATE_LOST, f"state is lost, seen {seen}: changes were deleted of {lacking}")
        log.warning(
            "state is lost: records of changelogs were deleted before this worker read them: %s. Keys that were not "
            "written since lack their values here, and deleted ones may be back. `trimtab doctor` looks at the "
            "settings of changelogs",
            first_few(sorted(gaps)),
        )


async def starts_of(consumer: Any, tps: Collection[TP]) -> dict[TP, int]:
    """Where these changelogs begin; nothing if the broker does not say it in time."""
    if not tps:
        return {}
    try:
        found: dict[TP, int] = await consumer.thread.beginnings(tps, LIMIT_S)
    except Exception as fault:  # whatever it is, it must not end the rebalance
        log.debug("it is not known where %d changelogs begin: %r", len(tps), fault)
        return {}
    return found
