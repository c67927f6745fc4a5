"""The execution, a pure state machine: events and time in, publications out, each written in one transaction.

This module coordinates rounds, placements and scalings; `handovers.py` has the life of a single hand-over.  Each change
is published together with the new state, so a new leader that reads the journal continues from the same point.
"""

from collections.abc import Mapping
from dataclasses import replace

from trimtab_controller.execution import guard, handovers, scalings
from trimtab_controller.execution.budget import BudgetGate, PauseBudget, count_window, end_spent, with_pauses
from trimtab_controller.execution.events import (
    AckSeen,
    Action,
    Event,
    ExecutionLimits,
    ForgetWanted,
    IntentsAnswered,
    Lacking,
    PlacementsLost,
    PlacementWanted,
    PlanDecided,
    PlanProposed,
    ProposalDropped,
    ResizeWanted,
    Resumed,
    ScalingWanted,
    StandbysWanted,
    StopWanted,
    WindowSeen,
)
from trimtab_controller.execution.handovers import answers
from trimtab_controller.execution.pace import PlanPace
from trimtab_controller.execution.restore_costs import LearnedRestores
from trimtab_controller.execution.restores import HandoverRestores, Releases
from trimtab_controller.execution.state import (
    ENDED,
    IN_FLIGHT,
    Execution,
    HandMoved,
    Handover,
    HandoverPhase,
    Proposal,
    Round,
    placement_of,
)
from trimtab_controller.execution.step import Step
from trimtab_controller.execution.windows import SeenSites
from trimtab_controller.plan import Plan
from trimtab_protocol.messages.codec import copied
from trimtab_protocol.messages.commands import Ack
from trimtab_protocol.messages.names import AppId, HostId, KeyGroup, WorkerId
from trimtab_protocol.messages.owner_rows import Owners
from trimtab_protocol.messages.placement import Placement


class ExecutionMachine:
    """Carries out decisions.  `on_event` and `on_tick` return the actions in order; `state` was published last."""

    def __init__(self, cluster: str, limits: ExecutionLimits, state: Execution) -> None:
        self._cluster = cluster
        self._limits = limits
        self._releases, self._sites = Releases(), SeenSites()
        self._pace, self._guard = PlanPace(limits, state.in_flight), guard.PlanGuard(limits)
        self._restores = HandoverRestores(limits, state, self._releases, self._pace)
        self._standbys = self._restores.standbys
        self.budget = PauseBudget.of(limits)
        self._told: list[Action] = []
        self._restore_at: float | None = None
        self.state = state

    @property
    def wake_at(self) -> float | None:
        """When `on_tick` must be called at the latest (epoch seconds); None: no deadline is pending."""
        times: list[float | None] = [row.wake_at for row in self._handovers() if row.phase not in ENDED]
        times += [scalings.give_up_at(scaling) for scaling in self.state.scalings.values()]
        times += [handovers.named_at(each, self._limits) for each in handovers.to_name(self.state)]
        times += [self._standbys.wake_at, self._restore_at]
        return min((at for at in times if at is not None), default=None)

    def on_event(self, now: float, event: Event) -> list[Action]:
        """Process an event and return the actions that follow; none if the event no longer matters."""
        if isinstance(event, WindowSeen):
            return self._on_window(now, event)
        step = self._step(now)
        match event:
            case PlanDecided(plan=plan, standbys=rows, lacking=lacking):
                self._begin(step, plan, event.id or str(step.epoch))
                _end_proposal(step, event)
                guard.begun(step, plan.app)
                self._place_standbys(step, plan.app, rows, lacking)
            case PlanProposed():
                _propose(step, event)
            case ProposalDropped():
                _drop_proposal(step, event)
            case IntentsAnswered():
                step.answered, step.changed = event.answered, True
            case PlacementWanted(app=app, owners=owners, standbys=rows, lacking=lacking):
                self._adopt(step, app, owners)
                self._place_standbys(step, app, rows, lacking)
            case StandbysWanted(app=app, rows=rows, lacking=lacking):
                self._check_idle(app)
                self._place_standbys(step, app, rows, lacking)
            case StopWanted():
                self._stop(step, event)
            case ScalingWanted():
                scalings.command_scaling(step, event)
            case ResizeWanted():
                scalings.resize(step, event)
            case ForgetWanted():
                self._forget(step, event)
            case AckSeen(ack=ack):
                self._hear(step, ack)
            case PlacementsLost():
                publish_again(step)
            case Resumed(answered=answered):
                step.answered = answered
                step.commands = list(self.state.commands_in_flight())
                step.begin_to_count()
                step.changed = True
                for row in self.state.in_flight:
                    step.set_round(self._scheduled(step.now, row, {}))
        return self._close(step)

    def on_tick(self, now: float) -> list[Action]:
        """Process the time-outs that have passed."""
        step = self._step(now)
        for handover in self._handovers():
            if handover.phase in IN_FLIGHT and handover.wake_at is not None and handover.wake_at <= now:
                handovers.time_out(step, handover)
        for scaling in self.state.scalings.values():
            if (give_up_at := scalings.give_up_at(scaling)) is not None and give_up_at <= now:
                scalings.time_out(step, scaling)
        return self._close(step)

    def _on_window(self, now: float, seen: WindowSeen) -> list[Action]:
        """Process what a window shows, in one step.

        First what it shows of hosts and of pauses, since that says what has room; then hand-overs that it decides, so
        that pace and guard judge what is left of a plan.  Only then the next hand-overs begin, at this pace, and none
        of a plan that the guard has just ended.
        """
        if seen.hosts is not None:
            self._sites.observe(seen.start_s, seen.sites)
            self._restores.see_hosts(now, self.state, seen.start_s, seen.hosts)
        step = self._step(now)
        if seen.pauses is not None:
            count_window(step, seen, seen.pauses)
        if seen.owners is not None:
            self._resolve(step, seen.start_s, seen.owners)
        if seen.jobs is not None:
            self._told += self._guard.observe(step, seen, seen.jobs, self._pace)
        return self._close(step)

    def _step(self, now: float) -> Step:
        return Step(now, self._cluster, self._limits, self.state, self._sites.known)

    def _close(self, step: Step) -> list[Action]:
        """Release and start the hand-overs that may go on, and make the publication."""
        step.count(with_pauses(step.now, self.state, step.execution))
        gate, heard = BudgetGate(self.budget, step.now, step.execution), step.execution
        for handover, ack in self._releases.take_due(step.execution, gate):
            handovers.hear(step, handover, ack)
        step.count(with_pauses(step.now, heard, step.execution))
        end_spent(step, gate)
        handovers.name_due(step)
        self._told += self._guard.see_ended(step, step.ended, self._pace)
        self._told += [changed for each in step.ended if (changed := self._pace.observe(step.now, each)) is not None]
        self._pace.begin(step.now, step.execution.in_flight)
        self._restores.start_waiting(step, gate)
        self._standbys.name_due(step, self._restores.running_on(step.execution))
        _let_go(step)
        guard.forgive(step)
        actions = step.close()
        self.state = step.execution
        told, self._told = self._told, []
        self._restore_at = self._restores.next_at(self.state, step.now)
        return [*actions, *told]

    def _handovers(self) -> tuple[Handover, ...]:
        """The hand-overs of all rounds in flight."""
        return tuple(handover for row in self.state.in_flight for handover in row.handovers)

    def _check_idle(self, app: AppId) -> None:
        if self.state.busy(app):
            raise ValueError(f"the placement of {app} belongs to its round in flight")

    def _begin(self, step: Step, plan: Plan, name: str) -> None:
        if plan.app not in self.state.placements:
            raise ValueError(f"a plan needs a published placement, and {plan.app} has none")
        running = self.state.rounds.get(plan.app)
        if running is not None and running.takes_more and plan.lost:
            self._extend(step, running, plan)
            return
        self._check_idle(plan.app)
        step.drop_details()
        row = copied(
            Round,
            plan,
            plan=name,
            reason=plan.detail,
            started_at=step.now,
            lost=plan.lost,
            handovers=handovers.handovers_of(step, plan),
            kind=plan.reason,
        )
        step.set_round(self._scheduled(step.now, row, plan.cores))

    def _extend(self, step: Step, row: Round, plan: Plan) -> None:
        """Add restores to a round after a loss: those of further key groups, or of its own ones at other targets.

        What has not begun is scheduled anew, and so is the promise.
        """
        given = {move.key_group for move in plan.moves}
        for handover in row.handovers:
            if handover.phase not in ENDED and not given.isdisjoint(handover.key_groups):
                handovers.withdraw(step, handover, given)
        left = step.execution.rounds[plan.app]
        added = replace(left, handovers=left.handovers + handovers.handovers_of(step, plan))
        step.set_round(self._scheduled(step.now, added, plan.cores))

    def _scheduled(self, now: float, row: Round, cores: Mapping[HostId, float]) -> Round:
        """The round with its hand-overs in the order in which their targets should restore."""
        return self._restores.scheduled(now, row, cores, self._restores.running(self.state), self._guard.window_s)

    def _hear(self, step: Step, ack: Ack) -> None:
        """Process an agent's ack."""
        scaling = self.state.scalings.get(ack.worker)
        if scaling is not None and answers(ack, scaling.command):
            scalings.hear(step, scaling, ack)
            if step.execution.scalings[ack.worker].stopped:
                scalings.left(step, {ack.worker})
            return
        handover = self.state.handover_of(ack.command_id)
        if handover is None or handover.phase in ENDED:
            return
        restoring = self._restores.running(self.state)
        if not self._releases.hear(handover, ack):
            handovers.hear(step, handover, ack)
        elif handover in restoring:
            self._told.append(self._restores.ended(step, handover, restoring))

    def learned(self) -> LearnedRestores:
        """What restores cost, as far as it was measured, and what new standbys restore now."""
        return self._restores.learned()

    @property
    def lags_s(self) -> Mapping[AppId, float]:
        """How far each app was behind in the last window, in seconds of its processing rate, as far as known."""
        return self._guard.lags_s

    @property
    def restores_allowed(self) -> Mapping[AppId, int]:
        """How many restores of each plan in flight may run, as far as fewer than the configuration allows."""
        apps = (row.app for row in self.state.in_flight if not row.lost)
        return {app: self._pace.restores(app) for app in apps if self._pace.is_slowed(app)}

    @property
    def full_links(self) -> tuple[HostId, ...]:
        """The hosts on which new standbys wait since the foreground fills their links."""
        return self._standbys.full_links

    def _resolve(self, step: Step, start_s: float, owners: Mapping[KeyGroup, WorkerId]) -> None:
        """Decide hand-overs by who owns their key groups in a window that began at `start_s`."""
        for row in self.state.in_flight:
            if row.lost and start_s >= row.started_at:
                for handover in row.handovers:
                    if handover.phase in (HandoverPhase.WAITING, HandoverPhase.PREPARING):
                        handovers.look(step, handover, owners)
        for handover in self._handovers():
            if handover.phase is HandoverPhase.RESOLVING and start_s >= handover.since:
                handovers.resolve(step, handover, owners)

    def _stop(self, step: Step, wanted: StopWanted) -> None:
        """End the rounds of an app, or of all apps: released hand-overs go on, all others are abandoned."""
        step.answered, step.changed = wanted.answered, True
        for row in self.state.in_flight:
            if wanted.app in (None, row.app):
                handovers.stop_all(step, row, wanted.reason, wanted.lost)

    def _forget(self, step: Step, wanted: ForgetWanted) -> None:
        """Answer a request to forget, even if there is nothing to forget."""
        if self.state.busy(wanted.app) if wanted.app is not None else self.state.in_flight:
            raise ValueError("nothing is forgotten while a round of it is in flight")
        step.answered, step.changed = wanted.answered, True
        if wanted.app in self.state.placements and wanted.app is not None:
            step.adopted[wanted.app] = Placement(cluster=self._cluster, app=wanted.app, epoch=step.epoch, owners={})
            self._standbys.forget(wanted.app)
            self._pace.forget(wanted.app)
            scalings.forget_app(step, wanted.app)
            step.count(step.execution.disruption.without(wanted.app))
            _forget_proposal(step, wanted.app)
            if (last := self.state.rounds.get(wanted.app)) is not None:
                step.set_round(replace(last, handovers=(), ended_at=step.now))
        if wanted.worker is not None:
            scalings.forget(step, wanted.worker)
            scalings.left(step, {wanted.worker})

    def _place_standbys(self, step: Step, app: AppId, rows: Mapping[KeyGroup, Owners], lacking: Lacking) -> None:
        """Publish rows of key groups that do not move; those with something to restore when there is room for it.

        Raises ValueError for a row that names another owner.
        """
        for key_group, row in rows.items():
            if step.row(key_group)[:1] != row[:1]:
                raise ValueError(f"{key_group} would get the owner {row[:1]} together with its standbys")
        later = {each: row for each, row in rows.items() if each in lacking and self._limits.schedule_restores}
        now = {each: row for each, row in rows.items() if each not in later}
        if later:
            self._standbys.want(step, app, later, lacking)
        step.owners.update(now)
        step.changed |= bool(now)

    def _adopt(self, step: Step, app: AppId, owners: Mapping[KeyGroup, WorkerId]) -> None:
        self._check_idle(app)
        previous = self.state.placements.get(app)
        step.adopted[app] = placement_of(self._cluster, app, step.epoch, owners, previous)
        step.changed = True


def publish_again(step: Step) -> None:
    """Publish all placements whole, under a new epoch: nothing is known to be on the topic."""
    step.afresh = step.changed = True
    for app, placement in step.execution.placements.items():
        step.adopted[app] = replace(placement, epoch=step.epoch)


# --- plans that wait for approval, and key groups that operators moved ------------------------------------------------


def _propose(step: Step, event: PlanProposed) -> None:
    """Keep a plan until an operator decides about it; it replaces an earlier one of its app."""
    app = event.plan.app
    proposal = Proposal(id=str(step.epoch), plan=event.plan, at=step.now, expires_at=event.expires_at)
    step.set_proposals({**step.execution.proposals, app: proposal})


def _drop_proposal(step: Step, event: ProposalDropped) -> None:
    """End the wait of a plan; a rejected one is kept so long that it does not come again at once."""
    step.answered, step.changed = event.answered, True
    known = step.execution.proposals.get(event.app)
    if known is None or known.id != event.plan:
        return
    if event.rejected_until is None:
        _without_proposal(step, event.app)
    else:
        rejected = known.turned_down(event.detail, event.rejected_until)
        step.set_proposals({**step.execution.proposals, event.app: rejected})


def _end_proposal(step: Step, event: PlanDecided) -> None:
    """A plan begins: it waits no longer, and its key groups stay where an operator wants them."""
    app = event.plan.app
    if event.id is not None:
        _without_proposal(step, app)
    if event.keep_until is not None:
        row_of = {move.key_group: HandMoved(worker=move.target, until=event.keep_until) for move in event.plan.moves}
        step.execution = replace(step.execution, hand_moved={**step.execution.hand_moved, **row_of})
    step.answered = event.answered


def _let_go(step: Step) -> None:
    """Forget what need not stay any longer where an operator moved it.  That alone is no reason to publish."""
    known = step.execution.hand_moved
    if step.changed and any(row.until <= step.now for row in known.values()):
        left = {each: row for each, row in known.items() if row.until > step.now}
        step.execution = replace(step.execution, hand_moved=left)


def _forget_proposal(step: Step, app: AppId) -> None:
    """Forget what concerns an app."""
    _without_proposal(step, app)
    moved = {each: row for each, row in step.execution.hand_moved.items() if each.app != app}
    step.execution = replace(step.execution, hand_moved=moved)


def _without_proposal(step: Step, app: AppId) -> None:
    step.set_proposals({each: row for each, row in step.execution.proposals.items() if each != app})
