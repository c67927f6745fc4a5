"""Reports as agents send them, of hosts with one worker each."""

from collections.abc import Sequence
from typing import Any

from trimtab_protocol.messages.codec import encoded
from trimtab_protocol.messages.names import AppId, HostId, KeyGroup, OperatorId, WorkerId
from trimtab_protocol.messages.report import Basis, HostSample, KeyGroupSample, Report, WorkerSample, WorkerState


def busy_key_groups(
    app: AppId,
    operator: OperatorId,
    worker: WorkerId,
    partitions: range,
    cpu_s: Sequence[float],
    interval_s: float = 1.0,
) -> tuple[KeyGroupSample, ...]:
    """Samples with all figures known, of about a hundred tuples per second each."""
    return tuple(
        KeyGroupSample(
            key_group=KeyGroup(app, operator, partition),
            worker=worker,
            cpu_s=used,
            tuples_in=round(100 * interval_s) + index,
            tuples_out=round(90 * interval_s) + index,
            bytes_in=round(10_000 * interval_s) + index,
            bytes_out=round(9_000 * interval_s) + index,
            state_bytes=2_000_000 + 1_000 * index,
            lag_records=index,
            backlog=0,
        )
        for index, (partition, used) in enumerate(zip(partitions, cpu_s, strict=True))
    )


def running_worker(worker: WorkerId, app: AppId, cpu_s: float, **fields: Any) -> WorkerSample:
    """A worker of one core that runs."""
    return WorkerSample(
        worker=worker, app=app, state=WorkerState.RUNNING, capacity=1.0, cpu_s=cpu_s, marks=(), **fields
    )


def host_report(
    cluster: str, host: int, at_ms: int, worker: WorkerSample, key_groups: tuple[KeyGroupSample, ...], *,
    cpu_s: float, interval_s: float = 1.0, sequence: int | None = None, link_bytes: int | None = 10**6,
) -> bytes:  # fmt: skip
    """The report of a host of two cores that uses `cpu_s` and sends and receives `link_bytes`."""
    sample = HostSample(cpu_s=cpu_s, cores=2.0, basis=Basis.CGROUP, received_bytes=link_bytes, sent_bytes=link_bytes)
    return encoded(
        Report(
            cluster=cluster,
            host=HostId(f"h{host}"),
            at_ms=at_ms,
            interval_s=interval_s,
            sequence=at_ms if sequence is None else sequence,
            sample=sample,
            workers=(worker,),
            key_groups=key_groups,
            pairs=(),
        )
    )
