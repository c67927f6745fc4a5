"""Observe: turn snapshot, placement and intents into a view of each app, or a reason why the app is not ready.

The owners come from the reports.  The set of key groups comes from the declarations of the app's workers, or from the
placement if their agents do not report declarations yet.  A missing host, worker, key group or load is unknown, never
idle or zero; then there is no view.
"""

import math
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from trimtab_controller.decider.owned import OwnedTable
from trimtab_controller.decider.reasons import SkipReason
from trimtab_controller.decider.view import AppView, NotReady, Worker, first_few
from trimtab_protocol.messages.columns import UNKNOWN
from trimtab_protocol.messages.decode import MAX_MESSAGE_BYTES
from trimtab_protocol.messages.key_group_table import KeyGroupBlock, KeyGroupTable
from trimtab_protocol.messages.names import AppId, HostId, KeyGroup, OperatorId, WorkerId
from trimtab_protocol.messages.placement import MAX_OPERATORS, MAX_WANTED_STANDBYS, Placement, most_bytes
from trimtab_protocol.messages.report import WorkerState
from trimtab_protocol.messages.snapshot import NodeWindow, PairWindow, Snapshot

LOST_HOSTS_SHARE = 0.4
"""Share of lost hosts from which on nothing is done: the network has more likely failed than the hosts."""
HOST_MEMORY_S = 600.0
"""How long a host that no longer reports counts as lost; after that it counts as gone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Requirements:
    """The requirements for a snapshot.  `lost_worker_s`: how long a worker may be absent before it counts as gone."""

    min_coverage: float = 0.95
    max_age_s: float = 45.0
    lost_worker_s: float = 60.0


@dataclass(slots=True)
class Liveness:
    """When hosts and workers were last seen, by the ends of the windows (epoch seconds)."""

    hosts: dict[HostId, float] = field(default_factory=dict)
    owners: frozenset[WorkerId] = frozenset()
    absent_since: dict[WorkerId, float] = field(default_factory=dict)
    met: frozenset[WorkerId] = frozenset()
    strangers: dict[WorkerId, float] = field(default_factory=dict)
    ran: dict[WorkerId, tuple[HostId, AppId | None]] = field(default_factory=dict)

    def see(self, snapshot: Snapshot, owners: Iterable[WorkerId]) -> None:
        """Note which hosts and workers are there, and which owners in the placement are not."""
        end_s = snapshot.end_ms / 1000.0
        self.hosts.update({row.host: end_s for row in snapshot.hosts})
        self.hosts = {host: seen for host, seen in self.hosts.items() if end_s - seen <= HOST_MEMORY_S}
        here = {row.worker for row in snapshot.nodes if row.state is not WorkerState.AWAY}
        self.owners = frozenset(owners)
        self.absent_since = {worker: self.absent_since.get(worker, end_s) for worker in self.owners - here}
        self.met = (self.met & self.owners) | {row.worker for row in snapshot.nodes}
        self.strangers = {worker: self.strangers.get(worker, end_s) for worker in self.owners - self.met}
        self.ran.update({row.worker: (row.host, row.app) for row in snapshot.nodes if row.worker in here})
        self.ran = {worker: where for worker, where in self.ran.items() if where[0] in self.hosts}

    def forget_app(self, app: AppId, reporting: Collection[HostId]) -> None:
        """Stop waiting for the app's workers, and for silent hosts on which only these ran."""
        self._forget({worker for worker, (_, of) in self.ran.items() if of == app}, reporting)

    def forget_worker(self, worker: WorkerId, reporting: Collection[HostId]) -> None:
        """Count the worker as gone, and its host too if that is silent and no other worker ran there."""
        self._forget({worker}, reporting)
        if worker in self.owners:
            self.absent_since[worker] = -math.inf
            self.strangers.pop(worker, None)
            self.met |= {worker}

    def _forget(self, workers: set[WorkerId], reporting: Collection[HostId]) -> None:
        left = {self.ran.pop(worker)[0] for worker in workers & self.ran.keys()}
        silent = left - set(reporting) - {host for host, _ in self.ran.values()}
        self.hosts = {host: seen for host, seen in self.hosts.items() if host not in silent}

    def lost_hosts(self, snapshot: Snapshot) -> list[HostId]:
        """Hosts that reported recently and no longer do."""
        return sorted(self.hosts.keys() - {row.host for row in snapshot.hosts})

    def lost_owners(self, end_s: float) -> list[WorkerId]:
        """Owners in the placement that no host has reported yet, not even as away.

        They reveal to a controller that has just started that a host was lost before.
        """
        return sorted(worker for worker, since in self.strangers.items() if end_s - since <= HOST_MEMORY_S)

    def gone(self, worker: WorkerId, end_s: float, limit_s: float) -> bool:
        """Whether the worker has been absent for `limit_s` and no longer counts."""
        since = self.absent_since.get(worker)
        return since is not None and end_s - since >= limit_s


def check_cluster(snapshot: Snapshot, now: float, liveness: Liveness, needs: Requirements) -> NotReady | None:
    """The reason why no app can be judged, or None."""
    age_s = now - snapshot.end_ms / 1000.0
    if age_s > needs.max_age_s:
        return NotReady(reason=SkipReason.STALE_SNAPSHOT, detail=f"the last window ended {age_s:.0f} s ago")
    lost = liveness.lost_hosts(snapshot)
    if len(lost) >= LOST_HOSTS_SHARE * max(1, len(liveness.hosts)):
        detail = f"{len(lost)} of {len(liveness.hosts)} hosts no longer report: {first_few(lost)}"
        return NotReady(reason=SkipReason.HOSTS_LOST, detail=detail)
    owners = liveness.lost_owners(snapshot.end_ms / 1000.0)
    if owners and len(owners) >= LOST_HOSTS_SHARE * len(liveness.owners):
        share = f"{len(owners)} of {len(liveness.owners)} workers that own key groups"
        detail = f"no host reports {share}: {first_few(owners)}"
        return NotReady(reason=SkipReason.HOSTS_LOST, detail=detail)
    if snapshot.coverage < needs.min_coverage:
        missing = f"; no longer: {first_few(lost)}" if lost else ""
        share = f"{snapshot.hosts_seen} of {snapshot.hosts_expected} hosts reported"
        detail = f"{share}, {needs.min_coverage:.0%} needed{missing}"
        return NotReady(reason=SkipReason.LOW_COVERAGE, detail=detail)
    return None


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


def ownership(snapshot: Snapshot) -> dict[KeyGroup, WorkerId]:
    """The owner of each key group, as reported by the running workers."""
    running = {row.worker for row in snapshot.nodes if row.state is WorkerState.RUNNING}
    return {
        KeyGroup(block.app, block.operator, partition): block.workers[worker]
        for block in snapshot.blocks
        for partition, worker in zip(block.partition, block.worker, strict=True)
        if block.workers[worker] in running
    }


def observe(
    snapshot: Snapshot,
    app: AppId,
    *,
    placement: Placement | None,
    draining: frozenset[WorkerId],
    liveness: Liveness,
    needs: Requirements,
) -> AppView | NotReady:
    """The view of one app, from its part of a snapshot that has passed `check_cluster`."""
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
    absent = sorted(worker for worker in unseen if not liveness.gone(worker, end_s, needs.lost_worker_s))
    present = {row.worker for row in rows}
    # Workers whose operators differ do not steer either.  The difference is the cause, so it is checked first.
    missing = _check_workers(app, rows, absent) or _check_agreement(app, rows) or _check_reports(app, rows)
    if missing is not None:
        return missing
    declared = _declared(app, rows)
    wanted = _placed_or_seen(placement, blocks) if declared is None else declared
    # In the window in which operators change, some reports still show the old ones.
    blocks = [kept for block in blocks if len(kept := block.below(wanted.get(block.operator, 0)))]
    missing = (
        _check_size(app, blocks, present)
        or _check_key_groups(app, blocks, wanted)
        or _check_owners(app, blocks, present)
        or _check_loads(app, blocks, rows)
    )
    if missing is not None:
        return missing
    return AppView(
        app=app,
        start_s=snapshot.start_ms / 1000.0,
        end_s=end_s,
        workers=tuple(
            Worker(id=row.worker, host=row.host, capacity=row.capacity, draining=row.worker in draining)
            for row in sorted(rows, key=lambda row: row.worker)
        ),
        key_groups=OwnedTable.of_blocks(app, blocks),
        flows={
            (row.source, row.target): row.tuples_s
            for row in snapshot.pairs
            if all(end.app == app and end.partition < wanted.get(end.operator, 0) for end in (row.source, row.target))
        },
        standbys=_wanted_standbys(rows, blocks),
    )


def _wanted_standbys(rows: list[NodeWindow], blocks: list[KeyGroupBlock]) -> int | None:
    """The number of standbys that the app asks for, limited by the size of its placement.

    While its workers ask for different numbers, the largest counts.
    """
    asked = [row.standbys for row in rows if row.standbys is not None]
    if not asked:
        return None
    counts, longest = {block.operator: len(block) for block in blocks}, max(len(row.worker) for row in rows)
    fitting = (n for n in range(MAX_WANTED_STANDBYS, 0, -1) if most_bytes(counts, longest, n) <= MAX_MESSAGE_BYTES)
    return min(max(asked), next(fitting, 0))


def _check_workers(app: AppId, rows: list[NodeWindow], absent: list[WorkerId]) -> NotReady | None:
    checks = (
        (
            SkipReason.WORKER_TWICE,
            [f"{row.worker} ({', '.join(sorted((row.host, *row.also_on)))})" for row in rows if row.also_on],
            "run on several hosts under one name",
        ),
        (SkipReason.WORKER_MISSING, absent, "own key groups but are away"),
        (
            SkipReason.WORKER_NOT_RUNNING,
            [f"{row.worker} ({row.state})" for row in rows if row.state is not WorkerState.RUNNING],
            "do not run",
        ),
    )
    if not rows and not absent:
        return NotReady(reason=SkipReason.NO_WORKERS, detail="no worker reports", app=app)
    return _first_found(app, checks)


def _check_reports(app: AppId, rows: list[NodeWindow]) -> NotReady | None:
    reporting_only: defaultdict[str, list[WorkerId]] = defaultdict(list)
    for row in rows:
        if not row.steering:
            reporting_only[row.reason or "no reason is given"].append(row.worker)
    checks = (
        (
            SkipReason.WORKER_NOT_STEERING,
            [f"{first_few(workers)} ({reason})" for reason, workers in sorted(reporting_only.items())],
            "only report",
        ),
        (SkipReason.WORKER_INCOMPLETE, [row.worker for row in rows if not row.complete], "reported only in part"),
    )
    return _first_found(app, checks)


def _first_found(app: AppId, checks: Iterable[tuple[SkipReason, Sequence[str], str]]) -> NotReady | None:
    """The first check that some workers fail."""
    for reason, names, what in checks:
        if names:
            return NotReady(reason=reason, detail=f"workers that {what}: {first_few(names)}", app=app)
    return None


def _check_agreement(app: AppId, rows: list[NodeWindow]) -> NotReady | None:
    """Check that all workers declare the same key groups; during an upgrade of the app they may differ."""
    sides: defaultdict[frozenset[tuple[OperatorId, int]], list[WorkerId]] = defaultdict(list)
    for row in rows:
        if row.app == app and row.operators is not None:
            sides[frozenset(row.operators.items())].append(row.worker)
    if len(sides) < 2:
        return None
    common = frozenset.intersection(*sides)
    told = []
    for operators, workers in sorted(sides.items(), key=lambda side: side[1]):
        own = first_few(f"{name} with {count} key groups" for name, count in sorted(operators - common))
        told.append(f"{first_few(workers)}: {own or 'no more than the others'}")
    detail = f"its workers declare different operators; {'; '.join(told)}"
    return NotReady(reason=SkipReason.OPERATORS_DIFFER, detail=detail, app=app)


def _declared(app: AppId, rows: list[NodeWindow]) -> Mapping[OperatorId, int] | None:
    """The number of key groups of each operator, as declared by workers that agree; None: an agent is too old."""
    said = [row.operators for row in rows if row.app == app]
    return next(iter(said), None) if None not in said else None


def _placed_or_seen(placement: Placement | None, blocks: list[KeyGroupBlock]) -> Mapping[OperatorId, int]:
    """The number of key groups of each operator, from the placement and from the highest reported partitions."""
    wanted = {operator: len(rows) for operator, rows in placement.owners.items()} if placement else {}
    for block in blocks:
        wanted[block.operator] = max(wanted.get(block.operator, 0), max(block.partition) + 1)
    return wanted


def _check_size(app: AppId, blocks: list[KeyGroupBlock], present: set[WorkerId]) -> NotReady | None:
    """Check that the placement fits in one message that workers and the next leader can read."""
    counts = {block.operator: len(block) for block in blocks}
    size = most_bytes(counts, max(map(len, present)))
    if size <= MAX_MESSAGE_BYTES and len(counts) <= MAX_OPERATORS:
        return None
    detail = (
        f"the placement of {sum(counts.values())} key groups of {len(counts)} operators could take {size} bytes with "
        f"workers' names of this length; at most {MAX_MESSAGE_BYTES} bytes and {MAX_OPERATORS} operators are possible"
    )
    return NotReady(reason=SkipReason.APP_TOO_LARGE, detail=detail, app=app)


def _check_key_groups(app: AppId, blocks: list[KeyGroupBlock], wanted: Mapping[OperatorId, int]) -> NotReady | None:
    seen = {block.operator: block.partition for block in blocks}
    missing = sum(wanted.values()) - sum(map(len, blocks))
    if not missing and blocks:
        return None
    # Lazy: a single absurd partition number makes a hundred thousand others missing.
    names = (
        f"{operator}/{partition}"
        for operator, count in sorted(wanted.items())
        for partition in sorted(set(range(count)).difference(seen.get(operator, ())))
    )
    detail = (
        f"{missing} key groups were not reported: {first_few(names, missing)}" if missing else "no key group is known"
    )
    return NotReady(reason=SkipReason.KEY_GROUPS_MISSING, detail=detail, app=app)


def _check_owners(app: AppId, blocks: list[KeyGroupBlock], present: set[WorkerId]) -> NotReady | None:
    unknown = [
        str(block.row(place).key_group)
        for block in blocks
        if not present.issuperset(block.owned())
        for place, worker in enumerate(block.worker)
        if block.workers[worker] not in present
    ]
    if unknown:
        detail = f"key groups whose owner is not known: {first_few(unknown)}"
        return NotReady(reason=SkipReason.OWNER_UNKNOWN, detail=detail, app=app)
    return None


def _check_loads(app: AppId, blocks: list[KeyGroupBlock], rows: list[NodeWindow]) -> NotReady | None:
    """Check that all loads are known; otherwise name the workers that could not measure, and their reasons."""
    unmeasured = [
        block.row(place)
        for block in blocks
        if UNKNOWN in block.cpu
        for place, cpu in enumerate(block.cpu)
        if cpu == UNKNOWN
    ]
    if not unmeasured:
        return None
    reasons = {row.worker: row.unknown for row in rows}
    workers = sorted({row.worker for row in unmeasured})
    said = (f"{worker} ({reasons.get(worker) or 'it does not say why'})" for worker in workers)
    names = first_few((row.key_group for row in unmeasured), len(unmeasured))
    detail = f"the loads at {first_few(said, len(workers))} are unknown; key groups without a CPU measurement: {names}"
    return NotReady(reason=SkipReason.LOAD_UNKNOWN, detail=detail, app=app)
