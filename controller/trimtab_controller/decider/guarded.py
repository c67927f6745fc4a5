"""What follows for decisions when the guard has ended a plan: moves back, and no plan for balance for a while.

Which moves made a worker fall behind is judged by the execution (`execution/guard.py`).  Here they become a plan, as
far as they still fit: the key group is where the plan brought it, its old worker takes part in plans, no rule is
against it, and no host is overfilled.
"""

from collections.abc import Iterable, Mapping

from trimtab_controller.decider.concerns import Concern, ConcernKind
from trimtab_controller.decider.decision import Planned, Skip
from trimtab_controller.decider.hosts.resources import bottleneck_in, filled_by
from trimtab_controller.decider.observing.view import PlannableView
from trimtab_controller.decider.planning.explain import plan_for
from trimtab_controller.decider.reasons import SkipReason
from trimtab_controller.decider.rules.moves import broken_by
from trimtab_controller.execution.guard import describe_stop
from trimtab_controller.execution.state import GuardStop, Moved
from trimtab_controller.plan import PlanReason
from trimtab_protocol.messages.names import AppId, WorkerId


def backs_off(now: float, stop: GuardStop | None) -> Skip | None:
    """The reason to make no plan for balance, if the guard has just ended one."""
    if stop is None or now >= stop.until:
        return None
    detail = f"{stop.app}: {describe_stop(stop)}; no plan for balance for another {stop.until - now:.0f} s"
    return Skip(reason=SkipReason.JOB_SUFFERS, detail=detail, app=stop.app)


def guard_concerns(now: float, guarded: Mapping[AppId, GuardStop]) -> tuple[Concern, ...]:
    """One concern for each app that gets no plan for balance because of the guard."""
    return tuple(
        Concern(
            kind=ConcernKind.JOB_SUFFERS,
            app=app,
            workers=tuple(sorted({each.target for each in stop.moves})),
            detail=f"{describe_stop(stop)}; no plan for balance for {stop.until - stop.at:.0f} s",
        )
        for app, stop in sorted(guarded.items())
        if now < stop.until
    )


def roll_back(now: float, view: PlannableView, stop: GuardStop | None) -> Planned | None:
    """The plan that moves back what made a worker fall behind; None if there is nothing that can go back."""
    wanted = () if stop is None else stop.to_move_back(now)
    moves = _rows(view, wanted)
    if stop is None or not moves:
        return None
    filled = filled_by(view, moves)
    if any(each.overfills for each in filled):
        return None
    detail = f"the guard rolls plan {stop.plan} back: {stop.detail}{bottleneck_in(filled)}"[:4000]
    return Planned(plan=plan_for(view, moves, filled, PlanReason.ROLL_BACK, detail))


def _rows(view: PlannableView, wanted: Iterable[Moved]) -> dict[int, WorkerId]:
    """The moves back as row -> target, without those that do not fit any more."""
    rows, table = tuple(wanted), view.owned
    free = {worker.id for worker in view.workers if not worker.draining}
    places = table.places_of(each.key_group for each in rows).tolist()
    return {
        place: each.source
        for each, place in zip(rows, places, strict=True)
        if place >= 0
        and table.workers[table.owner[place]] == each.target
        and each.source in free
        and not broken_by(view, {place: each.source})
    }
