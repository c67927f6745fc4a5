"""What the decider has seen: it learns from each window, and decides nothing."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from trimtab_controller.decider.budget import budget_concerns, held_changes
from trimtab_controller.decider.collocation.remote_costs import Recalled as Recalled
from trimtab_controller.decider.collocation.remote_costs import RemoteCostTracker
from trimtab_controller.decider.collocation.worth import (
    Together,
    end_costs,
    local_sends,
    together_in,
    with_stated_costs,
)
from trimtab_controller.decider.concerns import Concern, concerns_of, follow_use, name_concerns
from trimtab_controller.decider.decision import (
    Adopted,
    Decision,
    Forgotten,
    PlanEnded,
    Planned,
    Resized,
    StandbysPlaced,
)
from trimtab_controller.decider.drained import drain_concerns
from trimtab_controller.decider.events import RoundMeasured
from trimtab_controller.decider.guarded import guard_concerns
from trimtab_controller.decider.hosts.full import FullHosts
from trimtab_controller.decider.hosts.headroom import capacity_of
from trimtab_controller.decider.hosts.hosts import HostTracker
from trimtab_controller.decider.hosts.revoked import not_steered, too_late_for
from trimtab_controller.decider.kept import AbsenceTracker
from trimtab_controller.decider.known import WindowResult
from trimtab_controller.decider.left_alone import LeftAlone
from trimtab_controller.decider.observing.demand import WindowDemands, follow_demand
from trimtab_controller.decider.observing.demand_history import NO_DEMAND_HISTORY
from trimtab_controller.decider.observing.evaluate import Histories
from trimtab_controller.decider.observing.liveness import Liveness
from trimtab_controller.decider.observing.observe import check_cluster, held_apps, observe, parts_of, placed_workers
from trimtab_controller.decider.observing.placing import in_force
from trimtab_controller.decider.observing.unknown_load import fill_gaps
from trimtab_controller.decider.observing.view import (
    AppView,
    DemandView,
    NotReady,
    SmoothedView,
)
from trimtab_controller.decider.operators.intents import in_maintenance
from trimtab_controller.decider.orphans.orphans import Orphans
from trimtab_controller.decider.predictions.tracker import PredictionTracker
from trimtab_controller.decider.reasons import SkipReason
from trimtab_controller.decider.rules.concerns import rule_concerns
from trimtab_controller.decider.rules.known import KnownRule, followed, known_rules
from trimtab_controller.decider.settings import Requirements, Settings
from trimtab_controller.decider.size.pool import crash_concerns, startable
from trimtab_controller.decider.size.rounds import SeenApps, SizeRounds
from trimtab_controller.decider.standbys.rounds import StandbyRounds
from trimtab_controller.execution.budget import PauseBudget
from trimtab_controller.execution.state import Execution, GuardStop
from trimtab_controller.plan import PlanReason
from trimtab_protocol.messages.intents import Intent
from trimtab_protocol.messages.names import AppId, HostId, WorkerId
from trimtab_protocol.messages.rules import Rule
from trimtab_protocol.messages.snapshot import Snapshot


class Observations:
    """Follows the cluster from window to window.  `known` = what the last one showed; the trackers remember more."""

    def __init__(
        self,
        settings: Settings,
        needs: Requirements,
        sizes: SizeRounds,
        rules: tuple[Rule, ...] = (),
        recalled: Recalled | None = None,
        budget: PauseBudget = PauseBudget(),  # noqa: B008 - frozen
    ) -> None:
        self.budget = budget
        self._own_rules = rules
        self._rules = rules
        self._settings = settings
        self._needs = needs
        self.sizes = sizes
        self.liveness = Liveness()
        self.history = Histories(settings.smoothing, stale_limit_s=needs.stale_limit_s, max_age_s=needs.max_age_s)
        self._demand = NO_DEMAND_HISTORY
        self.hosts = HostTracker(settings.smoothing, max_disk=settings.max_disk, max_link=settings.max_link)
        self.full_hosts = FullHosts(max_disk=settings.max_disk, max_link=settings.max_link)
        self.standbys = StandbyRounds()
        self.orphans = Orphans(band=settings.load_distance)
        self.predictions = PredictionTracker(load_distance=settings.load_distance, min_gain=settings.min_gain)
        self.remote_costs = RemoteCostTracker(recalled)
        self.kept = AbsenceTracker()
        self.left_alone = LeftAlone()
        self.known = WindowResult()
        self._forgiven: frozenset[str] = frozenset()  # plans that the guard has ended, and that hold up nothing more

    def observe(
        self,
        now: float,
        snapshot: Snapshot,
        execution: Execution,
        intents: Sequence[Intent],
        *,
        draining: frozenset[WorkerId],
        settled: Collection[AppId],
    ) -> list[RoundMeasured]:
        """Learn from a window newer than all previous ones; the results of rounds that it measures are returned.

        `draining` = workers to empty, `settled` = apps for which a plan was last sought in vain.
        """
        snapshot = not_steered(snapshot, self.known.revoked)
        rules = known_rules(self._own_rules, intents, snapshot.end_ms / 1000.0)
        self._rules = followed(rules)
        self.history.forget_before(snapshot.start_ms / 1000.0)
        self.liveness.observe(snapshot, placed_workers(execution.placements.values()))
        maintained = in_maintenance(intents)
        missing = check_cluster(snapshot, now, self.liveness, self._needs, maintained)
        if missing is None:
            self.kept.observe(snapshot, execution)
        apps = parts_of(snapshot, execution.placements)
        held = held_apps(snapshot, self.liveness, execution.placements, maintained)
        parts = {} if missing else {app: part for app, part in apps.items() if app not in held}
        demands, self._demand = follow_demand(
            snapshot, self._demand, catch_up_s=self._settings.catch_up_s, smoothing=self._settings.smoothing
        )
        if self.hosts.observe(snapshot, demands.workers):
            self.history.clear()  # loads are counted in another unit now
        self.full_hosts.observe(snapshot, self.hosts.seen, demands.workers)
        self.remote_costs.observe(snapshot, self.hosts.costs.of_hosts())
        raw = {
            app: (replace(missing, app=app) if missing else held.get(app))
            or self._observe(app, part, demands, execution, draining)
            for app, part in apps.items()
        }
        smoothed = self.history.smoothed(raw)
        known = {app: view for app, view in smoothed.items() if isinstance(view, DemandView)}
        filled = fill_gaps(known, self.history.last, self._needs.max_unknown)
        workers, revoked = demands.workers, self.known.revoked
        self.orphans.observe(snapshot, filled.views, execution.placements, self.hosts.seen, workers, revoked)
        raw = {**raw, **filled.refused}
        views = {app: view if isinstance(view, NotReady) else filled.of(app) for app, view in smoothed.items()}
        evaluations = self.history.evaluated(views)
        self.standbys.observe(views, execution.placements, snapshot.nodes, self.hosts.costs.of_hosts())
        use = follow_use(snapshot, self.known.use, demands.workers)
        measured = self.predictions.measure_rounds(execution.rounds, raw, parts, max_age_s=self._needs.max_age_s)
        self.predictions.review(raw, parts, use)
        pool = startable(snapshot, draining - execution.leaving)
        seen = SeenApps(
            snapshot=snapshot,
            views=views,
            evaluations=evaluations,
            gaps=filled.gaps,
            use=use,
            pool=pool,
            hosts=self.hosts,
        )
        self.sizes.observe(seen, execution, intents, settled)
        self.sizes.held = held_changes(now, self.budget, execution, self.sizes.verdicts)
        off = {each for workers in maintained.values() for each in workers}
        drained = drain_concerns(execution, snapshot, draining, intents)
        self.known = self._put_together(now, seen, execution, rules, missing, draining, off=off, drained=drained)
        return measured

    def _put_together(
        self,
        now: float,
        seen: SeenApps,
        execution: Execution,
        rules: tuple[KnownRule, ...],
        missing: NotReady | None,
        draining: frozenset[WorkerId],
        *,
        off: set[WorkerId],
        drained: Iterable[Concern],
    ) -> WindowResult:
        """What this window has shown; `missing` = why nothing can be decided, `off` = workers off for maintenance."""
        views = seen.views
        return WindowResult(
            snapshot=seen.snapshot,
            views=dict(views),
            evaluations=dict(seen.evaluations),
            use=seen.use,
            concerns=(
                *concerns_of(seen.use),
                *name_concerns(seen.snapshot),
                *rule_concerns(views, rules),
                *drained,
                *self._concerns(now, seen.snapshot, execution, views, draining, off=off),
            ),
            rules=rules,
            awaited=self.liveness.awaited(seen.snapshot.end_ms / 1000.0, self._needs.lost_worker_s),
            revoked=self.known.revoked,
            not_ready=missing,
            missing_standbys=dict(self.standbys.missing),
            pool=dict(seen.pool),
            sizes=self.sizes.reported,
            survivals=dict(self.standbys.survivals),
            following={app: share for app in views if (share := self.standbys.costs.of(app)) is not None},
            gaps=dict(seen.gaps),
            capacity=capacity_of(views, self.hosts),
            local_sends=local_sends(seen.snapshot),
            together=self._together(views),
            forecasts=self.sizes.forecasts.report(),
        )

    def _together(self, views: Mapping[AppId, SmoothedView | NotReady]) -> dict[AppId, Together]:
        """What collocation can bring, of each app."""
        found = {app: view for app, view in views.items() if isinstance(view, SmoothedView)}
        return {app: together_in(view, self.remote_costs.of(app)) for app, view in found.items()}

    def _concerns(
        self,
        now: float,
        snapshot: Snapshot,
        execution: Execution,
        views: Mapping[AppId, SmoothedView | NotReady],
        draining: frozenset[WorkerId],
        *,
        off: set[WorkerId],
    ) -> Iterator[Concern]:
        """What the trackers want operators to look at; `off` = workers that are off for maintenance."""
        yield from self.predictions.concerns
        yield from guard_concerns(now, self.unforgiven(execution))
        yield from self.standbys.concerns
        yield from self.orphans.concerns
        yield from self.sizes.concerns
        yield from self.full_hosts.concerns
        yield from budget_concerns(now, self.budget, execution, views, draining)
        ran = {worker: row.app for worker, row in self.liveness.ran.items()}
        yield from crash_concerns(snapshot, ran, off=off)

    def revoke(self, hosts: frozenset[HostId]) -> None:
        """Hear which hosts have no key any more; what the last window showed of them does not count any longer."""
        known, new = self.known, hosts - self.known.revoked
        known.revoked = hosts
        if known.snapshot is not None:
            known.not_ready = known.not_ready or too_late_for(known.snapshot, new)
            known.snapshot = not_steered(known.snapshot, new)

    def accepted(self, now: float, decision: Decision, execution: Execution) -> None:
        """Remember what follows from a decision that is carried out; `execution` = the state before it."""
        match decision:
            case Planned(plan=plan):
                self.orphans.accepted(plan.app, decision)
                self.standbys.accepted(now, execution.placements.get(plan.app), decision)
                if decision.next_owners is not None:
                    self.predictions.forget(plan.app)
                elif plan.reason is not PlanReason.FIRST or decision.id is not None:
                    self.predictions.plan(now, plan.app, plan.collocation)
            case StandbysPlaced(app=app) | PlanEnded(app=app):
                self.orphans.accepted(app, decision)
                if decision.next_owners is not None:
                    self.predictions.forget(app)
                if isinstance(decision, StandbysPlaced):
                    self.standbys.accepted(now, execution.placements.get(app), decision)
            case Adopted(app=app):
                placement = execution.placements.get(app)
                view = self.known.views[app]
                if placement is None and isinstance(view, SmoothedView):
                    self.kept.accepted(view)
                self.standbys.accepted(now, placement, decision)
            case Resized():
                self.sizes.accepted(decision)
            case Forgotten():
                self.forget(decision.app, decision.worker, self.known.hosts)
            case _:
                pass

    def forget(self, app: AppId | None, worker: WorkerId | None, reporting: Collection[HostId]) -> None:
        """Forget an app or a worker that is gone for good; `reporting` = hosts that report."""
        self.liveness.forget(app, worker, reporting)
        self.history.forget(app)
        self.kept.forget(app, worker)
        self.remote_costs.forget(app)
        self.left_alone.forget(app)
        if app is not None and worker is None:
            self.sizes.forecasts.forget(app)

    def forgive(self, execution: Execution) -> None:
        """Let no earlier plan hold up the next one, because an operator has resumed, who has looked at them."""
        self.predictions.forgive()
        self._forgiven = frozenset(stop.plan for stop in execution.guarded.values())

    def unforgiven(self, execution: Execution) -> dict[AppId, GuardStop]:
        """The plans that the guard has ended, but for those that hold up nothing any more."""
        return {app: stop for app, stop in execution.guarded.items() if stop.plan not in self._forgiven}

    def too_early(self, view: AppView, execution: Execution) -> NotReady | None:
        """Why a view says nothing of the app: it began before its last change ended, and mixes two placements."""
        changed_at = execution.changed_at(view.app, self.liveness.may_run)
        if changed_at is None or view.start_s >= changed_at:
            return None
        detail = f"the window began {changed_at - view.start_s:.1f} s before the last change ended"
        return NotReady(reason=SkipReason.WINDOW_TOO_EARLY, detail=detail, app=view.app)

    def _observe(
        self,
        app: AppId,
        snapshot: Snapshot,
        demands: WindowDemands,
        execution: Execution,
        draining: frozenset[WorkerId],
    ) -> DemandView | NotReady:
        """What the window shows of an app, with what is known from earlier ones."""
        view = observe(
            snapshot,
            app,
            placement=execution.placements.get(app),
            draining=draining,
            liveness=self.liveness,
            needs=self._needs,
            zones=self.liveness.zones,
        )
        if isinstance(view, NotReady):
            return view
        if (early := self.too_early(view, execution)) is not None:
            return early
        known = replace(
            self.hosts.of_view(view, demands),
            rules=in_force(self._rules, app, view.end_s),
            remote_costs=end_costs(self.remote_costs.of(app)),
            by_broker=self.remote_costs.by_broker(app),
            none_direct=self.remote_costs.none_direct(app),
            following_share=self.standbys.costs.of(app),
        )
        return with_stated_costs(self._settings, known)
