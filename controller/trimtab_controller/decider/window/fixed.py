"""Which workers of an app are fixed, and which key groups are planned with.

A fleet is never whole: somebody always restarts, reports in part, or does not steer.  Such a worker is fixed: its key
groups stay where they are, and it gets none.  The plan is made around it.  A key group that nobody reports stays, too.

The first placement of an app, and one for changed operators, needs the owner of every key group.  Until then a worker
that is away or starting keeps the whole app waiting.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from trimtab_controller.decider.values.reasons import NotReady, SkipReason
from trimtab_controller.decider.window.owned import Integers, OwnedTable
from trimtab_controller.decider.window.view import FixedWorker
from trimtab_protocol.messages.codec import UNKNOWN
from trimtab_protocol.messages.key_group_table import KeyGroupBlock
from trimtab_protocol.messages.names import AppId, HostId, OperatorId, WorkerId
from trimtab_protocol.messages.placement import Placement
from trimtab_protocol.messages.reason_text import WORKERS_DIFFER
from trimtab_protocol.messages.report import WorkerState
from trimtab_protocol.messages.snapshot import NodeWindow, Snapshot
from trimtab_protocol.messages.status import NodeStatus
from trimtab_protocol.wording import first_few

MEANING = {
    SkipReason.WORKER_MISSING: "own key groups but are away",
    SkipReason.WORKER_NOT_RUNNING: "do not run",
    SkipReason.OPERATORS_DIFFER: "declare other operators than all that own key groups",
    SkipReason.WORKER_NOT_STEERING: "only report",
    SkipReason.WORKER_INCOMPLETE: "reported only in part",
    SkipReason.OWNER_UNKNOWN: "report key groups, and nothing else is known of them",
    SkipReason.LOAD_UNKNOWN: "could not measure their loads",
}
"""Why a worker is fixed, as in "workers that ..."; the first that applies counts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reported:
    """What a window shows of one app: its workers and key groups.

    `absent` = owners in the placement that nobody reports and that may come back any moment.
    `outvoted` = workers that declare other operators than the owners.
    """

    app: AppId
    rows: Sequence[NodeWindow]
    blocks: Sequence[KeyGroupBlock]
    absent: Collection[WorkerId]
    outvoted: Collection[WorkerId] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Divided:
    """The key groups to plan with, those that are kept where they are, and the fixed workers."""

    planned: OwnedTable
    kept: OwnedTable
    fixed: tuple[FixedWorker, ...]


def check_workers(app: AppId, rows: Sequence[NodeWindow], absent: Collection[WorkerId]) -> NotReady | None:
    """Check that there are workers, each with a name of its own.

    What two processes of one name report cannot be told apart, and both stand for the same rows of the placement.
    """
    if not rows and not absent:
        return NotReady(reason=SkipReason.NO_WORKERS, detail="no worker reports", app=app)
    twice = [f"{row.worker} ({', '.join(sorted((row.host, *row.also_on)))})" for row in rows if row.also_on]
    if not twice:
        return None
    detail = f"workers that run on several hosts under one name: {first_few(twice)}"
    return NotReady(reason=SkipReason.WORKER_TWICE, detail=detail, app=app)


def check_agreement(app: AppId, rows: Iterable[NodeWindow]) -> NotReady | None:
    """Check that all workers declare the same key groups; during an upgrade of the app they may differ.

    Nothing may move between versions of an app, so this is no reason to plan around some of them.
    """
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


def outvoted(app: AppId, rows: Sequence[NodeWindow], owners: Collection[WorkerId]) -> frozenset[WorkerId]:
    """The workers without key groups in the placement that declare other operators than all `owners` in it.

    Nothing moves to them; they must not stop all plans for the app.  Any host can name it.
    """
    said = {row.worker: row.operators for row in rows if row.app == app and row.operators is not None}
    first = next((operators for worker, operators in said.items() if worker in owners), None)
    if first is None or any(operators != first for worker, operators in said.items() if worker in owners):
        return frozenset()
    return frozenset(worker for worker, operators in said.items() if operators != first)


def versions_differ(app: AppId, rows: Iterable[NodeWindow]) -> str | None:
    """How the running workers of an app differ in topics, tables or operators, so that nothing may move; None: not."""
    running = [row for row in rows if row.app == app and row.state is WorkerState.RUNNING]
    told = next((row.reason for row in running if is_of_differing(row)), None)
    found = check_agreement(app, running)
    return told if found is None else told or found.detail


def is_of_differing(row: NodeWindow | NodeStatus) -> bool:
    """Whether the worker only reports because the workers of its app differ."""
    return not row.steering and row.reason is not None and row.reason.startswith(WORKERS_DIFFER)


def divide(reported: Reported, wanted: Mapping[OperatorId, int], placement: Placement | None) -> Divided | NotReady:
    """Divide the `wanted` key groups (number per operator) into those to plan with and those to keep."""
    app = reported.app
    fixed = _fixed_workers(reported)
    seen = OwnedTable.of_blocks(app, reported.blocks)
    whole = sum(wanted.values()) == len(seen)
    same_app = placement is not None and wanted == {name: len(rows) for name, rows in placement.owners.items()}
    free = sum(row.worker not in fixed for row in reported.rows)
    if free < 2 and fixed:
        return refusal(app, fixed.values())
    if not same_app and (missing := _not_whole(reported, seen, wanted, fixed)) is not None:
        return missing
    if whole and not fixed:
        divided = Divided(planned=seen, kept=OwnedTable.of(app, ()), fixed=())
    else:
        divided = _around(reported, seen, wanted, placement, fixed)
        if len(divided.planned) + len(divided.kept) < sum(wanted.values()):
            return _missing_key_groups(app, seen, wanted)
    if not len(divided.planned):
        return _missing_key_groups(app, seen, wanted)
    return divided


def refusal(app: AppId, fixed: Iterable[FixedWorker], reason: SkipReason | None = None, more: str = "") -> NotReady:
    """The reason not to plan for an app, because of its fixed workers; `reason` = the one to name first."""
    by_reason: defaultdict[SkipReason, list[FixedWorker]] = defaultdict(list)
    for each in fixed:
        by_reason[each.reason].append(each)
    order = sorted(by_reason, key=lambda each: (each is not reason, list(MEANING).index(each)))
    said = [f"workers that {MEANING[each]}: {_named(by_reason[each])}" for each in order]
    return NotReady(reason=reason or order[0], detail="; ".join([*said, *([more] if more else [])]), app=app)


def _named(workers: Iterable[FixedWorker]) -> str:
    """The workers, those with the same remark together."""
    alike: defaultdict[str, list[WorkerId]] = defaultdict(list)
    for each in workers:
        alike[each.detail].append(each.id)
    return ", ".join(f"{first_few(names)} ({detail})" if detail else first_few(names)
                     for detail, names in sorted(alike.items()))  # fmt: skip


def runs_and_steers(row: NodeWindow) -> bool:
    """Whether the worker processes, and takes commands."""
    return row.state is WorkerState.RUNNING and row.steering


def _fixed_workers(reported: Reported) -> dict[WorkerId, FixedWorker]:
    """The fixed workers, by name."""
    owners = {worker for block in reported.blocks for worker in block.owned()}
    unmeasured = {
        block.workers[worker]
        for block in reported.blocks
        if UNKNOWN in block.cpu
        for worker, cpu in zip(block.worker, block.cpu, strict=True)
        if cpu == UNKNOWN
    }
    found = dict.fromkeys(reported.absent, (SkipReason.WORKER_MISSING, ""))
    for row in reported.rows:
        if row.state is not WorkerState.RUNNING:
            found[row.worker] = SkipReason.WORKER_NOT_RUNNING, str(row.state)
        elif row.worker in reported.outvoted:
            found[row.worker] = SkipReason.OPERATORS_DIFFER, ""
        elif not row.steering:
            found[row.worker] = SkipReason.WORKER_NOT_STEERING, row.reason or "no reason is given"
        elif not row.complete:
            found[row.worker] = SkipReason.WORKER_INCOMPLETE, ""
        elif row.worker in unmeasured or row.unknown is not None:
            found[row.worker] = SkipReason.LOAD_UNKNOWN, row.unknown or "it does not say why"
    for worker in owners - {row.worker for row in reported.rows} - set(reported.absent):
        found[worker] = SkipReason.OWNER_UNKNOWN, ""
    return {worker: FixedWorker(id=worker, reason=why[0], detail=why[1]) for worker, why in sorted(found.items())}


def _trusted(reported: Reported) -> set[WorkerId]:
    """The workers whose word counts for which key groups they own."""
    running = {row.worker for row in reported.rows if row.state is WorkerState.RUNNING and row.complete}
    return running.difference(reported.outvoted)


def _not_whole(
    reported: Reported, seen: OwnedTable, wanted: Mapping[OperatorId, int], fixed: Mapping[WorkerId, FixedWorker]
) -> NotReady | None:
    """Why no placement can be made from the reports alone."""
    trusted = _trusted(reported)
    doubtful = [each for worker, each in fixed.items() if worker not in trusted]
    if doubtful:
        return refusal(reported.app, doubtful)
    return None if sum(wanted.values()) == len(seen) else _missing_key_groups(reported.app, seen, wanted)


def _around(
    reported: Reported,
    seen: OwnedTable,
    wanted: Mapping[OperatorId, int],
    placement: Placement | None,
    fixed: dict[WorkerId, FixedWorker],
) -> Divided:
    """Divide by owners: a key group has the owner that reports it, unless its placed owner may claim it back."""
    table, reporter, placed, names = _table_of(seen, wanted, placement)
    trusted = _trusted(reported)
    running = {row.worker for row in reported.rows if row.state is WorkerState.RUNNING}
    away = set(reported.absent) | {row.worker for row in reported.rows} - running
    is_away, is_trusted, is_fixed = (
        np.array([*(name in some for name in names), False]) for some in (away, trusted, fixed)
    )
    # The group may have given the key groups of a worker that restarts to their standbys.  They return with it.
    believed = is_trusted[reporter] & ~is_away[placed]
    owner = np.where(believed | (placed < 0), reporter, placed)
    planned = believed & ~is_fixed[owner]
    table = replace(table, owner=owner, load=np.where(is_trusted[reporter], table.load, np.nan))
    kept = table.only(~planned & (owner >= 0))
    # An owner may be away for long while its host does not report, or run another app now.
    here = {row.worker for row in reported.rows}
    for place in np.unique(kept.owner[np.isnan(kept.load)]).tolist():
        worker = kept.workers[place]
        if worker not in here and worker not in fixed:
            fixed[worker] = FixedWorker(id=worker, reason=SkipReason.WORKER_MISSING, detail="")
    return Divided(planned=table.only(planned), kept=kept, fixed=tuple(fixed[worker] for worker in sorted(fixed)))


def _table_of(
    seen: OwnedTable, wanted: Mapping[OperatorId, int], placement: Placement | None
) -> tuple[OwnedTable, Integers, Integers, list[WorkerId]]:
    """Every wanted key group with what is known of it; its reporter and placed owner as indices of the names, or -1."""
    operators = tuple(sorted(wanted))
    codes = {name: code for code, name in enumerate(seen.workers)}
    rows = [placement.owners.get(operator, ()) if placement else () for operator in operators]
    owners = [
        row[0] if row else None
        for operator, given in zip(operators, rows, strict=True)
        for row in (*given[: wanted[operator]], *[()] * (wanted[operator] - len(given)))
    ]
    placed = np.array([-1 if name is None else codes.setdefault(name, len(codes)) for name in owners], np.int64)
    count = len(placed)
    table = OwnedTable(
        app=seen.app,
        operators=operators,
        workers=tuple(codes),
        operator=np.repeat(np.arange(len(operators)), [wanted[operator] for operator in operators]),
        partition=np.concatenate([np.arange(wanted[operator]) for operator in operators]),
        owner=np.full(count, -1),
        load=np.full(count, np.nan),
        state_bytes=np.full(count, UNKNOWN),
        traffic=np.full((2, count), np.nan),
    )
    places = seen.places_in(table)
    table.load[places], table.state_bytes[places], table.traffic[:, places] = seen.load, seen.state_bytes, seen.traffic
    reporter = np.full(count, -1)
    reporter[places] = seen.owner
    return table, reporter, placed, list(codes)


def _missing_key_groups(app: AppId, seen: OwnedTable, wanted: Mapping[OperatorId, int]) -> NotReady:
    missing = sum(wanted.values()) - len(seen)
    partitions = {name: seen.partition[seen.operator == place].tolist() for place, name in enumerate(seen.operators)}
    # Lazy: a single absurd partition number makes a hundred thousand others missing.
    names = (
        f"{operator}/{partition}"
        for operator, count in sorted(wanted.items())
        for partition in sorted(set(range(count)).difference(partitions.get(operator, ())))
    )
    detail = (
        f"{missing} key groups were not reported: {first_few(names, missing)}" if missing else "no key group is known"
    )
    return NotReady(reason=SkipReason.KEY_GROUPS_MISSING, detail=detail, app=app)


def not_steered(snapshot: Snapshot, revoked: Collection[HostId]) -> Snapshot:
    """The window, with the workers on these hosts as workers that take no commands, and that no agent can start."""
    if not revoked:
        return snapshot
    nodes = tuple(_not_steered(row) if row.host in revoked else row for row in snapshot.nodes)
    return replace(snapshot, nodes=nodes)


def _not_steered(row: NodeWindow) -> NodeWindow:
    reason = row.reason if row.state is WorkerState.AWAY else f"the key of {row.host} is revoked"
    return replace(row, steering=False, declared=None, reason=reason)


def too_late_for(snapshot: Snapshot, revoked: Collection[HostId]) -> NotReady | None:
    """Why nothing can be decided by a window that ended before these keys were revoked; None: it shows none of them."""
    there = [f"{row.worker} on {row.host}" for row in snapshot.nodes if row.host in revoked]
    if not there:
        return None
    detail = f"workers on hosts whose key was revoked after the last window: {first_few(there)}"
    return NotReady(reason=SkipReason.WORKER_NOT_STEERING, detail=detail)
