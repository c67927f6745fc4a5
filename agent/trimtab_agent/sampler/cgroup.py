"""cgroups: the quota that applies to this process, and its usage.

The quota of every ancestor applies, so the tightest one up to the mount point counts.  Its usage is that of its whole
group, workers included.  On a host with both versions (hybrid) each controller belongs to one of them: what version 2
does not limit is looked up in version 1.  Sources: Linux Documentation/admin-guide/cgroup-v2.rst and cgroup-v1/.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

MAX_DIGITS = 20
"""Largest number of digits in a cgroup file: 64-bit numbers have no more."""

UNLIMITED_1 = 2.0**60
"""No machine has so many bytes: version 1 states the largest number of pages where there is no limit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Quota:
    """The tightest limit, the folder of the group that sets it, and the version of cgroups it belongs to."""

    folder: Path
    limit: float
    version: int = 2

    def cpu_used_s(self) -> float | None:
        """CPU seconds that the group has used; None = not stated."""
        if self.version == 2:
            return parse_cpu_usage(read_text(self.folder / "cpu.stat") or "")
        used_ns = parse_bytes(read_text(self.folder / "cpuacct.usage") or "")
        return None if used_ns is None else used_ns / 1e9

    def memory_used(self) -> float | None:
        """Bytes that the group uses without files in memory; None = not stated.

        The page cache grows up to the limit wherever files are written, such as databases.  The kernel takes it back
        when memory is needed, so it counts as free, as on a machine without a quota (MemAvailable).
        """
        name = "memory.current" if self.version == 2 else "memory.usage_in_bytes"
        used = parse_bytes(read_text(self.folder / name) or "")
        cached = parse_page_cache(read_text(self.folder / "memory.stat") or "")
        return None if used is None else max(0.0, used - cached)


def find_group(
    cgroup_text: str, mountinfo_text: str, root: Path = Path("/"), controller: str | None = None
) -> tuple[Path, Path] | None:
    """(mount point, folder of this process's group), from /proc/self/cgroup and /proc/self/mountinfo.

    `controller` = one of version 1, such as `memory`; None: version 2.  Returns None where it is not mounted.  The
    mount point is taken relative to `root`.
    """
    group = next(filter(None, (_group(line, controller) for line in cgroup_text.splitlines())), None)
    mount = next(filter(None, (_mount(line, controller) for line in mountinfo_text.splitlines())), None)
    if group is None or mount is None:
        return None
    mount_root, mount_point = mount
    relative = PurePosixPath(group)
    if relative.is_relative_to(mount_root):  # a container sees only its own group, mounted from the host's tree
        relative = PurePosixPath("/") / relative.relative_to(mount_root)
    point = root / mount_point.lstrip("/")
    parts = [part for part in relative.parts[1:] if part != ".."]  # ".." = outside the visible tree
    return point, point.joinpath(*parts)


def _group(line: str, controller: str | None) -> str | None:
    number, _, rest = line.partition(":")
    controllers, _, group = rest.partition(":")
    if not group.startswith("/"):
        return None
    fits = (number, controllers) == ("0", "") if controller is None else controller in controllers.split(",")
    return group if fits else None


def _mount(line: str, controller: str | None) -> tuple[str, str] | None:
    left, _, right = line.partition(" - ")
    words, of_kind = left.split(), right.split() or [""]
    if controller is None:
        fits = of_kind[0] == "cgroup2"
    else:
        fits = of_kind[0] == "cgroup" and controller in of_kind[-1].split(",")
    return (words[3], words[4]) if fits and len(words) >= 5 else None


def tightest(
    mount_point: Path, folder: Path, limit_of: Callable[[Path], float | None], *, version: int = 2
) -> Quota | None:
    """The smallest limit that `limit_of` a group finds for `folder` or an ancestor up to the mount point.

    None = no limit.
    """
    found = []
    for group in (folder, *folder.parents):
        if (limit := limit_of(group)) is not None:
            found.append(Quota(folder=group, limit=limit, version=version))
        if group == mount_point:
            break
    return min(found, key=lambda quota: quota.limit, default=None)


def cpu_limit(group: Path) -> float | None:
    """Cores that a group of version 2 may use; None = no limit."""
    return parse_cpu_max(read_text(group / "cpu.max") or "")


def cpu_limit_1(group: Path) -> float | None:
    """Cores that a group of version 1 may use; None = no limit (-1)."""
    quota, period = (read_text(group / f"cpu.cfs_{name}_us") or "" for name in ("quota", "period"))
    return parse_cpu_max(f"{quota} {period}")


def memory_limit(group: Path) -> float | None:
    """Bytes that a group of version 2 may use; None = no limit."""
    return parse_bytes(read_text(group / "memory.max") or "")


def memory_limit_1(group: Path) -> float | None:
    """Bytes that a group of version 1 may use; None = no limit, which is a number near 2^63."""
    found = parse_bytes(read_text(group / "memory.limit_in_bytes") or "")
    return None if found is None or found >= UNLIMITED_1 else found


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
    """Bytes of files in memory according to a `memory.stat`, in version 1 with those of all groups below; 0 = not
    stated.

    Shared memory and tmpfs are not among them: the kernel cannot take these back.
    """
    fields = _fields(text)
    return sum(fields.get(f"total_{name}", fields.get(name, 0)) for name in ("active_file", "inactive_file"))


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
