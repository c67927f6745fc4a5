"""The disk that holds the state of this host's workers.

A disk that several workers use counts once.  Where they use several disks, the one with the least free space stands
for the host: then whatever a plan brings to any of its workers fits.  What is free on the others besides is not used.
"""

import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class DiskSpace:
    """A file system: what this user may still write, and that with all that is used, without what is reserved."""

    total_bytes: int
    free_bytes: int


def disk_of(folder: Path) -> DiskSpace | None:
    """The disk of a folder, which need not exist yet; None = unknown."""
    for existing in (folder, *folder.absolute().parents):
        try:
            found = shutil.disk_usage(existing)
        except FileNotFoundError:
            continue
        except OSError:
            return None
        return DiskSpace(total_bytes=found.used + found.free, free_bytes=found.free)
    return None


def fullest_disk(folders: Iterable[Path]) -> DiskSpace | None:
    """Of the disks of these folders, the one with the least free space; None if there is none, or one is unknown."""
    found = [disk_of(folder) for folder in folders]
    known = [disk for disk in found if disk is not None]
    if len(known) < len(found):
        return None
    return min(known, key=lambda disk: disk.free_bytes, default=None)
