"""Lets one worker of an app use a data folder, and no other.

Two workers with one folder have the same databases.  RocksDB keeps the second from opening one that the first has open,
so no hand-over between them succeeds; and a worker deletes a database that it must restore, also under another one.
"""

import asyncio
import fcntl
import logging
import os
from pathlib import Path

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
        log.warning("it is not known whether another worker uses %s: %s", folder, fault)
        return True
    loop = asyncio.get_running_loop()
    deadline = None
    while True:
        try:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except (BlockingIOError, PermissionError):
            if deadline is None:
                deadline = loop.time() + WAIT_S
                log.warning("another worker uses %s; waiting %g s for its end", folder, WAIT_S)
            elif loop.time() > deadline:
                os.close(file)
                return False
            await asyncio.sleep(POLL_S)
        except OSError as fault:  # a file system without locks
            log.info("it is not known whether another worker uses %s: %s", folder, fault)
            return True
        else:
            _held.append(file)
            return True
