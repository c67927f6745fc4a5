"""cgroup v2: the quota that applies to this process, and its usage.

The quota of every ancestor applies, so the tightest one up to the mount point counts.  Its usage is that of its whole
group, workers included.  Source: Linux Documentation/admin-guide/cgroup-v2.rst.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

MAX_DIGITS = 20
"""Largest number of digits in a cgroup file: 64-bit numbers have no more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Quota:
    """The tightest limit, and the folder of the group that sets it."""

    folder: Path
    limit: float


def find_group(cgroup_text: str, mountinfo_text: str, root: Path = Path("/")) -> tuple[Path, Path] | None:
    """(mount point, folder of this process's group), from /proc/self/cgroup and /proc/self/mountinfo.

    Returns None without cgroup v2.  The mount point is taken relative to `root`.
    """
    group = next((line[3:] for line in cgroup_text.splitlines() if line.startswith("0::/")), None)
    mount = next(filter(None, map(_cgroup2_mount, mountinfo_text.splitlines())), None)
    if group is None or mount is None:
        return None
    mount_root, mount_point = mount
    relative = PurePosixPath(group)
    if relative.is_relative_to(mount_root):  # a container sees only its own group, mounted from the host's tree
        relative = PurePosixPath("/") / relative.relative_to(mount_root)
    point = root / mount_point.lstrip("/")
    parts = [part for part in relative.parts[1:] if part != ".."]  # ".." = outside the visible tree
    return point, point.joinpath(*parts)


def _cgroup2_mount(line: str) -> tuple[str, str] | None:
    left, _, right = line.partition(" - ")
    words = left.split()
    return (words[3], words[4]) if right.startswith("cgroup2 ") and len(words) >= 5 else None


def tightest(mount_point: Path, folder: Path, file: str, parse: Callable[[str], float | None]) -> Quota | None:
    """The smallest limit that `file` gives in `folder` or an ancestor up to the mount point; None = no limit."""
    found = []
    for group in (folder, *folder.parents):
        text = read_text(group / file)
        limit = parse(text) if text is not None else None
        if limit is not None:
            found.append(Quota(folder=group, limit=limit))
        if group == mount_point:
            break
    return min(found, key=lambda quota: quota.limit, default=None)


def parse_cpu_max(text: str) -> float | None:
    """Cores allowed by a `cpu.max` ("quota period" in microseconds, or "max period"); None = no limit or unreadable."""
    words = text.split()
    if len(words) != 2 or not all(map(_is_number, words)) or int(words[1]) == 0:
        return None
    return int(words[0]) / int(words[1])


def parse_bytes(text: str) -> float | None:
    """Bytes of a `memory.max` or `memory.current`; None = "max" or unreadable."""
    word = text.strip()
    return float(word) if _is_number(word) else None


def parse_cpu_usage(text: str) -> float | None:
    """CPU seconds used according to a `cpu.stat`; None = not stated."""
    used = _fields(text).get("usage_usec")
    return None if used is None else used / 1e6


def parse_page_cache(text: str) -> int:
    """Bytes of files in memory according to a `memory.stat`; 0 = not stated.

    Shared memory and tmpfs are not among them: the kernel cannot take these back.
    """
    fields = _fields(text)
    return fields.get("active_file", 0) + fields.get("inactive_file", 0)


def _fields(text: str) -> dict[str, int]:
    """The whole numbers of a file with a name and a value in each line."""
    pairs = (line.partition(" ") for line in text.splitlines())
    return {name: int(value) for name, _, value in pairs if _is_number(value)}


def _is_number(word: str) -> bool:
    """Whether a word is a whole number with at most MAX_DIGITS digits."""
    return word.isdecimal() and len(word) <= MAX_DIGITS


def read_text(path: Path) -> str | None:
    """The content of a kernel file; None if it is missing, unreadable, or its name is impossible."""
    try:
        return path.read_text(encoding="ascii")
    except (OSError, ValueError):
        return None
