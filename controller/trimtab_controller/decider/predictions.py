"""Compare a plan with its effect: the first whole window after the round against the loads the plan was made with.

A plan assumes that a key group costs its next owner what it costs its present owner.  Where that is wrong (a worker
that measures its key groups as zero, a slower host), each plan makes things worse: the worker that looks idle gets more
and more.  So after MISSES_BEFORE_HOLD missed rounds in a row, no further plan for balance is made in that app.

The comparison takes the loads of the last window before the plan, summed over the owners of the first window after the
round, and the loads measured in that window.  It does not take the smoothed loads that the plan was made from, since
those lag behind.  The key groups that did not move are the control: the difference of their loads between the two
windows shows how much the moved ones may differ by chance.  With relative errors r of the loads x
(r^2 = sum of squared differences / sum of x^2, over the unmoved) a worker may differ by
NOISE_ERRORS * r * sqrt(sum of its x^2).

A round cannot be compared in three cases: the unmoved key groups of a worker together differ by more than that, so the
load itself has changed; workers joined or left in between; the predicted gain is smaller than the noise.
"""

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from trimtab_controller.decider.concerns import Concern, ConcernKind
from trimtab_controller.decider.evaluate import NOISE_ERRORS, evaluate
from trimtab_controller.decider.owned import Floats
from trimtab_controller.decider.view import AppView, first_few
from trimtab_protocol.messages.names import WorkerId

MISSES_BEFORE_HOLD = 2
"""After so many missed rounds in a row no plan is made for balance; a single one may be chance."""
AGREEING_WINDOWS = 3
"""In so many windows what moved must be measured as promised, before plans are made again."""
TRY_AGAIN_S = 3600.0
"""After that one more round is tried."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction:
    """What was measured when a plan was made; it promises that this moves along with the key groups."""

    decided_at: float
    view: AppView


@dataclass(frozen=True, slots=True, kw_only=True)
class MispredictedWorker:
    """A worker's load as the plan promised it and as it was measured, percent of its capacity."""

    worker: WorkerId
    planned: float
    measured: float

    def __str__(self) -> str:
        return f"{self.worker} {self.planned:.1f} % planned, {self.measured:.1f} % measured"


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """A round against its plan.  `load_distance` (pp) as measured, None when that says nothing about the plan.

    `incomparable` says why it cannot be told whether the plan was kept; `missed` are the workers that are wrong, worst
    first, when it was not; `noise` is what workers may differ by (pp).
    """

    load_distance: float | None
    noise: float = 0.0
    incomparable: str | None = None
    missed: tuple[MispredictedWorker, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class MissedRounds:
    """Rounds of an app in a row that missed their plans; the rest is of the last of them.

    `noise` = what workers may differ by (pp), `generation` = of the workers' group then, `agreed` = in how many windows
    since then what moved was measured as promised.
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
        """For the operator."""
        workers = tuple(sorted(each.worker for each in self.workers))
        return Concern(kind=ConcernKind.PLANS_MISS, app=self.prediction.view.app, workers=workers, detail=self.detail)


def compare(prediction: Prediction, view: AppView, *, load_distance: float, min_gain: float) -> Comparison:
    """What the window (not smoothed) shows of the plan.

    Inside the band of `load_distance` any plan was good enough, and less than `min_gain` is nothing to speak of.
    """
    view = replace(view, flows={})
    found = evaluate(view)
    if (changed := _changed(prediction.view, view)) is not None or found.load_distance is None:
        return Comparison(load_distance=None, incomparable=changed or "every worker is being drained")
    if found.load_distance <= load_distance:
        return Comparison(load_distance=found.load_distance)
    before, unmoved = view.owned.loads_in(prediction.view.owned), ~view.owned.moved_since(prediction.view.owned)
    noise = max(min_gain, _noise(view, before, unmoved))
    foreseen = _with_loads(view, before)
    planned = evaluate(foreseen).load_distance or 0.0
    if (unclear := _unclear(prediction.view, foreseen, view, unmoved, noise)) is not None:
        return Comparison(load_distance=found.load_distance, noise=noise, incomparable=unclear)
    missed = _mispredicted(foreseen, view, noise) if found.load_distance > planned + noise else ()
    return Comparison(load_distance=found.load_distance, noise=noise, missed=missed)


def _unclear(before: AppView, foreseen: AppView, view: AppView, unmoved: NDArray[np.bool_], noise: float) -> str | None:
    """Why a difference between what was foreseen and the window says nothing about the plan."""
    gain = (evaluate(before).load_distance or 0.0) - (evaluate(foreseen).load_distance or 0.0)
    if noise > max(0.0, gain):
        return f"loads differ by {noise:.1f} between two windows, the plan was to bring {gain:.1f}"
    alone = _with_loads(view, np.where(unmoved, view.owned.load, foreseen.owned.load))
    planned, measured = evaluate(foreseen).worker_loads, evaluate(alone).worker_loads
    if max(abs(measured[worker] - load) for worker, load in planned.items()) > noise:
        return "the load of key groups that did not move has changed"
    return None


def _noise(view: AppView, before: Floats, unmoved: NDArray[np.bool_]) -> float:
    """What a worker's load may differ by between two windows, by the key groups that did not move (pp)."""
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
    """The misses with this round in them: one that was kept ends them, one that cannot be compared changes nothing."""
    if found.incomparable is not None:
        return before
    if not found.missed:
        return None
    plans = (*(before.plans if before else ()), plan)[-MISSES_BEFORE_HOLD:]
    return MissedRounds(
        plans=plans, prediction=prediction, workers=found.missed, noise=found.noise, generation=generation, at=now
    )


def review(
    misses: MissedRounds, view: AppView, *, generation: int | None, over_capacity: frozenset[WorkerId], now: float
) -> MissedRounds | None:
    """The misses after one more window (not smoothed), None when they no longer count.

    They end when a mispredicted worker is gone, when the group has a new generation (somebody was started), when what
    moved is measured as promised in AGREEING_WINDOWS, and after TRY_AGAIN_S for one more round; but not as long as a
    mispredicted worker uses more than its capacity.
    """
    blamed = {each.worker for each in misses.workers}
    if not blamed <= {worker.id for worker in view.workers}:
        return None
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


def _changed(before: AppView, after: AppView) -> str | None:
    """What of the job is not what it was when the plan was made: its key groups, or its workers."""
    if before.owners.keys() != after.owners.keys():
        return "the app has other key groups"
    old, new = {worker.id: worker for worker in before.workers}, {worker.id: worker for worker in after.workers}
    said = [f"{worker} left" for worker in old if worker not in new]
    said += [f"{worker} joined" for worker in new if worker not in old]
    for worker in old.keys() & new.keys():
        if old[worker].draining != new[worker].draining:
            said.append(f"{worker} {'began to be' if new[worker].draining else 'is no longer'} drained")
        if old[worker].capacity != new[worker].capacity:
            said.append(f"{worker} has another capacity")
    return first_few(sorted(said)) if said else None


def _with_loads(view: AppView, loads: Floats) -> AppView:
    return replace(view, key_groups=view.owned.with_load(loads))


def _mispredicted(foreseen: AppView, view: AppView, noise: float) -> tuple[MispredictedWorker, ...]:
    """The workers whose load is not as promised, worst first; at least the worst."""
    planned, measured = evaluate(foreseen).worker_loads, evaluate(view).worker_loads
    workers = sorted(
        (MispredictedWorker(worker=each, planned=planned[each], measured=measured[each]) for each in planned),
        key=lambda each: -abs(each.measured - each.planned),
    )
    wrong = tuple(each for each in workers if abs(each.measured - each.planned) > noise)
    return wrong or tuple(workers[:1])


def _agrees(misses: MissedRounds, view: AppView) -> bool:
    """Whether what moved costs its owners now what it cost before; theirs of before may have been measured wrong."""
    owned, before = view.owned, misses.prediction.view.owned
    moved, view = owned.moved_since(before), replace(view, flows={})
    planned = evaluate(_with_loads(view, np.where(moved, owned.loads_in(before), 0.0))).worker_loads
    measured = evaluate(_with_loads(view, np.where(moved, owned.load, 0.0))).worker_loads
    return all(abs(measured[worker] - load) <= misses.noise for worker, load in planned.items())
