"""Bytes per second of restores: when the next one may begin on a host, and in the cluster.  Pure.

Each restore runs as fast as its host can.  So the limit holds on average: a restore of B bytes puts off the next one by
B / limit seconds (a leaky bucket, as the generic cell rate algorithm counts it).  What has nothing to restore, because
its worker is a standby, begins at once.

Restores after a loss are not counted and wait for nobody: the key groups pause until they are done, so each second that
a limit saves the others is one more of an outage.  Nothing of this is journalled: a new leader counts from what
restores when it begins.
"""

from collections.abc import Iterable, Mapping

from trimtab_controller.execution.events import ExecutionLimits
from trimtab_controller.execution.state import Handover, HandoverPhase, Round
from trimtab_protocol.messages.names import HostId


class RestoreRate:
    """When restores may begin, by what began before."""

    def __init__(self, limits: ExecutionLimits, taken_over: Iterable[Round] = ()) -> None:
        """`taken_over` = plans in flight that another leader began."""
        self._of_host, self._of_cluster = limits.restore_host_bytes_s, limits.restore_cluster_bytes_s
        self._free_at: dict[HostId, float] = {}
        self._cluster_free_at = 0.0
        for row in taken_over:
            for each in row.handovers if not row.lost else ():
                if each.phase is HandoverPhase.PREPARING:
                    self.take(each.since, {each.target_host: each.to_restore()})

    def free_at(self, hosts: Iterable[HostId]) -> float:
        """When the next restore on all of these hosts may begin (epoch seconds)."""
        return max([self._cluster_free_at, *(self._free_at.get(host, 0.0) for host in hosts)])

    def take(self, now: float, lacking: Mapping[HostId, float]) -> None:
        """Restores begin; `lacking` = bytes that each host has to restore."""
        self._free_at = {host: at for host, at in self._free_at.items() if at > now}
        for host, count in lacking.items():
            if self._of_host is not None and count > 0:
                self._free_at[host] = max(now, self._free_at.get(host, 0.0)) + count / self._of_host
            if self._of_cluster is not None and count > 0:
                self._cluster_free_at = max(now, self._cluster_free_at) + count / self._of_cluster

    def next_at(self, waiting: Iterable[tuple[Round, Handover]], now: float) -> float | None:
        """When the next hand-over that waits only for the limit may begin; None if none does."""
        if self._of_host is None and self._of_cluster is None:
            return None
        times = (self.free_at([each.target_host]) for row, each in waiting if self.holds(now, row, each))
        return min(times, default=None)

    def holds(self, now: float, row: Round, handover: Handover) -> bool:
        """Whether the limit holds this hand-over back."""
        if row.lost or not handover.restores:
            return False
        return self.free_at([handover.target_host]) > now


def limited_s(limits: ExecutionLimits, lacking: Mapping[HostId, Iterable[int]], *, all_of_it: bool) -> float:
    """Seconds that restores of these bytes take at least because of the limits; on each host they begin one by one.

    `all_of_it` False: without the largest, which may be the last one to begin, for a bound.
    """
    sizes = {host: list(rows) for host, rows in lacking.items()}
    found = [0.0]
    if limits.restore_host_bytes_s is not None:
        found += [_sum(rows, all_of_it=all_of_it) / limits.restore_host_bytes_s for rows in sizes.values()]
    if limits.restore_cluster_bytes_s is not None:
        rows = [size for each in sizes.values() for size in each]
        found.append(_sum(rows, all_of_it=all_of_it) / limits.restore_cluster_bytes_s)
    return max(found)


def _sum(sizes: list[int], *, all_of_it: bool) -> float:
    return float(sum(sizes) - (0 if all_of_it else max(sizes, default=0)))
