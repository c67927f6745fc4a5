"""Copies of state on this worker's disk: the databases of key groups that it neither owns nor follows now.

Faust keeps the database of a partition that it gives away.  Whoever opens it later, Faust's recovery or a standby, goes
on at the changelog offset stored in it, and reads only what the copy lacks.  A database is read without its lock, so
nothing waits for this.

An old copy is none: Kafka's log cleaner removes the tombstones of deleted keys after `delete.retention.ms` (a day,
unless it is set), and a copy that has not seen them would keep those keys.
"""

import asyncio
import logging
import shutil
import time
from collections.abc import Callable, Coroutine, Iterable
from pathlib import Path
from typing import Any, NamedTuple

from aiokafka.errors import KafkaError
from faust.types import TP
from rocksdict import AccessType, Options, Rdict

from trimtab_agent.engines.faust.group.operators import AppOperator
from trimtab_agent.engines.faust.group.ownership import Ownership
from trimtab_agent.engines.faust.group.shared_state import PluginState
from trimtab_agent.engines.faust.waiting import in_own_thread
from trimtab_protocol.messages.copies import Copy, largest

log = logging.getLogger(__name__)

LOOK_AFTER_S = 3.0
"""How long after a change of ownership or standbys the disk is looked at; more changes in that time wait for it too."""
LOOK_AGAIN_S = 600.0
"""How often it is looked at without a change: copies become too old."""
READ_AT_ONCE = 50
"""Databases read per look, each in 20 to 100 ms of another thread; more of them wait for the next look."""
ENDS_LIMIT_S = 10.0
"""How long the broker may take to say where changelogs end."""
MAX_AGE_S = 12 * 3600.0
"""A database older than this counts as none; one that lacks records is deleted before it becomes a standby."""
OF_ANOTHER_LOG = "%s is of an older changelog with the same name: it is deleted and restored from the one there is now"
BEHIND = (
    "%s lacks records that its changelog has no more, which may have closed windows that it has: it is deleted and "
    "restored from the changelog"
)
REWRITTEN = "rocksdict-config.json"
"""rocksdict writes this file also when it only reads."""


class DiskCopies:
    """Finds the copies and keeps them in the shared state.  `start` runs work beside the app, on its event loop."""

    def __init__(
        self,
        app: Any,
        shared: PluginState,
        ownership: Ownership,
        start: Callable[[Coroutine[Any, Any, None]], None],
    ) -> None:
        self._app = app
        self._shared = shared
        self._ownership = ownership
        self._start = start
        self._offsets: dict[TP, int] = {}
        """The stored offset of each closed database."""
        self._read_at: dict[TP, float] = {}
        """When each of them had been written last at that time."""
        self._due: asyncio.TimerHandle | None = None
        self._looking = False

    def changed(self) -> None:
        """Look at the disk soon: databases may have been opened or closed."""
        self._look_within(LOOK_AFTER_S)

    def _look_within(self, seconds: float) -> None:
        loop = asyncio.get_running_loop()
        if self._due is not None:
            if self._due.when() <= loop.time() + seconds:
                return
            self._due.cancel()
        self._due = loop.call_later(seconds, self._look_now)

    def close(self) -> None:
        """Look no more."""
        if self._due is not None:
            self._due.cancel()

    def _look_now(self) -> None:
        self._due = None
        if self._looking:
            self.changed()
        else:
            self._start(self.look())

    async def look(self) -> None:
        """Find the copies that are there now."""
        self._looking = True
        try:
            unread = await self._read()
        except (KafkaError, TimeoutError) as fault:  # the broker is away, or the group rebalances
            log.debug("cannot look for copies: %r", fault)
            unread = True
        except RuntimeError:
            if not self._app.should_stop:  # the consumer's thread has ended before this look
                raise
            return
        finally:
            self._looking = False
        self._look_within(LOOK_AFTER_S if unread else LOOK_AGAIN_S)

    async def _read(self) -> bool:
        """Read databases, and keep what is found; whether some are still unread."""
        operators = list(self._ownership.operators().values())
        found: dict[TP, Database] = {}
        for topic in {topic for each in operators for topic in each.changelogs}:
            store = self._ownership.table(TP(topic, 0)).data
            present = await in_own_thread(databases, store.partition_path(0), time.time() - MAX_AGE_S)
            found |= {TP(topic, partition): database for partition, database in present.items()}
        closed = {tp: database for tp, database in found.items() if not self._is_open(tp)}
        same = {tp for tp, database in closed.items() if self._read_at.get(tp) == database.written_at}
        self._offsets = {tp: offset for tp, offset in self._offsets.items() if tp in same}
        unread = sorted(closed.keys() - self._offsets.keys())
        for tp in unread[:READ_AT_ONCE]:
            key = self._ownership.table(tp).data.offset_key
            offset = await in_own_thread(stored_offset, closed[tp].path, key)
            if not self._is_open(tp):
                self._offsets[tp], self._read_at[tp] = offset, closed[tp].written_at
        self._read_at = {tp: self._read_at[tp] for tp in self._offsets}
        if self._offsets:
            await self._drop_impossible()
        self._shared.copies = largest(self._copies(operators))
        return len(unread) > READ_AT_ONCE

    def _is_open(self, tp: TP) -> bool:
        return tp.partition in self._ownership.table(tp).data._dbs

    async def _drop_impossible(self) -> None:
        """Count a database as empty if it is beyond its changelog's end: the topic is not the one that it was."""
        async with asyncio.timeout(ENDS_LIMIT_S):
            ends = await self._app.consumer.highwaters(*self._offsets)
        self._offsets.update({tp: -1 for tp, offset in self._offsets.items() if offset > (ends.get(tp) or 0) - 1})

    def _copies(self, operators: Iterable[AppOperator]) -> Iterable[Copy]:
        """The copies of whole key groups; a table without a database has nothing."""
        for operator in operators:
            for partition in {tp.partition for tp in self._offsets if tp.topic in operator.changelogs}:
                tps = [TP(topic, partition) for topic in operator.changelogs]
                records = sum(self._offsets.get(tp, -1) + 1 for tp in tps)
                if records and partition < operator.partitions and not any(map(self._is_open, tps)):
                    yield Copy(operator.id, partition, records)


class Database(NamedTuple):
    """A database on the disk; `written_at` in epoch seconds."""

    path: Path
    written_at: float


def databases(first: Path, oldest_s: float) -> dict[int, Database]:
    """Per partition, the database of a table that has been written since (epoch seconds); `first` is partition 0's."""
    before, after = first.name.rsplit("0", 1)
    try:
        names = [each.name for each in first.parent.iterdir()]
    except OSError:  # nothing is there yet
        return {}
    numbers = [name.removeprefix(before).removesuffix(after) for name in names if name.startswith(before)]
    paths = {int(each): first.with_name(before + each + after) for each in numbers if each.isdecimal()}
    found = {partition: Database(path, written_at(path)) for partition, path in paths.items()}
    return {partition: database for partition, database in found.items() if database.written_at >= oldest_s}


def written_at(path: Path) -> float:
    """When a database was written last (epoch seconds); 0 if there is none."""
    try:
        if not (path / "CURRENT").exists():
            return 0.0
        return max(each.stat().st_mtime for each in path.iterdir() if each.name != REWRITTEN)
    except OSError:  # somebody cleans up
        return 0.0


def open_database(
    store: Any, partition: int, *, end: int, since: int | None, oldest_s: float, begins: int | None = None
) -> Any:
    """Open a partition's database, in a thread.

    It is deleted first if it is of another changelog than the one that is there, which has `since` as its first record
    since the database was written (None: none, or unknown); see `other_logs`.  So is one that was written last before
    `oldest_s` (epoch seconds) and lacks records of its changelog, which has `end` of them: it may have keys whose
    tombstones the changelog has no more.  So is one that ends before the changelog of a windowed table `begins` (None:
    it is not windowed), unless that has expired as a whole: then it may be the only one that has the last windows.
    """
    path: Path = store.partition_path(partition)
    written = written_at(path)
    if since is not None and since <= stored_offset(path, store.offset_key):
        log.warning(OF_ANOTHER_LOG, path.name)
        shutil.rmtree(path)
    elif begins and written and begins < end and stored_offset(path, store.offset_key) < begins - 1:
        log.warning(BEHIND, path.name)
        shutil.rmtree(path)
    elif 0.0 < written < oldest_s and stored_offset(path, store.offset_key) < end - 1:
        log.warning(
            "%s was written last %.0f h ago: it is deleted and restored from the whole changelog, which may have no "
            "tombstones any more of keys deleted since",
            path.name,
            (time.time() - written) / 3600.0,
        )
        shutil.rmtree(path)
    return store._open_for_partition(partition)


def stored_offset(path: Path, key: bytes) -> int:
    """The changelog offset that is stored in a database; -1 if there is none, or it cannot be read."""
    try:
        database = Rdict(str(path), options=Options(raw_mode=True), access_type=AccessType.read_only())
        try:
            offset: Any = database.get(key)
            return -1 if offset is None else int(offset)
        finally:
            database.close()
    except Exception as fault:  # rocksdict raises Exception itself; whoever opens it next says what is wrong with it
        log.debug("cannot read %s: %r", path, fault)
        return -1
