"""Which workers have a key group's state already: its standbys, and workers with a copy of it on their disks.

A standby lacks nothing.  A copy lacks the changelog records that were written since; their share of all records is
taken for the share of the state that has to be read.

A move to another worker of the same host takes no more of its memory if the old owner does not become a standby, since
there are better ones on other hosts (`rows.py`).
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np

from trimtab_controller.decider.window.owned import Integers
from trimtab_controller.decider.window.view import AppView
from trimtab_controller.rows import row_after
from trimtab_controller.solver.answer import Copies
from trimtab_models.standbys.problem import UNPLACED
from trimtab_protocol.messages.codec import UNKNOWN
from trimtab_protocol.messages.names import AppId, HostId, KeyGroup, WorkerId
from trimtab_protocol.messages.owner_rows import Owners
from trimtab_protocol.messages.placement import Placement
from trimtab_protocol.messages.report import WorkerState
from trimtab_protocol.messages.snapshot import Snapshot

NOBODY = WorkerId("")
"""Stands for a standby that is no worker of the app any more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """The state of one app's key groups on workers that do not own them.

    `on_disk`: the share of the state that a copy lacks, from 0 to below 1, by key group and worker.
    """

    placement: Placement | None = None
    on_disk: Mapping[KeyGroup, Mapping[WorkerId, float]] = field(default_factory=dict)

    def lacking(self, key_group: KeyGroup) -> dict[WorkerId, float]:
        """The share of the key group's state that workers lack; those that lack all of it are left out."""
        return {**self.on_disk.get(key_group, {}), **dict.fromkeys(self.standbys(key_group), 0.0)}

    def standbys(self, key_group: KeyGroup) -> tuple[WorkerId, ...]:
        """Its standbys."""
        row = self.placement.of(key_group.operator, key_group.partition) if self.placement else ()
        return row[1:]


def state_held(
    snapshot: Snapshot | None, app: AppId, placement: Placement | None, before: Iterable[Snapshot] = ()
) -> Held:
    """What the newest window shows of an app.

    A copy counts only while its owner reports how many records its changelogs have, or, if the owner is away, where it
    did so in one of the windows `before`, the newest first.
    """
    copies: defaultdict[KeyGroup, dict[WorkerId, int]] = defaultdict(dict)
    for row in snapshot.nodes if snapshot else ():
        if row.app == app and row.state is WorkerState.RUNNING:
            for copy in row.copies:
                copies[KeyGroup(app, copy.operator, copy.partition)][row.worker] = copy.records
    written: dict[KeyGroup, int] = {}
    for window in (snapshot, *before) if snapshot and copies else ():
        written = {**_written(window, app, copies.keys() - written.keys()), **written}
    on_disk = {
        key_group: {
            worker: 1.0 - min(records, written[key_group]) / written[key_group] for worker, records in of.items()
        }
        for key_group, of in copies.items()
        if written.get(key_group)
    }
    return Held(placement=placement, on_disk=on_disk)


def copies_of(view: AppView, standbys: Integers, on_disk: Mapping[KeyGroup, Mapping[WorkerId, float]]) -> Copies | None:
    """Where moves of a view's key groups take less disk or memory; None if nowhere.

    `standbys` (K, P) = the places of each key group's standbys among all workers, or negative.  `on_disk` as in `Held`.
    """
    table, places, owner = view.owned, view.numbers, view.owner_numbers
    found = standbys[: len(table)]
    row, column = np.nonzero((found >= 0) & (found < len(places)) & (found != owner[:, None]))
    warm = dict.fromkeys(zip(row.tolist(), found[row, column].tolist(), strict=True), 0.0)
    lacking: dict[tuple[int, int], float] = {}
    for at, shares in zip(table.places_of(on_disk).tolist(), on_disk.values(), strict=True):
        for name, share in shares.items() if at >= 0 else ():
            if places.get(name, owner[at]) != owner[at]:
                lacking[at, places[name]] = share
    freed = dict.fromkeys(_making_way(view, owner, found), 1.0)
    return _copies({**freed, **lacking, **warm}, freed.keys() | warm)


def copies_of_one(view: AppView, row: int, held: Held) -> Copies | None:
    """The same of one key group."""
    places, owned = view.numbers, view.owned[row]
    shares = {name: share for name, share in held.lacking(owned.key_group).items() if name != owned.owner}
    lacking = {(row, places[name]): share for name, share in shares.items() if name in places}
    standbys = held.standbys(owned.key_group)
    warm = {(row, places[name]) for name in standbys if name in places}
    near = _near(view).get(places[owned.owner], ())
    freed = {(row, each) for each in near if _makes_way(view, (owned.owner, *standbys), view.workers[each].id)}
    return _copies({**dict.fromkeys(freed, 1.0), **lacking}, warm | freed)


def _near(view: AppView) -> dict[int, list[int]]:
    """The places of the other workers on the same host, of each worker that has such."""
    found: defaultdict[HostId, list[int]] = defaultdict(list)
    for place, worker in enumerate(view.workers):
        found[worker.host].append(place)
    return {place: [each for each in of if each != place] for of in found.values() for place in of if len(of) > 1}


def _makes_way(view: AppView, row: Owners, target: WorkerId) -> bool:
    """Whether the owner of a row is no standby after a move to the target, as the execution will publish it."""
    return view.memory_stays and row[0] not in row_after(row, row[0], target, view.sites)


def _making_way(view: AppView, owner: Integers, standbys: Integers) -> Iterator[tuple[int, int]]:
    """Key groups and workers of their owner's host, by their places: after a move there the owner is no standby."""
    names, near = [worker.id for worker in view.all_workers], _near(view)
    known: dict[tuple[int, ...], list[int]] = {}
    for at in np.flatnonzero(np.isin(owner, list(near)) & (standbys != UNPLACED).any(axis=1)).tolist():
        row = (int(owner[at]), *(each for each in standbys[at].tolist() if each != UNPLACED))
        if row not in known:
            found = tuple(names[each] if each >= 0 else NOBODY for each in row)
            known[row] = [each for each in near[row[0]] if _makes_way(view, found, names[each])]
        yield from ((at, place) for place in known[row])


def _copies(lacking: Mapping[tuple[int, int], float], in_memory: Collection[tuple[int, int]]) -> Copies | None:
    if not lacking:
        return None
    pairs = np.array(list(lacking), np.int32)
    return Copies(
        key_group=pairs[:, 0],
        worker=pairs[:, 1],
        lacking=np.fromiter(lacking.values(), np.float64, len(lacking)),
        in_memory=np.array([pair in in_memory for pair in lacking], np.bool_),
    )


def _written(snapshot: Snapshot, app: AppId, wanted: Iterable[KeyGroup]) -> dict[KeyGroup, int]:
    """The number of changelog records of these key groups, as far as it is known."""
    found, names = {}, set(wanted)
    for block in (each for each in snapshot.blocks if each.app == app):
        partitions = [each.partition for each in names if each.operator == block.operator]
        if partitions:
            here = np.frombuffer(block.partition, np.int64)
            for place in np.flatnonzero(np.isin(here, partitions)).tolist():
                if (records := block.lag_records[place]) != UNKNOWN:
                    found[KeyGroup(app, block.operator, block.partition[place])] = records
    return found
