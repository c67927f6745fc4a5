"""cgroup files: the tightest quota of the hierarchy, and what has been used of it."""

from dataclasses import replace
from pathlib import Path

import pytest

from trimtab_agent.sampler.cgroup import find_group, parse_bytes, parse_cpu_max, parse_cpu_usage
from trimtab_agent.sampler.readings import CounterReader, Quotas, find_limits, find_quotas
from trimtab_protocol.messages.report import Basis

MOUNT = "29 22 0:26 {root} /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw\n"
GIB = 2**30


def machine(root: Path, group: str, files: dict[str, str], mount_root: str = "/") -> Path:
    """A machine's files below `root`."""
    (root / "proc/self").mkdir(parents=True)
    (root / "proc/self/cgroup").write_text(f"0::{group}\n")
    (root / "proc/self/mountinfo").write_text("21 1 8:1 / / rw - ext4 /dev/sda rw\n" + MOUNT.format(root=mount_root))
    (root / "sys/fs/cgroup").joinpath(group.strip("/")).mkdir(parents=True)
    for name, text in files.items():
        path = root / "sys/fs/cgroup" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def test_the_tightest_quota_of_any_ancestor_holds(tmp_path: Path) -> None:
    files = {
        "../cpu.max": "1000 100000\n",  # above the mount point: of no group
        "pods/cpu.max": "150000 100000\n",
        "pods/pod1/cpu.max": "400000 100000\n",
        "pods/pod1/agent/cpu.max": "max 100000\n",
        "pods/memory.max": "max\n",
        "pods/pod1/memory.max": f"{2 * GIB}\n",
    }

    quotas = find_quotas(machine(tmp_path, "/pods/pod1/agent", files))

    assert quotas.cpu is not None
    assert quotas.memory is not None
    assert (quotas.cpu.limit, quotas.cpu.folder) == (1.5, tmp_path / "sys/fs/cgroup/pods")
    assert (quotas.memory.limit, quotas.memory.folder.name) == (2.0 * GIB, "pod1")


def test_without_cgroup_v2_there_is_no_quota(tmp_path: Path) -> None:
    assert find_group("4:memory:/a\n", MOUNT.format(root="/")) is None
    assert find_group("0::/a\n", "21 1 8:1 / / rw - ext4 /dev/sda rw\n") is None
    assert (find_quotas(tmp_path).cpu, find_quotas(tmp_path).memory) == (None, None)


def hybrid(root: Path, files: dict[str, str], *, unified: bool = True) -> Path:
    """A container of a host with version 1, and perhaps with version 2 beside it, which limits nothing."""
    (root / "proc/self").mkdir(parents=True)
    (root / "proc/self/cgroup").write_text(
        "11:memory:/docker/abc\n4:cpu,cpuacct:/docker/abc\n1:name=systemd:/docker/abc\n"
        + ("0::/docker/abc\n" if unified else "")
    )
    mount = "{0} 22 0:26 /docker/abc /sys/fs/cgroup/{1} ro - {2} cgroup rw,{1}\n"
    (root / "proc/self/mountinfo").write_text(
        mount.format(31, "unified", "cgroup2")
        + mount.format(32, "cpu,cpuacct", "cgroup")
        + mount.format(33, "memory", "cgroup")
    )
    for name, text in files.items():
        path = root / "sys/fs/cgroup" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


@pytest.mark.parametrize("unified", [True, False])
def test_quotas_of_version_1_hold_too(tmp_path: Path, unified: bool) -> None:
    files = {
        "cpu,cpuacct/cpu.cfs_quota_us": "15000\n",
        "cpu,cpuacct/cpu.cfs_period_us": "100000\n",
        "cpu,cpuacct/cpuacct.usage": "7500000000\n",
        "memory/memory.limit_in_bytes": "1000000\n",
        "memory/memory.usage_in_bytes": "990000\n",
        "memory/memory.stat": "active_file 7\ninactive_file 7\ntotal_active_file 200000\ntotal_inactive_file 400000\n",
    }
    quotas = find_quotas(hybrid(tmp_path, files, unified=unified))
    limits = find_limits(quotas, None)
    reading = CounterReader(quotas, limits.basis).read({})

    assert (limits.basis, limits.cores) == (Basis.CGROUP, 0.15)
    assert (reading.cpu_s, reading.memory_bytes, reading.memory_limit_bytes) == (7.5, 390_000, 1_000_000)


def test_version_1_without_quotas(tmp_path: Path) -> None:
    files = {
        "cpu,cpuacct/cpu.cfs_quota_us": "-1\n",
        "cpu,cpuacct/cpu.cfs_period_us": "100000\n",
        "memory/memory.limit_in_bytes": "9223372036854771712\n",
    }
    assert find_quotas(hybrid(tmp_path, files)) == Quotas(cpu=None, memory=None)


@pytest.mark.parametrize(
    ("text", "cores"),
    [("200000 100000\n", 2.0), ("max 100000\n", None), ("5 0\n", None), ("", None), ("-1 100000", None), ("1", None)],
)
def test_cpu_max(text: str, cores: float | None) -> None:
    assert parse_cpu_max(text) == cores


def test_the_quota_is_the_basis_only_when_it_is_tighter_than_the_hardware(tmp_path: Path) -> None:
    tight = find_quotas(machine(tmp_path / "a", "/", {"cpu.max": "10000 100000"}))
    wide = find_quotas(machine(tmp_path / "b", "/", {"cpu.max": "999900000 100000"}))

    assert (find_limits(tight, None).basis, find_limits(tight, None).cores) == (Basis.CGROUP, 0.1)
    assert find_limits(wide, None).basis is Basis.HOST
    assert (find_limits(tight, 3.0).basis, find_limits(tight, 3.0).cores) == (Basis.CONFIG, 3.0)


def test_a_quota_that_is_changed_holds_at_once_and_one_that_cannot_be_read_still_holds(tmp_path: Path) -> None:
    root = machine(tmp_path, "/", {"cpu.max": "20000 100000", "memory.max": "1000000", "memory.current": "600000"})
    group, quotas = root / "sys/fs/cgroup", find_quotas(root)
    limits = find_limits(quotas, None)
    reader = CounterReader(quotas, limits.basis)
    assert reader.limits_now(limits, root) is limits

    (group / "cpu.max").write_text("10000 100000")
    (group / "memory.max").write_text("700000")
    changed = reader.limits_now(limits, root)
    assert (changed, reader.free_memory_bytes()) == (replace(limits, cores=0.1), 100_000)
    assert reader.limits_now(replace(limits, basis=Basis.CONFIG, cores=3.0), root).cores == 3.0

    for name in ("cpu.max", "memory.max"):
        (group / name).unlink()
    assert (reader.limits_now(changed, root), reader.free_memory_bytes()) == (changed, 100_000)


def test_inside_a_quota_use_is_that_of_the_whole_group(tmp_path: Path) -> None:
    files = {
        "cpu.max": "10000 100000",
        "cpu.stat": "usage_usec 7000000\n",
        "memory.max": "1000000",
        "memory.current": "600000",
    }
    reader = CounterReader(find_quotas(machine(tmp_path, "/", files)), Basis.CGROUP)

    reading = reader.read({})

    assert (reading.cpu_s, reading.memory_bytes, reading.memory_limit_bytes) == (7.0, 600_000, 1_000_000)
    assert reader.free_memory_bytes() == 400_000
    (tmp_path / "sys/fs/cgroup/cpu.stat").unlink()
    assert reader.read({}).cpu_s is None


def test_the_page_cache_of_a_group_is_free_memory(tmp_path: Path) -> None:
    files = {
        "memory.max": "1000000",
        "memory.current": "990000",
        "memory.stat": "anon 280000\nfile 650000\nshmem 50000\ninactive_file 400000\nactive_file 200000\n",
    }
    reader = CounterReader(find_quotas(machine(tmp_path, "/", files)), Basis.HOST)

    assert (reader.read({}).memory_bytes, reader.free_memory_bytes()) == (390_000, 610_000)
    group = tmp_path / "sys/fs/cgroup"
    (group / "memory.stat").write_text("inactive_file 2000000\nactive_file x\n\n")
    assert (reader.read({}).memory_bytes, reader.free_memory_bytes()) == (0, 1_000_000)
    (group / "memory.stat").unlink()
    assert (reader.read({}).memory_bytes, reader.free_memory_bytes()) == (990_000, 10_000)
    (group / "memory.current").unlink()
    assert reader.read({}).memory_bytes is None


def test_what_no_kernel_writes_is_unknown(tmp_path: Path) -> None:
    endless = "9" * 5_000
    assert (parse_cpu_max(f"{endless} 1"), parse_cpu_max(f"1 {endless}"), parse_bytes(endless)) == (None, None, None)
    assert parse_cpu_usage(f"usage_usec {endless}\n") is None
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/self/cgroup").write_text("0::/a\0b\n")
    (tmp_path / "proc/self/mountinfo").write_text(MOUNT.format(root="/"))
    assert find_quotas(tmp_path) == Quotas(cpu=None, memory=None)
