"""The disruption budget: hand-overs of an app begin, and are released, only as far as its budget goes.  Pure.

Key groups pause when a hand-over is released.  So the budget is asked twice: before a hand-over begins, with what all
hand-overs in flight are expected to pause; and before it is released, with what those already released are.  A plan
whose next hand-over does not fit waits while hand-overs of it are released, and ends when none is: what has arrived
stays, what has not been released stays where it was, and the rest is planned anew when there is room.

Restores after a loss are counted, and never held back: their key groups pause already.  Rebalances of the consumer
group are counted as well.  So starts and stops that can wait are held back, too (`BudgetUse.holds_changes`).
"""

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from trimtab_controller.execution import handovers
from trimtab_controller.execution.disruption import (
    WINDOW_S,
    AppPauses,
    Cause,
    Disruption,
    DisruptionSettings,
    Pauses,
    Unowned,
)
from trimtab_controller.execution.events import ExecutionLimits, WindowSeen
from trimtab_controller.execution.state import ENDED, Execution, Handover, HandoverPhase, Round, ScalingPhase
from trimtab_controller.execution.step import Step
from trimtab_protocol.messages.codec import copied
from trimtab_protocol.messages.names import AppId
from trimtab_protocol.messages.status import CauseStatus, DisruptionStatus
from trimtab_protocol.wording import time_span

RELEASED = frozenset({HandoverPhase.RELEASING, HandoverPhase.RESOLVING})
SHORTEST_S = 0.001
"""A pause shorter than this is expected nowhere, whatever was measured."""
ROUNDING = 1e-9
COMMANDED_S = 60.0
"""A rebalance within so long of a start or stop that the controller has commanded is taken to follow from it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetUse:
    """How much of its budget an app has used at `now`, in key-group seconds.

    `limit_s` None: there is no limit.  `used_s` = in the last hour, of which nobody measured `assumed_s`; `in_flight_s`
    = what hand-overs in flight are expected to add; `pause_s` = what one more key group is expected to, and
    `learned`: whether that was measured.  `rebalance_s` = what a start or stop of a worker is expected to; None: no
    rebalance was measured.  `since` = from when on pauses were counted (epoch seconds), None: not yet.
    """

    app: AppId
    now: float
    limit_s: float | None
    used_s: float
    assumed_s: float
    in_flight_s: float
    pause_s: float
    learned: bool
    since: float | None
    rebalance_s: float | None = None
    pauses: tuple[Pauses, ...] = ()

    @property
    def causes(self) -> dict[Cause, float]:
        """What is used, by what caused it."""
        found: dict[Cause, float] = {}
        for row in self.pauses:
            found[row.cause] = found.get(row.cause, 0.0) + (row.measured_s + row.assumed_s)
        return {cause: found[cause] for cause in Cause if cause in found}

    @property
    def fits(self) -> int | None:
        """How many further key groups may be handed over; None: there is no limit."""
        if self.limit_s is None:
            return None
        return max(0, int((self.limit_s - self.used_s - self.in_flight_s) / self.pause_s + ROUNDING))

    def free_at(self, key_groups: int = 1) -> float | None:
        """When so many may be handed over if nothing else pauses (epoch seconds); None: the limit is too low for it."""
        return self._free_for(key_groups * self.pause_s)

    @property
    def holds_changes(self) -> bool:
        """Whether starts and stops of workers that can wait have to: each of them rebalances the consumer group."""
        return self.limit_s is not None and (self.fits == 0 or self._left_s < (self.rebalance_s or 0.0) - ROUNDING)

    @property
    def change_text(self) -> str:
        """When a worker may be started or stopped again, for an operator."""
        expected_s = max(self.pause_s, self.rebalance_s or 0.0)
        at = self._free_for(expected_s)
        if at is None:
            return f"no room while a rebalance is expected to pause {expected_s:.1f}, by those of the last hour"
        return self._room_at(at)

    @property
    def _left_s(self) -> float:
        return math.inf if self.limit_s is None else self.limit_s - self.used_s - self.in_flight_s

    def _free_for(self, seconds: float) -> float | None:
        if self.limit_s is None:
            return self.now
        left_s = self._left_s - seconds
        at = self.now
        for row in sorted(self.pauses, key=lambda row: row.ended_at):
            if left_s >= -ROUNDING:
                break
            left_s += row.measured_s + row.assumed_s
            at = row.ended_at + WINDOW_S
        return at if left_s >= -ROUNDING else None

    @property
    def text(self) -> str:
        """How much is used, for an operator."""
        return self.status().used_text(self.now)

    def status(self, unmeasured: int | None = None) -> DisruptionStatus:
        """What the controller's status says; `unmeasured` = workers of which the last window does not say all of it."""
        return copied(
            DisruptionStatus,
            self,
            fits=self.fits,
            free_at=None if self.limit_s is None else self.free_at(),
            causes=tuple(CauseStatus(cause=str(cause), used_s=seconds) for cause, seconds in self.causes.items()),
            unmeasured=unmeasured,
        )

    def room_text(self, key_groups: int = 1) -> str:
        """When there is room again."""
        at = self.free_at(key_groups)
        if at is None:
            known = "expected to pause" if self.learned else "assumed to pause"
            return f"no room at any time: {key_groups} key groups are {known} for {key_groups * self.pause_s:.1f}"
        return self._room_at(at)

    def _room_at(self, at: float) -> str:
        return f"room again in {time_span(at - self.now)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class PauseBudget:
    """The limits.  `unknown_pause_s`: how long a key group is taken to pause while no pause of its app was measured."""

    settings: DisruptionSettings = DisruptionSettings()  # noqa: RUF009 - frozen
    unknown_pause_s: float = 5.0

    @classmethod
    def of(cls, limits: ExecutionLimits) -> "PauseBudget":
        """The budgets of a configuration."""
        return cls(settings=limits.disruption, unknown_pause_s=limits.max_pause_s)

    def use(self, now: float, execution: Execution, app: AppId) -> BudgetUse:
        """What an app has used."""
        rows = execution.disruption.of(app, now)
        measured_s, assumed_s = sum(row.measured_s for row in rows), sum(row.assumed_s for row in rows)
        mean_s = _mean_s(row for row in rows if row.cause is Cause.MOVES)
        pause_s = self.unknown_pause_s if mean_s is None else max(SHORTEST_S, mean_s)
        stopped_s = _mean_s(row for row in rows if row.cause in (Cause.STARTS_AND_STOPS, Cause.REBALANCES))
        row = execution.rounds.get(app)
        under_way = row.handovers if row is not None and row.ended_at is None and not row.lost else ()
        return BudgetUse(
            app=app,
            now=now,
            limit_s=self.settings.of(app),
            used_s=measured_s + assumed_s,
            assumed_s=assumed_s,
            in_flight_s=sum(expected_s(now, each, pause_s) for each in under_way if each.phase in _PAUSING),
            pause_s=pause_s,
            learned=mean_s is not None,
            since=execution.disruption.since,
            rebalance_s=None if stopped_s is None else stopped_s * _key_groups(execution, app),
            pauses=rows,
        )


def _mean_s(rows: Iterable[Pauses]) -> float | None:
    """For how long a key group paused on average; None: no pause was measured."""
    found = [(row.measured_s, row.key_groups) for row in rows if row.key_groups]
    count = sum(key_groups for _, key_groups in found)
    return sum(measured_s for measured_s, _ in found) / count if count else None


def _key_groups(execution: Execution, app: AppId) -> int:
    """The number of key groups of an app with a placement."""
    placement = execution.placements.get(app)
    return 0 if placement is None else sum(map(len, placement.owners.values()))


_PAUSING = frozenset({HandoverPhase.PREPARING, *RELEASED})


def expected_s(now: float, handover: Handover, pause_s: float) -> float:
    """Key-group seconds that a hand-over in flight pauses; one that takes longer than expected counts for longer."""
    if handover.phase in RELEASED and handover.release is not None:
        pause_s = max(pause_s, now - handover.release.issued_at)
    return len(handover.key_groups) * pause_s


class BudgetGate:
    """What may begin and be released in one step."""

    def __init__(self, budget: PauseBudget, now: float, execution: Execution) -> None:
        limited = (row for row in execution.in_flight if not row.lost and budget.settings.of(row.app) is not None)
        self._uses: dict[AppId, BudgetUse] = {row.app: budget.use(now, execution, row.app) for row in limited}
        self._released: defaultdict[AppId, float] = defaultdict(float)
        self._begun: defaultdict[AppId, float] = defaultdict(float)
        for app, use in self._uses.items():
            for each in execution.rounds[app].handovers:
                if each.phase in RELEASED:
                    self._released[app] += expected_s(now, each, use.pause_s)
                elif each.phase is HandoverPhase.PREPARING:
                    self._begun[app] += expected_s(now, each, use.pause_s)

    def use_of(self, app: AppId) -> BudgetUse | None:
        """What an app with a plan in flight and a limit has used; None: nothing of it is held back."""
        return self._uses.get(app)

    def may_begin(self, handover: Handover) -> bool:
        """Whether a hand-over may begin, beside all that are in flight."""
        return self._fits(handover, self._released[handover.app] + self._begun[handover.app])

    def begun(self, handover: Handover) -> None:
        """Count a hand-over that begins."""
        if (use := self._uses.get(handover.app)) is not None:
            self._begun[handover.app] += len(handover.key_groups) * use.pause_s

    def may_release(self, handover: Handover) -> bool:
        """Whether a hand-over may be released, beside those that are."""
        return self._fits(handover, self._released[handover.app])

    def released(self, handover: Handover) -> None:
        """Count a hand-over that is released."""
        if (use := self._uses.get(handover.app)) is not None:
            self._released[handover.app] += len(handover.key_groups) * use.pause_s
            self._begun[handover.app] -= len(handover.key_groups) * use.pause_s

    def is_spent(self, row: Round) -> bool:
        """Whether a plan has to end: nothing of it is released, and what comes next does not fit."""
        if row.stopped is not None or self._uses.get(row.app) is None:
            return False
        left = [each for each in row.handovers if each.phase not in ENDED]
        if not left or any(each.phase in RELEASED for each in left):
            return False
        next_ones = [each for each in left if each.phase is HandoverPhase.PREPARING] or left
        return not any(self._fits(each, 0.0) for each in next_ones)

    def _fits(self, handover: Handover, others_s: float) -> bool:
        use = self._uses.get(handover.app)
        if use is None or use.limit_s is None:
            return True
        return use.used_s + others_s + len(handover.key_groups) * use.pause_s <= use.limit_s + ROUNDING


def end_spent(step: Step, gate: BudgetGate) -> None:
    """End the plans for which the budget has no room left; hand-overs that have not begun are not counted as failed."""
    for row in step.execution.in_flight:
        use = gate.use_of(row.app)
        if use is None or not gate.is_spent(row):
            continue
        reason = f"ended, the disruption budget is used up: {use.text}"
        begun = tuple(each for each in row.handovers if each.attempt or each.phase is not HandoverPhase.WAITING)
        handovers.stop_all(step, replace(row, handovers=begun), reason)


def count_window(step: Step, seen: WindowSeen, pauses: Mapping[AppId, AppPauses]) -> None:
    """Add what the reports of a window say, unless it is counted already: a new leader reads windows again.

    It is published at once where an app has a limit, since the journal has what is counted only then.
    """
    before = step.execution.disruption
    if before.since is None or (before.seen_to is not None and seen.end_s <= before.seen_to):
        return
    found = before
    for app, row in pauses.items():
        if row.key_groups:
            cause, mean_s = cause_of(step.execution, app, seen.start_s), row.measured_s / row.key_groups
            found = found.with_pause(
                app, seen.end_s, key_groups=row.key_groups, paused_s=mean_s, measured=True, cause=cause
            )
        for key_groups, unowned_s in _without_owner(step.execution, app, row.unowned):
            found = found.with_pause(
                app, seen.end_s, key_groups=key_groups, paused_s=unowned_s, measured=False, cause=Cause.LOSSES
            )
    step.changed |= found is not before and step.limits.disruption.limited
    step.count(replace(found, seen_to=seen.end_s))


def cause_of(execution: Execution, app: AppId, start_s: float) -> Cause:
    """Why the consumer group of an app was rebalanced in a window that began at this time."""
    of_app = (each for each in execution.scalings.values() if each.of_app in (None, app))
    commanded = any(each.phase is ScalingPhase.SENT or each.at >= start_s - COMMANDED_S for each in of_app)
    return Cause.STARTS_AND_STOPS if commanded else Cause.REBALANCES


def _without_owner(execution: Execution, app: AppId, rows: Iterable[Unowned]) -> Iterator[tuple[int, float]]:
    """Key groups, and the seconds for which they had no owner, without what the plan after the loss counts."""
    row = execution.rounds.get(app)
    restored_from = row.started_at if row is not None and row.lost else None
    for each in rows:
        until = each.until if restored_from is None or restored_from < each.since else min(each.until, restored_from)
        if until > each.since:
            yield each.key_groups, until - each.since


def with_pauses(now: float, before: Execution, after: Execution) -> Disruption:
    """What has paused up to `now`, with the hand-overs that ended from one state to the next."""
    found = after.disruption
    for row in before.in_flight:
        seen = after.rounds.get(row.app)
        if seen is None or seen is row or seen.plan != row.plan:
            continue
        present = {each.id: each for each in seen.handovers}
        for each in row.handovers:
            if (changed := present.get(each.id)) is None or changed is each or each.phase in ENDED:
                continue
            if (paused := _paused(now, row, each, changed, present)) is not None:
                paused_s, measured = paused
                count, cause = len(each.key_groups), Cause.LOSSES if row.lost else Cause.MOVES
                found = found.with_pause(
                    row.app, now, key_groups=count, paused_s=paused_s, measured=measured, cause=cause
                )
    return found


def _paused(
    now: float, row: Round, before: Handover, after: Handover, present: Mapping[str, Handover]
) -> tuple[float, bool] | None:
    """For how long the key groups of a hand-over have paused, and whether that was measured; None: not at all."""
    if after.phase is HandoverPhase.DONE and after.pause_s is not None:
        return after.pause_s, True
    if row.lost:
        given = {each for other in present.values() if other.phase not in ENDED for each in other.key_groups}
        ended = after.phase in ENDED and given.isdisjoint(after.key_groups)
        return (now - row.started_at, False) if ended else None
    if before.phase in RELEASED and after.phase not in RELEASED and before.release is not None:
        return now - before.release.issued_at, False
    return None
