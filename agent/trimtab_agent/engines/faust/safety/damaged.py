"""Replaces databases that are broken, or are not what their changelog says, by empty ones.

RocksDB cannot open some of them, because files are missing or broken; Faust would end the worker, and again at each
start.  Others open, and fail at a read; or they hold a value that their changelog will never have.  Those have a mark,
a file in their folder, that counts when they are opened next.  The table is restored from its changelog, as after the
loss of the disk.
"""

import logging
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

log = logging.getLogger(__name__)

DAMAGED = "Corruption: "
"""How RocksDB begins what it says of a database with missing or broken files.  One that is in use is none of them."""
MISSING = "IO error: No such file or directory"
"""How it begins where the list of its files is gone: somebody tidies up old files, or was killed while deleting."""
UNREADABLE = "IO error: "
"""How RocksDB begins what it says of a disk that does not give back what was written."""
MARK = "restore-me"


def mark(database: Path) -> None:
    """Let this database be replaced when it is opened next."""
    try:
        (database / MARK).touch()
    except OSError as fault:
        log.warning("%s cannot be marked as damaged: %s", database.name, fault)


def unmark(database: Path) -> None:
    """The database is what its changelog says after all."""
    (database / MARK).unlink(missing_ok=True)


def replace_damaged(store: Any) -> None:
    """Look after every database of a table that is opened from now on."""
    open_for_partition: Callable[[int], Any] = store._open_for_partition

    def open_or_replace(partition: int) -> Any:
        path: Path = store.partition_path(partition)
        if (path / MARK).exists():
            log.warning("%s had failed, or lacked its changelog: it is deleted and restored from it", path.name)
            shutil.rmtree(path)
        try:
            return open_for_partition(partition)
        except Exception as fault:  # rocksdict raises Exception itself
            incomplete = str(fault).startswith(MISSING) and (path / "CURRENT").exists()
            if not (incomplete or str(fault).startswith(DAMAGED)):
                raise
            log.warning("%s is damaged: it is deleted and restored from its changelog (%s)", path.name, fault)
            shutil.rmtree(path)
            return open_for_partition(partition)

    store._open_for_partition = open_or_replace


def found_by(fault: Exception, store: Any) -> list[Path]:
    """The open databases that a fault of RocksDB is about; all, if it names none."""
    paths: list[Path] = [store.partition_path(partition) for partition in list(store._dbs)]
    return [path for path in paths if f"{path}/" in str(fault)] or paths
