"""Orphans: key groups whose owner is away and that nobody took over, while no standby of theirs runs.

When the consumer group notices that the owner is gone (after the session time-out of the app), it gives each key group
to the first worker in its row that is a member; where there is none, to the member with the fewest key groups.  So the
controller adds a worker to the row of each orphan as soon as the owner has been away at the end of WINDOWS windows: an
agent that restarts is back before.  The worker that was added begins to restore at once, and it is the next owner.  If
the old one comes back first, it keeps its key groups.

The workers are chosen by the greedy matching of the Elastic Allocator (`trimtab_models.elastic`), from the demand of
each key group, what is asked of each worker, and the memory and links of the hosts.  Where it refuses a key group,
since no worker is light, the key group goes where it does least harm: a key group without an owner is an outage.  This
is then a concern.
"""

from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from trimtab_controller.decider.concerns import FULL_PCT, Concern, ConcernKind
from trimtab_controller.decider.decision import StandbysPlaced
from trimtab_controller.decider.demand import WorkerDemand
from trimtab_controller.decider.hosts import HostsSeen
from trimtab_controller.decider.owned import Floats, OwnedTable
from trimtab_controller.decider.view import AppView, Worker
from trimtab_controller.wording import first_few
from trimtab_models.elastic import Demands, Level, level_of, match
from trimtab_models.elastic.matching import HEAVY_FROM, NOWHERE
from trimtab_models.solving import Never
from trimtab_protocol.messages.names import AppId, HostId, KeyGroup, WorkerId
from trimtab_protocol.messages.owner_rows import Owners
from trimtab_protocol.messages.placement import Placement
from trimtab_protocol.messages.report import WorkerState
from trimtab_protocol.messages.snapshot import Snapshot

WINDOWS = 2
"""In so many windows in a row a worker must be away to count as lost."""
OPERATIONS = 500_000
"""Trials of a key group on a worker in one decision; what is left then is spread evenly over light workers."""
MOST_AT_ONCE = 5_000
"""Orphans that one decision places, those with the highest demand first; it then takes under a tenth of a second."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Placed:
    """`targets` = the next owner of each orphan.  `forced` = those that no worker had room for, or was light enough.

    `busy_pct` = per worker that got some, what is then used of its busiest resource.
    """

    targets: Mapping[KeyGroup, WorkerId]
    forced: tuple[KeyGroup, ...]
    busy_pct: Mapping[WorkerId, float]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Orphaned:
    """The orphans of an app; `owners` = the workers that they have lost.

    `inherited` = the demand, and `state` the bytes, that each worker will get besides from workers that are away.
    """

    table: OwnedTable
    owners: tuple[WorkerId, ...]
    inherited: Mapping[WorkerId, float]
    state: Mapping[WorkerId, float]


class Orphans:
    """Finds the orphans of all apps and gives them a next owner."""

    def __init__(self) -> None:
        self._found: dict[AppId, tuple[AppView, Orphaned]] = {}
        self._hosts = HostsSeen()
        self._asked: dict[WorkerId, float] = {}
        self._away: dict[WorkerId, int] = {}
        self._crowded: dict[AppId, tuple[frozenset[WorkerId], Concern]] = {}

    @property
    def concerns(self) -> tuple[Concern, ...]:
        """The apps whose orphans no worker had room for, until the workers that they lost are back or replaced."""
        return tuple(concern for _, (_, concern) in sorted(self._crowded.items()))

    def see(
        self,
        snapshot: Snapshot,
        views: Mapping[AppId, AppView],
        placements: Mapping[AppId, Placement],
        hosts: HostsSeen,
        demands: Mapping[WorkerId, WorkerDemand],
    ) -> None:
        """Find the orphans in a window; `views` have an assumed load for what was not measured."""
        here = {row.worker for row in snapshot.nodes if row.state is not WorkerState.AWAY}
        owners = {worker for view in views.values() for worker in view.kept_table.workers}
        self._away = {worker: self._away.get(worker, 0) + 1 for worker in owners - here}
        here |= {worker for worker, windows in self._away.items() if windows < WINDOWS}
        self._found = {}
        for app, view in views.items():
            placement = placements.get(app)
            if placement is not None and not here.issuperset(view.kept_table.workers):
                found = orphans_of(view, placement, here, snapshot)
                if len(found.table):
                    self._found[app] = view, found
        self._hosts = hosts
        self._asked = {worker: row.pct for worker, row in demands.items() if row.pct is not None}
        away = {app: set(view.kept_table.workers) - here for app, view in views.items()}
        self._crowded = {app: told for app, told in self._crowded.items() if told[0] & away.get(app, set())}

    def place(self, idle: Mapping[AppId, Placement]) -> StandbysPlaced | None:
        """The rows of the first app with orphans; `idle` = the placements of apps without a plan in flight."""
        for app, (view, orphaned) in sorted(self._found.items()):
            if app not in idle:
                continue
            placed = place_orphans(view, orphaned, self._hosts, self._asked, operations=OPERATIONS)
            if placed is None:
                continue
            del self._found[app]
            if placed.forced:
                self._crowded[app] = frozenset(orphaned.owners), _concern(app, orphaned, placed)
            rows = {each: _row(idle[app], each, target) for each, target in placed.targets.items()}
            rows = {each: row for each, row in rows.items() if row[0] in orphaned.owners}  # else adopted meanwhile
            if rows:
                return StandbysPlaced(app=app, rows=rows, detail=_described(orphaned, placed))
        return None


def orphans_of(view: AppView, placement: Placement, here: set[WorkerId], snapshot: Snapshot) -> Orphaned:
    """The key groups of workers that are not `here`, which nobody who is has, and of which no standby is here."""
    kept = view.kept_table
    away = np.array([worker not in here for worker in kept.workers], np.bool_)[kept.owner]
    table = kept.only(away)
    seen = OwnedTable.of_blocks(view.app, [block for block in snapshot.blocks if block.app == view.app])
    held = np.array([worker in here for worker in seen.workers] + [False], np.bool_)
    holder = np.append(seen.owner, len(seen.workers))[table.places_in(seen)]
    table = table.only(~held[holder])
    loads, states = defaultdict[WorkerId, float](float), Counter[WorkerId]()
    lost = np.ones(len(table), np.bool_)
    sizes = table.assumed_state_bytes
    for place in range(len(table)):
        row = placement.of(table.operators[table.operator[place]], int(table.partition[place]))
        standby = next((worker for worker in row[1:] if worker in here), None)
        if standby is not None:
            lost[place] = False
            loads[standby] += float(table.load[place])
            states[standby] += int(sizes[place])
    orphans = table.only(lost)
    return Orphaned(table=orphans, owners=tuple(sorted(orphans.workers)), inherited=loads, state=states)


def place_orphans(
    view: AppView, orphaned: Orphaned, hosts: HostsSeen, asked_pct: Mapping[WorkerId, float], *, operations: int
) -> Placed | None:
    """The next owner of each orphan, or of the MOST_AT_ONCE with the highest demand; None if no worker can take any.

    Resources are a worker's CPU, as it is asked for (`asked_pct`, or the loads of its key groups where that is not
    known), its part of the memory for state on its host, and the host's link: of what key groups receive and send, the
    larger counts.  `operations` limits the time: trials of a key group on a worker.
    """
    workers = [worker for worker in view.workers if not worker.draining]
    if not workers:
        return None
    table = _heaviest(orphaned.table)
    state = table.assumed_state_bytes.astype(np.float64)
    memory = _memory(view, workers, orphaned)
    with np.errstate(divide="ignore"):
        link = np.array([_link_bytes_s(hosts, worker) for worker in workers])
        per_unit = np.array([[1.0 / worker.capacity for worker in workers], FULL_PCT / memory.room, FULL_PCT / link])
    used = np.array([_asked(view, workers, orphaned, asked_pct), FULL_PCT * memory.share])
    links_pct = np.array([[_link_pct(hosts, worker) for worker in workers]])
    demands = Demands(
        used=np.vstack((used, links_pct)),
        demand=np.vstack((table.load, state, table.assumed_traffic.max(axis=0))),
        per_unit=per_unit,
        ceiling=np.array([[np.inf], [FULL_PCT], [np.inf]]).repeat(len(workers), axis=1),
    )
    matched = match(demands, threshold=HEAVY_FROM, operations=operations, stop=Never())
    node, busy = matched.node.copy(), demands.used.copy()
    given = np.flatnonzero(node != NOWHERE)
    np.add.at(busy.T, node[given], (demands.demand[:, given] * demands.per_unit[:, node[given]]).T)
    for item in sorted(matched.refused, key=lambda item: -float(table.load[item])):
        after = busy + demands.added(item)
        node[item] = int(after.max(axis=0).argmin())
        busy[:, node[item]] = after[:, node[item]]
    names = list(table.owners)
    top = busy.max(axis=0)
    return Placed(
        targets={name: workers[place].id for name, place in zip(names, node.tolist(), strict=True)},
        forced=tuple(names[item] for item in matched.refused),
        busy_pct={workers[place].id: float(top[place]) for place in sorted(set(node.tolist()))},
    )


def _heaviest(table: OwnedTable) -> OwnedTable:
    if len(table) <= MOST_AT_ONCE:
        return table
    chosen = np.zeros(len(table), np.bool_)
    chosen[np.argsort(-table.load, kind="stable")[:MOST_AT_ONCE]] = True
    return table.only(chosen)


def _asked(view: AppView, workers: list[Worker], orphaned: Orphaned, asked_pct: Mapping[WorkerId, float]) -> Floats:
    """(N,) percent of its capacity that is asked of each worker: with its fixed use, and what it will inherit."""
    own, found = view.owned.loads_of_workers(), []
    for worker in workers:
        inherited = orphaned.inherited.get(worker.id, 0.0) / worker.capacity
        found.append(max(own.get(worker.id, 0.0) / worker.capacity, asked_pct.get(worker.id, 0.0)) + inherited)
    return np.array(found)


def _link_pct(hosts: HostsSeen, worker: Worker) -> float:
    host = hosts.hosts.get(worker.host)
    return 0.0 if host is None else host.used.get("link", 0.0)


def _link_bytes_s(hosts: HostsSeen, worker: Worker) -> float:
    """What the link carries each way; infinite = unknown."""
    host = hosts.hosts.get(worker.host)
    return np.inf if host is None else host.window.link_bytes_s or np.inf


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Memory:
    """`room` (N,) bytes of state that fit on each worker's host, shared by its workers; `share` (N,) used of it."""

    room: Floats
    share: Floats


def _memory(view: AppView, workers: list[Worker], orphaned: Orphaned) -> _Memory:
    on_host = Counter(worker.host for worker in view.workers)
    owned = view.owned
    held = np.bincount(owned.owner, owned.assumed_state_bytes, len(owned.workers)).tolist()
    of_worker = Counter(dict(zip(owned.workers, held, strict=True)))
    of_worker.update(orphaned.state)
    of_host: Counter[HostId] = Counter()
    for worker in view.workers:
        of_host[worker.host] += of_worker[worker.id]
    rooms = [view.rooms[worker.host].memory if worker.host in view.rooms else np.inf for worker in workers]
    room = np.array([max(1.0, each / on_host[worker.host]) for each, worker in zip(rooms, workers, strict=True)])
    used = np.array([of_host[worker.host] / on_host[worker.host] for worker in workers])
    return _Memory(room=room, share=used / room)


def _row(placement: Placement, key_group: KeyGroup, target: WorkerId) -> Owners:
    """The row with `target` as its first standby.  It is not longer than before, or has one standby."""
    owner, *others = placement.of(key_group.operator, key_group.partition)
    return (owner, target, *[each for each in others if each != target][: max(0, len(others) - 1)])


def _described(orphaned: Orphaned, placed: Placed) -> str:
    counts = Counter(placed.targets.values())
    given = (f"{worker} {counts[worker]} ({busy:.0f} %)" for worker, busy in sorted(placed.busy_pct.items()))
    left = len(orphaned.table) - len(placed.targets)
    return (
        f"{first_few(orphaned.owners)} is away and {len(orphaned.table)} of its key groups have no standby that runs: "
        f"the Elastic Allocator names their next owners, {first_few(given, len(counts))}"
        + (f"; {left} follow" if left else "")
        + (f"; {_crowd(placed)}" if placed.forced else "")
    )


def _crowd(placed: Placed) -> str:
    return (
        f"no worker is light or stays below {HEAVY_FROM:.0f} % with {len(placed.forced)} of them, such as "
        f"{placed.forced[0]}, so they go where they do least harm"
    )


def _concern(app: AppId, orphaned: Orphaned, placed: Placed) -> Concern:
    heavy = {worker: busy for worker, busy in placed.busy_pct.items() if level_of(busy) is Level.HEAVY}
    said = first_few((f"{worker} {busy:.0f} %" for worker, busy in sorted(heavy.items())), len(heavy))
    detail = f"after the loss of {first_few(orphaned.owners)}: {_crowd(placed)}; then used: {said}"
    return Concern(kind=ConcernKind.ORPHANS_CROWD, app=app, workers=tuple(sorted(heavy)), detail=detail)
