"""Expiry of windowed tables: the owner of a key group closes its windows.

Faust learns the windows of a partition only from its own writes.  Windows that it restores or takes over would never
expire, and windows that it has given away would be closed by the old owner as well.  So this module forgets the windows
of a key group when it leaves, and reads them from the local table when it arrives.  The reading is not part of the
pause.  Until it is done (milliseconds), only `table[key].now()` may see an older window.
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
        """Track the windows of exactly the key groups that are owned now."""
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

    Stock Faust deletes closed windows locally but not in the changelog, so a restored table contains all of them.  A
    window that has been stale for two cleanup intervals was closed by its owner at that time.
    """
    store = table.data
    database = store._dbs.get(partition)
    if database is None:
        return []
    closed_before = time.time() - 2 * table.app.conf.table_cleanup_interval
    keys: Iterable[Windowed] = (table._to_key(store._decode_key(raw)) for raw in store._visible_keys(database))
    return [key for key in keys if not table.window.stale(key[1][1], closed_before)]


def _remember(table: Any, partition: int, found: Iterable[Windowed]) -> None:
    """Add windows to Faust's bookkeeping; windows that it has noted meanwhile stay."""
    timestamps = table._partition_timestamps[partition]
    for key in found:
        end = key[1][1]
        table._partition_timestamp_keys[(partition, end)].add(key)
        table._partition_latest_timestamp[partition] = max(table._partition_latest_timestamp[partition], end)
    ends = {end for p, end in table._partition_timestamp_keys if p == partition}
    timestamps[:] = [*timestamps, *(ends - set(timestamps))]
    heapify(timestamps)


def _forget(table: Any, partition: int) -> None:
    """Drop the windows of a partition.

    Its list is emptied, not removed, because Faust's cleanup may be iterating over it.
    """
    if partition in table._partition_timestamps:
        table._partition_timestamps[partition].clear()
    for known in [k for k in table._partition_timestamp_keys if k[0] == partition]:
        del table._partition_timestamp_keys[known]
    table._partition_latest_timestamp.pop(partition, None)
