"""Lets one worker of an app use a data folder, and no other.

Two workers with one folder have the same databases.  RocksDB keeps the second from opening one that the first has open,
so no hand-over between them succeeds; and a worker deletes a database that it must restore, also under another one.
"""

import fcntl
import logging
import os
import time
from pathlib import Path

from trimtab_agent.engines.faust.waiting import until

log = logging.getLogger(__name__)

LOCK = "one-worker.lock"
WAIT_S = 30.0
"""How long the worker before may take to end.  Faust waits as long for its databases."""
POLL_S = 0.5

_held: list[int] = []
"""File descriptors whose locks this process keeps until it ends."""


async def hold(folder: Path) -> bool:
    """Keep this folder until the process ends; False if another process keeps it for longer than `WAIT_S`."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        file = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT, 0o644)
    except OSError as fault:  # no database can be opened there either
        log.warning("cannot tell whether another worker uses %s: %s", folder, fault)
        return True

    def locked() -> bool:
        try:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except (BlockingIOError, PermissionError):
            return False
        return True

    try:
        if not locked():
            log.warning("another worker uses %s; waiting %g s for its end", folder, WAIT_S)
            if not await until(locked, time.monotonic() + WAIT_S, poll_s=POLL_S):
                os.close(file)
                return False
    except OSError as fault:  # a file system without locks
        log.info("cannot tell whether another worker uses %s: %s", folder, fault)
        return True
    _held.append(file)
    return True
