"""Lets a table answer from the partitions that this worker owns (patch own-partitions-answer).

Several databases of a table are open in one worker: those of its own partitions, of standbys, and of partitions that it
has just given away.  One key may be in several.  Faust takes the first that has the key, or the one that it used last
for it, in two cases: reads outside of an event (a page, a timer), and the deletion of a key, also in an event.

Here an event deletes in its own partition, and whoever reads outside of an event is answered by partitions that are
active here.  Of several that have the key, the one answers that an event used last.

Whoever goes through a whole table may wait in between, and key groups come and go meanwhile.  Faust fails when a
database is opened or closed then.  Pages may ask in threads of their own (`web_in_thread`).
"""

import contextlib
import threading
from collections.abc import Iterable, Iterator
from typing import Any

from faust.stores.rocksdb import Store, _DBValueTuple
from faust.streams import current_event
from faust.types import TP


def answer_from_own_partitions(app: Any) -> dict[str, "OwnPartitions"]:
    """Restrict every table of the app, by changelog.  Call it once, when all tables are known."""
    tables = {t.changelog_topic_name: t.data for t in app.tables.values() if isinstance(t.data, Store)}
    return {changelog: OwnPartitions(app, changelog, store) for changelog, store in tables.items()}


class OwnPartitions:
    """The databases of one table that may answer."""

    def __init__(self, app: Any, changelog: str, store: Any) -> None:
        self._app = app
        self._changelog = changelog
        self._store = store
        self._only = threading.local()
        """The `partition` that alone may answer, in the thread that has asked for it."""
        store._dbs_for_key, store._get_bucket_for_key = self.databases, self.find
        store._dbs_for_actives = self.active

    @contextlib.contextmanager
    def only(self, partition: int) -> Iterator[None]:
        """Let one partition answer outside of an event, whoever asks; nothing may be awaited meanwhile."""
        self._only.partition = partition
        try:
            yield
        finally:
            del self._only.partition

    def databases(self, key: bytes) -> Iterable[Any]:
        """Where a raw key is deleted, or looked up to see whether it exists."""
        if (event := current_event()) is not None:
            return [self._store._db_for_partition(event.message.partition)]
        return [database for _, database in self._own(key)]

    def active(self) -> Iterator[Any]:
        """The databases of own partitions, for whoever goes through a whole table: what has left is left out."""
        for partition, database in list(self._store._dbs.items()):
            if TP(self._changelog, partition) in self._app.assignor._active_tps:
                yield database

    def find(self, key: bytes) -> _DBValueTuple | None:
        """Database and raw value of a raw key, outside of an event."""
        for partition, database in self._own(key):
            if (value := database.get(key)) is not None:
                self._store._key_index[key] = partition
                return _DBValueTuple(database, value)
        return None

    def _own(self, key: bytes) -> Iterator[tuple[int, Any]]:
        """Own partitions with their databases, the one first that was used last for this key."""
        active = self._app.assignor._active_tps
        databases = dict(self._store._dbs)  # a page may ask in another thread, while some are opened or closed
        if (only := getattr(self._only, "partition", None)) is not None:
            if only in databases:
                yield only, databases[only]
            return
        own = {partition for partition in databases if TP(self._changelog, partition) in active}
        last = self._store._key_index.get(key)
        for partition in sorted(own, key=lambda partition: (partition != last, partition)):
            yield partition, databases[partition]
