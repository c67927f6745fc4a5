"""A recorded window as it would have been under another placement, and how evenly it was loaded.

A key group brings its load to its worker: CPU, tuples, bytes and backlog are as recorded.  Between hosts of known speed
its CPU is scaled.  What it would have saved or cost to send within a worker is not known, and counts as nothing.
"""

from array import array
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, replace

from trimtab_protocol.messages.codec import UNKNOWN
from trimtab_protocol.messages.key_group_table import KeyGroupBlock, KeyGroupTable
from trimtab_protocol.messages.names import AppId, HostId, KeyGroup, WorkerId
from trimtab_protocol.messages.report import WorkerState
from trimtab_protocol.messages.snapshot import HostWindow, NodeWindow, PairWindow, Snapshot

Owners = Mapping[KeyGroup, WorkerId]


@dataclass(frozen=True, slots=True, kw_only=True)
class Evenness:
    """How evenly the workers of an app were loaded by its key groups in a window.

    `load_distance` = the largest difference from the mean (pp), `highest` = the highest load of a worker, both in
    percent of the worker's capacity; `workers` = how many ran.
    """

    load_distance: float
    highest: float
    workers: int


def recorded_owners(snapshot: Snapshot) -> dict[KeyGroup, WorkerId]:
    """The owner of each key group as the window has it, whether or not the worker runs."""
    return {key_group: worker for block in snapshot.blocks for key_group, worker in block.owners()}


def running_workers(snapshot: Snapshot) -> frozenset[WorkerId]:
    """The workers that ran in the window."""
    return frozenset(row.worker for row in snapshot.nodes if row.state is WorkerState.RUNNING)


def placed(snapshot: Snapshot, owners: Owners) -> Snapshot:
    """The window with these owners; a key group that is not among them stays where it was recorded.

    What workers and hosts used in all is changed by what the key groups bring or take along.  Copies on disks are left
    out, since they lie where the recorded placement had them.
    """
    speeds = _speeds(snapshot)
    shift: defaultdict[WorkerId, float] = defaultdict(float)
    blocks = [_placed_block(block, owners, speeds, shift) for block in snapshot.blocks]
    hosts_of = {row.worker: row.host for row in snapshot.nodes}
    by_host: defaultdict[HostId, float] = defaultdict(float)
    for worker, cpu in shift.items():
        if worker in hosts_of:
            by_host[hosts_of[worker]] += cpu
    was = recorded_owners(snapshot) if snapshot.pairs else {}
    return replace(
        snapshot,
        key_groups=KeyGroupTable(blocks),
        nodes=tuple(_placed_node(row, shift[row.worker]) for row in snapshot.nodes),
        hosts=tuple(_placed_host(row, by_host[row.host]) for row in snapshot.hosts),
        pairs=tuple(_placed_pair(row, was, owners) for row in snapshot.pairs),
    )


def _speeds(snapshot: Snapshot) -> dict[WorkerId, float]:
    """The speed of each worker's host, where it is known."""
    known = {row.host: row.speed for row in snapshot.hosts if row.speed is not None}
    return {row.worker: known[row.host] for row in snapshot.nodes if row.host in known}


def _placed_block(
    block: KeyGroupBlock, owners: Owners, speeds: Mapping[WorkerId, float], shift: defaultdict[WorkerId, float]
) -> KeyGroupBlock:
    """The block with these owners; the CPU that moves between workers is added to `shift`."""
    names = [owners.get(key_group, worker) for key_group, worker in block.owners()]
    workers = {name: place for place, name in enumerate(sorted(set(names)))}
    cpu = array("d", block.cpu)
    for place, (name, before) in enumerate(zip(names, block.worker, strict=True)):
        source = block.workers[before]
        if name == source or cpu[place] == UNKNOWN:
            continue
        shift[source] -= cpu[place]
        if name in speeds and source in speeds:
            cpu[place] *= speeds[source] / speeds[name]
        shift[name] += cpu[place]
    places = array("q", [workers[name] for name in names])
    return replace(block, workers=tuple(workers), worker=places, cpu=cpu)


def _placed_node(row: NodeWindow, shift: float) -> NodeWindow:
    cpu = None if row.cpu is None else max(0.0, row.cpu + shift)
    return replace(row, cpu=cpu, copies=())


def _placed_host(row: HostWindow, shift: float) -> HostWindow:
    return replace(row, cpu=None if row.cpu is None else max(0.0, row.cpu + shift))


def _placed_pair(row: PairWindow, was: Owners, owners: Owners) -> PairWindow:
    """The pair; whether its tuples would have skipped the broker is unknown if only one of the placements has it so."""
    if row.direct_s is None:
        return row
    before = was.get(row.source) == was.get(row.target)
    after = owners.get(row.source, was.get(row.source)) == owners.get(row.target, was.get(row.target))
    if before == after:
        return row
    return replace(row, direct_s=None if after else 0.0)


def evenness_of(snapshot: Snapshot) -> dict[AppId, Evenness]:
    """How evenly each app's running workers were loaded, by the CPU that its key groups used in this window."""
    used: defaultdict[AppId, defaultdict[WorkerId, float]] = defaultdict(lambda: defaultdict(float))
    for block in snapshot.blocks:
        of_app = used[block.app]
        for worker, cpu in zip(block.worker, block.cpu, strict=True):
            if cpu != UNKNOWN:
                of_app[block.workers[worker]] += cpu
    found = {}
    for app, loads in used.items():
        rows = [row for row in snapshot.nodes if row.app == app and row.state is WorkerState.RUNNING]
        if not rows:
            continue
        percent = [100.0 * loads.get(row.worker, 0.0) / row.capacity for row in rows]
        mean = 100.0 * sum(loads.get(row.worker, 0.0) for row in rows) / sum(row.capacity for row in rows)
        far = max(abs(each - mean) for each in percent)
        found[app] = Evenness(load_distance=far, highest=max(percent), workers=len(rows))
    return found
