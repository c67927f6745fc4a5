"""Follows the need for workers of every app from window to window, and decides when its size changes."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from trimtab_controller.decider.memory.forecasts import Forecasts, Times
from trimtab_controller.decider.memory.hosts import HostTracker
from trimtab_controller.decider.memory.memory import WindowResult
from trimtab_controller.decider.policies.potential import PotentialLoads
from trimtab_controller.decider.policies.rolling import Restarting, restarts
from trimtab_controller.decider.policies.size_facts import (
    SizeFacts,
    demand_of,
    facts_of,
    restartable,
    with_gains,
)
from trimtab_controller.decider.policies.smaller import potential_of
from trimtab_controller.decider.policies.verdict import LastingNeed, judge
from trimtab_controller.decider.values.decision import PoolWorker, Resized, SizeDirection, SizeVerdict
from trimtab_controller.decider.values.plan_settings import PlanMode, PlanSettings
from trimtab_controller.decider.values.reasons import Concern, ConcernKind, NotReady, SkipReason
from trimtab_controller.decider.values.scaling import Mode, ScalingSettings
from trimtab_controller.decider.window.collocation import MAX_FLOWS
from trimtab_controller.decider.window.view import AppView, SmoothedView
from trimtab_controller.execution.state import AppSize, Execution, ScalingPhase, SizeChange, WorkerScaling
from trimtab_controller.solver.answer import Method
from trimtab_protocol.messages.commands import CommandKind
from trimtab_protocol.messages.intents import Drain, Intent, Scale, Undrain
from trimtab_protocol.messages.names import AppId, CommandId, WorkerId
from trimtab_protocol.messages.report import Absence, WorkerState
from trimtab_protocol.messages.snapshot import Snapshot
from trimtab_protocol.wording import counted, first_few

START_RETRY_S = 300.0
"""How long a worker whose start has failed comes after all others of the pool, and is not tried again."""
KEPT = 10
"""Starts of an app that count, the newest."""
LONGEST_S = 900.0
"""A start counts with so much at most: Flink's `restart.time-tracking.limit`."""
STANDS_S = 300.0
"""How long an answer of the solver about a potential plan stands, unless key groups have moved or workers come and gone
meanwhile: what was refused is not asked again in every window."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Starts:
    """How long started workers took until they ran, as seen in this run of the controller.

    As in Flink's autoscaler (`restart.time-tracking`), the longest of the last starts counts, and the configured
    `restart_s` stands in until one was seen.

    `took` = seconds from START until the end of the window in which the worker runs, per app, the newest last.

    `counted` = the commands among the present ones that are in it.  `since_s` = end of the first window (epoch
    seconds): of what was started before, it is not known how long it took.
    """

    took: Mapping[AppId, tuple[float, ...]] = field(default_factory=dict)
    counted: frozenset[CommandId] = frozenset()
    since_s: float | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "took", MappingProxyType(dict(self.took)))

    def measured_s(self, app: AppId) -> float | None:
        """The longest of the last starts; None while none was seen."""
        return max(self.took.get(app, ()), default=None)

    def after(self, snapshot: Snapshot, scalings: Mapping[WorkerId, WorkerScaling]) -> "Starts":
        """What is known after a further window."""
        end_s = snapshot.end_ms / 1000.0
        since_s = end_s if self.since_s is None else self.since_s
        took = dict(self.took)
        counted = {scaling.command.id for scaling in scalings.values()} & self.counted
        for row in snapshot.nodes:
            scaling = scalings.get(row.worker)
            if scaling is None or row.app is None or row.state is not WorkerState.RUNNING:
                continue
            command = scaling.command
            if command.kind is not CommandKind.START or scaling.phase is not ScalingPhase.DONE:
                continue
            if command.id in counted or not since_s <= command.issued_at < end_s:
                continue
            counted.add(command.id)
            seconds = min(LONGEST_S, end_s - command.issued_at)
            took[row.app] = (*took.get(row.app, ()), seconds)[-KEPT:]
        return Starts(took=took, counted=frozenset(counted), since_s=since_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Answered:
    """The solver's answer about a window that ended at `at` (epoch seconds); `plan` None: it gave none."""

    at: float
    plan: PotentialLoads | None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Judged:
    """What the last verdict about an app was made of."""

    facts: SizeFacts
    settings: ScalingSettings
    need: LastingNeed | None
    changes: tuple[SizeChange, ...]
    word: Scale | None
    frozen: str | None

    def verdict(self, potentials: Mapping[frozenset[WorkerId], _Answered]) -> tuple[SizeVerdict, LastingNeed | None]:
        """The verdict with what the solver has said of potential plans by now."""
        plans = {remain: each.plan for remain, each in potentials.items()}
        asks = self.facts.asks and None not in plans.values()  # a solver that gives no answer is left alone
        return judge(
            replace(self.facts, potentials=plans, asks=asks),
            self.settings,
            need=self.need,
            changes=self.changes,
            word=self.word,
            frozen=self.frozen,
        )


@dataclass(slots=True)
class SizeRounds:
    """`verdicts` = what should become of each app's size; apps without a word of an operator are left out in mode off.

    `plans`: only in an app whose plans are carried out does the size change without an operator's word, and in none of
    its freezes.
    `catch_up_s` and `method` as in `Settings`.  `forecasts` = the demand to come.  `starts` = how long started workers
    took until they ran.  `waiting` = apps whose hook runs.  `failures` = apps whose hook has failed, and how.
    `held` = apps whose change waits for room in the disruption budget, and what the budget says.
    """

    settings: ScalingSettings
    acting: bool
    catch_up_s: float
    method: Method = Method.MILP
    plans: PlanSettings = PlanSettings()  # noqa: RUF009 - frozen
    forecasts: Forecasts = field(default_factory=Forecasts)
    starts: Starts = field(default_factory=Starts)
    verdicts: dict[AppId, SizeVerdict] = field(default_factory=dict)
    concerns: tuple[Concern, ...] = ()
    waiting: set[AppId] = field(default_factory=set)
    failures: dict[AppId, str] = field(default_factory=dict)
    held: dict[AppId, str] = field(default_factory=dict)
    _needs: dict[AppId, LastingNeed] = field(default_factory=dict)
    _settled: Collection[AppId] = ()
    _judged: dict[AppId, _Judged] = field(default_factory=dict)
    _potentials: dict[AppId, dict[frozenset[WorkerId], _Answered]] = field(default_factory=dict)
    """What the solver has answered, by the workers that remain."""
    _started_again: dict[WorkerId, float] = field(default_factory=dict)
    """Since when (epoch seconds) agents start workers again that have crashed."""

    def observe(
        self,
        known: WindowResult,
        hosts: HostTracker,
        execution: Execution,
        intents: Sequence[Intent],
        settled: Collection[AppId] = (),
    ) -> None:
        """Judge the sizes after a window.

        `hosts` = what is left of them for workers that are started; `settled` = apps for which a plan was last sought
        in vain.
        """
        snapshot = known.snapshot
        assert snapshot is not None
        self._settled = settled
        self.starts = self.starts.after(snapshot, execution.scalings)
        self._follow_demand(known, snapshot)
        end_s, rows = snapshot.end_ms / 1000.0, snapshot.nodes
        self._started_again = {
            row.worker: self._started_again.get(row.worker, end_s) for row in rows if row.absence is Absence.STARTING
        }
        words = {intent.app: intent for intent in intents if isinstance(intent, Scale)}
        restarting = {each.app: each for each in restarts(intents, execution, snapshot)}
        apps = [app for app in known.views if app in words or self.settings.of(app).mode is not Mode.OFF]
        self._keep_answers(apps, execution, end_s)
        self._judged.clear()
        self.verdicts = {
            app: self._judge(app, known, snapshot, hosts, execution, words.get(app), restarting.get(app))
            for app in apps
        }
        self._needs = {app: need for app, need in self._needs.items() if app in apps}
        self.failures = {app: why for app, why in self.failures.items() if app in apps}
        self.concerns = tuple(self._concerns())

    def _keep_answers(self, apps: Collection[AppId], execution: Execution, end_s: float) -> None:
        """Forget the solver's answers that do not stand any longer."""
        kept = {
            app: {
                remain: each
                for remain, each in answers.items()
                if end_s - each.at < STANDS_S and (execution.changed_at(app) or 0.0) <= each.at
            }
            for app, answers in self._potentials.items()
            if app in apps
        }
        self._potentials = {app: answers for app, answers in kept.items() if answers}

    def wait_no_longer(self, at: float) -> None:
        """A window that ends at `at` comes: what the last one asked and nobody has answered has no answer."""
        for app, verdict in self.verdicts.items():
            if verdict.asks is not None:
                self._potentials.setdefault(app, {})[verdict.asks.remain] = _Answered(at=at, plan=None)

    def answered(self, app: AppId, remain: frozenset[WorkerId], at: float, plan: PotentialLoads | None) -> None:
        """The solver has answered about a window that ended at `at`: judge the last window again by that."""
        self._potentials.setdefault(app, {})[remain] = _Answered(at=at, plan=plan)
        if app in self._judged:
            self.verdicts[app] = self._verdict(app, self._judged[app])

    def _verdict(self, app: AppId, judged: _Judged) -> SizeVerdict:
        verdict, need = judged.verdict(self._potentials.get(app, {}))
        self._needs.pop(app, None)
        if need is not None:
            self._needs[app] = need
        before = self.verdicts.get(app)
        if verdict.asks is not None and before is not None and before.due:
            return replace(before, asks=verdict.asks)  # what has been told stands until the solver is heard again
        return self._with_settings(verdict)

    def _with_settings(self, verdict: SizeVerdict) -> SizeVerdict:
        app = verdict.app
        return replace(
            verdict,
            restart_s=self.settings.of(app).restart_s,
            own=self.settings.own(app),
            measured_restart_s=self.starts.measured_s(app),
        )

    def _follow_demand(self, known: WindowResult, snapshot: Snapshot) -> None:
        demands = {
            app: None if isinstance(view, NotReady) else demand_of(view, known.gaps[app])
            for app, view in known.views.items()
        }
        times = {}
        for app in demands:
            settings = self.settings.of(app)
            lead_s = self._restart_s(app) + settings.scale_up_delay_s
            times[app] = Times(lead_s=lead_s, hold_s=settings.scale_down_delay_s)
        self.forecasts.observe(snapshot.start_ms / 1000.0, snapshot.end_ms / 1000.0, demands, times)

    def _restart_s(self, app: AppId) -> float:
        """How long a started worker takes until it runs: as measured, or as configured."""
        measured_s = self.starts.measured_s(app)
        return self.settings.of(app).restart_s if measured_s is None else measured_s

    def correct(self, execution: Execution, intents: Sequence[Intent], known: WindowResult) -> Resized | None:
        """Give up drains of the controller that an operator does not want, or that have ended by themselves."""
        if not self.acting:
            return None
        stopped = {row.worker for rows in known.pool.values() for row in rows}
        start_s = known.snapshot.start_ms / 1000.0 if known.snapshot is not None else 0.0
        said = {intent.worker: intent for intent in intents if isinstance(intent, Undrain)}
        drained = {intent.worker: intent for intent in intents if isinstance(intent, Drain)}
        for app, size in execution.sizes.items():
            for worker in size.leaving:
                if worker in said:
                    word = said[worker]
                    detail = f"{word.by} keeps {worker}: {word.reason}"
                    return Resized(app=app, keep=(worker,), detail=detail, answered=(word.key,))
                if worker in drained:
                    return Resized(app=app, keep=(worker,), detail=f"{drained[worker].by} drains {worker}")
                # A window from before the change, which a new leader reads again, shows what was stopped then.
                if worker in stopped and start_s > max(execution.changed_at(app) or 0.0, size.changed_at or 0.0):
                    return Resized(app=app, keep=(worker,), detail=f"{worker} does not run any more")
        for word in said.values():
            detail = f"{word.worker} does not leave: there is nothing to do"
            return Resized(app=None, detail=detail, answered=(word.key,))
        return None

    def decide(self, now: float, app: AppId) -> Resized | None:
        """The change of an app's size that is due, if the controller may make it."""
        verdict = self.verdicts.get(app)
        if verdict is None or not verdict.due or not self._acts(verdict) or app in self.waiting:
            return None
        hook = self.settings.of(app).hook if verdict.direction is SizeDirection.OUT and verdict.short else ()
        if not (verdict.keep or verdict.start or verdict.drain or hook):
            return None
        assert verdict.workers is not None
        assert verdict.wanted is not None
        change = SizeChange(at=now, before=verdict.workers, after=verdict.wanted, rate=verdict.rate or 0.0)
        return Resized(
            app=app,
            start={row.worker: row.host for row in verdict.start},
            drain=verdict.drain,
            keep=verdict.keep,
            short=verdict.short if hook else 0,
            change=change,
            detail=verdict.detail,
        )

    def accepted(self, decision: Resized) -> None:
        """Remember that a change, or a correction, is carried out."""
        app = decision.app
        if app is None or (decision.change is None and not decision.answered):
            return
        self._needs.pop(app, None)  # the delay begins anew: with the windows after a change, or an operator's word
        if decision.change is not None:
            self.verdicts[app] = replace(self.verdicts[app], due=False)
        if decision.short:
            self.waiting.add(app)

    def hook_ended(self, app: AppId, failure: str | None) -> None:
        """The hook that was run for an app has ended; `failure` None: it did what it should."""
        self.waiting.discard(app)
        self.failures.pop(app, None)
        if failure is not None:
            self.failures[app] = failure

    @property
    def reported(self) -> dict[AppId, SizeVerdict]:
        """The verdicts, with what becomes of them in their words."""
        return {app: replace(verdict, detail=self._text(app, verdict)) for app, verdict in self.verdicts.items()}

    def _text(self, app: AppId, verdict: SizeVerdict) -> str:
        text = verdict.detail
        if verdict.due and not self._acts(verdict):
            text += f" ({self._mode(verdict)}: nothing is changed)"
        elif verdict.due and verdict.short:
            text += f", but {self._short(verdict)}"
        elif verdict.due and app in self.held:
            text += f", but {self.held[app]}"
        if app in self.waiting:
            text += "; waiting for the hook"
        if app in self.failures:
            text += f"; the hook failed: {self.failures[app]}"
        return text

    def _acts(self, verdict: SizeVerdict) -> bool:
        mode = self.plans.of(verdict.app)
        if not self.acting or mode is PlanMode.DRY_RUN:
            return False
        return verdict.by_word or (self.settings.of(verdict.app).mode is Mode.ACT and mode is PlanMode.ACT)

    def _mode(self, verdict: SizeVerdict) -> str:
        """The mode that keeps the size as it is."""
        if not self.acting:
            return "dry run"
        mode = self.plans.of(verdict.app)
        return str(self.settings.of(verdict.app).mode if mode is PlanMode.ACT else f"plans in mode {mode}")

    def _judge(
        self,
        app: AppId,
        known: WindowResult,
        snapshot: Snapshot,
        hosts: HostTracker,
        execution: Execution,
        word: Scale | None,
        restart: Restarting | None,
    ) -> SizeVerdict:
        view, settings = known.views[app], self.settings.of(app)
        size = execution.sizes.get(app, AppSize())
        measured_s, prior_s = self.starts.measured_s(app), settings.restart_s
        if isinstance(view, NotReady):
            # Right after a round or a change nothing is known for a window.  What was decided before it still counts.
            before = self.verdicts.get(app) if view.reason is SkipReason.WINDOW_TOO_EARLY else None
            desired = None if before is None else before.desired
            detail = f"unknown: {view.reason}: {view.detail}"
            return self._with_settings(SizeVerdict(app=app, detail=detail, desired=desired))
        stops = word is not None or settings.mode is Mode.ACT  # who only advises need not start anything again
        pool = _to_try(known.pool.get(app, ()), execution, view.end_s)
        facts = facts_of(
            view,
            known.gaps[app],
            known.use,
            pool=with_gains(pool, view, hosts),
            leaving=size.leaving,
            starting=self._starting(view, snapshot, execution, max(prior_s, measured_s or 0.0), restart),
            returnable=restartable(snapshot) if stops and not settings.hook else None,
            restart_s=self._restart_s(app),
            catch_up_s=self.catch_up_s,
            ahead=self.forecasts.ahead(app),
            restarting=() if restart is None else restart.draining,
        )
        saving, most = self._saving(view, facts.expected(), settings)
        asks = self.method is not Method.FLUX and len(view.owned) > 0 and len(view.flows) <= MAX_FLOWS
        self._judged[app] = _Judged(
            facts=replace(facts, saving=saving, most_saved=most, asks=asks),
            settings=settings,
            need=self._needs.get(app),
            changes=size.changes,
            word=word,
            frozen=self.plans.times_of(app).frozen(view.end_s),
        )
        return self._verdict(app, self._judged[app])

    def _starting(
        self, view: AppView, snapshot: Snapshot, execution: Execution, patience_s: float, restart: Restarting | None
    ) -> tuple[WorkerId, ...]:
        """The workers that were started for the app and are not seen in it yet; after `patience_s` they do not count.

        Those whose drain an operator has ended are among them, those that a rolling restart has stopped, and those that
        their agents start again after a crash.
        """
        here = {*view.hosts, *(each.id for each in view.fixed)}
        declared = {row.worker for row in snapshot.nodes if row.declared == view.app}
        returning = () if restart is None else restart.returning
        since = {worker: at for worker, at in self._started_again.items() if worker in declared}
        since |= {
            worker: max(scaling.at, since.get(worker, 0.0))
            for worker, scaling in execution.scalings.items()
            if (
                worker in returning
                or (scaling.command.kind is CommandKind.START and _is_for(scaling, view.app, declared))
            )
            and scaling.phase is not ScalingPhase.FAILED
        }
        return tuple(worker for worker, at in since.items() if worker not in here and view.end_s - at < patience_s)

    def _saving(self, view: SmoothedView, facts: SizeFacts, settings: ScalingSettings) -> tuple[float, float]:
        """Cores that collocation saves by one pass, and at all, where that could spare a worker.

        Nothing where a plan was last sought in vain.
        """
        enough = facts.utilisation <= settings.max_utilisation
        if self.method is not Method.ALBIC or view.app in self._settled or enough:
            return 0.0, 0.0
        free = [worker for worker in facts.staying if worker.free]
        found = potential_of(view, [settings.max_utilisation * worker.capacity - facts.fixed for worker in free])
        return (0.0, 0.0) if found is None else (found.saving, found.most)

    def _concerns(self) -> list[Concern]:
        found = []
        for app, verdict in sorted(self.verdicts.items()):
            if verdict.in_vain:
                found.append(Concern(kind=ConcernKind.SCALING_IN_VAIN, app=app, workers=(), detail=verdict.detail))
            elif verdict.short and self._acts(verdict):
                detail = f"{verdict.detail}, but {self._short(verdict)}"
                found.append(Concern(kind=ConcernKind.TOO_FEW_WORKERS, app=app, workers=(), detail=detail))
        return found

    def _short(self, verdict: SizeVerdict) -> str:
        crowded = f"; the hosts of {first_few(verdict.crowded)} have no CPU left" if verdict.crowded else ""
        return f"no agent can start {counted(verdict.short, 'worker')} more{crowded}"


def _to_try(pool: Sequence[PoolWorker], execution: Execution, at: float) -> tuple[PoolWorker, ...]:
    """The pool without the workers whose start has failed a short while ago."""
    failed = {
        worker
        for worker, scaling in execution.scalings.items()
        if scaling.command.kind is CommandKind.START
        and scaling.phase is ScalingPhase.FAILED
        and at - scaling.at < START_RETRY_S
    }
    return tuple(row for row in pool if row.worker not in failed)


def _is_for(scaling: WorkerScaling, app: AppId, declared: Collection[WorkerId]) -> bool:
    """Whether it changes the size of this app, or follows the drain of a worker that its agent runs for this app."""
    return scaling.of_app == app or (scaling.of_app is None and scaling.command.worker in declared)
