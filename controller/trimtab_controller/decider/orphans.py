"""Orphans: key groups whose owner is away and that nobody took over, while no standby of theirs runs.

When the consumer group notices that the owner is gone (after the session time-out of the app), it gives each key group
to the first worker in its row that is a member; where there is none, to the member with the fewest key groups.  So the
controller adds a worker to the row of each orphan as soon as the owner has been away at the end of WINDOWS windows: an
agent that restarts is back before.  The worker that was added begins to restore, and it is the next owner.  If the old
one comes back first, it keeps its key groups.  This is a plan (`PlanReason.LOSS`), whose restores are scheduled.

The workers are chosen by the greedy matching of the Elastic Allocator (`trimtab_models.elastic`), from the demand of
each key group, what is asked of each worker, and the memory, disks and links of the hosts.  Where it refuses a key
group, since no worker is light, the key group goes where it does least harm, even beyond the limit of a disk: a key
group without an owner is an outage.  This is then a concern.  DynDL may choose other targets within the band
(`orphan_targets.py`).
"""

from collections import Counter, defaultdict, deque
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from trimtab_controller.decider.concerns import FULL_PCT, Concern, ConcernKind
from trimtab_controller.decider.copies import state_held
from trimtab_controller.decider.decision import Planned, StandbysPlaced
from trimtab_controller.decider.demand import WorkerDemand
from trimtab_controller.decider.hosts import HostsSeen
from trimtab_controller.decider.orphan_targets import Chosen, choose
from trimtab_controller.decider.owned import Floats, OwnedTable
from trimtab_controller.decider.resources import free_disks, with_less_disk
from trimtab_controller.decider.restores import Restores, what_restores
from trimtab_controller.decider.restoring import with_restores
from trimtab_controller.decider.view import AppView, Worker
from trimtab_controller.execution.restores import LearnedRestores
from trimtab_controller.execution.state import Execution, next_owned
from trimtab_controller.plan import Move, Plan, PlanReason
from trimtab_controller.wording import first_few
from trimtab_models.elastic import Demands, Level, level_of, match
from trimtab_models.elastic.matching import HEAVY_FROM, NOWHERE
from trimtab_models.solving import Never
from trimtab_protocol.messages.names import AppId, HostId, KeyGroup, WorkerId
from trimtab_protocol.messages.placement import Placement
from trimtab_protocol.messages.report import WorkerState
from trimtab_protocol.messages.snapshot import Snapshot

WINDOWS = 2
"""In so many windows in a row a worker must be away to count as lost."""
SOONER_S = 0.1
OPERATIONS = 500_000
"""Trials of a key group on a worker in one decision; what is left then is spread evenly over light workers."""
MOST_AT_ONCE = 5_000
"""Orphans that one decision places, those with the highest demand first; it then takes under a tenth of a second."""
MOST_SCHEDULED = 1_000
"""Orphans whose restores are scheduled, and for which DynDL may choose targets: each step of a plan is journalled with
all its hand-overs.  More of them are named at once, and restore in no order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Placed:
    """`targets` = the next owner of each orphan.  `forced` = those that no worker had room for, or was light enough.

    `busy_pct` = per worker that got some, what is then used of its busiest resource.  `chosen`: what DynDL changed.
    """

    targets: Mapping[KeyGroup, WorkerId]
    forced: tuple[KeyGroup, ...]
    busy_pct: Mapping[WorkerId, float]
    chosen: Chosen | None = None


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

    def __init__(self, *, band: float = 0.0) -> None:
        """`band`: how far a worker may get from the mean use for the sake of restores (pp)."""
        self._band = band
        self._windows: deque[Snapshot] = deque(maxlen=WINDOWS + 2)  # newest first: when a worker is lost, what it said
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
        self._windows.appendleft(snapshot)
        self._asked = {worker: row.pct for worker, row in demands.items() if row.pct is not None}
        away = {app: set(view.kept_table.workers) - here for app, view in views.items()}
        self._crowded = {app: told for app, told in self._crowded.items() if told[0] & away.get(app, set())}

    def place(
        self, execution: Execution, learned: LearnedRestores, promised: Mapping[HostId, float]
    ) -> Planned | StandbysPlaced | None:
        """Next owners for the first app with orphans that has no plan in flight.

        `promised` = bytes on the disk of each host that standbys are about to write.
        """
        for app, (seen, orphaned) in sorted(self._found.items()):
            view = with_less_disk(seen, promised)
            placement = execution.placements.get(app)
            if placement is None or execution.busy(app):
                continue
            newest, *before = self._windows
            held = state_held(newest, app, placement, before)
            restores = what_restores(newest, execution, learned, held, self._band)
            placed = place_orphans(view, orphaned, self._hosts, self._asked, operations=OPERATIONS, restores=restores)
            if placed is None:
                continue
            del self._found[app]
            if placed.forced:
                self._crowded[app] = frozenset(orphaned.owners), _concern(app, orphaned, placed)
            rows = {each: placement.of(each.operator, each.partition) for each in placed.targets}
            lost = {each: row for each, row in rows.items() if row[0] in orphaned.owners}  # else adopted meanwhile
            if len(lost) > MOST_SCHEDULED:
                named = {each: next_owned(row, placed.targets[each]) for each, row in lost.items()}
                return StandbysPlaced(app=app, rows=named, detail=_described(orphaned, placed))
            if lost:
                sources = {each: row[0] for each, row in lost.items()}
                planned = Planned(plan=_plan(view, orphaned, placed, sources))
                found = with_restores(planned, newest, held)
                assert isinstance(found, Planned)
                return found
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
    view: AppView,
    orphaned: Orphaned,
    hosts: HostsSeen,
    asked_pct: Mapping[WorkerId, float],
    *,
    operations: int,
    restores: Restores | None = None,
) -> Placed | None:
    """The next owner of each orphan, or of the MOST_AT_ONCE with the highest demand; None if no worker can take any.

    Resources are a worker's CPU, as it is asked for (`asked_pct`, or the loads of its key groups where that is not
    known), its part of the memory for state and of the free disk on its host, and the host's link: of what key groups
    receive and send, the larger counts.  `operations` limits the time: trials of a key group on a worker.  `restores`:
    DynDL may choose other targets, so that all are warm sooner.
    """
    workers = [worker for worker in view.workers if not worker.draining]
    if not workers:
        return None
    table = _heaviest(orphaned.table)
    state = table.assumed_state_bytes.astype(np.float64)
    memory = _memory(view, workers, orphaned)
    with np.errstate(divide="ignore"):
        link = np.array([_link_bytes_s(hosts, worker) for worker in workers])
        per_capacity = [1.0 / worker.capacity for worker in workers]
        per_unit = np.array([per_capacity, FULL_PCT / memory.room, HEAVY_FROM / _disk(view, workers), FULL_PCT / link])
    used = [_asked(view, workers, orphaned, asked_pct), FULL_PCT * memory.share, np.zeros(len(workers))]
    demands = Demands(
        used=np.array([*used, [_link_pct(hosts, worker) for worker in workers]]),
        demand=np.vstack((table.load, state, state, table.assumed_traffic.max(axis=0))),
        per_unit=per_unit,
        ceiling=np.array([[np.inf], [FULL_PCT], [HEAVY_FROM], [np.inf]]).repeat(len(workers), axis=1),
    )
    matched = match(demands, threshold=HEAVY_FROM, operations=operations, stop=Never())
    node, busy = matched.node.copy(), demands.used.copy()
    given = np.flatnonzero(node != NOWHERE)
    np.add.at(busy.T, node[given], (demands.demand[:, given] * demands.per_unit[:, node[given]]).T)
    for item in sorted(matched.refused, key=lambda item: -float(table.load[item])):
        after = busy + demands.added(item)
        node[item] = int(after.max(axis=0).argmin())
        busy[:, node[item]] = after[:, node[item]]
    scheduled = restores is not None and len(table) <= MOST_SCHEDULED
    chosen = choose(table, workers, demands, node, restores) if restores is not None and scheduled else None
    if chosen is not None:
        node, busy = chosen.node, demands.used.copy()
        np.add.at(busy.T, node, (demands.demand * demands.per_unit[:, node]).T)
    names = list(table.owners)
    top = busy.max(axis=0)
    return Placed(
        targets={name: workers[place].id for name, place in zip(names, node.tolist(), strict=True)},
        forced=tuple(names[item] for item in matched.refused),
        busy_pct={workers[place].id: float(top[place]) for place in sorted(set(node.tolist()))},
        chosen=chosen,
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


def _disk(view: AppView, workers: list[Worker]) -> Floats:
    """(N,) bytes that still fit on the disk of each worker's host, shared by its workers; infinite = unknown.

    At this much the worker counts as heavy.
    """
    on_host, free = Counter(worker.host for worker in view.workers), free_disks(view)
    return np.array([max(1.0, free.get(worker.host, np.inf) / on_host[worker.host]) for worker in workers])


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


def _plan(view: AppView, orphaned: Orphaned, placed: Placed, sources: Mapping[KeyGroup, WorkerId]) -> Plan:
    """The plan for these orphans and what they have lost, those with the highest demand first."""
    table = orphaned.table
    found = (table[place] for place in np.argsort(-table.load, kind="stable").tolist())
    rows = [row for row in found if row.key_group in sources]
    added: defaultdict[WorkerId, float] = defaultdict(float)
    for row in rows:
        added[placed.targets[row.key_group]] += row.load
    return Plan(
        app=view.app,
        reason=PlanReason.LOSS,
        detail=_described(orphaned, placed),
        moves=tuple(
            Move(
                key_group=row.key_group,
                source=sources[row.key_group],
                target=placed.targets[row.key_group],
                state_bytes=row.state_bytes,
            )
            for row in rows
        ),
        hosts=view.hosts,
        before=_load_distance(view, {}),
        planned=_load_distance(view, added),
        lower_bound=0.0,
        status="feasible",
    )


def _load_distance(view: AppView, added: Mapping[WorkerId, float]) -> float:
    """The load distance of the workers that stay, with these loads besides (pp)."""
    loads = view.owned.loads_of_workers()
    kept = [worker for worker in view.workers if not worker.draining]
    sums = {worker.id: loads.get(worker.id, 0.0) + added.get(worker.id, 0.0) for worker in kept}
    mean = (sum(loads.values()) + sum(added.values())) / sum(worker.capacity for worker in kept)
    return max(abs(sums[worker.id] / worker.capacity - mean) for worker in kept)


def _described(orphaned: Orphaned, placed: Placed) -> str:
    counts = Counter(placed.targets.values())
    given = (f"{worker} {counts[worker]} ({busy:.0f} %)" for worker, busy in sorted(placed.busy_pct.items()))
    left = len(orphaned.table) - len(placed.targets)
    return (
        f"{first_few(orphaned.owners)} is away and {len(orphaned.table)} of its key groups have no standby that runs: "
        f"the Elastic Allocator names their next owners, {first_few(given, len(counts))}"
        + _sooner(placed)
        + (f"; {left} follow" if left else "")
        + (f"; {_crowd(placed)}" if placed.forced else "")
    )


def _sooner(placed: Placed) -> str:
    """What DynDL's own targets bring, in words; empty if that is less than a tenth of a second."""
    found = placed.chosen
    if found is None or found.given_s - found.seconds < SOONER_S:
        return ""
    return (
        f" (targets by DynDL: warm in {found.seconds:.1f} s and not {found.given_s:.1f} s, "
        f"bound {found.lower_bound_s:.1f} s)"
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
