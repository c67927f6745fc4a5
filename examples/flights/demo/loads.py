"""Loads of workers in one window, as measured: percent of each worker's capacity; pure."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from math import sqrt
from statistics import fmean, variance

from trimtab_models.messages.names import WorkerId
from trimtab_models.messages.snapshot import Snapshot


def node_loads(snapshot: Snapshot) -> dict[WorkerId, float] | None:
    """Load of each worker of a whole window, the sum of its key groups' CPU; None when anything is unknown."""
    if snapshot.coverage < 1 or any(row.cpu is None for row in snapshot.key_groups):
        return None
    cores: dict[WorkerId, float] = defaultdict(float)
    for row in snapshot.key_groups:
        cores[row.worker] += row.cpu or 0.0
    return {node.worker: 100.0 * cores[node.worker] / node.capacity for node in snapshot.nodes}


def load_distance(snapshot: Snapshot, draining: Iterable[WorkerId] = ()) -> float | None:
    """Percentage points: max |load - mean| over kept workers, max (load - mean) over those marked for removal."""
    loads = node_loads(snapshot)
    marked = set(draining)
    kept = [node for node in snapshot.nodes if node.worker not in marked]
    if loads is None or not kept:
        return None
    total = sum(loads[node.worker] * node.capacity for node in snapshot.nodes)
    mean = total / sum(node.capacity for node in kept)
    distances = [abs(loads[node.worker] - mean) for node in kept]
    return max([*distances, *(loads[worker] - mean for worker in marked & loads.keys())])


def window_noise(snapshots: Iterable[Snapshot]) -> float | None:
    """How far a worker's deviation from the mean load strays from window to window while nothing changes.

    A standard deviation over all workers, in pp: so uncertain is what one window shows.  None if unknown.
    """
    strayed: dict[WorkerId, list[float]] = defaultdict(list)
    for snapshot in snapshots:
        loads = node_loads(snapshot)
        if loads is not None:
            cores = sum(node.capacity for node in snapshot.nodes)
            mean = sum(loads[node.worker] * node.capacity for node in snapshot.nodes) / cores
            for worker, load in loads.items():
                strayed[worker].append(load - mean)
    known = [variance(deviations) for deviations in strayed.values() if len(deviations) > 1]
    return sqrt(fmean(known)) if known else None


def windows_inside(snapshots: Iterable[Snapshot], start: float, end: float) -> list[Snapshot]:
    """The windows that lie wholly in [start, end] (epoch seconds)."""
    return [row for row in snapshots if row.start_ms >= start * 1000 and row.end_ms <= end * 1000]


def first_window_after(snapshots: Sequence[Snapshot], end: float) -> Snapshot | None:
    """The first window that began at or after `end` (epoch seconds)."""
    later = [row for row in snapshots if row.start_ms >= end * 1000]
    return min(later, key=lambda row: row.start_ms, default=None)
