"""The decision about one app: whether a plan is wanted, and what becomes of it."""

from dataclasses import replace

from trimtab_controller.decider.budget import as_a_whole, change_of_workers, within
from trimtab_controller.decider.decision import (
    Decision,
    Planned,
    Skip,
    SolveWanted,
    StandbysPlaced,
    not_ready,
)
from trimtab_controller.decider.drift import any_drift
from trimtab_controller.decider.first import FirstPlacements
from trimtab_controller.decider.guarded import roll_back
from trimtab_controller.decider.observing.view import AppView, NotReady
from trimtab_controller.decider.operators.plan_times import frozen
from trimtab_controller.decider.operators.proposals import as_mode_says, told
from trimtab_controller.decider.planning.admission import admit
from trimtab_controller.decider.planning.judgement import judge_now, noted
from trimtab_controller.decider.reasons import SkipReason
from trimtab_controller.decider.rules.priority import later, with_priorities
from trimtab_controller.decider.situation import Situation
from trimtab_controller.decider.turns import Turns
from trimtab_controller.execution.budget import BudgetUse
from trimtab_controller.solver.answer import Answer, NoAnswer
from trimtab_protocol.messages.intents import Intent
from trimtab_protocol.messages.names import AppId


class AppDecisions:
    """Decides about apps, one at a time, in the present situation."""

    def __init__(self, situation: Situation, first: FirstPlacements, turns: Turns) -> None:
        """`turns` = for which apps a plan was last sought in vain."""
        self._situation = situation
        self._first = first
        self._turns = turns

    def decide(self, now: float, app: AppId) -> Decision | SolveWanted:
        """The decision about an app, or the question to the solver on which it depends."""
        present, view = self._situation, self._situation.known.views[app]
        if (busy := present.admit_app(app)) is not None:
            return busy
        if isinstance(view, NotReady):
            return not_ready(view)
        if (early := present.seen.too_early(view, present.execution)) is not None:
            return not_ready(early)
        if present.acting and (placed := self._first_placement(now, view)) is not None:
            return placed
        use = present.budget_use(now, app)
        if (changed := self._change_of_workers(now, view, use)) is not None:
            return changed
        view = self.view_to_plan(now, view)
        if present.acting and (asked_for := self._by_operators(now, view)) is not None:
            return asked_for
        evaluation, windows = present.known.evaluations[app], present.seen.history[app].windows
        found = admit(now, view, evaluation, present.execution, present.settings, windows=windows)
        if isinstance(found, Skip):
            trial = present.seen.trial(now, view, present.execution, found, present.draining)
            return found if trial is None else self._as_mode_says(now, view, trial)
        times = present.plans.times_of(app)
        waits = frozen(now, times, app, found.reason, found.detail) or present.seen.hold(now, found, present.execution)
        return waits or within(found, use, present.settings.max_migrations)

    def view_to_plan(self, now: float, view: AppView, *wishes: Intent) -> AppView:
        """The view as plans are made with it; `wishes` = intents that are not in force yet."""
        present = self._situation
        intents = (*present.operators.in_force, *wishes)
        view = present.seen.to_plan(now, view, present.execution, intents, present.learned)
        # Where those of the highest priority could not leave in the last round, others may go before them.
        waiting = () if view.app in self._turns.in_vain else later(view, present.settings.max_migrations)
        return replace(view, later=waiting) if waiting else view

    def conclude(self, now: float, wanted: SolveWanted, answer: Answer | NoAnswer) -> Decision:
        """The decision that an answer of the solver leads to."""
        present, view = self._situation, wanted.view
        decision, note = self._judge(now, wanted, answer), present.seen.note(now, view)
        if isinstance(decision, Skip):
            trial = present.seen.trial(now, view, present.execution, decision, present.draining)
            return noted(self._as_mode_says(now, view, trial) if trial else self._instead_of(now, decision), note)
        return noted(self._as_mode_says(now, view, decision), note)

    def place_standbys(self, now: float) -> StandbysPlaced | None:
        """Standbys to place in the first app that lacks some; asked only when there is nothing else to do."""
        present = self._situation
        if not present.acting:
            return None
        views = {app: view for app, view in present.known.views.items() if self._may_get_standbys(app, view)}
        return present.seen.standbys.place(now, views, present.execution.placements)

    def _may_get_standbys(self, app: AppId, view: AppView | NotReady) -> bool:
        """Whether the placement of an app has been compared with this view, so that its rows name the same owners."""
        present = self._situation
        early = isinstance(view, AppView) and present.seen.too_early(view, present.execution) is not None
        return not present.is_only_told(app) and present.admit_app(app) is None and not early

    # --- decisions that need no solver ----------------------------------------------------------------------------

    def _change_of_workers(self, now: float, view: AppView, use: BudgetUse) -> Decision | None:
        """The stop of a drained worker, or the change of the app's size that is due."""
        present = self._situation
        if present.is_only_told(view.app):
            return None
        return change_of_workers(now, view, use, present.seen.sizes, present.execution, present.draining)

    def _first_placement(self, now: float, view: AppView) -> Decision | None:
        """What the placement takes over from the reports, or the first plan of an app."""
        present, placement = self._situation, self._situation.execution.placements.get(view.app)
        placed = self._first.decide(view, placement)
        if isinstance(placed, Planned):
            whole = as_a_whole(placed, present.budget_use(now, view.app))
            if isinstance(whole, Skip):
                return whole
            self._first.made(view.app)
            return as_mode_says(now, present.seen.with_restores(whole, present.execution), present.plans)
        if placed is None or not present.is_only_told(view.app):
            if placed is not None and placement is None:
                why = present.seen.kept.refusal(view, present.execution.placements)
                if why is not None:
                    detail = f"{view.app} gets no first placement now: {why}"
                    return Skip(reason=SkipReason.TOO_MANY_APPS, detail=detail, app=view.app)
            return placed and present.seen.standbys.with_adopted(now, view, placement, placed)
        return placed if placement is not None else told(view.app, placed.detail)

    def _by_operators(self, now: float, view: AppView) -> Decision | None:
        """The plan that an operator wants or approves, what becomes of one that waits, or the guard's moves back."""
        present = self._situation
        found = present.operators.plan(now, view, present.execution, present.plans, band=present.settings.load_distance)
        found = found or roll_back(now, view, present.execution.guarded.get(view.app))
        if isinstance(found, Planned):
            found = as_a_whole(found, present.budget_use(now, view.app))
        if isinstance(found, Planned):
            found = self._begun(now, view, present.seen.with_restores(found, present.execution))
        present.operators.done_with(found)
        return found

    # --- what becomes of a plan -----------------------------------------------------------------------------------

    def _judge(self, now: float, wanted: SolveWanted, answer: Answer | NoAnswer) -> Planned | Skip:
        """Judge the answer by what became known while the solver worked."""
        present, app = self._situation, wanted.view.app
        if isinstance(answer, NoAnswer):
            return Skip(reason=SkipReason.SOLVER_FAILED, detail=answer.reason, app=app)
        if (changed := present.admit_cluster() or present.admit_app(app)) is not None:
            return changed
        draining = present.draining
        found = judge_now(wanted, answer, present.known, present.execution, present.learned, present.settings, draining)
        if isinstance(found, Planned) and found.plan.reason is not wanted.reason:
            # Nothing can move for the drain or the rule that it was for.
            balance = replace(wanted, reason=found.plan.reason, detail=found.plan.detail)
            found = present.seen.hold(now, balance, present.execution) or found
        return found

    def _instead_of(self, now: float, skip: Skip) -> Decision:
        """Standbys to place instead of a skip; whatever forbids a plan forbids these too."""
        present = self._situation
        if present.admit_cluster() is not None or present.known.not_ready is not None:
            return skip
        return skip if any_drift(present.known.views, present.execution) else self.place_standbys(now) or skip

    def _as_mode_says(self, now: float, view: AppView, planned: Planned) -> Decision:
        """What becomes of a plan: a dry run only shows it."""
        present, plan = self._situation, planned.plan
        # The solver may have begun before a time in which none begins, and trials need no solver.
        waits = frozen(now, present.plans.times_of(plan.app), plan.app, plan.reason, plan.detail)
        if waits is not None:
            return waits
        found = as_mode_says(now, planned, present.plans) if present.acting else planned
        return self._begun(now, view, found) if present.acting and isinstance(found, Planned) else found

    def _begun(self, now: float, view: AppView, planned: Planned) -> Planned:
        """A plan that is carried out, with standbys; what it predicts is remembered."""
        present = self._situation
        present.seen.predictions.plan(now, view.app, planned.plan.collocation)
        planned = replace(planned, plan=with_priorities(view, planned.plan))
        return present.seen.standbys.with_plan(now, view, present.execution.placements.get(view.app), planned)
