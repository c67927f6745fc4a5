"""The decider as a pure machine: snapshots, intents, answers and the execution's state in; decisions out.

Every snapshot ends in one decision: at once, or when the solver has answered.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

from trimtab_controller.decider.concerns import NO_USE, ClusterUse, Concern, concerns_of, follow_use
from trimtab_controller.decider.decide import (
    Settings,
    SolveWanted,
    admit,
    admit_cluster,
    blocked_drains,
    drift,
    judge,
    noted,
    to_start,
    to_stop,
)
from trimtab_controller.decider.decision import (
    Adopted,
    Decision,
    Forgotten,
    Planned,
    Scaled,
    Skip,
    StandbysPlaced,
    not_ready,
)
from trimtab_controller.decider.evaluate import NO_HISTORY, Evaluation, History, evaluate, follow
from trimtab_controller.decider.events import (
    Action,
    Decided,
    Event,
    ExecutionChanged,
    HoldChanged,
    IntentsChanged,
    RoundMeasured,
    SnapshotArrived,
    Solve,
    SolverAnswered,
)
from trimtab_controller.decider.forgetting import to_forget
from trimtab_controller.decider.observe import (
    Liveness,
    Requirements,
    check_cluster,
    observe,
    parts_of,
    placed_workers,
)
from trimtab_controller.decider.prediction_tracker import Parts, PredictionTracker, Views
from trimtab_controller.decider.reasons import SkipReason
from trimtab_controller.decider.standby_rounds import StandbyRounds
from trimtab_controller.decider.view import AppView, NotReady
from trimtab_controller.execution.state import Execution
from trimtab_controller.solver.answer import Answer, NoAnswer
from trimtab_protocol.messages.intents import Drain, Intent, Pause
from trimtab_protocol.messages.names import AppId, HostId, WorkerId
from trimtab_protocol.messages.snapshot import Snapshot

NOTHING_SEEN = NotReady(reason=SkipReason.NO_SNAPSHOT, detail="the stream has not published a window")


@dataclass(slots=True)
class Known:
    """What the last snapshot showed, for the status; `not_ready`: why nothing is known of any app.

    `missing_standbys` = how many key groups of an app have fewer standbys than it asks for.
    """

    snapshot: Snapshot | None = None
    views: dict[AppId, AppView | NotReady] = field(default_factory=dict)
    evaluations: dict[AppId, Evaluation] = field(default_factory=dict)
    use: ClusterUse = NO_USE
    concerns: tuple[Concern, ...] = ()
    not_ready: NotReady | None = NOTHING_SEEN
    missing_standbys: dict[AppId, int] = field(default_factory=dict)


class Decider:
    """`known` is what was seen last; `on_event` and `on_tick` return what to do, in order."""

    def __init__(self, settings: Settings, needs: Requirements, execution: Execution, *, acting: bool) -> None:
        self._settings = settings
        self._needs = needs
        self._execution = execution
        self._acting = acting
        self._intents: tuple[Intent, ...] = ()
        self._held: str | None = None
        self._liveness = Liveness()
        self._history: dict[AppId, History] = {}
        self._standbys = StandbyRounds()
        self._wanted: SolveWanted | None = None
        self._in_vain: dict[AppId, float] = {}  # when an app was last asked about, and nothing came of it
        self._measured: str | None = None
        self._predictions = PredictionTracker(load_distance=settings.load_distance, min_gain=settings.min_gain)
        self._stale_at: float | None = None
        self.known = Known()

    @property
    def paused(self) -> str | None:
        """Who paused the controller and why, or None."""
        pause = next((intent for intent in self._intents if isinstance(intent, Pause)), None)
        return None if pause is None else f"paused by {pause.by}: {pause.reason}"

    @property
    def draining(self) -> frozenset[WorkerId]:
        """The workers that are to be emptied and stopped."""
        return frozenset(intent.worker for intent in self._intents if isinstance(intent, Drain))

    @property
    def wake_at(self) -> float | None:
        """When to call `on_tick` at the latest (epoch seconds)."""
        return self._stale_at

    def on_event(self, now: float, event: Event) -> list[Action]:
        """What follows from the event."""
        match event:
            case SnapshotArrived(snapshot=snapshot):
                return self._on_snapshot(now, snapshot)
            case IntentsChanged(intents=intents):
                was_paused = self.paused is not None
                self._intents = intents
                if was_paused and self.paused is None:
                    self._predictions.forgive()  # the operator who resumes has looked at what was missed
            case ExecutionChanged(execution=execution):
                self._execution = execution
            case HoldChanged(reason=reason):
                self._held = reason
            case SolverAnswered(answer=answer):
                return self._on_answer(now, answer)
        return []

    def on_tick(self, now: float) -> list[Action]:
        """While no window comes, say so once per interval."""
        if self._stale_at is None:
            self._stale_at = now + self._needs.max_age_s
        if now < self._stale_at:
            return []
        self._stale_at = now + self._needs.max_age_s
        missing = NOTHING_SEEN
        if self.known.snapshot is not None:
            age_s = now - self.known.snapshot.end_ms / 1000.0
            missing = NotReady(reason=SkipReason.STALE_SNAPSHOT, detail=f"the last window ended {age_s:.0f} s ago")
        self.known.not_ready = missing
        return [Decided(decision=not_ready(missing))]

    def preview(self, now: float, solve: Callable[[AppView], Answer | NoAnswer]) -> Decision:
        """What a dry run would decide now on the windows recorded so far; `solve` is asked where a plan is wanted.

        Changes nothing: the next preview starts from the same.
        """
        if self._acting:
            raise ValueError("a decider that acts has no preview: what it decides is carried out")
        if self.known.snapshot is None:
            return not_ready(NOTHING_SEEN)
        found = self._decide(now)
        if isinstance(found, SolveWanted):
            return self._conclude(now, found, solve(found.view))
        return found

    # --- a snapshot -----------------------------------------------------------------------------------------------

    def _on_snapshot(self, now: float, snapshot: Snapshot) -> list[Action]:
        previous = self.known.snapshot
        if previous is not None and snapshot.end_ms <= previous.end_ms:
            return []  # published once more, or out of order
        measured = self.record(now, snapshot)
        return [*measured, *([self._next(now)] if self._wanted is None else [])]

    def record(self, now: float, snapshot: Snapshot) -> list[RoundMeasured]:
        """Learn from a window that is newer than all before, without deciding anything."""
        self._stale_at = now + self._needs.max_age_s
        self._forget(snapshot.start_ms / 1000.0)
        self._liveness.see(snapshot, placed_workers(self._execution.placements.values()))
        missing = check_cluster(snapshot, now, self._liveness, self._needs)
        parts = {} if missing else parts_of(snapshot, self._execution.placements)
        raw = {app: self._observe(app, part) for app, part in parts.items()}
        views = {app: self._smooth(view) if isinstance(view, AppView) else view for app, view in raw.items()}
        evaluations = {
            app: evaluate(view, self._history[app]) for app, view in views.items() if isinstance(view, AppView)
        }
        self._standbys.see(views, self._execution.placements)
        self._in_vain = {app: at for app, at in self._in_vain.items() if app in views}
        use = follow_use(snapshot, self.known.use)
        measured = self._measure(raw, parts)
        self._predictions.review(raw, parts, use)
        concerns = (*concerns_of(use), *self._predictions.concerns)
        self.known = Known(
            snapshot=snapshot,
            views=views,
            evaluations=evaluations,
            use=use,
            concerns=concerns,
            not_ready=missing,
            missing_standbys=dict(self._standbys.missing),
        )
        return measured

    def _observe(self, app: AppId, snapshot: Snapshot) -> AppView | NotReady:
        view = observe(
            snapshot,
            app,
            placement=self._execution.placements.get(app),
            draining=self.draining,
            liveness=self._liveness,
            needs=self._needs,
        )
        if isinstance(view, NotReady):
            return view
        changed_at = self._execution.changed_at
        if changed_at is not None and view.start_s < changed_at:
            detail = f"the window began {changed_at - view.start_s:.1f} s before the last change ended"
            return NotReady(reason=SkipReason.WINDOW_TOO_EARLY, detail=detail, app=app)
        return view

    def _forget(self, start_s: float) -> None:
        """Drop the history of apps that were not seen for long."""
        oldest_s = start_s - self._needs.max_age_s
        self._history = {app: history for app, history in self._history.items() if history.end_s >= oldest_s}

    def _smooth(self, view: AppView) -> AppView:
        """The view with loads over the windows so far."""
        history = self._history.get(view.app, NO_HISTORY)
        if history.loads is not None and history.loads.sizes != view.owned.sizes:
            history = NO_HISTORY  # the app has other key groups now
        smoothed, self._history[view.app] = follow(view, history, self._settings.smoothing)
        return smoothed

    def _measure(self, raw: Views, parts: Parts) -> list[RoundMeasured]:
        """What the first whole window after the last round shows, not smoothed; a later one shows something else."""
        last = self._execution.round
        if last is None or last.ended_at is None or last.plan == self._measured:
            return []
        view = raw.get(last.app)
        if not isinstance(view, AppView) or view.start_s > last.ended_at + self._needs.max_age_s:
            return []
        found = self._predictions.measure(last, view, parts[last.app])
        if found.load_distance is None and found.incomparable is None:
            return []
        self._measured = last.plan
        return [
            RoundMeasured(
                plan=last.plan,
                planned=last.planned,
                load_distance=found.load_distance,
                incomparable=found.incomparable,
                missed=found.missed,
            )
        ]

    def _next(self, now: float) -> Decided | Solve:
        found = self._decide(now)
        if isinstance(found, SolveWanted):
            self._wanted = found
            return Solve(view=found.view)
        return Decided(decision=found)

    def _decide(self, now: float) -> Decision | SolveWanted:
        """The decision about the app that needs it most; those for which nothing could be done lately come last."""
        hosts = frozenset(row.host for row in self.known.snapshot.hosts) if self.known.snapshot else frozenset()
        decision = (
            self._forget_wanted(hosts) or self._admit_cluster() or to_start(now, self._execution, self.draining, hosts)
        )
        if decision is not None:
            return decision
        if self.known.not_ready is not None:
            return not_ready(self.known.not_ready)
        apps = sorted(self.known.views, key=self._urgency, reverse=True)
        skips = {}
        for app in sorted(apps, key=lambda app: self._in_vain.get(app, 0.0)):
            found = self._decide_app(now, app)
            if not isinstance(found, Skip):
                return found
            skips[app] = noted(found, self._settings)
        nobody = Skip(reason=SkipReason.NO_WORKERS, detail="no app reports")
        return self._place_standbys(now) or (skips[apps[0]] if apps else nobody)

    def _forget_wanted(self, reporting: frozenset[HostId]) -> Forgotten | None:
        """What an operator wants forgotten, gone from what is remembered here; `reporting` = hosts that report."""
        if not self._acting or self._held is not None:
            return None
        found = to_forget(self._intents, self._execution, self.known.snapshot, self.known.not_ready)
        if found is None:
            return None
        self._intents = tuple(intent for intent in self._intents if intent.key not in found.answered)
        if found.app is not None:
            self._liveness.forget_app(found.app, reporting)
            self._history.pop(found.app, None)
        if found.worker is not None:
            self._liveness.forget_worker(found.worker, reporting)
        return found

    def _admit_cluster(self) -> Skip | None:
        return admit_cluster(self._execution, paused=self.paused, held=self._held)

    def _urgency(self, app: AppId) -> tuple[bool, float]:
        """Workers to be drained first, then the largest load distance; what is not ready comes last."""
        view, evaluation = self.known.views[app], self.known.evaluations.get(app)
        if evaluation is None or not isinstance(view, AppView):
            return False, -1.0
        return bool(view.draining), evaluation.load_distance or 0.0

    def _decide_app(self, now: float, app: AppId) -> Skip | Adopted | Scaled | SolveWanted:
        view = self.known.views[app]
        if isinstance(view, NotReady):
            return not_ready(view)
        placement = self._execution.placements.get(app)
        if self._acting and (adopted := drift(view, placement)) is not None:
            return self._standbys.with_adopted(now, view, placement, adopted)
        stop = to_stop(view, self._execution)
        evaluation, windows = self.known.evaluations[app], self._history[app].windows
        if stop is not None:
            return stop
        found = admit(now, view, evaluation, self._execution, self._settings, windows=windows)
        return (self._predictions.hold(found) if isinstance(found, SolveWanted) else None) or found

    def _place_standbys(self, now: float) -> StandbysPlaced | None:
        """When nothing else is to be done."""
        return self._standbys.place(now, self.known.views, self._execution.placements) if self._acting else None

    # --- an answer ------------------------------------------------------------------------------------------------

    def _on_answer(self, now: float, answer: Answer | NoAnswer) -> list[Action]:
        wanted, self._wanted = self._wanted, None
        if wanted is None:
            return []
        decision = self._conclude(now, wanted, answer)
        if isinstance(decision, Planned):
            self._in_vain.clear()  # or one that gains in each round would always come before them
        else:
            self._in_vain[wanted.view.app] = now
        blocked = blocked_drains(wanted.view, answer) if isinstance(answer, Answer) else []
        return [*blocked, Decided(decision=decision)]

    def _conclude(self, now: float, wanted: SolveWanted, answer: Answer | NoAnswer) -> Decision:
        """The decision that an answer leads to."""
        decision = self._judge(now, wanted, answer)
        if isinstance(decision, Skip):
            return noted(self._instead_of(now, decision), self._settings)
        if self._acting:
            placement = self._execution.placements.get(wanted.view.app)
            decision = self._standbys.with_plan(now, wanted.view, placement, decision)
        return noted(decision, self._settings)

    def _instead_of(self, now: float, skip: Skip) -> Decision:
        """Standbys, where a plan was looked for in vain; what forbids a plan forbids them too."""
        if self._admit_cluster() is not None or self.known.not_ready is not None:
            return skip
        drifted = (
            isinstance(view, AppView) and drift(view, self._execution.placements.get(app)) is not None
            for app, view in self.known.views.items()
        )
        return skip if any(drifted) else self._place_standbys(now) or skip

    def _judge(self, now: float, wanted: SolveWanted, answer: Answer | NoAnswer) -> Planned | Skip:
        """What the answer is worth, after all that was heard while the solver worked."""
        if isinstance(answer, NoAnswer):
            return Skip(reason=SkipReason.SOLVER_FAILED, detail=answer.reason)
        if (changed := self._admit_cluster()) is not None:
            return changed
        missing = self.known.not_ready or self.known.views.get(wanted.view.app)
        if isinstance(missing, NotReady):
            return not_ready(missing)
        decision = judge(wanted, answer, self._settings)
        if isinstance(decision, Planned) and self._acting:
            self._predictions.plan(now, wanted.view.app)
        return decision
