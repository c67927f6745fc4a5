"""Reads and writes files of passwords, tokens and private keys, which only their owner may use.

Needs the standard library alone.
"""

import errno
import os
import stat
from pathlib import Path

PRIVATE_MODE = 0o600


def read_private(path: Path) -> str:
    """The text of the file.  Raises UnicodeDecodeError, and OSError, also if others than its owner can use it."""
    with path.open(encoding="utf-8") as file:
        found = stat.S_IMODE(os.fstat(file.fileno()).st_mode)
        if found & 0o077:
            fault = f"found mode {found:04o}, expected {PRIVATE_MODE:04o}: others can use it"
            raise PermissionError(errno.EPERM, fault)
        return file.read()


def replace_file(path: Path, content: bytes, mode: int) -> None:
    """Write the file atomically; its mode is never wider than wanted.  Raises OSError."""
    fresh = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
        with os.fdopen(descriptor, "wb") as file:
            os.fchmod(descriptor, mode)
            file.write(content)
            file.flush()
            os.fsync(descriptor)
        fresh.replace(path)
    except OSError:
        fresh.unlink(missing_ok=True)
        raise
