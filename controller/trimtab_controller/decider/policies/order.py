"""What comes before what: all decisions in their order, on one page (tables: `docs/concepts/how-it-decides.md`).

For each window the machine walks CLUSTER; then APP for each app, the most urgent one first; then REST, where nothing
else is to be done.  A policy answers with a decision, with a question to the solver, or with None: the next one is
asked.  What forbids those behind it answers with a skip.

A `Situation` is what decisions depend on: the settings, the memory, what is in flight, and what operators want.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Generic, TypeVar

from trimtab_controller.decider.memory.evaluate import Evaluation
from trimtab_controller.decider.memory.hosts import with_arrivals
from trimtab_controller.decider.memory.intents import OperatorIntents
from trimtab_controller.decider.memory.memory import Memory, WindowResult
from trimtab_controller.decider.policies.admission import (
    SolveWanted,
    admit,
    as_a_whole,
    within,
)
from trimtab_controller.decider.policies.first import FirstPlacements, any_drift
from trimtab_controller.decider.policies.intents import answer, to_forget
from trimtab_controller.decider.policies.judgement import judge_now, noted, still_free
from trimtab_controller.decider.policies.moves import backs_off, guard_concerns, in_vain, pinned_in, roll_back
from trimtab_controller.decider.policies.next_owners import next_owners
from trimtab_controller.decider.policies.potential import PotentialWanted, potential_in, potential_wanted
from trimtab_controller.decider.policies.proposals import as_mode_says, shown_only, wanted_by_operators
from trimtab_controller.decider.policies.restores import with_restores
from trimtab_controller.decider.policies.rolling import draining, to_stop_undrained
from trimtab_controller.decider.policies.size_facts import startable
from trimtab_controller.decider.policies.sizes import SizeRounds
from trimtab_controller.decider.policies.standbys import place, with_adopted, with_plan
from trimtab_controller.decider.policies.trial import trial_in
from trimtab_controller.decider.policies.workers import budget_concerns, drain_concerns, held_changes, to_start, to_stop
from trimtab_controller.decider.values.decision import (
    Adopted,
    Decision,
    Forgotten,
    Planned,
    Proposed,
    Resized,
    Skip,
    StandbysPlaced,
    not_ready,
)
from trimtab_controller.decider.values.plan_settings import PlanMode, PlanSettings
from trimtab_controller.decider.values.reasons import NotReady, SkipReason
from trimtab_controller.decider.values.settings import Settings
from trimtab_controller.decider.window.collocation import method_note
from trimtab_controller.decider.window.copies import state_held
from trimtab_controller.decider.window.restores import Restores, what_restores
from trimtab_controller.decider.window.rules import later, with_priorities
from trimtab_controller.decider.window.view import PlannableView, RestoreCost, SmoothedView
from trimtab_controller.execution.budget import BudgetUse, PauseBudget
from trimtab_controller.execution.restore_costs import LearnedRestores
from trimtab_controller.execution.state import Execution, ScalingPhase
from trimtab_controller.plan import PlanReason
from trimtab_controller.solver.answer import Answer, NoAnswer
from trimtab_protocol.messages.intents import Intent, MoveKeyGroups
from trimtab_protocol.messages.names import AppId, WorkerId

FOR_BALANCE = frozenset({PlanReason.LOAD_DISTANCE, PlanReason.COLLOCATION})
"""What may wait for another time: nothing is broken, nobody has asked for it, and no rule wants it."""

Asked = TypeVar("Asked")
Found = TypeVar("Found")


@dataclass(slots=True, kw_only=True)
class Situation:
    """The present one: events change it.

    `acting`: decisions are carried out, unless `held` says why the journal cannot be trusted.  `sizes` = what should
    become of the number of workers; `execution` = the state as last published; `learned` = what restores cost.
    """

    settings: Settings
    plans: PlanSettings
    acting: bool
    memory: Memory
    sizes: SizeRounds
    budget: PauseBudget
    execution: Execution
    operators: OperatorIntents = field(default_factory=OperatorIntents)
    held: str | None = None
    learned: LearnedRestores = field(default_factory=LearnedRestores)

    @property
    def known(self) -> WindowResult:
        """What the last snapshot showed."""
        return self.memory.known

    @property
    def acts(self) -> bool:
        """Whether decisions are carried out now."""
        return self.acting and self.held is None

    @property
    def paused(self) -> str | None:
        """Who paused the controller and why, or None."""
        return self.operators.paused

    @property
    def draining(self) -> frozenset[WorkerId]:
        """The workers to empty and stop: those that operators drain or restart, and those that leave."""
        return draining(self.operators.in_force, self.execution, self.known.snapshot)

    def admit_cluster(self) -> Skip | None:
        """Why nothing is planned for any app; None if something may be."""
        if self.held is not None:
            return Skip(reason=SkipReason.JOURNAL, detail=f"on hold: {self.held}")
        return None if self.paused is None else Skip(reason=SkipReason.PAUSED, detail=self.paused)

    def admit_app(self, app: AppId) -> Skip | None:
        """Why nothing is planned for an app while its plan, or a stop or start of a worker of it, is in flight."""
        if self.execution.busy(app):
            detail = f"{app}: plan {self.execution.rounds[app].plan} is in flight"
            return Skip(reason=SkipReason.PLAN_IN_FLIGHT, detail=detail, app=app)
        for scaling in self.execution.scalings_of(app, self.memory.liveness.may_run):
            if scaling.phase is ScalingPhase.SENT:
                detail = f"{app}: waiting for the {scaling.command.kind} of {scaling.command.worker}"
                return Skip(reason=SkipReason.SCALING_IN_FLIGHT, detail=detail, app=app)
        return None

    def restores_of(self, app: AppId) -> Restores:
        """What is known of the restores of an app; new standbys of other apps that wait go first."""
        snapshot, execution = self.known.snapshot, self.execution
        held = state_held(snapshot, app, execution.placements.get(app))
        waiting = (each for other, of in self.learned.waiting.items() if other != app for each in of)
        return what_restores(snapshot, execution, self.learned, held).beside(waiting)

    def is_only_told(self, app: AppId) -> bool:
        """Whether decisions about the app are told and not carried out, although those about others are."""
        return self.acting and self.plans.of(app) is PlanMode.DRY_RUN

    def budget_use(self, now: float, app: AppId) -> BudgetUse:
        """What is used of the app's disruption budget."""
        return self.budget.use(now, self.execution, app)


class AppOrder:
    """Each app has one decision per window.  Apps for which the solver was last asked in vain come last.

    `in_vain` = when the solver was last asked about an app without a plan as result (epoch seconds).  `spoken`: the
    window has led to a decision, so that a skip would tell nothing more.
    """

    def __init__(self) -> None:
        self.in_vain: dict[AppId, float] = {}
        self.spoken = False
        self._decided: set[AppId] = set()

    def new_window(self) -> None:
        """Every app has a turn again."""
        self._decided.clear()
        self.spoken = False

    def keep(self, apps: Collection[AppId]) -> None:
        """Forget all apps but these."""
        self.in_vain = {app: at for app, at in self.in_vain.items() if app in apps}

    def again(self, apps: Iterable[AppId]) -> None:
        """These apps have a turn again, since an operator has just said something about them."""
        self._decided.difference_update(apps)

    def decided(self, app: AppId) -> None:
        """The app has its decision from this window."""
        self._decided.add(app)

    def answered(self, now: float, app: AppId, *, planned: bool) -> None:
        """The solver's answer about an app has led to a decision; `planned`: to a plan."""
        if planned:
            self.in_vain.clear()  # otherwise an app that gains in every round would always come before the others
        else:
            self.in_vain[app] = now
        self._decided.add(app)
        self.spoken = True

    def by_urgency(
        self, views: Mapping[AppId, SmoothedView | NotReady], evaluations: Mapping[AppId, Evaluation]
    ) -> list[AppId]:
        """The apps without a decision from this window.

        Those with a drain, or with key groups that break a rule, come first; then those with the largest load distance.
        Those that are not ready come last.
        """

        def rank(app: AppId) -> tuple[bool, float, AppId]:
            view, evaluation = views[app], evaluations.get(app)
            if evaluation is None or not isinstance(view, SmoothedView):
                return False, -1.0, app
            return bool(view.to_empty) or bool(view.misplaced.any()), evaluation.load_distance or 0.0, app

        return sorted(views.keys() - self._decided, key=rank, reverse=True)

    def in_turn(self, apps: Iterable[AppId]) -> list[AppId]:
        """The apps in the order in which to ask about them: where a plan was last sought in vain, after the others."""
        return sorted(apps, key=lambda app: self.in_vain.get(app, 0.0))


@dataclass(frozen=True, slots=True, kw_only=True)
class DecisionPolicy(Generic[Asked, Found]):
    """One answer to what is to be done."""

    ask: Callable[["Policies", Asked], Found | None]
    acts: bool = False
    """Asked only where decisions are carried out."""
    forbids: bool = False
    """It only forbids what is behind it; so it is also asked while an act for another app is not carried out yet."""
    at_once: bool = False
    """Asked also while the solver works, and when a plan or a stop has ended: nobody waits for a window."""


class AppTurn:
    """What the policies of APP are asked about: an app."""

    def __init__(self, policies: "Policies", now: float, app: AppId) -> None:
        self._policies = policies
        self.now = now
        self.app = app

    @cached_property
    def view(self) -> SmoothedView:
        """What the window has shown of it.  Only behind the policy that answers where that is not known."""
        view = self._policies.situation.known.views[self.app]
        assert isinstance(view, SmoothedView)
        return view

    @cached_property
    def to_plan(self) -> PlannableView:
        """The same as plans are made with it."""
        return self._policies.view_to_plan(self.now, self.view)

    @cached_property
    def use(self) -> BudgetUse:
        """What is used of its disruption budget."""
        return self._policies.situation.budget_use(self.now, self.app)


class Policies:
    """The answers in the present situation.  Asking changes nothing; what a decision leaves behind: `accepted`."""

    def __init__(self, situation: Situation, first: FirstPlacements, turns: AppOrder) -> None:
        """`turns` = for which apps a plan was last sought without result."""
        self.situation = situation
        self._first = first
        self._turns = turns

    def observe(self, now: float, draining: frozenset[WorkerId]) -> None:
        """Judge a window that the memory has observed: sizes, and what operators should look at."""
        present, known, intents = self.situation, self.situation.known, self.situation.operators.in_force
        sizes, execution, snapshot = present.sizes, present.execution, known.snapshot
        assert snapshot is not None
        known.pool = startable(snapshot, draining - execution.leaving)
        sizes.observe(known, present.memory.hosts, execution, intents, self._turns.in_vain)
        known.forecasts = sizes.forecasts.report()
        self._tell_sizes(now)
        known.concerns = (
            *known.concerns,
            *drain_concerns(execution, snapshot, draining, intents),
            *guard_concerns(now, present.memory.unforgiven(execution)),
            *sizes.concerns,
            *budget_concerns(now, present.budget, execution, known.views, draining),
        )

    def _tell_sizes(self, now: float) -> None:
        present = self.situation
        present.sizes.held = held_changes(now, present.budget, present.execution, present.sizes.verdicts)
        present.known.sizes = present.sizes.reported

    def answered(self, now: float, wanted: PotentialWanted, found: Answer | NoAnswer) -> None:
        """Remember what the solver has said of a potential plan, and judge the size of the app by it."""
        self.situation.sizes.answered(wanted.view.app, wanted.remain, wanted.view.end_s, potential_in(wanted, found))
        self._tell_sizes(now)

    def begin_turn(self, now: float, app: AppId) -> None:
        """Note that an app has its turn in this window."""
        turn = AppTurn(self, now, app)
        if self.situation.acts and self.admit_app(turn) is None:
            self._first.observe(turn.view)

    def accepted(self, now: float, decision: Decision) -> None:
        """Remember what follows from a decision, if it is carried out."""
        present = self.situation
        if not present.acting:
            return
        if isinstance(decision, Adopted) or (isinstance(decision, Planned | Proposed) and _is_first(decision)):
            app = decision.app if isinstance(decision, Adopted) else decision.plan.app
            view = present.known.views[app]
            assert isinstance(view, SmoothedView)
            self._first.accepted(view, present.execution.placements.get(app))
        present.operators.accepted(decision)
        if isinstance(decision, Resized):
            present.sizes.accepted(decision)
        if isinstance(decision, Forgotten) and decision.app is not None and decision.worker is None:
            present.sizes.forecasts.forget(decision.app)
        present.memory.accepted(now, decision, present.execution)

    # --- of the cluster -------------------------------------------------------------------------------------------

    def forget(self, now: float) -> Decision | None:
        """What operators want forgotten."""
        present, known = self.situation, self.situation.known
        return to_forget(present.operators.in_force, present.execution, known.snapshot, known.not_ready)

    def end_plan(self, now: float) -> Decision | None:
        """The end of a plan in flight that cannot go on, since the key of one of its hosts is revoked."""
        return in_vain(self.situation.execution, self.situation.known.revoked)

    def next_owners(self, now: float) -> Decision | None:
        """Next owners for orphans: a key group without an owner is an outage."""
        present = self.situation
        if present.paused is not None or present.known.not_ready is not None:
            return None
        promised = present.memory.standbys.promised(now)
        band = present.settings.load_distance
        return next_owners(present.memory.orphans, present.execution, present.learned, promised, band)

    def answer_operators(self, now: float) -> Decision | None:
        """Answers to operators that need no plan."""
        present = self.situation
        intents, snapshot = present.operators.in_force, present.known.snapshot
        return answer(now, intents, present.execution, snapshot, present.plans)

    def admit_cluster(self, now: float) -> Skip | None:
        """Why nothing is planned for any app: the controller is paused, or its journal cannot be trusted."""
        return self.situation.admit_cluster()

    def workers_of_operators(self, now: float) -> Decision | None:
        """The next start or stop of a worker that an operator has asked for; one at a time in the whole cluster."""
        present = self.situation
        if present.execution.scaling_of_operators is not None:
            return None
        return (
            present.sizes.correct(present.execution, present.operators.in_force, present.known)
            or self.start_again(now)
            or to_stop_undrained(
                now, present.operators.in_force, present.execution, present.known, present.plans, present.budget
            )
        )

    def start_again(self, now: float) -> Decision | None:
        """Start a worker that the controller stopped and that nobody keeps off."""
        present = self.situation
        return to_start(now, present.execution, present.draining, present.known, present.operators.in_force)

    def cluster_known(self, now: float) -> Skip | None:
        """Why the window does not show enough of the cluster."""
        missing = self.situation.known.not_ready
        return None if missing is None else not_ready(missing)

    # --- of an app ------------------------------------------------------------------------------------------------

    def decide(self, now: float, app: AppId) -> Decision | SolveWanted | PotentialWanted:
        """The decision about an app, or the question to the solver on which it depends: the first answer of APP."""
        turn = AppTurn(self, now, app)
        answers = (policy.ask(self, turn) for policy in APP if self.situation.acts or not policy.acts)
        return next(found for found in answers if found is not None)

    def admit_app(self, turn: AppTurn) -> Skip | None:
        """Why nothing is planned for this app: its last change is in flight, or the window does not show enough."""
        present = self.situation
        if (busy := present.admit_app(turn.app)) is not None:
            return busy
        if isinstance(view := present.known.views[turn.app], NotReady):
            return not_ready(view)
        early = present.memory.too_early(view, present.execution)
        return None if early is None else not_ready(early)

    def load_plan(self, turn: AppTurn) -> Decision | SolveWanted:
        """The question to the solver where a drain, a rule, the load or collocation asks for moves, or a trial."""
        present, now, app, view = self.situation, turn.now, turn.app, turn.to_plan
        evaluation, windows = present.known.evaluations[app], present.memory.history[app].windows
        found = admit(now, view, evaluation, present.execution, present.settings, windows=windows)
        if isinstance(found, Skip):
            trial = self._trial(now, view, found)
            return found if trial is None else self._as_mode_says(now, view, trial)
        waits = self._frozen(now, app, found.reason, found.detail) or self._hold(now, found)
        return waits or within(found, turn.use, present.settings.max_migrations)

    def view_to_plan(self, now: float, view: SmoothedView, *wishes: Intent) -> PlannableView:
        """The view as plans are made with it: what may not move, where state is already, and the room that is left.

        `wishes` = intents that are not in force yet: an operator may move more key groups at once than a plan.
        """
        present, memory = self.situation, self.situation.memory
        execution, learned = present.execution, present.learned
        view = with_arrivals(view, execution.in_flight, present.known.views, memory.standbys.promised(now))
        intents = (*present.operators.in_force, *wishes)
        wished = (len(each.moves) for each in intents if isinstance(each, MoveKeyGroups) and each.app == view.app)
        most = max(present.settings.max_migrations, *wished, 0)
        found = PlannableView.of(
            view,
            copies=memory.standbys.copies(view, execution.placements.get(view.app), present.known.snapshot, most),
            restore=RestoreCost(unit_s=learned.unit_s, bytes_s=learned.bytes_per_s),
        )
        pinned = pinned_in(now, found, execution.hand_moved) | memory.left_alone.pinned(now, view.app)
        found = replace(found, pinned=pinned)
        # Where those of the highest priority could not leave in the last round, others may go before them.
        waiting = () if view.app in self._turns.in_vain else later(found, present.settings.max_migrations)
        return replace(found, later=waiting) if waiting else found

    def conclude(self, now: float, wanted: SolveWanted, found: Answer | NoAnswer) -> Decision:
        """The decision that an answer of the solver leads to."""
        view = wanted.view
        decision, note = self._judge(now, wanted, found), self.note(now, view)
        if isinstance(decision, Skip):
            trial = self._trial(now, view, decision)
            return noted(self._as_mode_says(now, view, trial) if trial else self._instead_of(now, decision), note)
        return noted(self._as_mode_says(now, view, decision), note)

    def note(self, now: float, view: SmoothedView | NotReady) -> str:
        """What to add to decisions about the balance of an app: which key groups stay, and if a baseline plans."""
        present = self.situation
        left_alone = present.memory.left_alone.describe(now, view.app) if view.app is not None else ""
        return "; ".join(filter(None, (method_note(present.settings, view), left_alone)))

    def place_standbys(self, now: float) -> StandbysPlaced | None:
        """Standbys to place in the first app that lacks some; asked only when there is nothing else to do."""
        present = self.situation
        views = {app: view for app, view in present.known.views.items() if self._may_get_standbys(app, view)}
        return place(present.memory.standbys, now, views, present.execution.placements, present.restores_of)

    def _may_get_standbys(self, app: AppId, view: SmoothedView | NotReady) -> bool:
        """Whether the placement of an app has been compared with this view, so that its rows name the same owners."""
        present = self.situation
        early = isinstance(view, SmoothedView) and present.memory.too_early(view, present.execution) is not None
        return not present.is_only_told(app) and present.admit_app(app) is None and not early

    # --- decisions that need no solver ----------------------------------------------------------------------------

    def change_of_workers(self, turn: AppTurn) -> Decision | PotentialWanted | None:
        """The stop of a drained worker, the change of the app's size that is due, or what it depends on.

        A scale-out of an app that is asked for more than it can do does not wait for room in the disruption budget, nor
        does the start of a worker that was stopped to be started again.  What waits holds up nothing else of the app.
        """
        present, use, only_told = self.situation, turn.use, self.situation.is_only_told(turn.app)
        stop = None if only_told else to_stop(turn.view, present.execution, present.draining)
        if stop is not None and not use.holds_changes:
            return stop
        wanted = present.sizes.verdicts.get(turn.app)
        if wanted is not None and wanted.asks is not None:
            return potential_wanted(turn.to_plan, wanted.asks, present.settings)
        if only_told or (use.holds_changes and wanted is not None and wanted.due and not wanted.urgent):
            return None
        return present.sizes.decide(turn.now, turn.app)

    def first_placement(self, turn: AppTurn) -> Decision | None:
        """What the placement takes over from the reports, or the first plan of an app."""
        present, now, view = self.situation, turn.now, turn.view
        placement = present.execution.placements.get(view.app)
        noise = present.known.evaluations[view.app].noise or 0.0
        placed = self._first.decide(view, placement, max(present.settings.min_gain, noise))
        if isinstance(placed, Planned):
            whole = as_a_whole(placed, turn.use)
            if isinstance(whole, Skip):
                return whole
            return as_mode_says(now, self._with_restores(whole), present.plans)
        if placed is None or not present.is_only_told(view.app):
            if placed is not None and placement is None:
                why = present.memory.kept.refusal(view, present.execution.placements)
                if why is not None:
                    detail = f"{view.app} gets no first placement now: {why}"
                    return Skip(reason=SkipReason.TOO_MANY_APPS, detail=detail, app=view.app)
            return placed and with_adopted(present.memory.standbys, now, view, placement, placed, present.restores_of)
        return placed if placement is not None else shown_only(view.app, placed.detail)

    def plans_of_operators(self, turn: AppTurn) -> Decision | None:
        """The plan that an operator wants or approves, what becomes of one that waits, or the guard's moves back."""
        present, now, view = self.situation, turn.now, turn.to_plan
        waiting, band = present.execution.proposals.get(view.app), present.settings.load_distance
        found = wanted_by_operators(now, view, waiting, present.operators.in_force, present.plans, band=band)
        found = found or roll_back(now, view, present.execution.guarded.get(view.app))
        if isinstance(found, Planned):
            found = as_a_whole(found, turn.use)
        if isinstance(found, Planned):
            found = self._begun(now, view, self._with_restores(found))
        return found

    # --- what becomes of a plan -----------------------------------------------------------------------------------

    def _judge(self, now: float, wanted: SolveWanted, solved: Answer | NoAnswer) -> Planned | Skip:
        """Judge the answer by what became known while the solver worked."""
        present, app = self.situation, wanted.view.app
        if isinstance(solved, NoAnswer):
            return Skip(reason=SkipReason.SOLVER_FAILED, detail=solved.reason, app=app)
        if (changed := present.admit_cluster() or present.admit_app(app)) is not None:
            return changed
        draining = present.draining
        found = judge_now(wanted, solved, present.known, present.execution, present.learned, present.settings, draining)
        if isinstance(found, Planned) and found.plan.reason is not wanted.reason:
            # Nothing can move for the drain or the rule that it was for.
            balance = replace(wanted, reason=found.plan.reason, detail=found.plan.detail)
            found = self._hold(now, balance) or found
        return found

    def _hold(self, now: float, wanted: SolveWanted) -> Skip | None:
        """The reason to make no plan for balance: the guard, or the last plans missed.  Drains continue."""
        return None if wanted.must_move else self._holds(now, wanted.view.app, wanted.detail)

    def _holds(self, now: float, app: AppId, wanted: str) -> Skip | None:
        memory = self.situation.memory
        stop = memory.unforgiven(self.situation.execution).get(app)
        return backs_off(now, stop) or memory.predictions.hold(app, wanted)

    def _trial(self, now: float, view: PlannableView, idle: Skip) -> Planned | None:
        """Trial moves in an app for which there is nothing else to do, as `idle` says; None if there are none."""
        present, app = self.situation, view.app
        newest, together = present.known.views.get(app), present.known.together.get(app)
        if together is None or not isinstance(newest, SmoothedView) or self._holds(now, app, "a trial"):
            return None
        found = trial_in(now, view, together.fits, present.execution, present.settings, idle)
        if found is None or still_free(found, newest, present.draining) is not None:
            return None
        fits = isinstance(as_a_whole(found, present.budget_use(now, app)), Planned)
        return self._with_restores(found) if fits else None

    def _with_restores(self, planned: Planned) -> Planned:
        """The plan, with what its targets lack of the state."""
        present, app, snapshot = self.situation, planned.plan.app, self.situation.known.snapshot
        return with_restores(planned, snapshot, state_held(snapshot, app, present.execution.placements.get(app)))

    def _instead_of(self, now: float, skip: Skip) -> Decision:
        """Standbys to place instead of a skip; whatever forbids a plan forbids these too."""
        present = self.situation
        if not present.acts or present.admit_cluster() is not None or present.known.not_ready is not None:
            return skip
        return skip if any_drift(present.known.views, present.execution) else self.place_standbys(now) or skip

    def _as_mode_says(self, now: float, view: PlannableView, planned: Planned) -> Decision:
        """What becomes of a plan: a dry run only shows it."""
        present, plan = self.situation, planned.plan
        # The solver may have begun before a time in which none begins, and trials need no solver.
        if (waits := self._frozen(now, plan.app, plan.reason, plan.detail)) is not None:
            return waits
        found = as_mode_says(now, planned, present.plans) if present.acting else planned
        return self._begun(now, view, found) if present.acting and isinstance(found, Planned) else found

    def _frozen(self, now: float, app: AppId, reason: PlanReason, detail: str) -> Skip | None:
        """The decision to let a plan for balance wait for another time; None: it may begin."""
        times = self.situation.plans.times_of(app)
        if reason not in FOR_BALANCE or (closed := self.situation.memory.openings.closed(times, now)) is None:
            return None
        return Skip(reason=SkipReason.PLANS_FROZEN, detail=f"{app}: {detail}, but {closed}", app=app)

    def _begun(self, now: float, view: PlannableView, planned: Planned) -> Planned:
        """A plan that is carried out, with standbys."""
        present = self.situation
        planned = replace(planned, plan=with_priorities(view, planned.plan))
        placement = present.execution.placements.get(view.app)
        return with_plan(present.memory.standbys, now, view, placement, planned, present.restores_of)


def _is_first(decision: Planned | Proposed) -> bool:
    return decision.plan.reason is PlanReason.FIRST and not (isinstance(decision, Planned) and decision.id)


CLUSTER: tuple[DecisionPolicy[float, Decision], ...] = (
    DecisionPolicy(ask=Policies.forget, acts=True),
    DecisionPolicy(ask=Policies.end_plan, acts=True, at_once=True),
    DecisionPolicy(ask=Policies.next_owners, acts=True, at_once=True),
    DecisionPolicy(ask=Policies.answer_operators, acts=True),
    DecisionPolicy(ask=Policies.admit_cluster, forbids=True),
    DecisionPolicy(ask=Policies.workers_of_operators),
    DecisionPolicy(ask=Policies.cluster_known, forbids=True),
)
"""Asked once for each window."""


APP: tuple[DecisionPolicy[AppTurn, Decision | SolveWanted | PotentialWanted], ...] = (
    DecisionPolicy(ask=Policies.admit_app),
    DecisionPolicy(ask=Policies.first_placement, acts=True),
    DecisionPolicy(ask=Policies.change_of_workers),
    DecisionPolicy(ask=Policies.plans_of_operators, acts=True),
    DecisionPolicy(ask=Policies.load_plan),
)
"""Asked about each app, until one answer is more than a skip."""


REST: tuple[DecisionPolicy[float, Decision], ...] = (DecisionPolicy(ask=Policies.place_standbys, acts=True),)
"""Asked where all apps have only led to skips."""
