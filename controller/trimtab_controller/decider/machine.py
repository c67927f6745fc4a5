"""The decider, a pure state machine: it takes snapshots, intents, answers and the execution state, and makes decisions.

Each snapshot leads to one decision for every app that needs one, or to a single skip.  The solver is asked about one
app at a time; the next app follows when it has answered.
"""

from collections.abc import Callable
from dataclasses import replace

from trimtab_controller.decider.admission import SolveWanted, admit, admit_app, admit_cluster
from trimtab_controller.decider.budget import as_a_whole, change_of_workers, held, within
from trimtab_controller.decider.decision import (
    Adopted,
    Decision,
    Planned,
    Proposed,
    Skip,
    StandbysPlaced,
    not_ready,
)
from trimtab_controller.decider.drained import is_to_start_soon, to_start
from trimtab_controller.decider.drift import any_drift
from trimtab_controller.decider.events import (
    Action,
    Decided,
    Event,
    ExecutionChanged,
    HoldChanged,
    HookEnded,
    HostsRevoked,
    IntentsChanged,
    RestoresLearned,
    RoundMeasured,
    SnapshotArrived,
    Solve,
    SolverAnswered,
)
from trimtab_controller.decider.first import First, FirstPlacements
from trimtab_controller.decider.forecast.rounds import Forecasts
from trimtab_controller.decider.guarded import roll_back
from trimtab_controller.decider.hosts.revoked import in_vain
from trimtab_controller.decider.judgement import blocked_drains, judge_now, noted
from trimtab_controller.decider.known import NOTHING_SEEN, Known
from trimtab_controller.decider.observations import Observations, Recalled, too_early
from trimtab_controller.decider.observing.observe import Requirements
from trimtab_controller.decider.observing.view import AppView, NotReady
from trimtab_controller.decider.operators.intents import OperatorIntents
from trimtab_controller.decider.operators.modes import PlanMode, PlanSettings
from trimtab_controller.decider.operators.plan_times import frozen
from trimtab_controller.decider.operators.proposals import as_mode_says, told
from trimtab_controller.decider.reasons import SkipReason
from trimtab_controller.decider.rules.priority import later, with_priorities
from trimtab_controller.decider.rules.rule import Rule
from trimtab_controller.decider.settings import Settings
from trimtab_controller.decider.size.rounds import SizeRounds
from trimtab_controller.decider.size.settings import ScalingSettings
from trimtab_controller.decider.turns import Turns
from trimtab_controller.execution.budget import Budget
from trimtab_controller.execution.restores import LearnedRestores
from trimtab_controller.execution.state import Execution
from trimtab_controller.solver.answer import Answer, NoAnswer
from trimtab_protocol.messages.intents import Intent
from trimtab_protocol.messages.names import AppId, WorkerId
from trimtab_protocol.messages.snapshot import Snapshot


class Decider:
    """Decides.  `on_event` and `on_tick` return the actions in order; `known` was seen last, `intents` are in force."""

    def __init__(
        self,
        settings: Settings,
        needs: Requirements,
        execution: Execution,
        *,
        acting: bool,
        scaling: ScalingSettings = ScalingSettings(),  # noqa: B008 - frozen
        first: First = First.ADOPT,
        plans: PlanSettings = PlanSettings(),  # noqa: B008 - frozen
        rules: tuple[Rule, ...] = (),
        recalled: Recalled | None = None,
        budget: Budget = Budget(),  # noqa: B008 - frozen
        forecasts: Forecasts | None = None,
    ) -> None:
        self._first = FirstPlacements(first)
        self.plans = plans
        self.settings = settings
        sizes = SizeRounds(scaling, acting, settings.catch_up_s, settings.method, plans, forecasts or Forecasts())
        self._seen = Observations(settings, needs, sizes, rules, recalled, budget)
        self._needs = needs
        self._execution = execution
        self._acting = acting
        self._operators = OperatorIntents()
        self._held: str | None = None
        self._learned = LearnedRestores()
        self._wanted: SolveWanted | None = None
        self._turns = Turns()
        self._stale_at: float | None = None
        self._ended_at: float | None = None  # when a plan or stop ended: restores or a start may wait for that

    @property
    def known(self) -> Known:
        """What the last snapshot showed."""
        return self._seen.known

    @property
    def budget(self) -> Budget:
        """The disruption budgets."""
        return self._seen.budget

    @property
    def intents(self) -> tuple[Intent, ...]:
        """The intents in force."""
        return self._operators.in_force

    @property
    def paused(self) -> str | None:
        """Who paused the controller and why, or None."""
        return self._operators.paused

    @property
    def draining(self) -> frozenset[WorkerId]:
        """The workers to empty and stop: those that operators drain or restart, and those that leave."""
        return self._operators.draining(self._execution, self.known.snapshot)

    @property
    def wake_at(self) -> float | None:
        """When to call `on_tick` at the latest (epoch seconds)."""
        return min((at for at in (self._stale_at, self._ended_at) if at is not None), default=None)

    def on_event(self, now: float, event: Event) -> list[Action]:
        """Process an event and return the actions that follow."""
        match event:
            case SnapshotArrived(snapshot=snapshot):
                return self._on_snapshot(now, snapshot)
            case IntentsChanged(intents=intents):
                was_paused = self.paused is not None
                at_once = self._operators.change(now, intents)
                if was_paused and self.paused is None:
                    self._seen.forgive(self._execution)
                if self._acting and at_once:
                    return self._at_once(now)
            case ExecutionChanged(execution=execution):
                ended = any(not execution.busy(row.app) for row in self._execution.in_flight)
                if ended or is_to_start_soon(self._execution, execution):
                    self._ended_at = now
                self._execution = execution
            case HoldChanged(reason=reason):
                self._held = reason
            case HostsRevoked(hosts=hosts):
                self._seen.revoke(hosts)
                return self._restored(now)
            case HookEnded(app=app, failure=failure):
                self._seen.sizes.hook_ended(app, failure)
            case RestoresLearned(learned=learned):
                self._learned = learned
            case SolverAnswered(answer=answer):
                return self._on_answer(now, answer)
        return []

    def on_tick(self, now: float) -> list[Action]:
        """Do at once what waited for the end of a plan or stop; report once per interval that no window arrives."""
        if self._stale_at is None:
            self._stale_at = now + self._needs.max_age_s
        if self._ended_at is not None and self._ended_at <= now:
            self._ended_at = None
            return self._restored(now, start=True)
        if now < self._stale_at:
            return []
        self._stale_at = now + self._needs.max_age_s
        self.known.not_ready = missing = self.known.without_news(now)
        return [Decided(decision=not_ready(missing))]

    def _at_once(self, now: float) -> list[Action]:
        """Decide without waiting for the next window, since an operator has just said something about a plan."""
        if self._wanted is not None or self.known.snapshot is None:
            return []  # the solver works: what follows its answer looks at this too
        self._turns.again(self._operators.apps_to_move() | self._execution.proposals.keys())
        self._turns.spoken = True  # a skip would only repeat what the last window led to
        return self._next(now)

    def preview(self, now: float, solve: Callable[[AppView], Answer | NoAnswer]) -> Decision:
        """What a dry run would decide now; `solve` is called when a plan is wanted.  The decider does not change."""
        if self._acting:
            raise ValueError("only a dry run has a preview: the decisions of an acting decider are carried out")
        if self.known.snapshot is None:
            return not_ready(NOTHING_SEEN)
        found = self._decide(now)
        return self._conclude(now, found, solve(found.view)) if isinstance(found, SolveWanted) else found

    # --- a snapshot -----------------------------------------------------------------------------------------------

    def _on_snapshot(self, now: float, snapshot: Snapshot) -> list[Action]:
        previous = self.known.snapshot
        if previous is not None and snapshot.end_ms <= previous.end_ms:
            return []  # a repetition, or out of order
        measured = self.record(now, snapshot)
        # First, because a decision may publish a placement.
        news = self._seen.readers.news(self._execution.placements) if self._acting and self._held is None else []
        return [*news, *measured, *(self._next(now) if self._wanted is None else self._restored(now))]

    def record(self, now: float, snapshot: Snapshot) -> list[RoundMeasured]:
        """Learn from a window newer than all previous ones, without making a decision."""
        self._stale_at = now + self._needs.max_age_s
        self._turns.new_window()
        draining, settled = self.draining, self._turns.in_vain
        measured = self._seen.see(now, snapshot, self._execution, self.intents, draining=draining, settled=settled)
        self._turns.keep(self.known.views)
        return measured

    def _next(self, now: float) -> list[Action]:
        """The decisions for the apps that have none from this window, up to the next question to the solver."""
        actions: list[Action] = []
        while True:
            found = self._decide(now)
            if isinstance(found, SolveWanted):
                self._wanted = found
                return [*actions, Solve(view=found.view)]
            if not (isinstance(found, Skip) and self._turns.spoken):
                actions.append(Decided(decision=found))
            self._turns.spoken = True
            if not isinstance(found, Adopted):
                return actions
            self._turns.decided(found.app)

    def _decide(self, now: float) -> Decision | SolveWanted:
        """The decision for the app that needs one most; apps for which a plan was last sought in vain come last."""
        decision = (
            (self._owed(now) if self._acting and self._held is None else None)
            or self._admit_cluster()
            or self._seen.sizes.correct(self._execution, self.intents, self.known)
            or to_start(now, self._execution, self.draining, self.known.hosts)
            or self._operators.to_stop(now, self._execution, self.known, self.plans, self.budget)
        )
        if decision is not None:
            return decision
        if self.known.not_ready is not None:
            return not_ready(self.known.not_ready)
        apps = self._turns.by_urgency(self.known.views, self.known.evaluations)
        skips = {}
        for app in self._turns.in_turn(apps):
            found = self._decide_app(now, app)
            if not isinstance(found, Skip):
                return found
            skips[app] = noted(found, self.settings.note(self.known.views[app]))
        if not self._turns.spoken and (standbys := self._place_standbys(now)) is not None:
            return standbys
        return skips[apps[0]] if apps else Skip(reason=SkipReason.NO_WORKERS, detail="no app reports")

    def _owed(self, now: float) -> Decision | None:
        """What comes before plans: what operators want forgotten, restores, and answers that need no plan."""
        if (found := self._operators.to_forget(self._execution, self.known)) is not None:
            self._seen.forget(found.app, found.worker, self.known.hosts)
            return found
        return self._restore(now) or self._operators.answer(now, self._execution, self.known, self.plans)

    def _restore(self, now: float) -> Decision | None:
        """Next owners for orphans, before anything else, since a key group without one is an outage.

        Before that, a plan in flight ends that can no longer be carried out.
        """
        if not self._acting or self._held is not None or self.known.snapshot is None:
            return None
        if (ended := in_vain(self._execution, self.known.revoked)) is not None:
            return ended
        if self.paused is not None or self.known.not_ready is not None:
            return None
        return self._seen.next_owners(now, self._execution, self._learned)

    def _restored(self, now: float, *, start: bool = False) -> list[Action]:
        found = self._restore(now)
        if found is None and start and self._admit_cluster() is None:
            found = to_start(now, self._execution, self.draining, self.known.hosts)
        return [] if found is None else [Decided(decision=found)]

    def _by_operators(self, now: float, view: AppView) -> Decision | None:
        """The plan that an operator wants or approves, what becomes of one that waits, or the guard's moves back."""
        found = self._operators.plan(now, view, self._execution, self.plans, band=self.settings.load_distance)
        found = found or roll_back(now, view, self._execution.guarded.get(view.app))
        if isinstance(found, Planned):
            found = as_a_whole(found, self.budget.use(now, self._execution, view.app))
        if isinstance(found, Planned):
            found = self._begun(now, view, self._seen.with_restores(found, self._execution))
        self._operators.done_with(found)
        return found

    def _as_mode_says(self, now: float, view: AppView, planned: Planned) -> Decision:
        """What becomes of a plan: a dry run only shows it."""
        plan = planned.plan  # the solver may have begun before a time in which none begins, and trials need no solver
        waits = frozen(now, self.plans.times_of(plan.app), plan.app, plan.reason, plan.detail)
        if waits is not None:
            return waits
        found = as_mode_says(now, planned, self.plans) if self._acting else planned
        return self._begun(now, view, found) if self._acting and isinstance(found, Planned) else found

    def _begun(self, now: float, view: AppView, planned: Planned) -> Planned:
        """A plan that is carried out, with standbys; what it predicts is remembered."""
        self._seen.predictions.plan(now, view.app, planned.plan.collocation)
        planned = replace(planned, plan=with_priorities(view, planned.plan))
        placement = self._execution.placements.get(view.app)
        return self._seen.standbys.with_plan(now, view, placement, planned)

    def _admit_cluster(self) -> Skip | None:
        return admit_cluster(self._execution, paused=self.paused, held=self._held)

    def _decide_app(self, now: float, app: AppId) -> Decision | SolveWanted:
        if (busy := admit_app(app, self._execution)) is not None:
            return busy
        view = self.known.views[app]
        if isinstance(view, NotReady):
            return not_ready(view)
        if (early := too_early(view, self._execution)) is not None:
            return not_ready(early)
        if self._acting and (placed := self._first_placement(now, view)) is not None:
            return placed
        evaluation, windows = self.known.evaluations[app], self._seen.history[app].windows
        is_told = self._acting and self.plans.of(app) is PlanMode.DRY_RUN
        use = self.budget.use(now, self._execution, app)
        changed = (
            None if is_told else change_of_workers(now, view, use, self._seen.sizes, self._execution, self.draining)
        )
        if changed is not None:
            return changed
        view = self.view_to_plan(now, view)
        if self._acting and (asked_for := self._by_operators(now, view)) is not None:
            return asked_for
        found = admit(now, view, evaluation, self._execution, self.settings, windows=windows)
        if isinstance(found, Skip):
            trial = self._seen.trial(now, view, self._execution, found)
            return found if trial is None else self._as_mode_says(now, view, trial)
        times = self.plans.times_of(app)
        waits = frozen(now, times, app, found.reason, found.detail) or self._seen.hold(now, found, self._execution)
        return waits or within(found, use, self.settings.max_migrations)

    def view_to_plan(self, now: float, view: AppView, *wishes: Intent) -> AppView:
        """The view as plans are made with it; `wishes` = intents that are not in force yet."""
        view = self._seen.to_plan(now, view, self._execution, (*self.intents, *wishes), self._learned)
        # Where those of the highest priority could not leave in the last round, others may go before them.
        waiting = () if view.app in self._turns.in_vain else later(view, self.settings.max_migrations)
        return replace(view, later=waiting) if waiting else view

    def followed(self, view: AppView) -> dict[WorkerId, float] | None:
        """Bytes of state that each worker of an app follows; None if that is not known."""
        return self._seen.standbys.followed(view, self._execution.placements.get(view.app))

    def _first_placement(self, now: float, view: AppView) -> Decision | None:
        """What the placement takes over from the reports, or the first plan of an app."""
        placed = self._first.decide(view, placement := self._execution.placements.get(view.app))
        if isinstance(placed, Planned):
            use = self.budget.use(now, self._execution, view.app)
            if use.fits == 0:
                return held(use, placed.plan.detail)
            return as_mode_says(now, self._seen.with_restores(placed, self._execution), self.plans)
        if placed is None or self.plans.of(view.app) is not PlanMode.DRY_RUN:
            return placed and self._seen.standbys.with_adopted(now, view, placement, placed)
        return placed if placement is not None else told(view.app, placed.detail)

    def _place_standbys(self, now: float) -> StandbysPlaced | None:
        """Standbys to place; asked only when there is nothing else to do."""
        if not self._acting:
            return None
        free = [app for app in self.known.views if self.plans.of(app) is not PlanMode.DRY_RUN]
        idle = {app: self.known.views[app] for app in free if not self._execution.busy(app)}
        return self._seen.standbys.place(now, idle, self._execution.placements)

    # --- an answer ------------------------------------------------------------------------------------------------

    def _on_answer(self, now: float, answer: Answer | NoAnswer) -> list[Action]:
        wanted, self._wanted = self._wanted, None
        if wanted is None:
            return []
        decision = self._conclude(now, wanted, answer)
        self._turns.answered(now, wanted.view.app, planned=isinstance(decision, Planned | Proposed))
        blocked = blocked_drains(wanted.view, answer) if isinstance(answer, Answer) else []
        return [*blocked, Decided(decision=decision), *self._next(now)]

    def _conclude(self, now: float, wanted: SolveWanted, answer: Answer | NoAnswer) -> Decision:
        """The decision that an answer leads to."""
        decision, note, view = self._judge(now, wanted, answer), self.settings.note(wanted.view), wanted.view
        if isinstance(decision, Skip):
            trial = self._seen.trial(now, view, self._execution, decision)
            return noted(self._as_mode_says(now, view, trial) if trial else self._instead_of(now, decision), note)
        return noted(self._as_mode_says(now, view, decision), note)

    def _instead_of(self, now: float, skip: Skip) -> Decision:
        """Standbys to place instead of a skip; whatever forbids a plan forbids these too."""
        if self._admit_cluster() is not None or self.known.not_ready is not None:
            return skip
        return skip if any_drift(self.known.views, self._execution) else self._place_standbys(now) or skip

    def _judge(self, now: float, wanted: SolveWanted, answer: Answer | NoAnswer) -> Planned | Skip:
        """Judge the answer by what became known while the solver worked."""
        if isinstance(answer, NoAnswer):
            return Skip(reason=SkipReason.SOLVER_FAILED, detail=answer.reason, app=wanted.view.app)
        if (changed := self._admit_cluster() or admit_app(wanted.view.app, self._execution)) is not None:
            return changed
        found = judge_now(wanted, answer, self.known, self._execution, self._learned, self.settings)
        return self._seen.wait_for_peak(now, wanted.view, found, self._execution, self._learned)
