"""Computes samples from two readings of the counters.  Pure: no file, no clock.

Usage is unknown (None), not zero, at the first reading, after a counter went back (restart, overflow), for another
process than before, and if the monotonic clock did not advance.  Usage above the hardware's limit is reduced to that
limit and marked.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from trimtab_agent.sampler.disks import DiskSpace
from trimtab_protocol.messages.names import WorkerId
from trimtab_protocol.messages.report import Basis, HostSample


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessReading:
    """Counters of one process.  `created` (epoch seconds) distinguishes it from a later process with the same pid.

    `waited_s` = seconds that its main thread waited for a core; None = unknown.
    """

    pid: int
    created: float
    cpu_s: float
    memory_bytes: int
    waited_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class HostReading:
    """All counters at `monotonic_s`; None = unknown.

    `cpu_s`: of the host or the container.  `own`: of the agent itself.  `workers`: of the connected workers, None for
    a process that is not visible to the agent.  `disk`: the one that holds the workers' state.
    """

    monotonic_s: float
    cpu_s: float | None
    received_bytes: int | None
    sent_bytes: int | None
    memory_bytes: int | None
    memory_limit_bytes: int | None
    own: ProcessReading | None
    workers: Mapping[WorkerId, ProcessReading | None] = field(default_factory=dict)
    disk: DiskSpace | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class UsableResources:
    """What this host may use (`cores`, by `basis`) and its hardware (`host_cores`, link bytes per second each way).

    `type`, `speed` and `zone`: see `HostSample`; None = not known.
    """

    basis: Basis
    cores: float
    host_cores: float
    link_bytes_s: float | None = None
    type: str | None = None
    speed: float | None = None
    zone: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessUse:
    """What a worker process used in the interval; None = unknown."""

    cpu_s: float | None
    memory_bytes: int
    clamped: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Use:
    """Usage in one interval: the host's sample, and each worker's use."""

    host: HostSample
    workers: Mapping[WorkerId, ProcessUse]


def derive(previous: HostReading | None, current: HostReading, limits: UsableResources, interval_s: float) -> Use:
    """Usage per `interval_s` seconds, at the rates between the two readings."""
    seen = {worker: process for worker, process in current.workers.items() if process is not None}
    elapsed = current.monotonic_s - previous.monotonic_s if previous else 0.0
    if previous is None or elapsed <= 0:
        workers = {worker: ProcessUse(cpu_s=None, memory_bytes=p.memory_bytes) for worker, p in seen.items()}
        return Use(host=_host_sample(current, limits, None, None, None), workers=workers)
    scale = interval_s / elapsed
    workers = {
        worker: _process_use(previous.workers.get(worker), process, limits.host_cores * interval_s, scale)
        for worker, process in seen.items()
    }
    cpu = _clamp(_host_cpu(previous, current, limits, scale), limits.cores * interval_s)
    link = None if limits.link_bytes_s is None else limits.link_bytes_s * interval_s
    received = _clamp(_advance(previous.received_bytes, current.received_bytes, scale), link)
    sent = _clamp(_advance(previous.sent_bytes, current.sent_bytes, scale), link)
    return Use(host=_host_sample(current, limits, cpu, received, sent), workers=workers)


def _host_cpu(previous: HostReading, current: HostReading, limits: UsableResources, scale: float) -> float | None:
    """CPU seconds of the host.

    With configured cores the host is a share of a machine; its usage is then that of its workers and its agent.
    """
    if limits.basis is not Basis.CONFIG:
        return _advance(previous.cpu_s, current.cpu_s, scale)
    shares = [_process_cpu(previous.own, current.own, scale)]
    shares += [_process_cpu(previous.workers.get(worker), now, scale) for worker, now in current.workers.items()]
    known = [share for share in shares if share is not None]
    return sum(known) if len(known) == len(shares) else None


def _process_use(before: ProcessReading | None, now: ProcessReading, limit_s: float, scale: float) -> ProcessUse:
    measured = _process_cpu(before, now, scale)
    cpu = _clamp(measured, limit_s)
    return ProcessUse(cpu_s=cpu, memory_bytes=now.memory_bytes, clamped=cpu != measured)


def _process_cpu(before: ProcessReading | None, now: ProcessReading | None, scale: float) -> float | None:
    if before is None or now is None or (before.pid, before.created) != (now.pid, now.created):
        return None
    return _advance(before.cpu_s, now.cpu_s, scale)


def _advance(before: float | None, now: float | None, scale: float) -> float | None:
    if before is None or now is None or now < before:
        return None
    return (now - before) * scale


def _clamp(value: float | None, limit: float | None) -> float | None:
    return value if value is None or limit is None else min(value, limit)


def _host_sample(
    current: HostReading, limits: UsableResources, cpu_s: float | None, received: float | None, sent: float | None
) -> HostSample:
    return HostSample(
        cpu_s=cpu_s,
        cores=limits.cores,
        basis=limits.basis,
        received_bytes=None if received is None else round(received),
        sent_bytes=None if sent is None else round(sent),
        memory_bytes=current.memory_bytes,
        memory_limit_bytes=current.memory_limit_bytes,
        disk_total_bytes=current.disk.total_bytes if current.disk else None,
        disk_free_bytes=current.disk.free_bytes if current.disk else None,
        link_bytes_s=limits.link_bytes_s,
        type=limits.type,
        speed=limits.speed,
        zone=limits.zone,
    )
