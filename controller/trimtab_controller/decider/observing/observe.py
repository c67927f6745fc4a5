"""Observe: turn snapshot, placement and intents into a view of each app, or a reason why the app is not ready.

The owners come from the reports.  The set of key groups comes from the declarations of the app's workers, or from the
placement while they have not declared any.  A missing host, worker, key group or load is unknown, never
idle or zero.  Plans are made around it (`fixed.py`), as long as it is a small part of the app (`unknown_load.py`).
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from types import MappingProxyType

from trimtab_controller.decider.observing.fixed import (
    Reported,
    check_agreement,
    check_workers,
    divide,
    outvoted,
    runs_and_steers,
)
from trimtab_controller.decider.observing.liveness import Liveness
from trimtab_controller.decider.observing.view import FixedWorker, MeasuredView, NotReady, Worker
from trimtab_controller.decider.reasons import SkipReason
from trimtab_controller.decider.settings import Requirements
from trimtab_protocol.messages.key_group_table import KeyGroupBlock, KeyGroupTable
from trimtab_protocol.messages.names import AppId, HostId, OperatorId, WorkerId
from trimtab_protocol.messages.placement import MAX_OPERATORS, MAX_WANTED_STANDBYS, Placement
from trimtab_protocol.messages.placement_parts import MAX_KEY_GROUPS
from trimtab_protocol.messages.report import WorkerState
from trimtab_protocol.messages.snapshot import NodeWindow, PairWindow, Snapshot
from trimtab_protocol.wording import first_few

LOST_HOSTS_SHARE = 0.4
"""Share of lost hosts from which on nothing is done: the network has more likely failed than the hosts."""


def check_cluster(
    snapshot: Snapshot,
    now: float,
    liveness: Liveness,
    needs: Requirements,
    maintained: Collection[HostId] = (),
) -> NotReady | None:
    """The reason why no app can be judged when a window comes, or None.  `maintained` = hosts that may be silent."""
    age_s = now - snapshot.end_ms / 1000.0
    if age_s > needs.max_age_s:
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
    reported = Reported(app=app, rows=rows, blocks=blocks, absent=absent, unseen=unseen, outvoted=others)
    found = divide(reported, wanted, placement)
    if isinstance(found, NotReady):
        return found
    fixed = tuple(_with_worker(each, rows, liveness, draining, zones) for each in found.fixed)
    free = {row.worker for row in rows} - {each.id for each in fixed}
    return MeasuredView(
        app=app,
        start_s=snapshot.start_ms / 1000.0,
        end_s=end_s,
        workers=tuple(_worker(row, draining, zones) for row in _by_name(rows) if row.worker in free),
        key_groups=found.planned,
        flows={
            (row.source, row.target): row.tuples_s
            for row in snapshot.pairs
            if all(end.app == app and end.partition < wanted.get(end.operator, 0) for end in (row.source, row.target))
        },
        # Standbys on a worker that no host has reported yet would be given up.
        standbys=None if any(each.worker is None for each in fixed) else _wanted_standbys(rows),
        fixed=fixed,
        kept=found.kept,
        fresh=any(row.fresh and row.app == app for row in rows),
    )


def _by_name(rows: Iterable[NodeWindow]) -> list[NodeWindow]:
    return sorted(rows, key=lambda row: row.worker)


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
