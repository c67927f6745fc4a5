"""Files that hold a secret: a password, a private key."""

import errno
import stat

PRIVATE_MODE = 0o600


def check_private(mode: int) -> None:
    """Raises PermissionError when a file of this mode can be used by others than its owner; its `strerror` says so."""
    found = stat.S_IMODE(mode)
    if found & 0o077:
        raise PermissionError(errno.EPERM, f"found mode {found:04o}, expected {PRIVATE_MODE:04o}: others can use it")
