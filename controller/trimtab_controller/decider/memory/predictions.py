"""Compare a plan with its effect: the first whole window after the round against the loads the plan was made with.

A plan assumes that a key group costs its next owner what it costs its present owner, but for the speed of their
hosts, and for tuples that become local or remote, where what those cost is measured (`remote_costs.py`). Where that
is wrong (a worker that measures its key groups as zero, a host slower than others of its type), each plan makes
things worse: the worker that looks idle gets more and more.  So after MISSES_BEFORE_HOLD missed rounds in a row, no
further plan for balance is made in that app.

A load is the demand in both windows.  A saturated worker that is relieved uses all of its capacity before, and also
after while it works its backlog off; its demand falls by what has moved.

The comparison takes the loads of the last window before the plan, summed over the owners of the first window after
the round, and the loads measured in that window.  It does not take the smoothed loads that the plan was made from,
since those lag behind.  The key groups that did not move are the control: the difference of their loads between the
two windows shows how much the moved ones may differ by chance.  With relative errors r of the loads x (r^2 = sum of
squared differences / sum of x^2, over the unmoved) a worker may differ by NOISE_ERRORS * r * sqrt(sum of its x^2).

A round cannot be compared in three cases: the unmoved key groups of a worker together differ by more than that, so
the load itself has changed; workers joined or left in between; the predicted gain is smaller than the noise.

What was fixed before or after the round is left out: the comparison takes the workers and key groups that were
measured both times.

A new leader starts with an empty memory: it does not compare its predecessor's plan and knows of no earlier misses.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from trimtab_controller.decider.memory.evaluate import NOISE_ERRORS, evaluate
from trimtab_controller.decider.values.decision import Skip
from trimtab_controller.decider.values.reasons import Concern, ConcernKind, NotReady, SkipReason
from trimtab_controller.decider.window.collocation import loads_foreseen, saved_since
from trimtab_controller.decider.window.concerns import ClusterUse
from trimtab_controller.decider.window.owned import Floats
from trimtab_controller.decider.window.view import DemandView
from trimtab_controller.execution.state import HandoverPhase, Round
from trimtab_controller.plan import Collocation, PlanReason
from trimtab_protocol.messages.events import MAX_MOVES, EventMove
from trimtab_protocol.messages.names import AppId, KeyGroup, WorkerId
from trimtab_protocol.messages.snapshot import Snapshot
from trimtab_protocol.wording import first_few

MISSES_BEFORE_HOLD = 2
"""Number of missed rounds in a row after which no plan is made for balance.  A single miss may be chance."""
AGREEING_WINDOWS = 3
"""Number of windows in a row in which the moved load must agree with the prediction before plans are made again."""
TRY_AGAIN_S = 3600.0
"""How long to wait after the last miss before one more round is tried."""

Views = Mapping[AppId, DemandView | NotReady]
Parts = Mapping[AppId, Snapshot]


@dataclass(frozen=True, slots=True, kw_only=True)
class Saving:
    """By how much a round was to lower the mean load by collocation, and has (pp of capacity); None = not known."""

    planned_pp: float
    measured_pp: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class MispredictedWorker:
    """A worker's load as the plan predicted it and as it was measured, in percent of its capacity."""

    worker: WorkerId
    planned: float
    measured: float

    def __str__(self) -> str:
        return f"{self.worker} {self.planned:.1f} % planned, {self.measured:.1f} % measured"


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundMeasured:
    """The result of a round, from the first whole window after it.

    `load_distance` (pp) is the measured one.  `incomparable` says why it cannot be compared with the plan.  `missed`
    names the mispredicted workers, worst first; it is empty when the plan met its prediction.  `worker_loads` = the
    measured load of each worker, in percent of its capacity.  `saving` None: the plan was not about collocation.
    `moves` = what each move has brought.
    """

    plan: str
    app: AppId
    planned: float
    load_distance: float | None
    incomparable: str | None = None
    missed: tuple[MispredictedWorker, ...] = ()
    worker_loads: Mapping[WorkerId, float] = field(default_factory=dict, compare=False)
    saving: Saving | None = None
    moves: tuple[EventMove, ...] = field(default=(), compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction:
    """The view that a plan was made with.  The plan predicts that each load moves along with its key group.

    `collocation` = what the plan saves besides.
    """

    decided_at: float
    view: DemandView
    collocation: Collocation | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """A round compared with its plan.

    `load_distance` is the measured one (pp); None when it says nothing about the plan.  `noise` is the difference that
    chance explains (pp).  `incomparable` says why the round cannot be compared.  `missed` names the mispredicted
    workers, worst first; it is empty when the plan met its prediction.
    """

    load_distance: float | None
    noise: float = 0.0
    incomparable: str | None = None
    missed: tuple[MispredictedWorker, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class MissedRounds:
    """Consecutive rounds of an app that missed their predictions.

    `plans` names them; the other fields describe the last one.  `noise` is the difference that chance explains (pp),
    `generation` that of the consumer group at the time.  `agreed` counts the windows in a row since then in which the
    moved load agreed with the prediction.
    """

    plans: tuple[str, ...]
    prediction: Prediction
    workers: tuple[MispredictedWorker, ...]
    noise: float
    generation: int | None
    at: float
    agreed: int = 0

    @property
    def holding(self) -> bool:
        """Whether no further plan is made for balance."""
        return len(self.plans) >= MISSES_BEFORE_HOLD

    @property
    def detail(self) -> str:
        """Which plans missed, and at which workers."""
        plans = ", ".join(self.plans[-MISSES_BEFORE_HOLD:])
        return f"plans {plans} did not bring what was planned (noise {self.noise:.1f}): {first_few(self.workers)}"

    @property
    def concern(self) -> Concern:
        """The concern to show to the operator."""
        workers = tuple(sorted(each.worker for each in self.workers))
        return Concern(kind=ConcernKind.PLANS_MISS, app=self.prediction.view.app, workers=workers, detail=self.detail)


def compare(prediction: Prediction, view: DemandView, *, load_distance: float, min_gain: float) -> Comparison:
    """Compare a window (not smoothed) with what the plan predicted.

    A round that ends inside the band `load_distance` counts as kept.  A difference below `min_gain` is ignored.
    """
    if (changed := _changed(prediction.view, view)) is not None:
        return Comparison(load_distance=None, incomparable=changed)
    of_plan, view = _in_common(prediction.view, replace(view, flows={}))
    found = evaluate(view)
    if found.load_distance is None or len(view.workers) < min(2, len(prediction.view.workers)):
        return Comparison(load_distance=None, incomparable="too few workers stay that are not drained or fixed")
    if found.load_distance <= load_distance:
        return Comparison(load_distance=found.load_distance)
    before, unmoved = loads_foreseen(of_plan, view.owned), ~view.owned.moved_since(of_plan.owned)
    noise = max(min_gain, _noise(view, before, unmoved))
    foreseen = _with_loads(view, before)
    planned = evaluate(foreseen).load_distance or 0.0
    if (unclear := _unclear(of_plan, foreseen, view, unmoved, noise)) is not None:
        return Comparison(load_distance=found.load_distance, noise=noise, incomparable=unclear)
    missed = _mispredicted(foreseen, view, noise) if found.load_distance > planned + noise else ()
    return Comparison(load_distance=found.load_distance, noise=noise, missed=missed)


def _unclear(
    before: DemandView, foreseen: DemandView, view: DemandView, unmoved: NDArray[np.bool_], noise: float
) -> str | None:
    """Why a difference between prediction and window says nothing about the plan; None if it does."""
    gain = (evaluate(before).load_distance or 0.0) - (evaluate(foreseen).load_distance or 0.0)
    if noise > max(0.0, gain):
        return f"loads differ by {noise:.1f} between two windows, the plan was to bring {gain:.1f}"
    alone = _with_loads(view, np.where(unmoved, view.owned.load, foreseen.owned.load))
    planned, measured = evaluate(foreseen).worker_loads, evaluate(alone).worker_loads
    if max(abs(measured[worker] - load) for worker, load in planned.items()) > noise:
        return "the load of key groups that did not move has changed"
    return None


def _noise(view: DemandView, before: Floats, unmoved: NDArray[np.bool_]) -> float:
    """The difference of a worker's load between two windows that chance explains (pp), from the unmoved key groups."""
    squares = float(np.sum(before[unmoved] ** 2))
    if not squares:
        return 0.0
    error = math.sqrt(float(np.sum((view.owned.load - before)[unmoved] ** 2)) / squares)
    loads = _with_loads(view, before**2).owned.loads_of_workers()
    return max(NOISE_ERRORS * error * math.sqrt(loads.get(each.id, 0.0)) / each.capacity for each in view.workers)


def follow_misses(
    before: MissedRounds | None,
    found: Comparison,
    *,
    plan: str,
    prediction: Prediction,
    generation: int | None,
    now: float,
) -> MissedRounds | None:
    """The missed rounds after this one.  A kept round clears them; one that cannot be compared changes nothing."""
    if found.incomparable is not None:
        return before
    if not found.missed:
        return None
    plans = (*(before.plans if before else ()), plan)[-MISSES_BEFORE_HOLD:]
    return MissedRounds(
        plans=plans, prediction=prediction, workers=found.missed, noise=found.noise, generation=generation, at=now
    )


def review(
    misses: MissedRounds, view: DemandView, *, generation: int | None, over_capacity: frozenset[WorkerId], now: float
) -> MissedRounds | None:
    """The missed rounds after one more window (not smoothed); None when they no longer count.

    They end when a mispredicted worker is gone, when the group has a new generation (a worker was started), or when the
    moved load agrees with the prediction in AGREEING_WINDOWS windows in a row.  After TRY_AGAIN_S one more round is
    tried.  None of this applies while a mispredicted worker uses more than its capacity.
    """
    blamed = {each.worker for each in misses.workers}
    if not blamed <= _known(view):
        return None
    if not blamed <= view.hosts.keys():
        return misses  # nothing is measured of a worker that is fixed
    if blamed & over_capacity:
        return replace(misses, agreed=0)
    if misses.generation is not None and generation is not None and generation > misses.generation:
        return None
    if not misses.holding:
        return misses
    if now - misses.at >= TRY_AGAIN_S:
        return replace(misses, plans=misses.plans[1:], at=now)
    agreed = misses.agreed + 1 if _agrees(misses, view) else 0
    return None if agreed >= AGREEING_WINDOWS else replace(misses, agreed=agreed)


def _changed(before: DemandView, after: DemandView) -> str | None:
    """How the key groups or the workers of the app changed since the plan was made; None if they did not."""
    if before.sizes != after.sizes:
        return "the app has other key groups"
    old, new = {worker.id: worker for worker in before.workers}, {worker.id: worker for worker in after.workers}
    said = [f"{worker} left" for worker in old if worker not in _known(after)]
    said += [f"{worker} joined" for worker in new if worker not in _known(before)]
    for worker in old.keys() & new.keys():
        if old[worker].draining != new[worker].draining:
            said.append(f"{worker} {'began to be' if new[worker].draining else 'is no longer'} drained")
        if old[worker].capacity != new[worker].capacity:
            said.append(f"{worker} has another capacity")
    return first_few(sorted(said)) if said else None


def _known(view: DemandView) -> set[WorkerId]:
    """The workers of the app, fixed ones included."""
    return {worker.id for worker in view.workers} | {each.id for each in view.fixed}


def _in_common(before: DemandView, after: DemandView) -> tuple[DemandView, DemandView]:
    """Both views with the workers and key groups that were measured both times."""
    workers = before.hosts.keys() & after.hosts.keys()

    def of_common(view: DemandView, other: DemandView) -> DemandView:
        here = np.array([name in workers for name in view.owned.workers], np.bool_)
        rows = here[view.owned.owner] & (view.owned.places_in(other.owned) >= 0)
        kept = tuple(worker for worker in view.workers if worker.id in workers)
        return replace(view, workers=kept, key_groups=view.owned.only(rows))

    if not any((before.fixed, after.fixed, before.kept, after.kept)):
        return before, after
    before, after = of_common(before, after), of_common(after, before)
    # A key group that moved to or from a worker that is fixed now is known on one side only.
    return of_common(before, after), of_common(after, before)


def _with_loads(view: DemandView, loads: Floats) -> DemandView:
    return replace(view, key_groups=view.owned.with_load(loads))


def _mispredicted(foreseen: DemandView, view: DemandView, noise: float) -> tuple[MispredictedWorker, ...]:
    """The workers whose load differs from the prediction, worst first; at least one."""
    planned, measured = evaluate(foreseen).worker_loads, evaluate(view).worker_loads
    workers = sorted(
        (MispredictedWorker(worker=each, planned=planned[each], measured=measured[each]) for each in planned),
        key=lambda each: -abs(each.measured - each.planned),
    )
    wrong = tuple(each for each in workers if abs(each.measured - each.planned) > noise)
    return wrong or tuple(workers[:1])


def _agrees(misses: MissedRounds, view: DemandView) -> bool:
    """Whether the moved key groups cost their owners now what they cost before the move.

    Only the moved ones are compared: the other loads of these workers may have been measured wrong before.
    """
    owned, before = view.owned, misses.prediction.view
    moved, view = owned.moved_since(before.owned), replace(view, flows={})
    planned = evaluate(_with_loads(view, np.where(moved, loads_foreseen(before, owned), 0.0))).worker_loads
    measured = evaluate(_with_loads(view, np.where(moved, owned.load, 0.0))).worker_loads
    return all(abs(measured[worker] - load) <= misses.noise for worker, load in planned.items())


class PredictionTracker:
    """Compares each round with its plan.  `load_distance` is the band, `min_gain` the smallest useful gain (pp)."""

    def __init__(self, *, load_distance: float, min_gain: float) -> None:
        self._load_distance = load_distance
        self._min_gain = min_gain
        self._seen: dict[AppId, DemandView] = {}
        self._predictions: dict[AppId, Prediction] = {}
        self._misses: dict[AppId, MissedRounds] = {}
        self._compared: dict[AppId, str] = {}  # the last plan of each app that was compared

    @property
    def concerns(self) -> tuple[Concern, ...]:
        """One concern for each app that gets no plans for balance at present."""
        return tuple(misses.concern for misses in self._misses.values() if misses.holding)

    def hold(self, app: AppId, wanted: str) -> Skip | None:
        """The reason to make no plan for balance, which is `wanted` all the same, if the app's last plans missed."""
        misses = self._misses.get(app)
        if misses is None or not misses.holding:
            return None
        detail = f"{app}: {wanted}, but {misses.detail}; no further plan for balance"
        return Skip(reason=SkipReason.PLANS_MISS, detail=detail, app=app)

    def forgive(self) -> None:
        """Forget all misses, because an operator has resumed."""
        self._misses.clear()

    def plan(self, now: float, app: AppId, collocation: Collocation | None) -> None:
        """Note that a plan was made for an app and will be carried out."""
        self._predictions.pop(app, None)
        if app in self._seen:
            self._predictions[app] = Prediction(decided_at=now, view=self._seen[app], collocation=collocation)

    def forget(self, app: AppId) -> None:
        """Note that the next round of an app is not for balance, and promises nothing."""
        self._predictions.pop(app, None)

    def measure_rounds(
        self, rounds: Mapping[AppId, Round], views: Views, parts: Parts, *, max_age_s: float
    ) -> list[RoundMeasured]:
        """Compare the last round of each app with the first whole window after it.

        `views` are not smoothed.  A window that began more than `max_age_s` after the round says nothing about it.
        """
        self._compared = {app: plan for app, plan in self._compared.items() if app in rounds}
        found = []
        for app, row in rounds.items():
            view = views.get(app)
            if row.ended_at is None or row.plan == self._compared.get(app) or not isinstance(view, DemandView):
                continue
            if view.start_s <= row.ended_at + max_age_s and (measured := self._measured(row, view, parts[app])):
                self._compared[app] = row.plan
                found.append(measured)
        return found

    def _measured(self, last: Round, view: DemandView, part: Snapshot) -> RoundMeasured | None:
        """What a round brought; None if the window does not show it."""
        prediction = self._predictions.get(last.app)
        found = self._measure(last, view, part)
        if found.load_distance is None and found.incomparable is None:
            return None
        return RoundMeasured(
            plan=last.plan,
            app=last.app,
            planned=last.planned,
            load_distance=found.load_distance,
            incomparable=found.incomparable,
            missed=found.missed,
            worker_loads=evaluate(view).worker_loads,
            saving=_saving(prediction, view) if prediction and found.incomparable is None else None,
            moves=measured_moves(last, view, max(found.noise, self._min_gain)),
        )

    def _measure(self, last: Round, view: DemandView, part: Snapshot) -> Comparison:
        """Compare the last round with the first whole window after it."""
        prediction = self._predictions.get(last.app)
        if prediction is None or prediction.decided_at > last.started_at:
            return Comparison(load_distance=evaluate(view).load_distance)  # a predecessor's plan
        found = compare(prediction, view, load_distance=self._load_distance, min_gain=self._min_gain)
        misses = follow_misses(
            self._misses.pop(last.app, None),
            found,
            plan=last.plan,
            prediction=prediction,
            generation=_generation(part),
            now=view.end_s,
        )
        if misses is not None:
            self._misses[last.app] = misses
        return found

    def review(self, views: Views, parts: Parts, use: ClusterUse) -> None:
        """Update the misses with one more window (not smoothed); drop those of apps that are gone."""
        known = {app: view for app, view in views.items() if isinstance(view, DemandView)}
        # Flows are needed only where what they cost is known.
        self._seen = {app: view if view.remote_costs else replace(view, flows={}) for app, view in known.items()}
        if parts:
            self._predictions = {app: each for app, each in self._predictions.items() if app in parts}
        for app, misses in list(self._misses.items()):
            view = views.get(app)
            kept: MissedRounds | None = misses
            if isinstance(view, DemandView) and view.end_s > misses.at:
                over, generation = use.over_capacity, _generation(parts[app])
                kept = review(misses, view, generation=generation, over_capacity=over, now=view.end_s)
            if kept is None or (parts and app not in parts):
                del self._misses[app]
            else:
                self._misses[app] = kept


def _saving(prediction: Prediction, view: DemandView) -> Saving | None:
    """What collocation was to save, and has saved."""
    if prediction.collocation is None:
        return None
    return Saving(planned_pp=prediction.collocation.saved_pp, measured_pp=saved_since(prediction.view, view))


def _generation(part: Snapshot) -> int | None:
    """The generation of the consumer group, as the workers report it."""
    return max((row.generation for row in part.nodes if row.generation is not None), default=None)


def measured_moves(row: Round, view: DemandView, noise: float) -> tuple[EventMove, ...]:
    """What each move of a round has brought, by the first whole window after it; without those that moved on since.

    A move for balance has paid if its two workers are nearer to the mean load with it than they would be without it:
    the farther one of them counts, with the load that the key group has at its new owner.  A difference of at most
    `noise` (pp) says nothing, nor do loads say whether a move that something else wanted has paid, such as a drain.
    """
    moves = list(_made(row))[:MAX_MOVES]
    if not moves:
        return ()
    found, table = evaluate(view), view.owned
    places = table.places_of([key_group for key_group, _, _ in moves])
    capacity = {worker.id: worker.capacity for worker in view.workers}
    draining = {worker.id for worker in view.workers if worker.draining}
    judged = row.kind is PlanReason.LOAD_DISTANCE and found.mean_load is not None
    told = []
    for (key_group, source, target), place in zip(moves, places.tolist(), strict=True):
        if place < 0 or table.workers[table.owner[place]] != target:
            continue
        load = float(table.load[place])
        known = (
            judged and not np.isnan(load) and {source, target} <= capacity.keys() and not {source, target} & draining
        )
        paid = None
        if known:
            loads, mean = found.worker_loads, found.mean_load or 0.0
            there, here = loads[source] - mean, loads[target] - mean
            back = max(abs(there + load / capacity[source]), abs(here - load / capacity[target]))
            nearer_by = back - max(abs(there), abs(here))
            paid = nearer_by > 0.0 if abs(nearer_by) > noise else None
        told.append(
            EventMove(
                key_group=key_group,
                source=source,
                target=target,
                measured_pct=None if np.isnan(load) else round(load, 3),
                paid=paid,
            )
        )
    return tuple(told)


def _made(row: Round) -> Iterator[tuple[KeyGroup, WorkerId, WorkerId]]:
    for handover in row.handovers:
        if handover.phase is HandoverPhase.DONE:
            for key_group in handover.key_groups:
                yield key_group, handover.source, handover.target
