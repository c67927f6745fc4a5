"""Measured loads of workers in one window, in percent of each worker's capacity; pure."""

from collections import defaultdict
from collections.abc import Iterable

from trimtab_protocol.messages.names import WorkerId
from trimtab_protocol.messages.report import WorkerState
from trimtab_protocol.messages.snapshot import NodeWindow, Snapshot


def node_loads(snapshot: Snapshot) -> dict[WorkerId, float] | None:
    """Load of each worker that is there in a complete window, the sum of its key groups' CPU.

    None if anything is unknown.
    """
    if snapshot.coverage < 1 or any(row.cpu is None for row in snapshot.key_groups):
        return None
    cores: dict[WorkerId, float] = defaultdict(float)
    for row in snapshot.key_groups:
        cores[row.worker] += row.cpu or 0.0
    return {node.worker: 100.0 * cores[node.worker] / node.capacity for node in _present(snapshot)}


def deviations(snapshot: Snapshot, draining: Iterable[WorkerId] = ()) -> dict[WorkerId, float] | None:
    """Load of each worker above the mean load (pp); None when anything is unknown.

    The mean is the total load / the capacity of the workers that are not draining.  A draining worker is left out if it
    is below the mean.
    """
    loads, marked = node_loads(snapshot), set(draining)
    kept = sum(node.capacity for node in _present(snapshot) if node.worker not in marked)
    if loads is None or not kept:
        return None
    mean = sum(loads[node.worker] * node.capacity for node in _present(snapshot)) / kept
    found = {worker: load - mean for worker, load in loads.items()}
    return {worker: above for worker, above in found.items() if worker not in marked or above > 0}


def load_distance(snapshot: Snapshot, draining: Iterable[WorkerId] = ()) -> float | None:
    """Load distance (pp): max |load - mean|, for draining workers max (load - mean)."""
    found = deviations(snapshot, draining)
    return None if found is None else max(map(abs, found.values()))


def windows_inside(snapshots: Iterable[Snapshot], start: float, end: float) -> list[Snapshot]:
    """The windows completely inside [start, end] (epoch seconds)."""
    return [row for row in snapshots if row.start_ms >= start * 1000 and row.end_ms <= end * 1000]


def node_use(snapshot: Snapshot) -> dict[WorkerId, float]:
    """The CPU of each worker's process, also what belongs to no key group; without workers of which it is unknown."""
    return {node.worker: 100.0 * node.cpu / node.capacity for node in _present(snapshot) if node.cpu is not None}


def highest_use(snapshots: Iterable[Snapshot]) -> float | None:
    """The highest CPU of a worker process in a window, in percent of its capacity; None without any that is known."""
    return max((used for row in snapshots for used in node_use(row).values()), default=None)


def cpu_of(window: Snapshot) -> float | None:
    """Cores that the key groups used; None if one was not measured."""
    found = [row.cpu for row in window.key_groups]
    return None if None in found else sum(each or 0.0 for each in found)


def received_s(snapshot: Snapshot, operator: str) -> float:
    """Tuples per second that the key groups of an operator received in a window, as far as it is known."""
    return sum(row.tuples_in_s or 0.0 for row in snapshot.key_groups if row.key_group.operator == operator)


def collocation(window: Snapshot) -> float | None:
    """Share of the tuples between key groups whose ends are on one worker; None if there were none."""
    owners = {row.key_group: row.worker for row in window.key_groups}
    known = [pair for pair in window.pairs if pair.source in owners and pair.target in owners]
    total = sum(pair.tuples_s for pair in known)
    near = sum(pair.tuples_s for pair in known if owners[pair.source] == owners[pair.target])
    return near / total if total else None


def local_sends(window: Snapshot) -> float | None:
    """Share of the tuples between key groups that skipped the broker; None if that is not known of all."""
    direct = [pair.direct_s for pair in window.pairs]
    total = sum(pair.tuples_s for pair in window.pairs)
    return sum(each or 0.0 for each in direct) / total if total and None not in direct else None


def owned_by(snapshot: Snapshot, worker: WorkerId) -> int:
    """The number of key groups that a worker owns in a window."""
    return sum(1 for row in snapshot.key_groups if row.worker == worker)


def _present(snapshot: Snapshot) -> list[NodeWindow]:
    return [node for node in snapshot.nodes if node.state is not WorkerState.AWAY]
