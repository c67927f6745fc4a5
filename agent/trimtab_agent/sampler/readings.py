"""Reads counters from cgroup files where a quota applies, otherwise from psutil.  `derive` turns them into samples."""

import contextlib
import os
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

import psutil

from trimtab_agent.sampler.cgroup import (
    Quota,
    cpu_limit,
    cpu_limit_1,
    find_group,
    memory_limit,
    memory_limit_1,
    read_text,
    tightest,
)
from trimtab_agent.sampler.derive import HostReading, ProcessReading, UsableResources
from trimtab_agent.sampler.disks import fullest_disk
from trimtab_agent.sampler.hardware import find_type
from trimtab_agent.sampler.waits import waited_s_of
from trimtab_protocol.messages.names import WorkerId
from trimtab_protocol.messages.report import Basis

LOOPBACK = "lo"

LimitOf = Callable[[Path], float | None]
T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Quotas:
    """The CPU and memory quotas that apply to this process; None = no limit."""

    cpu: Quota | None
    memory: Quota | None


def find_quotas(root: Path = Path("/")) -> Quotas:
    """The tightest quotas of the cgroup hierarchies under `root`."""
    cgroup, mountinfo = (read_text(root / "proc/self" / name) or "" for name in ("cgroup", "mountinfo"))

    def quota(controller: str, limit: LimitOf, limit_1: LimitOf) -> Quota | None:
        if (group := find_group(cgroup, mountinfo, root)) and (found := tightest(*group, limit)):
            return found
        group = find_group(cgroup, mountinfo, root, controller)
        return tightest(*group, limit_1, version=1) if group else None

    return Quotas(cpu=quota("cpu", cpu_limit, cpu_limit_1), memory=quota("memory", memory_limit, memory_limit_1))


def find_limits(quotas: Quotas, configured_cores: float | None) -> UsableResources:
    """What this host may use: the configured cores, else a quota below the hardware's cores, else the hardware's."""
    host_cores = float(psutil.cpu_count() or 1)
    basis, cores = Basis.HOST, host_cores
    if configured_cores is not None:
        basis, cores = Basis.CONFIG, configured_cores
    elif quotas.cpu is not None and quotas.cpu.limit < host_cores:
        basis, cores = Basis.CGROUP, quotas.cpu.limit
    return UsableResources(
        basis=basis, cores=cores, host_cores=host_cores, link_bytes_s=_link_bytes_s(), type=find_type(host_cores)
    )


def _link_bytes_s() -> float | None:
    """Bytes per second that all network interfaces together can carry; None if one does not report its speed."""
    speeds = [nic.speed for name, nic in psutil.net_if_stats().items() if nic.isup and name != LOOPBACK]
    return sum(speeds) * 1e6 / 8 if speeds and all(speeds) else None


class CounterReader:
    """Reads all counters that the samples of one host need."""

    def __init__(self, quotas: Quotas, basis: Basis, data_folders: Collection[Path] = ()) -> None:
        """`data_folders` = where the workers keep their state, as far as that is known."""
        self._data_folders = frozenset(data_folders)
        self._quotas = quotas
        self._basis = basis
        self._own = psutil.Process(os.getpid())
        self._processes: dict[WorkerId, psutil.Process] = {}

    def read(self, pids: Mapping[WorkerId, int | None]) -> HostReading:
        """The counters now; None for a worker whose process has ended or is not visible to the agent."""
        received, sent = _known(_network) or (None, None)
        memory, limit = _known(self._memory) or (None, None)
        self._processes = {worker: process for worker, process in self._processes.items() if worker in pids}
        return HostReading(
            monotonic_s=time.monotonic(),
            cpu_s=_known(self._cpu),
            received_bytes=received,
            sent_bytes=sent,
            memory_bytes=memory,
            memory_limit_bytes=limit,
            own=_read_process(self._own, with_children=False),  # those are workers
            workers={worker: self._read_worker(worker, pid) for worker, pid in pids.items()},
            disk=fullest_disk(self._data_folders),
        )

    def limits_now(self, limits: UsableResources, root: Path = Path("/")) -> UsableResources:
        """These limits, or new ones if the quotas or the machine's cores have changed: both can at any time.

        A quota that cannot be read now still holds.
        """
        found, host_cores = find_quotas(root), float(psutil.cpu_count() or limits.host_cores)
        quotas = Quotas(cpu=found.cpu or self._quotas.cpu, memory=found.memory or self._quotas.memory)
        if (quotas, host_cores) == (self._quotas, limits.host_cores):
            return limits
        changed = find_limits(quotas, limits.cores if limits.basis is Basis.CONFIG else None)
        self._quotas, self._basis = quotas, changed.basis
        return replace(limits, basis=changed.basis, cores=changed.cores, host_cores=host_cores)

    def free_memory_bytes(self) -> int | None:
        """Bytes that are still free under the memory quota and on the machine; None = unknown."""
        return _known(self._free_memory)

    def _free_memory(self) -> int:
        memory, limit = self._memory()
        machine = int(psutil.virtual_memory().available)
        return machine if memory is None or limit is None else max(0, min(machine, limit - memory))

    def _cpu(self) -> float | None:
        if self._basis is Basis.CGROUP and self._quotas.cpu is not None:
            return self._quotas.cpu.cpu_used_s()
        times = psutil.cpu_times()
        # User time includes guest time.  Iowait is idle time.  What a hypervisor gives to others (steal) counts as
        # used: it is not there for workers.
        return float(times.user + times.nice + times.system + times.irq + times.softirq + times.steal)

    def _memory(self) -> tuple[int | None, int | None]:
        machine = psutil.virtual_memory()
        quota = self._quotas.memory
        if quota is None or quota.limit >= machine.total:
            return int(machine.total - machine.available), int(machine.total)
        used = quota.memory_used()
        return None if used is None else int(min(used, quota.limit)), int(quota.limit)

    def _read_worker(self, worker: WorkerId, pid: int | None) -> ProcessReading | None:
        if pid is None:
            return None
        process = self._processes.get(worker)
        try:
            if process is None or process.pid != pid or not process.is_running():
                process = self._processes[worker] = psutil.Process(pid)
            return _read_process(process, with_children=True)
        except (psutil.Error, OSError):
            self._processes.pop(worker, None)
            return None


def _read_process(process: psutil.Process, *, with_children: bool) -> ProcessReading | None:
    try:
        with process.oneshot():
            return ProcessReading(
                pid=process.pid,
                created=process.create_time(),
                cpu_s=_cpu_s_with_children(process) if with_children else sum(process.cpu_times()[:2]),
                memory_bytes=process.memory_info().rss,
                waited_s=_waited_s(process.pid),
            )
    except (psutil.Error, OSError):
        return None


def _cpu_s_with_children(process: psutil.Process) -> float:
    """CPU seconds of a process and all below it, such as a pool in which a worker's app computes.

    What a child has used is its parent's when it has ended and its parent has waited for it.
    """
    times = process.cpu_times()
    cpu_s: float = times.user + times.system + times.children_user + times.children_system
    for path in Path(f"/proc/{process.pid}/task").glob("*/children"):  # `process.children()` goes through all there are
        for pid in map(int, (read_text(path) or "").split()):
            with contextlib.suppress(psutil.NoSuchProcess):
                cpu_s += _cpu_s_with_children(psutil.Process(pid))
    return cpu_s


def _waited_s(pid: int) -> float | None:
    text = read_text(Path(f"/proc/{pid}/schedstat"))
    return None if text is None else waited_s_of(text)


def _known(read: Callable[[], T]) -> T | None:
    """The value that `read` returns; None if it fails, for example without a free file descriptor."""
    try:
        return read()
    except OSError:
        return None


def _network() -> tuple[int | None, int | None]:
    counters = [nic for name, nic in psutil.net_io_counters(pernic=True).items() if name != LOOPBACK]
    if not counters:
        return None, None
    return sum(nic.bytes_recv for nic in counters), sum(nic.bytes_sent for nic in counters)
