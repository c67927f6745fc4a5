"""Replaces databases that RocksDB cannot open, because files are missing or broken, by empty ones.

Faust would end the worker, and again at each start.  The table is restored from its changelog, as after the loss of the
disk.
"""

import logging
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from faust.stores.rocksdb import Store

log = logging.getLogger(__name__)

DAMAGED = "Corruption: "
"""How RocksDB begins what it says of a database with missing or broken files.  One that is in use is none of them."""


def replace_damaged(app: Any) -> None:
    """Look after every database that is opened from now on.  Call it once, when all tables are known."""
    for table in app.tables.values():
        if isinstance(table.data, Store):
            table.data._open_for_partition = _open_or_replace(table.data, table.data._open_for_partition)


def _open_or_replace(store: Any, open_for_partition: Callable[[int], Any]) -> Callable[[int], Any]:
    def open_or_replace(partition: int) -> Any:
        try:
            return open_for_partition(partition)
        except Exception as fault:  # rocksdict raises Exception itself
            if not str(fault).startswith(DAMAGED):
                raise
            path: Path = store.partition_path(partition)
            log.warning("%s is damaged: it is deleted and restored from its changelog (%s)", path.name, fault)
            shutil.rmtree(path)
            return open_for_partition(partition)

    return open_or_replace
