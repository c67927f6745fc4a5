"""Hosts whose key is revoked, so that what is said for them is dropped: nobody hears what becomes of a command there.

The stream drops their reports, so they are silent soon.  Windows may still show them for a while.  Until then their
workers count like those that only report: plans are made around them, and they get nothing.  Their agents start
nothing either.  Pure.
"""

from collections.abc import Collection
from dataclasses import replace

from trimtab_controller.decider.decision import PlanEnded
from trimtab_controller.decider.observing.view import NotReady
from trimtab_controller.decider.reasons import SkipReason
from trimtab_controller.execution.state import Execution, HandoverPhase
from trimtab_protocol.messages.names import HostId
from trimtab_protocol.messages.report import WorkerState
from trimtab_protocol.messages.snapshot import NodeWindow, Snapshot
from trimtab_protocol.wording import first_few

UNRELEASED = frozenset({HandoverPhase.WAITING, HandoverPhase.PREPARING})


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


def in_vain(execution: Execution, revoked: frozenset[HostId]) -> PlanEnded | None:
    """The early end of a plan in flight that needs one of these hosts for what it has not released yet.

    Each of its hand-overs there would wait for an answer that does not count.  What is released goes on: source and
    target do it between themselves.  A plan after a loss goes on, and gives what was to restore there to others
    (`orphans/orphans.py`).
    """
    for row in execution.in_flight if revoked else ():
        needed = {host for each in row.handovers if each.phase in UNRELEASED for host in each.hosts} & revoked
        if needed and row.stopped is None and not row.lost:
            why = f"the key of {first_few(sorted(needed))} is revoked, and nobody would hear of its hand-overs there"
            return PlanEnded(app=row.app, lost=frozenset(), detail=f"ended early, since {why}")
    return None
