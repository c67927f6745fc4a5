"""Why a plan makes its moves, from the view that it was made with, and plans for moves that no solver has chosen.

`SingleMoves`: what moving one key group would do to the load distance, and to the limits of the hosts.  The mean load
does not change with a move, and only the loads of its two ends do.  So the load distance after it is the largest of
three: the deviations of both ends, and the largest deviation of all other workers.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from trimtab_controller.decider.window.collocation import loads_foreseen
from trimtab_controller.decider.window.owned import Floats, Integers
from trimtab_controller.decider.window.resources import ROUNDING, Filled, HostResource, filled_by, resources_of
from trimtab_controller.decider.window.view import PlannableView
from trimtab_controller.plan import Move, MoveReason, Plan, PlanReason, PlanWhy
from trimtab_protocol.messages.names import HostId, WorkerId

CLEARLY_PP = 0.05
"""From which distance a worker counts as above or below the mean."""


class SingleMoves:
    """The single moves after `moves` (row -> target) of a view have been made; workers by their place in the view.

    `filled` = what these moves fill of the hosts, if that is known already.
    """

    def __init__(
        self, view: PlannableView, moves: Mapping[int, WorkerId] | None = None, filled: Sequence[Filled] | None = None
    ) -> None:
        self._view = view
        self._moved = dict(moves or {})
        table = view.owned
        self.owner = view.owner_numbers.copy()
        for row, target in self._moved.items():
            self.owner[row] = view.numbers[target]
        self._capacity = np.array([worker.capacity for worker in view.workers])
        self.kept = view.staying
        self._load = table.load
        self._sums: Floats = np.bincount(self.owner, table.load, len(view.workers)).astype(np.float64)
        counted = self._capacity[self.kept] if self.kept.any() else self._capacity
        self.mean_load = float(table.load.sum() / counted.sum())
        self._filled = filled
        self._limits: _Limits | None = None

    @property
    def loads(self) -> dict[WorkerId, float]:
        """The load of each worker, in percent of its capacity."""
        return dict(zip(self._view.numbers, (self._sums / self._capacity).tolist(), strict=True))

    @property
    def load_distance(self) -> float | None:
        """The load distance without a further move (pp); None: every worker is being drained."""
        return float(max(0.0, self._deviations().max())) if self.kept.any() else None

    def load_after(self, row: int, target: int) -> float:
        """The load of the target with this key group, in percent of its capacity."""
        more = 0.0 if self.owner[row] == target else float(self._load[row])
        return float((self._sums[target] + more) / self._capacity[target])

    def distances(self, rows: Integers) -> Floats:
        """(rows, workers) the load distance after each of these key groups, which have one owner, moved there (pp)."""
        source = int(self.owner[rows[0]])
        load = self._load[rows][:, None]
        deviations = self._deviations()
        deviations[source] = 0.0
        order = np.argsort(deviations)[::-1]
        others = np.full(len(deviations), deviations[order[0]])
        others[order[0]] = deviations[order[1]] if len(order) > 1 else 0.0
        left = self._deviation((self._sums[source] - load) / self._capacity[source], self.kept[source])
        gets = self._deviation((self._sums + load) / self._capacity, self.kept)
        after: Floats = np.maximum(np.maximum(others, left), gets)
        after[:, source] = self.load_distance or 0.0
        return after

    def limit(self, row: int, target: int) -> Filled | None:
        """The limit of the target's host that this key group would break; None if it fits."""
        if self._limits is None:
            filled = filled_by(self._view, self._moved) if self._filled is None else self._filled
            self._limits = _Limits.of(self._view, filled)
        worker, source = self._view.workers[target], self._view.workers[int(self.owner[row])]
        return self._limits.broken(row, target, worker.host, stays=worker.host == source.host)

    def _deviations(self) -> Floats:
        return self._deviation(self._sums / self._capacity, self.kept)

    def _deviation(self, load: Floats, kept: NDArray[np.bool_] | np.bool_) -> Floats:
        """How far loads are from the mean; of a worker that is drained only the excess counts."""
        off = load - self.mean_load
        found: Floats = np.where(kept, np.abs(off), np.maximum(off, 0.0))
        return found


@dataclass(frozen=True, slots=True)
class _Limits:
    """What is used on each host, and what each key group uses."""

    used: Mapping[HostId, list[Filled]] = field(default_factory=dict)
    resources: Mapping[str, HostResource] = field(default_factory=dict)

    @classmethod
    def of(cls, view: PlannableView, filled: Iterable[Filled]) -> "_Limits":
        used: dict[HostId, list[Filled]] = {}
        for each in filled:
            used.setdefault(each.host, []).append(each)
        return cls(used, {each.name: each for each in resources_of(view)})

    def broken(self, row: int, target: int, host: HostId, *, stays: bool) -> Filled | None:
        for each in self.used.get(host, ()):
            resource = self.resources[each.resource]
            if stays and not resource.stays:
                continue  # it is used on this host already
            with_it = Filled(
                host=host,
                resource=each.resource,
                before=each.after,
                after=each.after + float(resource.on(np.array([row]), np.array([target]))[0]),
                room=each.room,
                each=each.each,
            )
            if with_it.overfills:
                return with_it
        return None


def why_of(view: PlannableView, moves: Mapping[int, WorkerId], reason: PlanReason, filled: Sequence[Filled]) -> PlanWhy:
    """Why these key groups (row of the view -> target) move.

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

    return PlanWhy(
        reasons=tuple(reason_of(row, target) for row, target in moves.items()),
        loads=tuple(float(table.load[row]) for row in moves),
        before=loads,
        after=_with_savings(view, moves, after.loads),
        mean_load=mean,
    )


def _with_savings(
    view: PlannableView, moves: Mapping[int, WorkerId], loads: Mapping[WorkerId, float]
) -> Mapping[WorkerId, float]:
    """The loads after the moves, with what tuples that become local save, and those that become remote cost."""
    if not view.remote_costs or not view.flows:
        return loads
    table, owners = view.owned, view.owner_numbers.copy()
    for row, target in moves.items():
        owners[row] = view.numbers[target]
    moved = replace(table, workers=tuple(view.numbers), owner=owners)
    more = np.bincount(owners, loads_foreseen(view, moved) - table.load, len(view.workers))
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


def moves_of(view: PlannableView, moves: Mapping[int, WorkerId]) -> tuple[Move, ...]:
    """The moves of these key groups (row of the view -> target)."""
    rows = ((view.owned[row], target) for row, target in moves.items())
    return tuple(
        Move(key_group=row.key_group, source=row.owner, target=target, state_bytes=row.state_bytes)
        for row, target in rows
    )


def plan_for(
    view: PlannableView, moves: Mapping[int, WorkerId], filled: Sequence[Filled], reason: PlanReason, detail: str
) -> Plan:
    """The plan that makes these moves (row -> target); `filled` = what they fill of the hosts.

    Nobody has sought a better one, so its bound is 0.
    """
    return Plan(
        app=view.app,
        reason=reason,
        detail=detail,
        moves=moves_of(view, moves),
        hosts=view.hosts,
        before=SingleMoves(view).load_distance or 0.0,
        planned=SingleMoves(view, moves, filled).load_distance or 0.0,
        lower_bound=0.0,
        status="feasible",
        why=why_of(view, moves, reason, filled),
    )
