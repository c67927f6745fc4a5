"""Observe: turn snapshot, placement and intents into a view of each app, or a reason why the app is not ready.

The owners come from the reports.  The set of key groups comes from the declarations of the app's workers, or from the
placement while they have not declared any.  A missing host, worker, key group or load is unknown, never idle or zero.
Plans are made around it (`window/fixed.py`), as long as it is a small part of the app (`unknown_load.py`).

`Liveness` remembers when hosts and workers were last seen, so that one that is away is told apart from one that is
gone.
"""

import math
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from trimtab_controller.decider.values.reasons import NotReady, SkipReason
from trimtab_controller.decider.values.settings import Requirements
from trimtab_controller.decider.window.fixed import (
    Reported,
    check_agreement,
    check_workers,
    divide,
    outvoted,
    runs_and_steers,
)
from trimtab_controller.decider.window.view import FixedWorker, MeasuredView, Worker
from trimtab_protocol.messages.key_group_table import KeyGroupBlock, KeyGroupTable
from trimtab_protocol.messages.names import AppId, HostId, KeyGroup, OperatorId, WorkerId
from trimtab_protocol.messages.placement import MAX_OPERATORS, MAX_WANTED_STANDBYS, Placement
from trimtab_protocol.messages.placement_parts import MAX_KEY_GROUPS
from trimtab_protocol.messages.report import WorkerState
from trimtab_protocol.messages.snapshot import NodeWindow, PairWindow, Snapshot
from trimtab_protocol.wording import first_few

HOST_MEMORY_S = 600.0
"""How long a host that no longer reports counts as lost; after that it counts as gone."""

USUAL_WINDOWS = 3
"""Number of last windows by which it is known how late windows come."""

LOST_HOSTS_SHARE = 0.4
"""Share of lost hosts from which on nothing is done: the network has more likely failed than the hosts."""


@dataclass(slots=True)
class Liveness:
    """When hosts and workers were last seen, by the ends of the windows (epoch seconds).

    `ran`: what was last reported of each worker that ran, and when in `ran_at`, while its host counts, for as long or
    until it owns nothing.  `zones`: the zone of each host, while the host counts.
    `since` = when each of these hosts was seen first; those of the first window were always there.  `ended` = those
    whose agents were told to end, and that have not reported since.
    """

    hosts: dict[HostId, float] = field(default_factory=dict)
    since: dict[HostId, float] = field(default_factory=dict)
    ended: frozenset[HostId] = frozenset()
    owners: frozenset[WorkerId] = frozenset()
    absent_since: dict[WorkerId, float] = field(default_factory=dict)
    met: frozenset[WorkerId] = frozenset()
    strangers: dict[WorkerId, float] = field(default_factory=dict)
    ran: dict[WorkerId, NodeWindow] = field(default_factory=dict)
    ran_at: dict[WorkerId, float] = field(default_factory=dict)
    zones: dict[HostId, str] = field(default_factory=dict)

    def observe(self, snapshot: Snapshot, owners: Iterable[WorkerId]) -> None:
        """Note which hosts and workers are there, and which owners in the placement are not."""
        end_s = snapshot.end_ms / 1000.0
        began, reporting = (end_s if self.hosts else -math.inf), {row.host for row in snapshot.hosts}
        self.hosts.update(dict.fromkeys(reporting, end_s))
        self.hosts = {host: seen for host, seen in self.hosts.items() if end_s - seen <= HOST_MEMORY_S}
        self.since = {host: self.since.get(host, began) for host in self.hosts}
        said = frozenset(snapshot.ended)
        self.ended = (said | (self.ended - reporting)) & self.hosts.keys()
        unnamed = {row.host for row in snapshot.hosts if row.zone is None}
        self.zones.update({row.host: row.zone for row in snapshot.hosts if row.zone is not None})
        self.zones = {host: zone for host, zone in self.zones.items() if host in self.hosts.keys() - unnamed}
        here = {row.worker for row in snapshot.nodes if row.state is not WorkerState.AWAY}
        self.owners = frozenset(owners)
        self.absent_since = {worker: self.absent_since.get(worker, end_s) for worker in self.owners - here}
        self.met = (self.met & self.owners) | {row.worker for row in snapshot.nodes}
        self.strangers = {worker: self.strangers.get(worker, end_s) for worker in self.owners - self.met}
        self.ran.update({row.worker: row for row in snapshot.nodes if row.worker in here})
        self.ran_at.update(dict.fromkeys(here, end_s))
        self.ran = {
            worker: row
            for worker, row in self.ran.items()
            if row.host in self.hosts and (worker in self.owners or end_s - self.ran_at[worker] <= HOST_MEMORY_S)
        }
        self.ran_at = {worker: self.ran_at[worker] for worker in self.ran}

    def may_run(self, worker: WorkerId, app: AppId) -> bool:
        """Whether the worker ran this app when it was last seen, or may have: it was never seen."""
        row = self.ran.get(worker)
        return row is None or row.app == app

    def forget(self, app: AppId | None, worker: WorkerId | None, reporting: Collection[HostId]) -> None:
        """Forget an app, a worker, or both; `reporting` = hosts that report."""
        if app is not None:
            self.forget_app(app, reporting)
        if worker is not None:
            self.forget_worker(worker, reporting)

    def forget_app(self, app: AppId, reporting: Collection[HostId]) -> None:
        """Stop waiting for the app's workers, and for silent hosts on which only these ran."""
        self._forget({worker for worker, row in self.ran.items() if row.app == app}, reporting)

    def forget_worker(self, worker: WorkerId, reporting: Collection[HostId]) -> None:
        """Count the worker as gone, and its host too if that is silent and no other worker ran there."""
        self._forget({worker}, reporting)
        if worker in self.owners:
            self.absent_since[worker] = -math.inf
            self.strangers.pop(worker, None)
            self.met |= {worker}

    def _forget(self, workers: set[WorkerId], reporting: Collection[HostId]) -> None:
        left = {self.ran.pop(worker).host for worker in workers & self.ran.keys()}
        silent = left - set(reporting) - {row.host for row in self.ran.values()}
        self.hosts = {host: seen for host, seen in self.hosts.items() if host not in silent}

    def lost_hosts(self, snapshot: Snapshot) -> list[HostId]:
        """Hosts that reported recently and no longer do."""
        return sorted(self.hosts.keys() - {row.host for row in snapshot.hosts})

    def missed_hosts(
        self, snapshot: Snapshot, placements: Mapping[AppId, Placement], maintained: Collection[HostId] = ()
    ) -> list[HostId]:
        """The lost hosts that may come back.  `maintained` = hosts that may be silent.

        Nobody misses a host whose key groups are all reported by others, if its agent said that it ends, or if a new
        host has come for it: pods get new names with every deployment.
        """
        lost = [host for host in self.lost_hosts(snapshot) if host not in maintained]
        if not lost:
            return []
        needed = self._needed(snapshot, placements, frozenset(lost))
        end_s = snapshot.end_ms / 1000.0
        new = sum(end_s - HOST_MEMORY_S < self.since.get(row.host, 0.0) <= end_s for row in snapshot.hosts)
        taken_over = sorted(set(lost) - needed - self.ended, key=lambda host: (self.hosts[host], host))
        return sorted(needed.union(taken_over[new:]))

    def _needed(
        self, snapshot: Snapshot, placements: Mapping[AppId, Placement], lost: frozenset[HostId]
    ) -> set[HostId]:
        """The lost hosts that own key groups in placements which nobody else reports."""
        hosts = {worker: row.host for worker, row in self.ran.items() if row.host in lost}
        running = {row.worker for row in snapshot.nodes if row.state is WorkerState.RUNNING}
        reported: defaultdict[tuple[AppId, OperatorId], set[int]] = defaultdict(set)
        for block in snapshot.blocks if hosts else ():
            ours = [worker in running for worker in block.workers]
            found = (part for part, worker in zip(block.partition, block.worker, strict=True) if ours[worker])
            reported[block.app, block.operator].update(found)
        return {
            hosts[row[0]]
            for app, placement in (placements.items() if hosts else ())
            for operator, rows in placement.owners.items()
            for partition, row in enumerate(rows)
            if row and row[0] in hosts and partition not in reported[app, operator]
        }

    def apps_on(self, hosts: Collection[HostId]) -> set[AppId]:
        """The apps whose workers were last seen on these hosts."""
        return {row.app for row in self.ran.values() if row.app is not None and row.host in hosts}

    def lost_owners(self, end_s: float) -> list[WorkerId]:
        """Owners in the placement that no host has reported yet, not even as away.

        They reveal to a controller that has just started that a host was lost before.
        """
        return sorted(worker for worker, since in self.strangers.items() if end_s - since <= HOST_MEMORY_S)

    def awaited(self, end_s: float, limit_s: float) -> frozenset[WorkerId]:
        """Owners in the placement that have been absent for less than `limit_s`."""
        return frozenset(worker for worker in self.absent_since if not self.gone(worker, end_s, limit_s))

    def gone(self, worker: WorkerId, end_s: float, limit_s: float) -> bool:
        """Whether the worker has been absent for `limit_s` and no longer counts."""
        since = self.absent_since.get(worker)
        return since is not None and end_s - since >= limit_s


@dataclass(frozen=True, slots=True)
class Delays:
    """How old the last windows were when they came (`ages_s`), the last one at `came_at` (epoch seconds).

    What is planned now must still be right: workers and loads change while a window is on its way.  A window that is
    later than usual says that something is wrong, and that newer ones follow.  Where all come late, nothing newer will,
    and a plan from old figures is better than none.
    """

    ages_s: tuple[float, ...] = ()
    came_at: float = -math.inf

    def after(self, now: float, snapshot: Snapshot) -> "Delays":
        """With a window that comes now; not if it follows so soon that the stream is catching up."""
        if now - self.came_at < (snapshot.end_ms - snapshot.start_ms) / 2000.0:
            return self
        return Delays((*self.ages_s, now - snapshot.end_ms / 1000.0)[-USUAL_WINDOWS:], now)

    def allowed_s(self, max_age_s: float) -> float:
        """How old a window may be: `max_age_s` later than the last ones at least were, and at most twice as old."""
        usual_s = min(self.ages_s) if len(self.ages_s) == USUAL_WINDOWS else 0.0
        return max_age_s + min(max(0.0, usual_s), max_age_s)


def check_cluster(
    snapshot: Snapshot,
    now: float,
    liveness: Liveness,
    needs: Requirements,
    maintained: Collection[HostId] = (),
    *,
    delays: Delays = Delays(),
) -> NotReady | None:
    """The reason why no app can be judged when a window comes, or None.

    `maintained` = hosts that may be silent; `delays` = of the windows before.
    """
    age_s = now - snapshot.end_ms / 1000.0
    if age_s > delays.allowed_s(needs.max_age_s):
        detail = f"the window that has just come ended {age_s:.0f} s ago: Spark is late, or this clock is ahead"
        return NotReady(reason=SkipReason.STALE_SNAPSHOT, detail=detail)
    lost = [host for host in liveness.lost_hosts(snapshot) if host not in maintained]
    off = len(set(maintained) & liveness.hosts.keys() - {row.host for row in snapshot.hosts})
    expected = max(snapshot.hosts_seen, snapshot.hosts_expected - off)
    if (snapshot.hosts_seen / expected if expected else 0.0) < needs.min_coverage:
        missing = f"; no longer: {first_few(lost)}" if lost else ""
        share = f"{snapshot.hosts_seen} of {expected} hosts reported"
        detail = f"{share}, {needs.min_coverage:.0%} needed{missing}"
        return NotReady(reason=SkipReason.LOW_COVERAGE, detail=detail)
    return None


def held_apps(
    snapshot: Snapshot,
    liveness: Liveness,
    placements: Mapping[AppId, Placement],
    maintained: Collection[HostId] = (),
) -> dict[AppId, NotReady]:
    """The apps that had workers on lost hosts, while so many hosts are lost that the network may be to blame.

    A controller that has just started sees it by the owners that no host reports; apps that nobody runs do not count.
    """
    reporting = {row.host for row in snapshot.hosts} - set(maintained)
    missed = liveness.missed_hosts(snapshot, placements, maintained)
    held: dict[AppId, str] = {}
    if missed and len(missed) >= LOST_HOSTS_SHARE * (len(missed) + len(reporting)):
        detail = f"{len(missed)} of {len(missed) + len(reporting)} hosts no longer report: {first_few(missed)}"
        held = dict.fromkeys(liveness.apps_on(missed), detail)
    strangers = set(liveness.lost_owners(snapshot.end_ms / 1000.0))
    run = {row.app for row in snapshot.nodes if row.state is not WorkerState.AWAY}
    owners = {app: placed_workers([each]) for app, each in placements.items()} if strangers else {}
    owners = {app: workers for app, workers in owners.items() if app in run}
    total = frozenset().union(*owners.values())
    absent = sorted(strangers & total)
    if absent and len(absent) >= LOST_HOSTS_SHARE * len(total):
        detail = f"no host reports {len(absent)} of {len(total)} workers that own key groups: {first_few(absent)}"
        held |= {app: detail for app, workers in owners.items() if workers & strangers}
    return {app: NotReady(reason=SkipReason.HOSTS_LOST, detail=why, app=app) for app, why in sorted(held.items())}


def parts_of(snapshot: Snapshot, placements: Mapping[AppId, Placement]) -> dict[AppId, Snapshot]:
    """Split a snapshot into one per app with only its key groups, pairs and workers; apps with a placement included.

    A fleet has many apps, so this reads the snapshot once, not once per app.
    """
    blocks: defaultdict[AppId, list[KeyGroupBlock]] = defaultdict(list)
    pairs: defaultdict[AppId, list[PairWindow]] = defaultdict(list)
    rows: defaultdict[AppId, list[NodeWindow]] = defaultdict(list)
    holding: defaultdict[WorkerId, set[AppId]] = defaultdict(set)
    for block in snapshot.blocks:
        blocks[block.app].append(block)
        for worker in block.workers:
            holding[worker].add(block.app)
    for pair in snapshot.pairs:
        pairs[pair.source.app].append(pair)
    for app, placement in placements.items():
        for worker in placed_workers([placement]):
            holding[worker].add(app)
    for row in snapshot.nodes:
        for app in holding[row.worker] | ({row.app} if row.app is not None else set()):
            rows[app].append(row)
    return {
        app: replace(snapshot, nodes=tuple(rows[app]), key_groups=KeyGroupTable(blocks[app]), pairs=tuple(pairs[app]))
        for app in sorted(rows.keys() | blocks.keys() | placements.keys())
    }


def placed_workers(placements: Iterable[Placement]) -> set[WorkerId]:
    """All owners in the placements."""
    return {row[0] for placement in placements for rows in placement.owners.values() for row in rows if row}


def observe(
    snapshot: Snapshot,
    app: AppId,
    *,
    placement: Placement | None,
    draining: frozenset[WorkerId],
    liveness: Liveness,
    needs: Requirements,
    zones: Mapping[HostId, str] = MappingProxyType({}),
) -> MeasuredView | NotReady:
    """The view of one app, from its part of a snapshot that has passed `check_cluster`.

    `zones` = those of hosts, as far as they are known.
    """
    end_s = snapshot.end_ms / 1000.0
    blocks = [block for block in snapshot.blocks if block.app == app]
    owners = {worker for block in blocks for worker in block.owned()}
    placed = placed_workers([placement]) if placement else set()
    # A worker that was restarted with another app no longer belongs to this one.
    elsewhere = {row.worker for row in snapshot.nodes if row.app not in (None, app)}
    ours = (owners | placed) - elsewhere
    rows = [row for row in snapshot.nodes if row.app == app or row.worker in ours]
    rows = [row for row in rows if row.state is not WorkerState.AWAY or row.worker in owners]
    unseen = placed - elsewhere - {row.worker for row in rows}
    absent = {worker for worker in unseen if not liveness.gone(worker, end_s, needs.lost_worker_s)}
    others = outvoted(app, rows, placed)
    deciding = [row for row in rows if row.worker not in others]
    missing = check_workers(app, rows, absent) or check_agreement(app, deciding)
    if missing is not None:
        return missing
    declared = _declared(app, deciding)
    wanted = _placed_or_seen(placement, blocks) if declared is None else declared
    # In the window in which operators change, some reports still show the old ones.
    blocks = [kept for block in blocks if len(kept := block.below(wanted.get(block.operator, 0)))]
    missing = _check_size(app, blocks)
    if missing is not None:
        return missing
    reported = Reported(app=app, rows=rows, blocks=blocks, absent=absent, outvoted=others)
    found = divide(reported, wanted, placement)
    if isinstance(found, NotReady):
        return found
    fixed = tuple(_with_worker(each, rows, liveness, draining, zones) for each in found.fixed)
    free = {row.worker for row in rows} - {each.id for each in fixed}
    return MeasuredView(
        app=app,
        start_s=snapshot.start_ms / 1000.0,
        end_s=end_s,
        workers=tuple(
            _worker(row, draining, zones) for row in sorted(rows, key=lambda row: row.worker) if row.worker in free
        ),
        key_groups=found.planned,
        flows=_flows(
            row
            for row in snapshot.pairs
            if all(end.app == app and end.partition < wanted.get(end.operator, 0) for end in (row.source, row.target))
        ),
        # Standbys on a worker that no host has reported yet would be given up.
        standbys=None if any(each.worker is None for each in fixed) else _wanted_standbys(rows),
        fixed=fixed,
        kept=found.kept,
        fresh=any(row.fresh and row.app == app for row in rows),
    )


def _flows(rows: Iterable[PairWindow]) -> dict[tuple[KeyGroup, KeyGroup], float]:
    """Tuples per second between key groups, by all topics."""
    found: defaultdict[tuple[KeyGroup, KeyGroup], float] = defaultdict(float)
    for row in rows:
        found[row.source, row.target] += row.tuples_s
    return dict(found)


def _worker(row: NodeWindow, draining: frozenset[WorkerId], zones: Mapping[HostId, str]) -> Worker:
    return Worker(
        id=row.worker,
        host=row.host,
        capacity=row.capacity,
        draining=row.worker in draining,
        zone=zones.get(row.host),
    )


def _with_worker(
    fixed: FixedWorker,
    rows: list[NodeWindow],
    liveness: Liveness,
    draining: frozenset[WorkerId],
    zones: Mapping[HostId, str],
) -> FixedWorker:
    row = next((row for row in rows if row.worker == fixed.id), liveness.ran.get(fixed.id))
    return fixed if row is None else replace(fixed, worker=_worker(row, draining, zones))


def _wanted_standbys(rows: list[NodeWindow]) -> int | None:
    """The number of standbys that the app asks for: while its workers ask for different numbers, the largest."""
    asked = [row.standbys for row in rows if row.standbys is not None]
    return min(max(asked), MAX_WANTED_STANDBYS) if asked else None


def _declared(app: AppId, rows: list[NodeWindow]) -> Mapping[OperatorId, int] | None:
    """The number of key groups of each operator, as declared by workers that agree; None: not yet.

    A worker that does not run or steer may not know them yet.
    """
    ours = [row for row in rows if row.app == app]
    said = [row.operators for row in ours if runs_and_steers(row)] or [row.operators for row in ours]
    return next(iter(said), None) if None not in said else None


def _placed_or_seen(placement: Placement | None, blocks: list[KeyGroupBlock]) -> Mapping[OperatorId, int]:
    """The number of key groups of each operator, from the placement and from the highest reported partitions."""
    wanted = {operator: len(rows) for operator, rows in placement.owners.items()} if placement else {}
    for block in blocks:
        wanted[block.operator] = max(wanted.get(block.operator, 0), max(block.partition) + 1)
    return wanted


def _check_size(app: AppId, blocks: list[KeyGroupBlock]) -> NotReady | None:
    """Check that workers and the next leader can read the placement."""
    counts = {block.operator: len(block) for block in blocks}
    if sum(counts.values()) <= MAX_KEY_GROUPS and len(counts) <= MAX_OPERATORS:
        return None
    total = f"the placement of {sum(counts.values())} key groups of {len(counts)} operators"
    detail = f"{total}: at most {MAX_KEY_GROUPS} key groups and {MAX_OPERATORS} operators are possible"
    return NotReady(reason=SkipReason.APP_TOO_LARGE, detail=detail, app=app)
