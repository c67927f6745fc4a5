"""The decider, a pure state machine: it takes snapshots, intents, answers and the execution state, and makes decisions.

Each snapshot leads to one decision for every app that needs one, or to a single skip.  The solver is asked about one
app at a time; the next app follows when it has answered.
"""

from collections.abc import Callable, Iterable

from trimtab_controller.decider.events import (
    CLOCK_TOLERANCE_S,
    Action,
    Decided,
    Event,
    ExecutionChanged,
    HoldChanged,
    HookEnded,
    HostsRevoked,
    IntentsChanged,
    RestoresLearned,
    SnapshotArrived,
    Solve,
    SolverAnswered,
)
from trimtab_controller.decider.memory.forecasts import Forecasts
from trimtab_controller.decider.memory.memory import NOTHING_SEEN, Memory, Recalled, WindowResult
from trimtab_controller.decider.memory.predictions import RoundMeasured
from trimtab_controller.decider.policies.admission import SolveWanted
from trimtab_controller.decider.policies.first import FirstPlacements
from trimtab_controller.decider.policies.judgement import blocked_drains, noted
from trimtab_controller.decider.policies.order import CLUSTER, REST, AppOrder, DecisionPolicy, Policies, Situation
from trimtab_controller.decider.policies.potential import PotentialWanted
from trimtab_controller.decider.policies.sizes import SizeRounds
from trimtab_controller.decider.policies.workers import is_to_start_soon
from trimtab_controller.decider.values.decision import Adopted, Decision, Planned, Proposed, Skip, not_ready
from trimtab_controller.decider.values.plan_settings import PlanSettings
from trimtab_controller.decider.values.reasons import SkipReason
from trimtab_controller.decider.values.scaling import ScalingSettings
from trimtab_controller.decider.values.settings import First, Requirements, Settings
from trimtab_controller.decider.window.view import PlannableView, SmoothedView
from trimtab_controller.execution.budget import PauseBudget
from trimtab_controller.execution.state import Execution
from trimtab_controller.solver.answer import Answer, NoAnswer
from trimtab_protocol.messages.intents import Intent
from trimtab_protocol.messages.names import AppId, WorkerId
from trimtab_protocol.messages.rules import Rule
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
        budget: PauseBudget = PauseBudget(),  # noqa: B008 - frozen
        forecasts: Forecasts | None = None,
    ) -> None:
        sizes = SizeRounds(scaling, acting, settings.catch_up_s, settings.method, plans, forecasts or Forecasts())
        self._situation = Situation(
            settings=settings,
            plans=plans,
            acting=acting,
            memory=Memory(settings, needs, rules, recalled),
            sizes=sizes,
            budget=budget,
            execution=execution,
        )
        self._needs = needs
        self._turns = AppOrder()
        self._policies = Policies(self._situation, FirstPlacements(first), self._turns)
        self._wanted: SolveWanted | PotentialWanted | None = None
        self._stale_at: float | None = None
        self._again_at: float | None = None  # when a plan or stop ended, or an act may have left others undone
        self._others: tuple[Skip, ...] = ()  # why the apps behind the one that is told of get no plan
        self._spoken_of: set[AppId] = set()  # apps of which operators spoke while the solver worked

    @property
    def settings(self) -> Settings:
        """How plans are made."""
        return self._situation.settings

    @property
    def plans(self) -> PlanSettings:
        """What becomes of plans."""
        return self._situation.plans

    @property
    def known(self) -> WindowResult:
        """What the last snapshot showed."""
        return self._situation.known

    @property
    def budget(self) -> PauseBudget:
        """The disruption budgets."""
        return self._situation.budget

    @property
    def intents(self) -> tuple[Intent, ...]:
        """The intents in force."""
        return self._situation.operators.in_force

    @property
    def paused(self) -> str | None:
        """Who paused the controller and why, or None."""
        return self._situation.paused

    @property
    def draining(self) -> frozenset[WorkerId]:
        """The workers to empty and stop: those that operators drain or restart, and those that leave."""
        return self._situation.draining

    @property
    def wake_at(self) -> float | None:
        """When to call `on_tick` at the latest (epoch seconds)."""
        return min((at for at in (self._stale_at, self._again_at) if at is not None), default=None)

    def on_event(self, now: float, event: Event) -> list[Action]:
        """Process an event and return the actions that follow."""
        present = self._situation
        match event:
            case SnapshotArrived(snapshot=snapshot):
                return self._on_snapshot(now, snapshot)
            case IntentsChanged(intents=intents):
                was_paused = present.paused is not None
                at_once = present.operators.change(now, intents)
                if was_paused and present.paused is None:
                    present.memory.forgive(present.execution)
                if present.acting and at_once:
                    return self._at_once(now)
            case ExecutionChanged(execution=execution):
                ended = any(not execution.busy(row.app) for row in present.execution.in_flight)
                if ended or is_to_start_soon(present.execution, execution):
                    self._again_at = now
                present.execution = execution
                present.memory.left_alone.observe(now, execution)
            case HoldChanged(reason=reason):
                present.held = reason
            case HostsRevoked(hosts=hosts):
                present.memory.revoke(hosts)
                return self._before_windows(now)
            case HookEnded(app=app, failure=failure):
                present.sizes.hook_ended(app, failure)
            case RestoresLearned(learned=learned):
                present.learned = learned
            case SolverAnswered(answer=answer):
                return self._on_answer(now, answer)
        return []

    def on_tick(self, now: float) -> list[Action]:
        """Do what waited for another act to be carried out; say once per interval that no window arrives."""
        if self._stale_at is None:
            self._stale_at = now + self._needs.max_age_s
        if self._again_at is not None and self._again_at <= now:
            self._again_at = None
            return self._before_windows(now, start=True)
        if now < self._stale_at:
            return []
        self._stale_at = now + self._needs.max_age_s
        self.known.not_ready = missing = self.known.without_news(now)
        return [Decided(decision=not_ready(missing))]

    def _at_once(self, now: float) -> list[Action]:
        """Decide without waiting for the next window, since an operator has just said something about a plan."""
        apps = self._situation.operators.apps_to_move() | self._situation.execution.proposals.keys()
        if self._wanted is not None:
            self._spoken_of |= apps  # they have a turn again when the solver has answered
            return []
        if self.known.snapshot is None:
            return []
        self._turns.again(apps)
        self._turns.spoken = True  # a skip would only repeat what the last window led to
        return self._next(now)

    # --- a snapshot -----------------------------------------------------------------------------------------------

    def _on_snapshot(self, now: float, snapshot: Snapshot) -> list[Action]:
        previous = self.known.snapshot
        last_ms = 0 if previous is None else previous.end_ms
        if snapshot.end_ms <= last_ms <= 1000.0 * (now + CLOCK_TOLERANCE_S):  # beyond that, clocks were set back
            return []  # a repetition, or out of order
        self._situation.sizes.wait_no_longer(snapshot.end_ms / 1000.0)
        measured = self.record(now, snapshot)
        forgotten = self._forgotten(now, snapshot) if self._situation.acts else []
        return [*measured, *forgotten, *(self._next(now) if self._wanted is None else self._before_windows(now))]

    def _forgotten(self, now: float, snapshot: Snapshot) -> list[Decided]:
        """Apps and workers that have been gone for so long that nobody waits for them any more."""
        present = self._situation
        found = tuple(present.memory.kept.to_forget(snapshot.end_ms / 1000.0, present.execution, self.intents))
        return [self._decided(now, each) for each in found]

    def record(self, now: float, snapshot: Snapshot) -> list[RoundMeasured]:
        """Learn from a window newer than all previous ones, without making a decision."""
        self._stale_at = now + self._needs.max_age_s
        self._turns.new_window()
        present, draining = self._situation, self._situation.draining
        measured = present.memory.observe(now, snapshot, present.execution, self.intents, draining=draining)
        self._policies.observe(now, draining)
        self._turns.keep(self.known.views)
        return measured

    def _next(self, now: float, *, after_act: bool = False) -> list[Action]:
        """The decisions for the apps that have none from this window, up to the next question to the solver.

        `after_act`: a decision before these is not carried out yet, so that only those of other apps follow.
        """
        actions: list[Action] = []
        while True:
            found = self._decide(now, after_act=after_act)
            if isinstance(found, SolveWanted | PotentialWanted):
                self._wanted = found
                return [*actions, Solve(view=found.view)]
            if not (isinstance(found, Skip) and self._turns.spoken):
                actions.append(self._decided(now, found, self._others if isinstance(found, Skip) else ()))
            self._turns.spoken = True
            if not isinstance(found, Adopted):
                return actions
            self._turns.decided(found.app)

    def _decide(self, now: float, *, after_act: bool = False) -> Decision | SolveWanted | PotentialWanted:
        """The first answer in the order of policies; apps for which a plan was last sought in vain come last."""
        known, self._others = self.known, ()
        cluster = [policy for policy in CLUSTER if policy.forbids or not after_act]
        if (decision := self._first_of(cluster, now)) is not None:
            return decision
        apps = self._turns.by_urgency(known.views, known.evaluations)
        skips = {}
        for app in self._turns.in_turn(apps):
            self._policies.begin_turn(now, app)
            found = self._policies.decide(now, app)
            if not isinstance(found, Skip):
                return found
            skips[app] = noted(found, self._policies.note(now, known.views[app]))
        if not self._turns.spoken and (decision := self._first_of(REST, now)) is not None:
            return decision
        self._others = tuple(found for app in apps[1:] if isinstance(found := skips[app], Skip))
        return skips[apps[0]] if apps else Skip(reason=SkipReason.NO_WORKERS, detail="no app reports")

    def _first_of(self, policies: Iterable[DecisionPolicy[float, Decision]], now: float) -> Decision | None:
        """The first answer to what is to be done in the cluster."""
        for policy in policies:
            found = policy.ask(self._policies, now) if self._situation.acts or not policy.acts else None
            if found is not None:
                if policy.at_once:
                    self._again_at = now  # other apps may need the same
                return found
        return None

    def _before_windows(self, now: float, *, start: bool = False) -> list[Action]:
        """What is decided at once, before the next window; `start`: also that a worker is started again."""
        present = self._situation
        at_once = (policy for policy in CLUSTER if policy.at_once)
        found = None if self.known.snapshot is None else self._first_of(at_once, now)
        idle = present.admit_cluster() is None and present.execution.scaling_of_operators is None
        if found is None and start and idle:
            found = self._policies.start_again(now)
        return [] if found is None else [self._decided(now, found)]

    def _decided(self, now: float, decision: Decision, others: tuple[Skip, ...] = ()) -> Decided:
        """The action for a decision; what it leaves behind is remembered, since it will be carried out."""
        self._policies.accepted(now, decision)
        return Decided(decision=decision, others=others)

    # --- an answer ------------------------------------------------------------------------------------------------

    def _on_answer(self, now: float, answer: Answer | NoAnswer) -> list[Action]:
        wanted, self._wanted = self._wanted, None
        if wanted is None:
            return []
        if isinstance(wanted, PotentialWanted):
            self._policies.answered(now, wanted, answer)
            self._turns.again(self._spoken_of)
            self._spoken_of = set()
            return self._next(now)
        decision = self._policies.conclude(now, wanted, answer)
        self._turns.answered(now, wanted.view.app, planned=isinstance(decision, Planned | Proposed))
        blocked = blocked_drains(wanted.view, answer) if isinstance(answer, Answer) else []
        acts = not isinstance(decision, Skip)
        if acts:
            self._again_at = now
        else:
            self._turns.again(self._spoken_of)
        self._spoken_of = set()
        return [*blocked, self._decided(now, decision), *self._next(now, after_act=acts)]

    # --- for those who ask what would be --------------------------------------------------------------------------

    def preview(self, now: float, solve: Callable[[PlannableView], Answer | NoAnswer]) -> Decision:
        """What a dry run would decide now; `solve` is called when a plan is wanted.

        Only what it says of potential plans is remembered.
        """
        if self._situation.acting:
            raise ValueError("only a dry run has a preview: the decisions of an acting decider are carried out")
        if self.known.snapshot is None:
            return not_ready(NOTHING_SEEN)
        while isinstance(found := self._decide(now), PotentialWanted):
            self._policies.answered(now, found, solve(found.view))
        return self._policies.conclude(now, found, solve(found.view)) if isinstance(found, SolveWanted) else found

    def view_to_plan(self, now: float, view: SmoothedView, *wishes: Intent) -> PlannableView:
        """The view as plans are made with it; `wishes` = intents that are not in force yet."""
        return self._policies.view_to_plan(now, view, *wishes)

    def followed(self, view: SmoothedView) -> dict[WorkerId, float] | None:
        """Bytes of state that each worker of an app follows; None if that is not known."""
        present = self._situation
        return present.memory.standbys.followed(view, present.execution.placements.get(view.app))
