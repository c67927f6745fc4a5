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


def mark_of(path: Path) -> tuple[int, int, int, int] | None:
    """A value that changes when the file changes; None if there is no file."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino, found.st_mode


def replace_file(path: Path, content: bytes, mode: int, *, before: bytes | None = None) -> None:
    """Write the file atomically; its mode is never wider than wanted.  Raises OSError.

    A file that is there keeps its owner and group, its links, and a narrower mode: who runs this, maybe root, need not
    be who reads the file.  `before` = what the file must still hold, so that no change by others is lost.
    """
    path = Path(os.path.realpath(path))
    fresh = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
        with os.fdopen(descriptor, "wb") as file:
            if path.exists():
                found = path.stat()
                os.fchown(descriptor, found.st_uid, found.st_gid)
                mode &= stat.S_IMODE(found.st_mode)
            os.fchmod(descriptor, mode)
            file.write(content)
            file.flush()
            os.fsync(descriptor)
        if before is not None and path.read_bytes() != before:
            raise OSError(errno.EAGAIN, "somebody else has changed it meanwhile: try again")
        fresh.replace(path)
    except OSError:
        fresh.unlink(missing_ok=True)
        raise
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
