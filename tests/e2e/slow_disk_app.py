"""The job of `test_guard`: that of `paced_app`, on a slow disk that each worker's writes and restores share.

A restore keeps the disk busy for STALL_S seconds per CHUNK records, as a store whose writes stall, and a write of the
job for WRITE_S.  What the job writes waits for both, with its whole event loop.
"""

import os
import threading
import time
from collections.abc import Collection
from typing import Any

from tests.e2e import paced_app
from tests.e2e.paced_app import app
from trimtab_agent.engines.faust.tables.changelog_reader import ChangelogReader

__all__ = ["app"]

STALL_S, WRITE_S = float(os.environ["STALL_S"]), float(os.environ["WRITE_S"])
CHUNK = 50
BALLAST = b'"ballast'
"""How the keys of records begin that are there to be restored."""
DISK = threading.Lock()
APPLY = ChangelogReader._apply


def apply_slowly(reader: ChangelogReader, tp: Any, records: Collection[Any]) -> None:
    """Write what a restore has read."""
    restored = sum(record.key.startswith(BALLAST) for record in records)
    for _ in range(-(-restored // CHUNK)):
        with DISK:
            time.sleep(STALL_S)
    APPLY(reader, tp, records)


class Writing:
    """A write of the job: it has the disk for itself."""

    def __enter__(self) -> None:
        DISK.acquire()
        time.sleep(WRITE_S)

    def __exit__(self, *exception: object) -> None:
        DISK.release()


ChangelogReader._apply = apply_slowly  # type: ignore[assignment,method-assign]
paced_app.disk = Writing()
