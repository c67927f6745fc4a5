"""Builds the status that `trimtab status` shows from what the controller decided and did."""

import statistics
from collections import Counter, deque
from collections.abc import Mapping, Sequence
from dataclasses import replace

from trimtab_controller.decider.machine import Decider
from trimtab_controller.decider.memory.forecasts import STEP_S, ForecastReport
from trimtab_controller.decider.memory.predictions import Saving
from trimtab_controller.decider.memory.redundancy import RedundancyGap
from trimtab_controller.decider.policies.rolling import Restarting, restarts
from trimtab_controller.decider.policies.rolling import waits as restart_waits
from trimtab_controller.decider.values.decision import Decision, Planned, SizeVerdict, Skip, app_of, names_of
from trimtab_controller.decider.values.reasons import Concern, NotReady
from trimtab_controller.decider.values.rules import KnownRule, still_wanted
from trimtab_controller.decider.window.collocation import LocalTopic, Together
from trimtab_controller.execution.journal import Hold
from trimtab_controller.execution.state import AppSize, Execution, HandoverPhase, Proposal, Round, ScalingPhase
from trimtab_controller.execution.windows import unmeasured
from trimtab_controller.plan import Collocation
from trimtab_models.albic.fit import TupleCost, Unknown
from trimtab_protocol.messages.codec import copied
from trimtab_protocol.messages.commands import CommandKind
from trimtab_protocol.messages.decode import Fault
from trimtab_protocol.messages.names import AppId, WorkerId
from trimtab_protocol.messages.placement import Placement
from trimtab_protocol.messages.reason_text import reason_text
from trimtab_protocol.messages.report import WorkerState
from trimtab_protocol.messages.snapshot import NodeWindow
from trimtab_protocol.messages.status import (
    MAX_LOCAL_TOPICS,
    MAX_PROPOSED_MOVES,
    MAX_SETTING,
    MAX_TEXT,
    AppStatus,
    BalanceStatus,
    CapacityStatus,
    CollocationStatus,
    ConcernStatus,
    DecisionStatus,
    FixedStatus,
    ForecastStatus,
    HoldStatus,
    HostStatus,
    LocalTopicStatus,
    NodeStatus,
    OperatorCostStatus,
    PoolStatus,
    ProposalStatus,
    ProposedMove,
    RedundancyStatus,
    RemoteCostStatus,
    RestartStatus,
    RoundStatus,
    RuleStatus,
    SizeStatus,
    Status,
)
from trimtab_protocol.wording import counted, time_span

TOLD_CORES = 0.005
"""What a local topic must save to be told."""
KEPT_DECISIONS = 30
KEPT_ROUNDS = 100


class StatusBuilder:
    """Remembers the last decisions and rounds, beginning with those of the `previous` status.

    `kept_concerns` = those in force that the last window does not show.
    """

    def __init__(self, cluster: str, *, acting: bool, previous: Status | None = None) -> None:
        self._cluster = cluster
        self._acting = acting
        self.kept_concerns: Sequence[Concern] = ()
        self._decisions = deque(previous.decisions if previous else (), KEPT_DECISIONS)
        self._rounds = {row.plan: row for row in previous.rounds} if previous else {}
        self._promised: dict[AppId, Collocation | None] = {}

    def decided(self, now: float, decision: Decision, text: str) -> bool:
        """Note a decision; return whether it is new.  A repeated skip replaces the previous one."""
        kind, reason = names_of(decision)
        if isinstance(decision, Planned):
            self._promised[decision.plan.app] = decision.plan.collocation
        row = DecisionStatus(at=now, kind=kind, reason=reason, text=text[:4000], app=app_of(decision))
        last = self._decisions[-1] if self._decisions else None
        again = isinstance(decision, Skip) and last is not None and (last.kind, last.reason) == (kind, reason)
        if again:
            self._decisions.pop()
        self._decisions.append(row)
        return not again

    def see_round(self, row: Round) -> None:
        """Note the present state of a round; nothing changes after its end."""
        known = self._rounds.get(row.plan)
        if known is not None and known.ended_at is not None:
            return
        promised = self._promised.pop(row.app, None) if known is None else None
        found = round_status(row, promised)
        self._rounds[row.plan] = found if known is None else replace(found, saved_planned_pp=known.saved_planned_pp)
        while len(self._rounds) > KEPT_ROUNDS:
            self._rounds.pop(next(iter(self._rounds)))

    def see_measured(
        self, plan: str, after: float | None, incomparable: str | None, saving: Saving | None = None
    ) -> None:
        """Note the load distance measured after a round, or why it cannot be compared with the plan, and the saving."""
        if plan in self._rounds:
            self._rounds[plan] = replace(
                self._rounds[plan],
                after=after,
                incomparable=incomparable,
                saved_pp=saving.measured_pp if saving else None,
            )

    def status(
        self,
        now: float,
        decider: Decider,
        execution: Execution,
        rejected: Mapping[tuple[str, Fault], int],
        hold: Hold | None = None,
    ) -> Status:
        """The message to publish."""
        snapshot = decider.known.snapshot
        # A plan that was given up with the journal never ends; it is shown only during the hold, when it may go on.
        current = {row.plan for row in execution.rounds.values()}
        return Status(
            cluster=self._cluster,
            at=now,
            acting=self._acting,
            epoch=execution.epoch,
            paused=decider.paused,
            window_end=None if snapshot is None else snapshot.end_ms / 1000.0,
            coverage=None if snapshot is None else snapshot.coverage,
            nodes=_nodes(decider, execution),
            hosts=_hosts(decider),
            apps=_apps(now, decider, execution),
            decisions=tuple(self._decisions),
            rounds=tuple(row for row in self._rounds.values() if row.ended_at or hold or row.plan in current),
            rejected={f"{topic}.{fault}": count for (topic, fault), count in rejected.items()},
            hold=None if hold is None else HoldStatus(id=hold.id, text=hold.reason),
            concerns=tuple(
                ConcernStatus(kind=str(concern.kind), app=concern.app, text=concern.detail[:4000])
                for concern in (*decider.known.concerns, *self.kept_concerns)
            ),
            pool=tuple(
                PoolStatus(app=app, worker=row.worker, host=row.host, capacity=row.capacity)
                for app, rows in decider.known.pool.items()
                for row in rows
            ),
            intents={intent.key: intent.at for intent in still_wanted(decider.intents, now)},
            rules=None if snapshot is None else tuple(map(_rule, decider.known.rules)),
            proposals=tuple(
                proposal_status(row, execution.placements.get(app)) for app, row in execution.proposals.items()
            ),
            balance=copied(BalanceStatus, decider.settings),
        )


def round_status(row: Round, promised: Collocation | None = None) -> RoundStatus:
    """The status of a round; only completed hand-overs count as migrations.  `promised` = what its plan saves."""
    done = [handover for handover in row.handovers if handover.phase is HandoverPhase.DONE]
    recovery = row.recovery
    return copied(
        RoundStatus,
        row,
        after=None,
        migrations=row.key_groups(HandoverPhase.DONE),
        failed=row.key_groups(HandoverPhase.FAILED, HandoverPhase.UNRESOLVED),
        bytes_moved=sum(handover.state_bytes for handover in done),
        handovers=Counter(str(handover.phase) for handover in row.handovers),
        pauses_s=tuple(handover.pause_s for handover in done if handover.pause_s is not None),
        recovery_planned_s=recovery.planned_s if recovery else None,
        recovery_bound_s=recovery.bound_s if recovery else None,
        recovery_s=recovery.measured_s if recovery else None,
        unknown_links=recovery.unknown_links if recovery else (),
        saved_planned_pp=promised.saved_pp if promised else None,
    )


def _nodes(decider: Decider, execution: Execution) -> tuple[NodeStatus, ...]:
    snapshot = decider.known.snapshot
    if snapshot is None:
        return ()
    loads: dict[WorkerId, float] = {}
    for evaluation in decider.known.evaluations.values():
        loads.update(evaluation.worker_loads)
    use, levels, draining = decider.known.use.workers, decider.known.worker_levels, decider.draining
    owned: Counter[WorkerId] = Counter()
    for block in snapshot.blocks:
        owned.update(block.owned())
    return tuple(
        copied(
            NodeStatus,
            row,
            load_pct=loads.get(row.worker),
            key_groups=owned[row.worker],
            draining=row.worker in draining,
            used_pct=used.used_pct if (used := use.get(row.worker)) else None,
            demand_pct=used.demand_pct if used else None,
            backlog=used.backlog.now if used and used.backlog else None,
            reason=row.reason or _not_started(row, execution),
            level=levels[row.worker].value if row.worker in levels else None,
            startable=row.app is not None and row.app == row.declared,
        )
        for row in sorted(snapshot.nodes, key=lambda row: row.worker)
    )


def _not_started(row: NodeWindow, execution: Execution) -> str | None:
    """Why a worker is away that its agent was told to start."""
    scaling = execution.scalings.get(row.worker)
    if row.state is not WorkerState.AWAY or scaling is None or scaling.command.kind is not CommandKind.START:
        return None
    return reason_text(f"its start failed: {scaling.detail}") if scaling.phase is ScalingPhase.FAILED else None


def _rule(known: KnownRule) -> RuleStatus:
    by = known.by
    said = (None, None) if by is None else (by.by, by.at)
    return RuleStatus(rule=known.rule, by=said[0], at=said[1], ignored=known.ignored)


def _hosts(decider: Decider) -> tuple[HostStatus, ...]:
    snapshot, seen = decider.known.snapshot, decider.known.capacity.seen.hosts
    levels = decider.known.host_levels
    return tuple(
        copied(
            HostStatus,
            row,
            used_pct=row.used_pct,
            demand_pct=found.used.get("CPU") if (found := seen.get(row.host)) else None,
            bottleneck=found.bottleneck if found else None,
            speed=found.speed if found else None,
            level=levels[row.host].value if row.host in levels else None,
        )
        for row in sorted(snapshot.hosts if snapshot else (), key=lambda row: row.host)
    )


def _apps(now: float, decider: Decider, execution: Execution) -> tuple[AppStatus, ...]:
    rows = []
    under_way = {each.app: each for each in restarts(decider.intents, execution, decider.known.snapshot)}
    silent = None if decider.known.snapshot is None else unmeasured(decider.known.snapshot)
    for app, view in decider.known.views.items():
        evaluation, gaps = decider.known.evaluations.get(app), decider.known.gaps.get(app)
        survival, headroom = decider.known.survivals.get(app), decider.known.capacity.headrooms.get(app)
        rows.append(
            AppStatus(
                app=app,
                key_groups=None if isinstance(view, NotReady) else sum(view.sizes.values()),
                load_distance=evaluation.load_distance if evaluation else None,
                mean_load=evaluation.mean_load if evaluation else None,
                noise=evaluation.noise if evaluation else None,
                collocation=evaluation.collocation if evaluation else None,
                local_sends=decider.known.local_sends.get(app),
                missing_standbys=decider.known.missing_standbys.get(app),
                redundancy=_redundancy(decider.known.redundancy.get(app)),
                n_minus_1_pct=survival.worst_pct if survival else None,
                n_minus_1_bound_pct=survival.bound_pct if survival else None,
                n_minus_1_worker=survival.worker if survival else None,
                n_minus_1_lost=survival.lost if survival else (),
                following_share=decider.known.following.get(app),
                fixed=tuple(
                    FixedStatus(worker=each.id, reason=str(each.reason), text=each.detail[:200])
                    for each in (gaps.fixed if gaps else ())
                ),
                stale_key_groups=gaps.stale if gaps else None,
                unknown_load=gaps.share if gaps else None,
                size=_size(decider.known.sizes.get(app), execution.sizes.get(app, AppSize())),
                forecast=forecast_status(decider.known.forecasts.get(app)),
                capacity=CapacityStatus(
                    headroom=headroom.as_placed if headroom else None,
                    potential=headroom.potential if headroom else None,
                    bound=headroom.bound if headroom else None,
                    first=headroom.first if headroom else None,
                    heaviest=str(headroom.heaviest) if headroom and headroom.heaviest else None,
                    accuracy=decider.known.capacity.accuracies.get(app),
                ),
                remote_costs=_collocation(decider.known.together.get(app)),
                not_ready=f"{view.reason}: {view.detail}" if isinstance(view, NotReady) else None,
                mode=str(decider.plans.of(app)),
                restart=_restart(now, under_way.get(app), decider, execution),
                disruption=decider.budget.use(now, execution, app).status(
                    None if silent is None else silent.get(app, 0)
                ),
            )
        )
    return tuple(rows)


def _redundancy(found: RedundancyGap | None) -> RedundancyStatus | None:
    if found is None:
        return None
    return RedundancyStatus(
        since=found.began_at,
        measured_s=found.measured_s,
        lacking=found.lacking,
        planned_s=found.planned_s,
        bound_s=found.bound_s,
    )


def _collocation(found: Together | None) -> CollocationStatus | None:
    if found is None:
        return None
    return CollocationStatus(
        operators=tuple(
            OperatorCostStatus(operator=operator, sending=_cost(fit.sending), receiving=_cost(fit.receiving))
            for operator, fit in found.fits.items()
        ),
        obtainable=found.obtainable,
        worth_cores=found.worth,
        topics=tuple(
            copied(LocalTopicStatus, each, text=local_topic_text(each, found.cores))
            for each in found.topics[:MAX_LOCAL_TOPICS]
            if each.cores >= TOLD_CORES
        ),
    )


def local_topic_text(found: LocalTopic, cores: float) -> str:
    """What a local topic would save of `cores`, by which measurement, and with which error."""
    error, by = "", "by the stated remote_tuple_cpu_s, whose error is not known"
    if found.error is not None:
        was = "was" if len(found.measured_at) == 1 else "were"
        error = f" ± {found.error:.2f}"
        by = f"by what {' and '.join(found.measured_at)} {was} measured to save per local tuple"
    return (
        f"topic {found.topic} between {found.source} and {found.target} could be local: about {found.cores:.2f}{error} "
        f"cores of {cores:.2f}, {by}; add local=[{found.topic}]"
    )


def _cost(cost: TupleCost | Unknown) -> RemoteCostStatus:
    if isinstance(cost, Unknown):
        return RemoteCostStatus(unknown=str(cost))
    return copied(RemoteCostStatus, cost, significant=cost.significant)


def _restart(now: float, found: Restarting | None, decider: Decider, execution: Execution) -> RestartStatus | None:
    if found is None:
        return None
    waits = restart_waits(now, found, execution, decider.known, decider.plans, decider.budget)
    return RestartStatus(
        workers=len(found.intent.workers),
        done=len(found.done),
        host=found.host,
        skipped=found.skipped,
        differ=found.differ and found.differ[:MAX_TEXT],
        waits=waits and waits[:MAX_TEXT],
    )


def _size(verdict: SizeVerdict | None, size: AppSize) -> SizeStatus | None:
    if verdict is None:
        return None
    return copied(
        SizeStatus,
        verdict,
        text=verdict.detail[:4000],
        demand_cores=verdict.asked,
        capacity_cores=verdict.capacity,
        leaving=size.leaving,
        own_settings=tuple(each[:MAX_SETTING] for each in verdict.own),
    )


def describe_end(row: Round) -> str:
    """One line about a round that has ended."""
    pauses = {handover.id: handover.pause_s for handover in row.handovers if handover.pause_s is not None}
    paused = ""
    if pauses:
        longest = max(pauses, key=pauses.__getitem__)
        paused = (
            f", pause median {statistics.median(pauses.values()):.2f} s, longest {pauses[longest]:.2f} s ({longest})"
        )
    other = row.key_groups(HandoverPhase.FAILED, HandoverPhase.UNRESOLVED)
    moved = f"{counted(row.key_groups(HandoverPhase.DONE), 'key group')} moved" + (f", {other} failed" if other else "")
    stopped = "" if row.stopped is None else f"; {row.stopped}"
    seconds = (row.ended_at or row.started_at) - row.started_at
    return f"plan {row.plan} ended after {seconds:.1f} s: {moved}{paused}{_warm(row)}{stopped}"


def _warm(row: Round) -> str:
    """How long the restores took, and how long they should have taken."""
    if row.recovery is None or row.recovery.measured_s is None:
        return ""
    found = row.recovery
    return f", warm after {found.measured_s:.1f} s ({found.planned_s:.1f} planned, bound {found.bound_s:.1f})"


def forecast_status(told: ForecastReport | None) -> ForecastStatus | None:
    """The status of a forecast; None if nothing is forecast."""
    if told is None:
        return None
    return copied(ForecastStatus, told, text=_text(told), peak_cores=told.peak)


def _text(told: ForecastReport) -> str:
    if told.near is None:
        return f"none: {told.why}"
    lead = f"{time_span(told.near.horizon * STEP_S)} ahead"
    peak = f"none now: {told.why}" if told.peak is None else f"{told.peak:.2f} cores at most, {lead}"
    if told.near.model is None or told.near.last is None:
        return f"{peak}; its error is unknown, so it is not used"
    error, last = told.near.model, told.near.last
    errors = f"mean error {error.mae:.2f} cores ({error.smape:.0f} %), of the last value {last.mae:.2f}"
    return f"{peak}; {errors} ({last.smape:.0f} %){_use(told)}"


def _use(told: ForecastReport) -> str:
    if told.used or told.peak is None:
        return ""
    better = any(each is not None and each.is_better for each in (told.near, told.far))
    return f" ({told.mode}: nothing follows it)" if better else ", so it is not used"


def proposal_status(row: Proposal, placement: Placement | None) -> ProposalStatus:
    """The plan with its first moves and its costs; `placement` = the one that it changes."""
    plan = row.plan
    cold = [
        move
        for move in plan.moves
        if placement is None or move.target not in placement.of(move.key_group.operator, move.key_group.partition)
    ]
    sizes = [move.state_bytes if move.lacking_bytes is None else move.lacking_bytes for move in cold]
    return copied(
        ProposalStatus,
        plan,
        plan=row.id,
        reason=plan.detail[:4000],
        at=row.at,
        expires_at=row.expires_at,
        moves=tuple(
            copied(ProposedMove, move, key_group=str(move.key_group)) for move in plan.moves[:MAX_PROPOSED_MOVES]
        ),
        moves_total=len(plan.moves),
        to_standbys=len(plan.moves) - len(cold),
        restore_bytes=sum(size for size in sizes if size is not None),
        unmeasured=sum(size is None for size in sizes),
        rejected=row.rejected,
    )
