"""Windowed tables that expire: who has a key group also closes its windows.

Faust knows which windows a partition has only from its own writes; what it restores or takes over would never expire,
and what it has given away would be closed by the old owner as well.  Here the windows of a key group are forgotten when
it leaves and read from the local table when it comes.  The reading is not part of the pause: until it is done
(milliseconds) only `table[key].now()` may see an older window.
"""

import asyncio
import time
from collections.abc import Iterable
from heapq import heapify
from typing import Any

from faust.types import TP

from trimtab_agent.engines.faust.group.ownership import Ownership

Windowed = tuple[Any, tuple[float, float]]
"""(key, (start, end)) in epoch seconds."""


class Windows:
    """Expiry of windowed tables on this worker, by changelog partition."""

    def __init__(self, app: Any, ownership: Ownership) -> None:
        self._app = app
        self._ownership = ownership
        self._known: set[TP] = set()

    async def follow(self) -> None:
        """Know the windows of the key groups owned now, and of no others."""
        wanted = {tp for tp in self._ownership.changelogs(self._ownership.owned()) if self._expires(tp)}
        for tp in self._known - wanted:
            _forget(self._ownership.table(tp), tp.partition)
        fresh, self._known = wanted - self._known, wanted
        for tp in sorted(fresh):
            table = self._ownership.table(tp)
            loop = asyncio.get_running_loop()
            found = await loop.run_in_executor(None, _stored, table, tp.partition)
            if tp in self._known and tp in self._app.assignor._active_tps:
                _remember(table, tp.partition, found)

    def _expires(self, tp: TP) -> bool:
        return bool(self._ownership.table(tp)._should_expire_keys())


def _stored(table: Any, partition: int) -> list[Windowed]:
    """The windows in the local table that may still have to be closed.

    Stock Faust deletes closed windows locally and not in the changelog, so a table restored from it has them all.  A
    window that was stale for two cleanings has been closed by its owner of that time.
    """
    store = table.data
    database = store._dbs.get(partition)
    if database is None:
        return []
    closed_before = time.time() - 2 * table.app.conf.table_cleanup_interval
    keys: Iterable[Windowed] = (table._to_key(store._decode_key(raw)) for raw in store._visible_keys(database))
    return [key for key in keys if not table.window.stale(key[1][1], closed_before)]


def _remember(table: Any, partition: int, found: Iterable[Windowed]) -> None:
    """Add windows to Faust's books; those it has noted meanwhile stay."""
    timestamps = table._partition_timestamps[partition]
    for key in found:
        end = key[1][1]
        table._partition_timestamp_keys[(partition, end)].add(key)
        table._partition_latest_timestamp[partition] = max(table._partition_latest_timestamp[partition], end)
    ends = {end for p, end in table._partition_timestamp_keys if p == partition}
    timestamps[:] = [*timestamps, *(ends - set(timestamps))]
    heapify(timestamps)


def _forget(table: Any, partition: int) -> None:
    """Drop the windows of a partition; its list is emptied, not removed: the cleaning may be iterating over them."""
    if partition in table._partition_timestamps:
        table._partition_timestamps[partition].clear()
    for known in [k for k in table._partition_timestamp_keys if k[0] == partition]:
        del table._partition_timestamp_keys[known]
    table._partition_latest_timestamp.pop(partition, None)
