"""Small disks of their own for the files of a host, so that they can be full.  Needs the right to mount (root)."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

STORE_MB = 256
JOURNAL_MB = 16


class Disk:
    """A file system in memory, mounted on a folder."""

    def __init__(self, folder: Path, size_mb: int) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size_mb}m", "tmpfs", folder], check=True)
        self._folder = folder
        self._ballast = folder / "ballast"

    @contextmanager
    def full(self) -> Iterator[None]:
        """Not one byte is left; at the end there is room again."""
        with self._ballast.open("ab", buffering=0) as file, suppress(OSError):
            while True:
                file.write(os.urandom(1 << 16))
        try:
            yield
        finally:
            self._ballast.unlink()

    def unmount(self) -> None:
        """Also while somebody still has a file open there."""
        subprocess.run(["umount", "-l", self._folder], check=True)


def mounted(folder: Path, size_mb: int, opening: ExitStack) -> Disk:
    """A disk that goes away with the stack."""
    disk = Disk(folder, size_mb)
    opening.callback(disk.unmount)
    return disk


def obstacle() -> str | None:
    """Why there can be no such disk here."""
    return None if os.geteuid() == 0 else "a disk of its own can only be mounted by root"
