"""Whether a plan for an app is worth looking for, why, and whether the disruption budget has room for it.  Pure.

The solver is asked for as many moves as the budget has room for, so that those remain that gain most, or there is no
plan until there is room.  What an operator asks for is done as a whole, and so it waits as a whole.  Restores after a
loss do not come here.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from trimtab_controller.decider.memory.evaluate import Evaluation
from trimtab_controller.decider.values.decision import Planned, Skip, not_ready
from trimtab_controller.decider.values.reasons import NotReady, SkipReason
from trimtab_controller.decider.values.settings import Settings
from trimtab_controller.decider.window.collocation import may_gain
from trimtab_controller.decider.window.placing import names
from trimtab_controller.decider.window.view import AppView, PlannableView
from trimtab_controller.execution.budget import BudgetUse
from trimtab_controller.execution.state import Execution
from trimtab_controller.plan import PlanReason
from trimtab_protocol.wording import counted, first_few


@dataclass(frozen=True, slots=True, kw_only=True)
class SolveWanted:
    """A plan is worth looking for.  `balancing`: the load distance alone would justify one, whatever `reason` is."""

    view: PlannableView
    reason: PlanReason
    detail: str
    balancing: bool

    @property
    def must_move(self) -> bool:
        """Whether the plan is to empty a worker, or to do what a rule wants."""
        return self.reason in (PlanReason.DRAIN, PlanReason.RULES)


def within(wanted: SolveWanted, use: BudgetUse, max_migrations: int) -> SolveWanted | Skip:
    """The question with as many moves as the budget has room for, or why no plan is sought."""
    fits = use.fits
    if fits == 0:
        return held(use, wanted.detail)
    if fits is None or fits >= max_migrations:
        return wanted
    detail = f"{wanted.detail}; the disruption budget has room for {counted(fits, 'move')}"
    return replace(wanted, view=replace(wanted.view, max_moves=fits), detail=detail)


def as_a_whole(planned: Planned, use: BudgetUse) -> Planned | Skip:
    """The plan, or why it has to wait."""
    count = len(planned.plan.moves)
    if use.fits is None or use.fits >= count:
        return planned
    return held(use, f"{planned.plan.detail}: {counted(count, 'move')}", key_groups=count)


def held(use: BudgetUse, wanted: str, key_groups: int = 1) -> Skip:
    """The decision to wait for room in the budget."""
    detail = f"{use.app}: {wanted}, but the disruption budget is used up: {use.text}; {use.room_text(key_groups)}"
    return Skip(reason=SkipReason.DISRUPTION_BUDGET, detail=detail, app=use.app)


def admit(
    now: float, view: PlannableView, evaluation: Evaluation, execution: Execution, settings: Settings, *, windows: int
) -> Skip | SolveWanted:
    """Whether a plan is worth looking for.  Drains and rules ignore band and `min_windows`, but not the interval."""
    distance, noise = evaluation.load_distance, evaluation.noise
    if distance is None or noise is None:
        return Skip(
            reason=SkipReason.ALL_DRAINING,
            detail=f"{view.app}: every worker is being drained, none is left to take key groups",
            app=view.app,
        )
    to_empty = view.to_empty
    misplaced = np.flatnonzero(view.misplaced)
    collocation = evaluation.collocation if may_gain(settings, view) else None
    balancing = distance > max(settings.load_distance, noise) and windows >= settings.min_windows
    if (
        not to_empty
        and not len(misplaced)
        and (calm := _calm(view, distance, noise, settings, windows, idle=collocation in (None, 1.0)))
    ):
        return calm
    last = execution.rounds.get(view.app)
    ended_at = None if last is None else last.ended_at
    if ended_at is not None and now - ended_at < settings.min_interval_s:
        left_s = settings.min_interval_s - (now - ended_at)
        detail = f"{view.app}: load distance {distance:.1f}, next round in {left_s:.0f} s at the earliest"
        return Skip(reason=SkipReason.TOO_SOON, detail=detail, app=view.app)
    if to_empty:
        reason, detail = PlanReason.DRAIN, "drain " + first_few(to_empty)
    elif len(misplaced):
        reason, detail = PlanReason.RULES, broken(view, misplaced.tolist())
    elif balancing or collocation is None:
        reason = PlanReason.LOAD_DISTANCE
        detail = f"load distance {distance:.1f} above {settings.load_distance:.1f}"
    else:
        reason, detail = PlanReason.COLLOCATION, f"collocation {collocation:.0%}"
    return SolveWanted(view=view, reason=reason, detail=detail + around(view), balancing=balancing)


def broken(view: PlannableView, misplaced: Sequence[int]) -> str:
    """Which key groups are where a rule does not want them."""
    row = view.owned[misplaced[0]]
    by = names(view.places.barred(misplaced[0], view.numbers[row.owner]))
    return f"{len(misplaced)} key groups may not be where they are, such as {row.key_group} on {row.owner} by {by}"


def around(view: PlannableView) -> str:
    """Which workers a plan is made around; empty if there are none."""
    return f", around {first_few(each.id for each in view.fixed)}" if view.fixed else ""


def _calm(view: AppView, distance: float, noise: float, settings: Settings, windows: int, *, idle: bool) -> Skip | None:
    """Why no plan for balance is needed; `idle`: collocation cannot be raised either."""
    if idle and distance <= settings.load_distance:
        detail = f"{view.app}: load distance {distance:.1f} pp, inside the band of {settings.load_distance:.1f} pp"
        return Skip(reason=SkipReason.INSIDE_BAND, detail=detail, app=view.app)
    if windows < settings.min_windows:
        detail = f"{windows} of {settings.min_windows} windows seen, load distance {distance:.1f} so far"
        return not_ready(NotReady(reason=SkipReason.TOO_FEW_WINDOWS, detail=detail, app=view.app))
    if idle and distance <= noise:
        detail = f"{view.app}: load distance {distance:.1f} may be noise, which goes up to {noise:.1f}"
        return Skip(reason=SkipReason.INSIDE_NOISE, detail=detail, app=view.app)
    return None
