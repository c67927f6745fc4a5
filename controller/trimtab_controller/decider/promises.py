"""Whether plans bring what they promise: the first whole window after a round against the loads it was planned with.

A plan takes the load of a key group from its present owner, and promises that the next owner has the same.  Where that
is wrong (a worker that measures its key groups as zero, a host that is slower), each plan makes it worse: the worker
that looks idle is given more and more.  So after MISSES rounds in a row that missed, no further plan is made for
balance in that app.

Compared is like with like: the loads of the last window before the plan, summed up over the owners that the first
window after it shows, with what was measured there.  Not the smoothed loads that the plan was made from: they lag
behind.  Two windows may differ by what windows differ from what was foreseen (`History.error`).  When workers came or
went in between, or the loads of key groups that did not move have changed, the round cannot be compared.
"""

import math
from dataclasses import dataclass, replace

import numpy as np

from trimtab_controller.decider.concerns import Concern, ConcernKind
from trimtab_controller.decider.evaluate import NOISE_ERRORS, Evaluation, History, deviations, evaluate
from trimtab_controller.decider.owned import Floats, OwnedTable
from trimtab_controller.decider.view import AppView, Worker, first_few
from trimtab_models.messages.names import AppId, WorkerId

MISSES = 2
"""So many rounds in a row may miss; a single one is left to chance."""
AGREEING_WINDOWS = 3
"""In so many windows what moved must be measured as promised, before plans are made again."""
TRY_AGAIN_S = 3600.0
"""After that one more round is tried."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Promise:
    """What was measured when a plan was made; it promises that this moves along with the key groups.

    `tolerance` in pp: what two windows may differ by; None: too little was known to say.
    """

    app: AppId
    decided_at: float
    loads: OwnedTable
    workers: tuple[Worker, ...]
    tolerance: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Mispredicted:
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
    first, when it was not.
    """

    load_distance: float | None
    incomparable: str | None = None
    missed: tuple[Mispredicted, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Misses:
    """Rounds of an app in a row that missed their plans; the rest is of the last of them.

    `generation` = of the workers' group then, `agreed` = in how many windows since what moved was measured as promised.
    """

    plans: tuple[str, ...]
    promise: Promise
    workers: tuple[Mispredicted, ...]
    generation: int | None
    at: float
    agreed: int = 0

    @property
    def holding(self) -> bool:
        """Whether no further plan is made for balance."""
        return len(self.plans) >= MISSES

    @property
    def detail(self) -> str:
        """Which plans missed, and by whose fault."""
        plans = ", ".join(self.plans[-MISSES:])
        return f"plans {plans} did not bring what was planned: {first_few(self.workers)}"

    @property
    def concern(self) -> Concern:
        """For the operator."""
        workers = tuple(sorted(each.worker for each in self.workers))
        return Concern(kind=ConcernKind.PLANS_MISS, app=self.promise.app, workers=workers, detail=self.detail)


def promised(now: float, view: AppView, history: History, min_gain: float, missed: Promise | None = None) -> Promise:
    """What a plan promises that is made now, `view` being the last window, not smoothed.

    `missed` is the promise of a plan before that missed.  A miss makes windows look less foreseeable; that does not
    excuse the next one: the tolerance of before holds.
    """
    known = [missed.tolerance] if missed is not None and missed.tolerance is not None else []
    if history.windows > 1:
        # The error is that of one window against smoothed loads; here a window stands against another one.
        error = 2.0 * history.error / (1.0 + history.concentration)
        known.append(max(min_gain, NOISE_ERRORS * math.sqrt(error)))
    return Promise(
        app=view.app,
        decided_at=now,
        loads=view.owned,
        workers=view.workers,
        tolerance=min(known, default=None),
    )


def compare(promise: Promise, view: AppView, load_distance: float) -> Comparison:
    """What the window (not smoothed) shows of the plan; inside the band of `load_distance` any plan was good enough."""
    view = replace(view, flows={})
    found = evaluate(view)
    if (changed := _changed(promise, view)) is not None or found.load_distance is None:
        return Comparison(load_distance=None, incomparable=changed or "every worker is being drained")
    if promise.tolerance is None:
        incomparable = "too few windows came before it to tell noise from a miss"
        return Comparison(load_distance=found.load_distance, incomparable=incomparable)
    foreseen = _with_loads(view, view.owned.loads_in(promise.loads))
    distance = evaluate(foreseen).load_distance or 0.0
    if found.load_distance <= max(load_distance, distance + promise.tolerance):
        return Comparison(load_distance=found.load_distance)
    if _largest_error(foreseen, _with_loads(view, _where_unmoved(promise, view))) > promise.tolerance:
        incomparable = "the load of key groups that did not move has changed"
        return Comparison(load_distance=found.load_distance, incomparable=incomparable)
    return Comparison(load_distance=found.load_distance, missed=_mispredicted(promise, foreseen, view, found))


def follow_misses(
    before: Misses | None, found: Comparison, *, plan: str, promise: Promise, generation: int | None, now: float
) -> Misses | None:
    """The misses with this round in them: one that was kept ends them, one that cannot be compared changes nothing."""
    if found.incomparable is not None:
        return before
    if not found.missed:
        return None
    plans = (*(before.plans if before else ()), plan)[-MISSES:]
    return Misses(plans=plans, promise=promise, workers=found.missed, generation=generation, at=now)


def review(
    misses: Misses, view: AppView, *, generation: int | None, over_capacity: frozenset[WorkerId], now: float
) -> Misses | None:
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
    agreed = misses.agreed + 1 if _agrees(misses.promise, view) else 0
    return None if agreed >= AGREEING_WINDOWS else replace(misses, agreed=agreed)


def _changed(promise: Promise, view: AppView) -> str | None:
    """What of the job is not what it was when the plan was made: its key groups, or its workers."""
    if promise.loads.owners.keys() != view.owners.keys():
        return "the app has other key groups"
    old, new = {worker.id: worker for worker in promise.workers}, {worker.id: worker for worker in view.workers}
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


def _where_unmoved(promise: Promise, view: AppView) -> Floats:
    """The loads as promised for what moved, as measured for what did not."""
    owned = view.owned
    return np.where(owned.moved_since(promise.loads), owned.loads_in(promise.loads), owned.load)


def _largest_error(foreseen: AppView, found: AppView) -> float:
    """Of the workers' deviations from the mean (pp)."""
    expected, measured = deviations(foreseen), deviations(found)
    return max(abs(measured[worker] - expected[worker]) for worker in expected)


def _mispredicted(promise: Promise, foreseen: AppView, view: AppView, found: Evaluation) -> tuple[Mispredicted, ...]:
    """Who measured something else than was promised, worst first; at least the worst."""
    planned = evaluate(foreseen).node_loads
    workers = sorted(
        (
            Mispredicted(worker=worker.id, planned=planned[worker.id], measured=found.node_loads[worker.id])
            for worker in view.workers
        ),
        key=lambda each: -abs(each.measured - each.planned),
    )
    wrong = tuple(each for each in workers if abs(each.measured - each.planned) > (promise.tolerance or 0.0))
    return wrong or tuple(workers[:1])


def _agrees(promise: Promise, view: AppView) -> bool:
    """Whether what moved costs its owners now what it cost before; theirs of before may have been measured wrong."""
    moved, view = view.owned.moved_since(promise.loads), replace(view, flows={})
    planned = evaluate(_with_loads(view, np.where(moved, view.owned.loads_in(promise.loads), 0.0))).node_loads
    measured = evaluate(_with_loads(view, np.where(moved, view.owned.load, 0.0))).node_loads
    return all(abs(measured[worker] - load) <= (promise.tolerance or 0.0) for worker, load in planned.items())
