"""Warm standbys on this worker: opens local tables, follows their changelogs, and measures their lag."""

import asyncio
import time
from collections.abc import Callable, Collection, Iterable
from typing import Any

from faust.types import TP

from trimtab_agent.engines.faust.group.ownership import Ownership
from trimtab_agent.engines.faust.safety.troubles import Tell
from trimtab_agent.engines.faust.tables.changelog_reader import ChangelogReader
from trimtab_agent.engines.faust.tables.copies import MAX_AGE_S, open_database
from trimtab_agent.engines.faust.tables.other_logs import (
    ahead_of,
    first_since,
    gap,
    last_writes,
    report,
    set_aside_those_ahead,
)
from trimtab_agent.engines.faust.waiting import in_own_thread
from trimtab_protocol.messages.names import KeyGroup

SIZES = ("rocksdb.estimate-live-data-size", "rocksdb.cur-size-all-mem-tables")

ANSWER_LIMIT_S = 10.0
"""How long the broker may take to say where changelogs begin and end; other key groups wait for their turn."""

Check = Callable[[], None]
"""Raises if the step has become pointless because the group has moved on."""


class Standbys:
    """Key groups that this worker does not own, but keeps warm."""

    def __init__(self, app: Any, ownership: Ownership, reader: ChangelogReader, tell: Tell) -> None:
        self._app = app
        self._tell = tell
        self._ownership = ownership
        self._reader = reader

    async def warm(self, key_groups: Collection[KeyGroup], check: Check) -> None:
        """Open the tables of these key groups and follow their changelogs, unless they are followed already.

        Skips every partition that is active here, even if the rest of its key group is not.  Otherwise the worker would
        read back its own writes and, when it lags, overwrite newer values with older ones.  Skips what Faust itself
        follows as a standby: of two readers of a changelog, the slower one would overwrite newer values, too.
        """
        todo = self._not_active(key_groups) - self._reader.followed
        if not todo:
            return
        consumer, tables = self._app.consumer, {tp: self._ownership.table(tp) for tp in todo}
        written = await in_own_thread(last_writes, tables)
        try:
            async with asyncio.timeout(ANSWER_LIMIT_S):
                starts, ends, since = await asyncio.gather(
                    consumer.earliest_offsets(*todo), consumer.highwaters(*todo), first_since(consumer, written)
                )
        except TimeoutError:
            raise TimeoutError(f"Kafka does not say within {ANSWER_LIMIT_S:g} s where changelogs end") from None
        gaps: list[str] = []
        for tp in sorted(todo):
            check()
            table = tables[tp]
            log_of = {
                "end": ends[tp],
                "since": since.get(tp),
                "begins": starts[tp] if table.changelog_topic.deleting else None,
            }
            await self._open(table, tp.partition, log_of, check)
            if self._ownership.is_active(tp):
                continue  # taken over while its database was being opened
            if ahead_of(table, tp, ends[tp]):
                await set_aside_those_ahead(table, {tp: (table.persisted_offset(tp), ends[tp])}, self._tell)
                check()
            if found := gap(tp, table, starts[tp]):
                gaps.append(found)
            persisted = table.persisted_offset(tp)
            applied = max(-1 if persisted is None else persisted, starts[tp] - 1)
            self._reader.follow(tp, table, applied, ends[tp])
        report(gaps, self._tell)

    async def _open(self, table: Any, partition: int, log_of: dict[str, Any], check: Check) -> None:
        """Open one database in a thread: it takes 35 to 70 ms, and longer if an old one is deleted first."""
        store = table.data
        if partition not in store._dbs:
            oldest_s = time.time() - MAX_AGE_S
            opened = await in_own_thread(open_database, store, partition, oldest_s=oldest_s, **log_of)
            check()
            store._dbs.setdefault(partition, opened)

    async def lag_records(self, key_groups: Collection[KeyGroup]) -> int:
        """Number of offsets between the local tables and the changelogs' current ends: at most so many records."""
        changelogs = self._ownership.changelogs(key_groups)
        if not changelogs:
            return 0
        ends = await self._app.consumer.highwaters(*changelogs)
        return sum(max(0, ends[tp] - 1 - self._applied(tp)) for tp in changelogs)

    @property
    def applied_records(self) -> int:
        """Number of changelog records applied to standbys since the start."""
        return self._reader.records

    @property
    def records_s(self) -> float:
        """Changelog records per second that this worker can apply to standbys; 0 while that is unknown."""
        return self._reader.records_s

    def is_followed(self, key_groups: Collection[KeyGroup]) -> bool:
        """Whether all changelogs of these key groups are followed."""
        return self._ownership.changelogs(key_groups) <= self._reader.followed

    def cold(self, key_groups: Iterable[KeyGroup]) -> int:
        """How many of these key groups, which others own, have a table that still lacks some of its changelog."""
        warm = self._reader.warm
        return sum(not self._not_active([key_group]) <= warm for key_group in key_groups)

    def has(self, ends: dict[TP, int]) -> bool:
        """Whether the local tables contain the changelogs up to these ends."""
        return all(self._applied(tp) >= end - 1 for tp, end in ends.items())

    def ahead(self, ends: dict[TP, int]) -> str | None:
        """That one of these changelogs ends before what its local table has of it; None if none does."""
        found = (ahead_of(self._ownership.table(tp), tp, end) for tp, end in sorted(ends.items()))
        return next(filter(None, found), None)

    def prefer(self, changelogs: Collection[TP]) -> None:
        """Read these changelogs before those that other key groups restore from; end it with `prefer_no_more`."""
        self._reader.prefer(changelogs)

    def prefer_no_more(self, changelogs: Collection[TP]) -> None:
        """Read these changelogs like all others."""
        self._reader.prefer_no_more(changelogs)

    def followed(self) -> frozenset[KeyGroup]:
        """Key groups with at least one followed changelog."""
        found = (self._ownership.key_group_of(*tp) for tp in self._reader.followed)
        return frozenset(key_group for key_group in found if key_group is not None)

    def keep(self, ends: dict[TP, int]) -> None:
        """Continue as the standby of key groups that this worker has just given away.

        Their tables contain everything up to these ends, because this worker wrote it.
        """
        for tp, end in ends.items():
            table = self._ownership.table(tp)
            if end:
                table.data.set_persisted_offset(tp, end - 1)
            self._reader.follow(tp, table, end - 1)

    def leave(self, changelogs: Collection[TP]) -> None:
        """Stop following these changelogs.  Their tables stay open: this worker is about to own them."""
        self._reader.leave(changelogs)

    def cool(self, key_groups: Collection[KeyGroup]) -> None:
        """Stop following these key groups, and close their tables that are not active here."""
        changelogs = self._not_active(key_groups)
        self._reader.leave(changelogs)
        for tp in changelogs:
            self._ownership.table(tp).data._dbs.pop(tp.partition, None)

    def stop(self) -> None:
        """Stop following everything: Faust is about to open and restore what the group assigns."""
        self._reader.leave(self._reader.followed)

    def state_bytes(self, key_group: KeyGroup) -> int | None:
        """Live bytes in the key group's tables, memtables included; None if one of them is not open here."""
        stores = [self._ownership.table(tp).data for tp in self._ownership.changelogs([key_group])]
        databases: list[Any] = [getattr(store, "_dbs", {}).get(key_group.partition) for store in stores]
        if not databases or None in databases:
            return None
        return sum(int(database.property_int_value(name) or 0) for database in databases for name in SIZES)

    def written_records(self, key_group: KeyGroup) -> int | None:
        """Number of records written to the key group's changelogs, as far as its local tables know.

        None if one of the tables is not open here.
        """
        changelogs = self._ownership.changelogs([key_group])
        if any(tp.partition not in getattr(self._ownership.table(tp).data, "_dbs", {}) for tp in changelogs):
            return None
        persisted = [self._ownership.table(tp).persisted_offset(tp) for tp in changelogs]
        return sum(int(offset) + 1 for offset in persisted if offset is not None)

    def _not_active(self, key_groups: Iterable[KeyGroup]) -> set[TP]:
        changelogs = self._ownership.changelogs(key_groups)
        return {tp for tp in changelogs - self._ownership.followed_by_faust() if not self._ownership.is_active(tp)}

    def _applied(self, tp: TP) -> int:
        applied = self._reader.applied(tp)
        return -1 if applied is None else applied
