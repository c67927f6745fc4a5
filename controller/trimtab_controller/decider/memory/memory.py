"""What the decider remembers: the result of the last window, and all that lasts longer than one."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from trimtab_controller.decider.memory.absences import AbsenceTracker
from trimtab_controller.decider.memory.evaluate import Evaluation, Histories
from trimtab_controller.decider.memory.failures import LeftAlone
from trimtab_controller.decider.memory.forecasts import ForecastReport
from trimtab_controller.decider.memory.headroom import NO_CAPACITY, Capacity, capacity_of
from trimtab_controller.decider.memory.hosts import FullHosts, HostTracker
from trimtab_controller.decider.memory.intents import in_maintenance
from trimtab_controller.decider.memory.observe import (
    Delays,
    Liveness,
    check_cluster,
    held_apps,
    observe,
    parts_of,
    placed_workers,
)
from trimtab_controller.decider.memory.openings import Openings
from trimtab_controller.decider.memory.orphans import Orphans
from trimtab_controller.decider.memory.predictions import PredictionTracker, RoundMeasured
from trimtab_controller.decider.memory.redundancy import RedundancyGap, RedundancyTracker
from trimtab_controller.decider.memory.remote_costs import Recalled as Recalled
from trimtab_controller.decider.memory.remote_costs import RemoteCostTracker
from trimtab_controller.decider.memory.standby_choice import Survival
from trimtab_controller.decider.memory.standbys import StandbyRounds
from trimtab_controller.decider.memory.unknown_load import Gaps, fill_gaps
from trimtab_controller.decider.values.decision import (
    Adopted,
    Decision,
    Forgotten,
    PlanEnded,
    Planned,
    PoolWorker,
    SizeVerdict,
    StandbysPlaced,
)
from trimtab_controller.decider.values.reasons import Concern, NotReady, SkipReason
from trimtab_controller.decider.values.rules import KnownRule, followed, known_rules
from trimtab_controller.decider.values.settings import Requirements, Settings
from trimtab_controller.decider.window.collocation import (
    Together,
    end_costs,
    local_sends,
    together_in,
    with_stated_costs,
)
from trimtab_controller.decider.window.concerns import (
    NO_USE,
    ClusterUse,
    concerns_of,
    crash_concerns,
    follow_use,
    name_concerns,
)
from trimtab_controller.decider.window.demand import NO_DEMAND_HISTORY, WindowDemands, follow_demand
from trimtab_controller.decider.window.fixed import not_steered, too_late_for
from trimtab_controller.decider.window.placing import in_force
from trimtab_controller.decider.window.resources import DISK
from trimtab_controller.decider.window.rules import rule_concerns
from trimtab_controller.decider.window.view import AppView, DemandView, SmoothedView
from trimtab_controller.execution.state import Execution, GuardStop
from trimtab_controller.plan import PlanReason
from trimtab_models.elastic.matching import NodeLevel, level_of
from trimtab_protocol.messages.intents import Intent
from trimtab_protocol.messages.names import AppId, HostId, WorkerId
from trimtab_protocol.messages.rules import Rule
from trimtab_protocol.messages.snapshot import Snapshot

NOTHING_SEEN = NotReady(reason=SkipReason.NO_SNAPSHOT, detail="the stream has not published a window")


@dataclass(slots=True)
class WindowResult:
    """What the last snapshot showed, for the status.

    `not_ready`: why nothing is known of any app.  `gaps`: per app, what is not known of it.  `missing_standbys`: per
    app, the number of key groups that have fewer standbys than the app asks for.  `redundancy`: the last time that each
    app was without owners or warm standbys, None before the first; missing while unknown.  `pool`: per app, the workers
    that can be started.  `survivals`: per app, what the loss of any one host leads to.  `sizes`: what should become of
    the number of workers of each app.  `capacity`: hosts, and how much more fits.  `local_sends`: per app, the share of
    the tuples between key groups that skipped the broker; missing while unknown.  `together`: per app, what collocation
    can bring.  `following`: per app, what following a key group costs, as a share of its load; missing while
    unmeasured.  `forecasts`: the demand to come of each app.  `rules`: those of controller.toml and of operators.
    `awaited`: the owners in placements that are away and may come back any moment.  `revoked`: hosts whose key is
    revoked, so that what is said for them is dropped.
    """

    snapshot: Snapshot | None = None
    views: dict[AppId, SmoothedView | NotReady] = field(default_factory=dict)
    evaluations: dict[AppId, Evaluation] = field(default_factory=dict)
    use: ClusterUse = NO_USE
    concerns: tuple[Concern, ...] = ()
    not_ready: NotReady | None = NOTHING_SEEN
    missing_standbys: dict[AppId, int] = field(default_factory=dict)
    redundancy: dict[AppId, RedundancyGap | None] = field(default_factory=dict)
    pool: dict[AppId, tuple[PoolWorker, ...]] = field(default_factory=dict)
    gaps: dict[AppId, Gaps] = field(default_factory=dict)
    survivals: dict[AppId, Survival] = field(default_factory=dict)
    sizes: dict[AppId, SizeVerdict] = field(default_factory=dict)
    capacity: Capacity = NO_CAPACITY
    local_sends: dict[AppId, float] = field(default_factory=dict)
    together: dict[AppId, Together] = field(default_factory=dict)
    following: dict[AppId, float] = field(default_factory=dict)
    forecasts: dict[AppId, ForecastReport] = field(default_factory=dict)
    rules: tuple[KnownRule, ...] = ()
    awaited: frozenset[WorkerId] = frozenset()
    revoked: frozenset[HostId] = frozenset()

    @property
    def worker_levels(self) -> dict[WorkerId, NodeLevel]:
        """How busy workers are, where that is known: light, moderate or heavy, the levels of the Elastic Allocator.

        By their CPU: what is asked of them, or what their process uses where that is more or all that is known.
        """
        known = {
            worker: [pct for pct in (use.used_pct, use.demand_pct) if pct is not None]
            for worker, use in self.use.workers.items()
        }
        return {worker: level_of(max(pcts)) for worker, pcts in known.items() if pcts}

    @property
    def host_levels(self) -> dict[HostId, NodeLevel]:
        """How busy hosts are, by the resource of which most is used; a disk is full or not, but never busy."""
        hosts = self.capacity.seen.hosts.items()
        known = {name: [pct for what, pct in host.used.items() if what != DISK] for name, host in hosts}
        return {name: level_of(max(pcts)) for name, pcts in known.items() if pcts}

    @property
    def hosts(self) -> frozenset[HostId]:
        """The hosts that report, and whose word counts."""
        found = (row.host for row in self.snapshot.hosts) if self.snapshot is not None else ()
        return frozenset(found) - self.revoked

    def without_news(self, now: float) -> NotReady:
        """Why nothing is known of any app when no window has arrived for long; `now` in epoch seconds."""
        if self.snapshot is None:
            return NOTHING_SEEN
        age_s = now - self.snapshot.end_ms / 1000.0
        return NotReady(reason=SkipReason.STALE_SNAPSHOT, detail=f"the last window ended {age_s:.0f} s ago")


class Memory:
    """Follows the cluster from window to window.  `known` = what the last one showed; the trackers remember more."""

    def __init__(
        self,
        settings: Settings,
        needs: Requirements,
        rules: tuple[Rule, ...] = (),
        recalled: Recalled | None = None,
    ) -> None:
        self._own_rules = rules
        self._rules = rules
        self._settings = settings
        self._needs = needs
        self.liveness = Liveness()
        self._delays = Delays()
        self.history = Histories(settings.smoothing, stale_limit_s=needs.stale_limit_s, max_age_s=needs.max_age_s)
        self._demand = NO_DEMAND_HISTORY
        self.hosts = HostTracker(settings.smoothing, max_disk=settings.max_disk, max_link=settings.max_link)
        self.full_hosts = FullHosts(max_disk=settings.max_disk, max_link=settings.max_link)
        self.standbys = StandbyRounds()
        self.redundancy = RedundancyTracker()
        self.orphans = Orphans()
        self.predictions = PredictionTracker(load_distance=settings.load_distance, min_gain=settings.min_gain)
        self.remote_costs = RemoteCostTracker(recalled)
        self.kept = AbsenceTracker()
        self.left_alone = LeftAlone()
        self.openings = Openings()
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
    ) -> list[RoundMeasured]:
        """Learn from a window newer than all previous ones; the results of rounds that it measures are returned.

        `draining` = workers to empty.
        """
        snapshot = not_steered(snapshot, self.known.revoked)
        rules = known_rules(self._own_rules, intents, snapshot.end_ms / 1000.0)
        self._rules = followed(rules)
        self.history.forget_before(snapshot.start_ms / 1000.0)
        self.liveness.observe(snapshot, placed_workers(execution.placements.values()))
        maintained = in_maintenance(intents)
        missing = check_cluster(snapshot, now, self.liveness, self._needs, maintained, delays=self._delays)
        self._delays = self._delays.after(now, snapshot)
        if missing is None:
            self.kept.observe(snapshot, execution)
        apps = parts_of(snapshot, execution.placements)
        held = held_apps(snapshot, self.liveness, execution.placements, maintained)
        parts = {} if missing else {app: part for app, part in apps.items() if app not in held}
        demands, self._demand = follow_demand(
            snapshot, self._demand, catch_up_s=self._settings.catch_up_s, smoothing=self._settings.smoothing
        )
        for app in self.liveness.apps_on(self.hosts.observe(snapshot, demands.workers)):
            self.history.forget(app)  # its loads are counted in another unit now
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
        self._observe_redundancy(snapshot, execution, views)
        use = follow_use(snapshot, self.known.use, demands.workers)
        measured = self.predictions.measure_rounds(execution.rounds, raw, parts, max_age_s=self._needs.max_age_s)
        self.predictions.review(raw, parts, use)
        self.known = WindowResult(
            snapshot=snapshot,
            views=views,
            evaluations=evaluations,
            use=use,
            concerns=self._concerns(snapshot, use, views, rules, maintained),
            rules=rules,
            awaited=self.liveness.awaited(snapshot.end_ms / 1000.0, self._needs.lost_worker_s),
            revoked=self.known.revoked,
            not_ready=missing,
            missing_standbys=dict(self.standbys.missing),
            redundancy=dict(self.redundancy.gaps),
            survivals=dict(self.standbys.survivals),
            following={app: share for app in views if (share := self.standbys.costs.of(app)) is not None},
            gaps=dict(filled.gaps),
            capacity=capacity_of(views, self.hosts),
            local_sends=local_sends(snapshot),
            together=self._together(views),
        )
        return measured

    def _observe_redundancy(
        self, snapshot: Snapshot, execution: Execution, views: Mapping[AppId, SmoothedView | NotReady]
    ) -> None:
        """Learn which key groups lack standbys, and for how long they lack an owner or a warm standby."""
        speeds, here = self.hosts.costs.of_hosts(), self.orphans.here
        self.standbys.observe(views, execution.placements, snapshot.nodes, speeds, here)
        not_seen = (app for app, view in views.items() if isinstance(view, NotReady) and app in execution.placements)
        self.redundancy.observe(
            snapshot,
            execution,
            ownerless=self.orphans.ownerless,
            unprotected={**dict.fromkeys(not_seen), **self.standbys.unprotected},
        )

    def _together(self, views: Mapping[AppId, SmoothedView | NotReady]) -> dict[AppId, Together]:
        """What collocation can bring to each app."""
        return {
            app: together_in(view, self.remote_costs.of(app), self.remote_costs.not_local(app))
            for app, view in views.items()
            if isinstance(view, SmoothedView)
        }

    def _concerns(
        self,
        snapshot: Snapshot,
        use: ClusterUse,
        views: Mapping[AppId, SmoothedView | NotReady],
        rules: tuple[KnownRule, ...],
        maintained: Mapping[HostId, Collection[WorkerId]],
    ) -> tuple[Concern, ...]:
        """All that a human should look at."""
        ran = {worker: row.app for worker, row in self.liveness.ran.items()}
        off = {each for workers in maintained.values() for each in workers}
        return (
            *concerns_of(use),
            *name_concerns(snapshot),
            *rule_concerns(views, rules),
            *self.predictions.concerns,
            *self.standbys.concerns,
            *self.redundancy.concerns,
            *self.orphans.concerns,
            *self.full_hosts.concerns,
            *crash_concerns(snapshot, ran, off=off),
        )

    def revoke(self, hosts: frozenset[HostId]) -> None:
        """Hear which hosts have no key any more; what the last window showed of them does not count any longer."""
        known, new = self.known, hosts - self.known.revoked
        known.revoked = hosts
        if known.snapshot is not None:
            known.not_ready = known.not_ready or too_late_for(known.snapshot, new)
            known.snapshot = not_steered(known.snapshot, new)

    def accepted(self, now: float, decision: Decision, execution: Execution) -> None:
        """Remember what follows from a decision that is carried out; `execution` = the state before it."""
        if isinstance(decision, Planned | StandbysPlaced | Adopted):
            app = decision.plan.app if isinstance(decision, Planned) else decision.app
            self.redundancy.accepted(now, app, decision.warm)
            self.known.redundancy = dict(self.redundancy.gaps)
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
