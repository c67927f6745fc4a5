"""Why a plan makes its moves, from the view that it was made with, and plans for moves that no solver has chosen."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from trimtab_controller.decider.collocation.worth import loads_foreseen
from trimtab_controller.decider.hosts.resources import ROUNDING, Filled
from trimtab_controller.decider.observing.view import PlannableView
from trimtab_controller.decider.planning.single_moves import SingleMoves
from trimtab_controller.plan import Move, MoveReason, NextMove, Plan, PlanReason, PlanWhy
from trimtab_protocol.messages.names import HostId, WorkerId

CLEARLY_PP = 0.05
"""From which distance a worker counts as above or below the mean."""


def why_of(view: PlannableView, moves: Mapping[int, WorkerId], reason: PlanReason, filled: Sequence[Filled]) -> PlanWhy:
    """Why these key groups (row of the view -> target) move, and what one more move would bring.

    `filled` = what the moves fill of the hosts (`filled_by`).
    """
    before, after = SingleMoves(view), SingleMoves(view, moves, filled)
    loads, mean = before.loads, before.mean_load
    full = {each.host for each in filled if each.before > each.room * (1 + ROUNDING)}
    table, draining, misplaced = view.owned, frozenset(view.draining), view.misplaced

    def reason_of(row: int, target: WorkerId) -> MoveReason:
        source = table.workers[table.owner[row]]
        if reason.by_operator or reason is PlanReason.ROLL_BACK:
            return MoveReason(reason.value)
        if source in draining:
            return MoveReason.DRAIN
        if misplaced[row]:
            return MoveReason.RULE
        if reason is PlanReason.FIRST:
            return MoveReason.FIRST
        return _for_balance(view.hosts, full, source, target, loads, mean, reason)

    best = after.best()
    return PlanWhy(
        reasons=tuple(reason_of(row, target) for row, target in moves.items()),
        loads=tuple(float(table.load[row]) for row in moves),
        before=loads,
        after=_with_savings(view, moves, after.loads),
        mean_load=mean,
        next=None
        if best is None
        else NextMove(
            key_group=table[best.row].key_group,
            source=table[best.row].owner,
            target=view.workers[best.target].id,
            load_distance=best.load_distance,
        ),
    )


def _with_savings(
    view: PlannableView, moves: Mapping[int, WorkerId], loads: Mapping[WorkerId, float]
) -> Mapping[WorkerId, float]:
    """The loads after the moves, with what tuples that become local save, and those that become remote cost."""
    if not view.remote_costs or not view.flows:
        return loads
    table, workers = view.owned, [worker.id for worker in view.workers]
    owners = np.array([workers.index(name) for name in table.workers])[table.owner]
    for row, target in moves.items():
        owners[row] = workers.index(target)
    moved = replace(table, workers=tuple(workers), owner=owners)
    more = np.bincount(owners, loads_foreseen(view, moved) - table.load, len(workers))
    return {
        worker.id: loads[worker.id] + float(change) / worker.capacity
        for worker, change in zip(view.workers, more, strict=True)
    }


def _for_balance(
    hosts: Mapping[WorkerId, HostId],
    full: set[HostId],
    source: WorkerId,
    target: WorkerId,
    loads: Mapping[WorkerId, float],
    mean: float,
    reason: PlanReason,
) -> MoveReason:
    if hosts[source] in full and hosts[target] != hosts[source]:
        return MoveReason.HOST_FULL
    if reason is PlanReason.COLLOCATION:
        return MoveReason.COLLOCATION
    if loads[source] > mean + CLEARLY_PP:
        return MoveReason.OVER_MEAN
    return MoveReason.UNDER_MEAN if loads[target] < mean - CLEARLY_PP else MoveReason.MAKES_ROOM


def plan_for(
    view: PlannableView, moves: Mapping[int, WorkerId], filled: Sequence[Filled], reason: PlanReason, detail: str
) -> Plan:
    """The plan that makes these moves (row -> target); `filled` = what they fill of the hosts.

    Nobody has sought a better one, so its bound is 0.
    """
    table = view.owned
    return Plan(
        app=view.app,
        reason=reason,
        detail=detail,
        moves=tuple(
            Move(
                key_group=table[row].key_group,
                source=table[row].owner,
                target=target,
                state_bytes=table[row].state_bytes,
            )
            for row, target in moves.items()
        ),
        hosts=view.hosts,
        before=SingleMoves(view).load_distance or 0.0,
        planned=SingleMoves(view, moves, filled).load_distance or 0.0,
        lower_bound=0.0,
        status="feasible",
        why=why_of(view, moves, reason, filled),
    )
