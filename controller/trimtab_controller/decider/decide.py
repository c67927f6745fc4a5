"""Decide what to do about one app, and why.  Pure functions of view, evaluation and state."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from trimtab_controller.decider.collocation import may_lower, pays_back
from trimtab_controller.decider.decision import Adopted, Decision, Planned, Scaled, Skip, not_ready
from trimtab_controller.decider.describe import collocation_of, method_of
from trimtab_controller.decider.evaluate import Evaluation
from trimtab_controller.decider.events import DrainBlocked
from trimtab_controller.decider.explain import why_of
from trimtab_controller.decider.fixed import refusal
from trimtab_controller.decider.owned import Owned
from trimtab_controller.decider.reasons import OF_BALANCE, SkipReason
from trimtab_controller.decider.resources import bottleneck_in, filled_by
from trimtab_controller.decider.rules.moves import broken_by
from trimtab_controller.decider.rules.rule import names
from trimtab_controller.decider.view import AppView, EndCosts, NotReady
from trimtab_controller.execution.state import Execution, ScalingPhase, owned_by
from trimtab_controller.plan import Move, Plan, PlanReason
from trimtab_controller.solver.answer import Answer, Method
from trimtab_controller.wording import first_few
from trimtab_protocol.messages.commands import CommandKind
from trimtab_protocol.messages.names import AppId, HostId, KeyGroup, WorkerId
from trimtab_protocol.messages.placement import Placement

NO_SAVING = "collocation: not used, no significant saving is measured"
SCALING_PATIENCE_S = 60.0
"""How long the reports may take to show a stop or start before it is commanded again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The configuration's [balance]; distances in pp, times in seconds.

    Nothing moves while the load distance is within the band `load_distance`, or for a gain below `min_gain`.  A drain
    may raise the load distance of the other workers up to `drain_load_distance`.  That is higher than the band, since
    otherwise one heavy key group would block the drain.  Loads and flows are smoothed over windows (`smoothing` =
    weight of the newest) and used after `min_windows`.

    A load is the demand: where inputs wait for CPU, it includes working the backlog off within `catch_up_s`.  After a
    restart of 30 s, 300 s ask for 10 % more than the input alone, which moves little; 10 minutes of backlog ask for
    three times as much.

    With ALBIC key groups also move inside the band if that raises collocation by `min_collocation_gain` (pp), lowers
    the mean load by `min_gain`, and pays back the restores of their state within `pay_back_s`.  What a tuple costs only
    because it goes to another worker is measured (`remote_costs.py`), unless an operator states it
    (`remote_tuple_cpu_s`, both ends together); without a significant cost there are only trials (`trial.py`).  Reports
    do not tell what a tuple costs the broker: an operator may state it (`broker_tuple_cpu_s`), and it counts in what
    pays back.

    `max_disk` = share of a disk that plans and standbys fill at most, `max_link` = share of a host's link, each way,
    that plans fill at most: traffic comes in bursts.
    """

    method: Method = Method.ALBIC
    max_migrations: int = 13
    load_distance: float = 5.0
    min_interval_s: float = 30.0
    smoothing: float = 0.5
    min_windows: int = 3
    min_gain: float = 0.5
    drain_load_distance: float = 25.0
    min_collocation_gain: float = 2.0
    remote_tuple_cpu_s: float | None = None
    broker_tuple_cpu_s: float = 0.0
    pay_back_s: float = 1800.0
    trial_pairs: int = 6
    catch_up_s: float = 300.0
    max_disk: float = 0.9
    max_link: float = 0.9

    def planned_with(self, view: AppView) -> Method:
        """The method that plans for this app are made with."""
        costs = view.remote_costs if self.remote_tuple_cpu_s is None else self.remote_tuple_cpu_s
        return self.method if costs else Method.MILP

    def may_gain(self, view: AppView) -> bool:
        """Whether collocation could lower the mean load of this app by `min_gain`, with every tuple on its worker."""
        albic = self.planned_with(view) is Method.ALBIC
        return albic and may_lower(self.with_stated_costs(view), self.min_gain)

    @property
    def learns_by_trial(self) -> bool:
        """Whether key groups may move to learn what remote tuples cost."""
        return self.method is Method.ALBIC and self.remote_tuple_cpu_s is None and self.trial_pairs > 0

    def with_stated_costs(self, view: AppView) -> AppView:
        """The view with what an operator says that remote tuples cost, if one does: half of it at each end."""
        if self.remote_tuple_cpu_s is None:
            return view
        end = self.remote_tuple_cpu_s / 2.0
        stated = dict.fromkeys(view.sizes, EndCosts(sending=end, receiving=end)) if end else {}
        return view if view.remote_costs == stated else replace(view, remote_costs=stated)

    def moves_for(self, view: AppView) -> int:
        """How many key groups a plan for this app may move."""
        return self.max_migrations if view.max_moves is None else min(self.max_migrations, view.max_moves)

    def note(self, view: AppView | NotReady | None) -> str:
        """Why plans are not made with `method`; empty if they are, or if key groups do not talk to each other."""
        if not isinstance(view, AppView) or not view.flows or self.planned_with(view) is self.method:
            return ""
        return NO_SAVING


@dataclass(frozen=True, slots=True, kw_only=True)
class SolveWanted:
    """A plan is worth looking for.  `balancing`: the load distance alone would justify one, whatever `reason` is."""

    view: AppView
    reason: PlanReason
    detail: str
    balancing: bool

    @property
    def must_move(self) -> bool:
        """Whether the plan is to empty a worker, or to do what a rule wants."""
        return self.reason in (PlanReason.DRAIN, PlanReason.RULES)


def admit_cluster(execution: Execution, *, paused: str | None, held: str | None = None) -> Skip | None:
    """The reason to do nothing in the whole cluster, if there is one; checked before anything is computed."""
    if held is not None:
        return Skip(reason=SkipReason.JOURNAL, detail=f"on hold: {held}")
    if (busy := _scaling_in_flight(execution, None)) is not None:
        return busy
    if paused is not None:
        return Skip(reason=SkipReason.PAUSED, detail=paused)
    return None


def admit_app(app: AppId, execution: Execution) -> Skip | None:
    """The reason to do nothing about an app, if its last plan or change of size is still in flight."""
    if not execution.busy(app):
        return _scaling_in_flight(execution, app)
    detail = f"{app}: plan {execution.rounds[app].plan} is in flight"
    return Skip(reason=SkipReason.PLAN_IN_FLIGHT, detail=detail, app=app)


def _scaling_in_flight(execution: Execution, app: AppId | None) -> Skip | None:
    """The stop or start under way for the size of this app; None: for an operator."""
    for scaling in execution.scalings.values():
        if scaling.phase is ScalingPhase.SENT and scaling.of_app == app:
            detail = f"waiting for the {scaling.command.kind} of {scaling.command.worker}"
            told = detail if app is None else f"{app}: {detail}"
            return Skip(reason=SkipReason.SCALING_IN_FLIGHT, detail=told, app=app)
    return None


def to_start(
    now: float, execution: Execution, draining: frozenset[WorkerId], hosts: frozenset[HostId]
) -> Scaled | None:
    """Start a worker that the controller stopped and whose drain was cancelled.

    It waits until the host reports; a failed start is repeated while it does.
    """
    for worker, scaling in execution.scalings.items():
        if scaling.of_app is not None or scaling.command.host not in hosts or worker in draining:
            continue  # a start that nobody hears holds up the whole cluster until it expires
        failed = scaling.command.kind is CommandKind.START and scaling.phase is ScalingPhase.FAILED
        if scaling.stopped or (failed and now >= scaling.at + SCALING_PATIENCE_S):
            detail = "the drain that had stopped it has ended"
            return Scaled(kind=CommandKind.START, worker=worker, host=scaling.command.host, detail=detail)
    return None


def to_stop(view: AppView, execution: Execution, draining: frozenset[WorkerId]) -> Scaled | None:
    """Stop a drained worker that owns nothing in reports and placements; a repeated stop waits SCALING_PATIENCE_S.

    `draining` = the workers to empty now; some of those of the view may have been stopped and started since.
    """
    for worker in view.workers:
        if (
            not worker.draining
            or worker.id not in draining
            or view.owned_by(worker.id)
            or owned_by(execution.placements.values(), worker.id)
        ):
            continue
        scaling = execution.scalings.get(worker.id)
        stop = scaling is not None and scaling.command.kind is CommandKind.STOP
        if scaling is None or not stop or view.start_s >= scaling.at + SCALING_PATIENCE_S:
            app = view.app if worker.id in execution.leaving else None
            detail = "it has been drained"
            return Scaled(kind=CommandKind.STOP, worker=worker.id, host=worker.host, detail=detail, app=app)
    return None


def drift(view: AppView, placement: Placement | None) -> Adopted | None:
    """Adopt the reported owners if they, or the key groups, differ from the placement, or if there is no placement."""
    if placement is None:
        detail = f"first placement: {sum(view.sizes.values())} key groups with their present owners"
        return Adopted(app=view.app, owners=view.placed, detail=detail)
    if (changed := _changed_operators(view, placement)) is not None:
        detail = f"{changed}: the placement follows the reports"
        return Adopted(app=view.app, owners=view.placed, detail=detail)
    owners = view.placed
    other = [
        str(key_group)
        for key_group, owner in owners.items()
        if placement.of(key_group.operator, key_group.partition)[:1] != (owner,)
    ]
    if not other:
        return None
    detail = (
        f"{len(other)} key groups have other owners than placed, such as {other[0]}: the placement follows the reports"
    )
    return Adopted(app=view.app, owners=owners, detail=detail)


def any_drift(views: Mapping[AppId, AppView | NotReady], execution: Execution) -> bool:
    """Whether the placement of any app that is not busy differs from the reports."""
    return any(
        isinstance(view, AppView) and drift(view, execution.placements.get(app)) is not None
        for app, view in views.items()
        if not execution.busy(app)
    )


def by_urgency(
    apps: Iterable[AppId], views: Mapping[AppId, AppView | NotReady], evaluations: Mapping[AppId, Evaluation]
) -> list[AppId]:
    """The apps with a drain, or with key groups that break a rule, first; then those with the largest load distance.

    Those that are not ready come last.
    """

    def rank(app: AppId) -> tuple[bool, float, AppId]:
        view, evaluation = views[app], evaluations.get(app)
        if evaluation is None or not isinstance(view, AppView):
            return False, -1.0, app
        return bool(view.draining) or bool(view.misplaced.any()), evaluation.load_distance or 0.0, app

    return sorted(apps, key=rank, reverse=True)


def _changed_operators(view: AppView, placement: Placement) -> str | None:
    """Which operators of the placement are gone, which are new, and which have another number of key groups."""
    now, before = view.sizes, {operator: len(rows) for operator, rows in placement.owners.items()}
    if now == before:
        return None
    other = [
        f"{operator} ({before[operator]} key groups before, now {now[operator]})"
        for operator in sorted(now.keys() & before.keys())
        if now[operator] != before[operator]
    ]
    parts: dict[str, list[str]] = {
        "gone": sorted(before.keys() - now.keys()),
        "new": sorted(now.keys() - before.keys()),
        "of another size": other,
    }
    return "operators " + "; ".join(f"{what}: {first_few(names)}" for what, names in parts.items() if names)


def admit(
    now: float, view: AppView, evaluation: Evaluation, execution: Execution, settings: Settings, *, windows: int
) -> Skip | SolveWanted:
    """Whether a plan is worth looking for.  Drains and rules ignore band and `min_windows`, but not the interval."""
    distance, noise = evaluation.load_distance, evaluation.noise
    if distance is None or noise is None:
        return Skip(
            reason=SkipReason.ALL_DRAINING,
            detail=f"{view.app}: every worker is being drained, none is left to take key groups",
            app=view.app,
        )
    to_empty = [worker for worker in view.draining if view.owned_by(worker)]
    misplaced = np.flatnonzero(view.misplaced)
    collocation = evaluation.collocation if settings.may_gain(view) else None
    balancing = distance > max(settings.load_distance, noise)
    if (
        not to_empty
        and not len(misplaced)
        and (calm := _calm(view, distance, noise, settings, windows, idle=collocation in (None, 1.0)))
    ):
        return calm
    last = execution.rounds.get(view.app)
    ended_at = None if last is None else last.ended_at
    if ended_at is not None and now - ended_at < settings.min_interval_s:
        left_s = settings.min_interval_s - (now - ended_at)
        detail = f"{view.app}: load distance {distance:.1f}, next round in {left_s:.0f} s at the earliest"
        return Skip(reason=SkipReason.TOO_SOON, detail=detail, app=view.app)
    if to_empty:
        reason, detail = PlanReason.DRAIN, "drain " + first_few(to_empty)
    elif len(misplaced):
        reason, detail = PlanReason.RULES, broken(view, misplaced.tolist())
    elif balancing or collocation is None:
        reason = PlanReason.LOAD_DISTANCE
        detail = f"load distance {distance:.1f} above {settings.load_distance:.1f}"
    else:
        reason, detail = PlanReason.COLLOCATION, f"collocation {collocation:.0%}"
    return SolveWanted(view=view, reason=reason, detail=detail + around(view), balancing=balancing)


def broken(view: AppView, misplaced: Sequence[int]) -> str:
    """Which key groups are where a rule does not want them."""
    row = view.owned[misplaced[0]]
    owner = next(place for place, worker in enumerate(view.workers) if worker.id == row.owner)
    by = names(view.places.barred(misplaced[0], owner))
    return f"{len(misplaced)} key groups may not be where they are, such as {row.key_group} on {row.owner} by {by}"


def around(view: AppView) -> str:
    """Which workers a plan is made around; empty if there are none."""
    return f", around {first_few(each.id for each in view.fixed)}" if view.fixed else ""


def _calm(view: AppView, distance: float, noise: float, settings: Settings, windows: int, *, idle: bool) -> Skip | None:
    """Why no plan for balance is needed; `idle`: collocation cannot be raised either."""
    if idle and distance <= settings.load_distance:
        detail = f"{view.app}: load distance {distance:.1f} pp, inside the band of {settings.load_distance:.1f} pp"
        return Skip(reason=SkipReason.INSIDE_BAND, detail=detail, app=view.app)
    if windows < settings.min_windows:
        detail = f"{windows} of {settings.min_windows} windows seen, load distance {distance:.1f} so far"
        return not_ready(NotReady(reason=SkipReason.TOO_FEW_WINDOWS, detail=detail, app=view.app))
    if idle and distance <= noise:
        detail = f"{view.app}: load distance {distance:.1f} may be noise, which goes up to {noise:.1f}"
        return Skip(reason=SkipReason.INSIDE_NOISE, detail=detail, app=view.app)
    return None


def judge(wanted: SolveWanted, answer: Answer, settings: Settings) -> Planned | Skip:
    """Whether the solver's answer is worth carrying out, and keeps rules and the limits of the hosts."""
    moves = {row: wanted.view.workers[target].id for row, target in answer.moves}
    filled = filled_by(wanted.view, moves)
    if over := [each for each in filled if each.overfills]:
        detail = f"{wanted.view.app}: the plan is refused, it would overfill {first_few(over)}"
        return Skip(reason=SkipReason.SOLVER_FAILED, detail=detail, app=wanted.view.app)
    if against := broken_by(wanted.view, moves):
        detail = f"{wanted.view.app}: the plan is refused: {against}"
        return Skip(reason=SkipReason.SOLVER_FAILED, detail=detail, app=wanted.view.app)
    full = bottleneck_in(filled)
    evened = wanted.balancing and answer.before - answer.load_distance >= settings.min_gain
    together = _saves_enough(answer, settings)
    paid = together and pays_back(
        wanted.view, answer, within_s=settings.pay_back_s, broker_s=settings.broker_tuple_cpu_s
    )
    if not answer.moves or not (wanted.must_move or evened or paid):
        unpaid = f", too little to make up for restores in {settings.pay_back_s:g} s" if together and not paid else ""
        detail = (
            f"{wanted.view.app}: {wanted.detail}, but {settings.moves_for(wanted.view)} moves bring it only from "
            f"{answer.before:.1f} to {answer.load_distance:.1f} (bound {answer.lower_bound:.1f})"
            f"{collocation_of(answer)}{unpaid}{method_of(answer)}{full}"
        )
        reason = SkipReason.SOLVER_FAILED if answer.fallback else SkipReason.NOTHING_BETTER
        return Skip(reason=reason, detail=detail, app=wanted.view.app)
    return Planned(
        plan=Plan(
            app=wanted.view.app,
            reason=wanted.reason,
            detail=wanted.detail + full,
            moves=tuple(
                Move(key_group=row.key_group, source=row.owner, target=target, state_bytes=row.state_bytes)
                for row, target in _named(wanted.view, answer.moves)
            ),
            hosts=wanted.view.hosts,
            before=answer.before,
            planned=answer.load_distance,
            lower_bound=answer.lower_bound,
            status=answer.status,
            fallback=answer.fallback,
            solve_s=answer.solve_s,
            collocation=answer.collocation,
            why=why_of(wanted.view, moves, wanted.reason, filled),
        )
    )


def still_free(decision: Planned, now: AppView) -> NotReady | None:
    """Why a plan cannot be carried out, because of workers that are no longer free; None if they all are."""
    ends = {worker for move in decision.plan.moves for worker in (move.source, move.target)}
    if ends <= now.hosts.keys():
        return None
    fixed = [each for each in now.fixed if each.id in ends]
    if fixed:
        return refusal(now.app, fixed)
    detail = f"workers that own key groups but are away: {first_few(sorted(ends - now.hosts.keys()))}"
    return NotReady(reason=SkipReason.WORKER_MISSING, detail=detail, app=now.app)


def _named(view: AppView, moves: Iterable[tuple[int, int]]) -> Iterator[tuple[Owned, WorkerId]]:
    """The key groups that move, with their targets."""
    for key_group, target in moves:
        yield view.owned[key_group], view.workers[target].id


def blocked_drains(view: AppView, answer: Answer) -> list[DrainBlocked]:
    """The drains that cannot continue, by worker and obstacle."""
    blocked: dict[tuple[WorkerId, str], list[KeyGroup]] = {}
    for stuck in answer.stuck:
        if not view.workers[stuck.worker].draining or stuck.key_group in view.later:
            continue  # a key group that is to leave by a rule, or after others
        key_groups = blocked.setdefault((view.workers[stuck.worker].id, stuck.obstacle), [])
        key_groups.append(view.owned[stuck.key_group].key_group)
    return [
        DrainBlocked(worker=worker, key_groups=tuple(key_groups), obstacle=obstacle)
        for (worker, obstacle), key_groups in blocked.items()
    ]


def _saves_enough(answer: Answer, settings: Settings) -> bool:
    found = answer.collocation
    return found is not None and found.gain_pp >= settings.min_collocation_gain and found.saved_pp >= settings.min_gain


def noted(decision: Decision, note: str) -> Decision:
    """The decision, with the settings' note added if it is about the balance of an app."""
    if not note:
        return decision
    match decision:
        case Skip(reason=reason, detail=detail) if reason in OF_BALANCE:
            return replace(decision, detail=f"{detail}; {note}")
        case Planned(plan=plan):
            return replace(decision, plan=replace(plan, note=note))
    return decision
