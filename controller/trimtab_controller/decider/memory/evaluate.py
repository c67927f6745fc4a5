"""Evaluate a view: smoothed loads of key groups and workers, the load distance, and its noise.

Loads of key groups are percent of one core: their demand (`demand.py`).  Loads of workers and load distances are
percent of the worker's own capacity, as in `trimtab solve`: mean = sum of loads / capacity of the workers that stay;
load distance = largest deviation from the mean, upwards only for a worker being drained.

A load is first the mean over the windows, later exponentially smoothed.  The noise of a load distance follows from the
prediction errors of the last windows: in every window the measured loads of the workers are compared with those that
the history predicts.  The errors contain the noise of single key groups, noise that all key groups of a worker share,
and key groups that cost more in one place than in another.  With weights w_i of the windows and f = sum of w_i^2, the
prediction errors have the variance s^2 (1 + f), the smoothed loads s^2 f.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from trimtab_controller.decider.memory.unknown_load import LastLoads
from trimtab_controller.decider.values.reasons import NotReady
from trimtab_controller.decider.window.view import DemandView, SmoothedView
from trimtab_protocol.messages.names import AppId, KeyGroup, WorkerId

NOISE_ERRORS = 3.0
"""Number of standard errors within which a load distance counts as noise; it is the largest of many deviations."""

FORGOTTEN_RATE = 1e-3
"""Tuples per second below which a smoothed flow is dropped, so that pairs without traffic are forgotten."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadHistory:
    """Smoothed loads and flows of an app's key groups up to a window; they stay valid when key groups move.

    `concentration` = f, the sum of the squared weights of the windows: 1 with one window, 1/n with n equal ones.
    `error` = smoothed mean square of the errors of the workers' predicted deviations (pp^2).
    """

    end_s: float = 0.0
    windows: int = 0
    concentration: float = 1.0
    error: float = 0.0
    loads: LastLoads | None = None
    flows: Mapping[tuple[KeyGroup, KeyGroup], float] = field(default_factory=dict)

    @property
    def noise(self) -> float:
        """The part of a load distance that may be noise (pp); 0 while only one window is known."""
        return NOISE_ERRORS * math.sqrt(self.error * self.concentration / (1.0 + self.concentration))

    def of_view(self, view: DemandView, stale_limit_s: float) -> "LoadHistory":
        """What of it counts for a view: nothing if the app has other key groups now, and no load that is too old."""
        if self.loads is None:
            return self
        if self.loads.sizes != view.sizes:
            return NO_HISTORY
        return replace(self, loads=self.loads.since(view.end_s - stale_limit_s))


NO_HISTORY = LoadHistory()


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """Loads and load distance of a view.

    `load_distance` and `noise`, the part of it that may be noise, are in pp; None when every worker is being drained.
    `collocation`: share of the tuples between key groups that stay within a worker; None without such tuples.
    """

    worker_loads: Mapping[WorkerId, float]
    mean_load: float | None
    load_distance: float | None
    noise: float | None
    collocation: float | None = None


def follow(view: DemandView, history: LoadHistory, smoothing: float) -> tuple[DemandView, LoadHistory]:
    """The view with smoothed loads, and the history after this window."""
    windows = history.windows + 1
    weight = max(smoothing, 1.0 / windows)
    owned = view.owned
    before = owned.load if history.loads is None else owned.loads_in(history.loads.table)
    predicted = replace(view, key_groups=owned.with_load(before))
    smoothed = replace(
        view,
        key_groups=owned.with_load(before + weight * (owned.load - before)),
        flows=_smoothed(view.flows, history.flows, weight),
    )
    # The first window has no prediction; the error of the second is the first, so its weight is 1.
    error_weight = max(smoothing, 1.0 / max(1, windows - 1))
    error = 0.0 if windows == 1 else _mean_square(view, predicted)
    return smoothed, LoadHistory(
        end_s=view.end_s,
        windows=windows,
        concentration=(1.0 - weight) ** 2 * history.concentration + weight**2,
        error=(1.0 - error_weight) * history.error + error_weight * error,
        loads=LastLoads.of(smoothed) if history.loads is None else history.loads.then(smoothed),
        flows=smoothed.flows,
    )


class Histories(dict[AppId, LoadHistory]):
    """The history of each app that was seen of late."""

    def __init__(self, smoothing: float, *, stale_limit_s: float, max_age_s: float) -> None:
        """Apps not seen for more than `max_age_s` are forgotten, and loads older than `stale_limit_s`."""
        super().__init__()
        self._smoothing = smoothing
        self._stale_limit_s = stale_limit_s
        self._max_age_s = max_age_s

    @property
    def last(self) -> dict[AppId, LastLoads]:
        """The last known loads of each app."""
        return {app: history.loads for app, history in self.items() if history.loads is not None}

    def forget_before(self, start_s: float) -> None:
        """Forget the apps that were not seen for long when a window began."""
        for app in [app for app, history in self.items() if history.end_s < start_s - self._max_age_s]:
            del self[app]

    def forget(self, app: AppId | None) -> None:
        """Forget an app."""
        self.pop(app, None)  # type: ignore[arg-type]

    def smoothed(self, views: Mapping[AppId, DemandView | NotReady]) -> dict[AppId, DemandView | NotReady]:
        """The views with loads smoothed over the windows so far."""
        found = dict(views)
        for app, view in views.items():
            if isinstance(view, DemandView):
                history = self.get(app, NO_HISTORY).of_view(view, self._stale_limit_s)
                found[app], self[app] = follow(view, history, self._smoothing)
        return found

    def evaluated(self, views: Mapping[AppId, SmoothedView | NotReady]) -> dict[AppId, "Evaluation"]:
        """The evaluation of each app that is known now."""
        return {app: evaluate(view, self[app]) for app, view in views.items() if isinstance(view, DemandView)}


Flows = Mapping[tuple[KeyGroup, KeyGroup], float]


def _smoothed(now: Flows, before: Flows, weight: float) -> Flows:
    """weight * now + (1 - weight) * before; the window is complete, so a missing pair sent nothing."""
    rates = {pair: weight * now.get(pair, 0.0) + (1.0 - weight) * before.get(pair, 0.0) for pair in now.keys() | before}
    return {pair: rate for pair, rate in rates.items() if rate > FORGOTTEN_RATE}


def _mean_square(measured: DemandView, predicted: DemandView) -> float:
    """Mean square of the differences between the workers' measured and predicted deviations (pp^2)."""
    found, foreseen = _deviations(measured), _deviations(predicted)
    return sum((found[worker] - foreseen[worker]) ** 2 for worker in found) / len(found)


def evaluate(view: DemandView, history: LoadHistory = NO_HISTORY) -> Evaluation:
    """The loads and the load distance under the present placement."""
    worker_loads = _worker_loads(view)
    if all(worker.draining for worker in view.workers):
        return Evaluation(
            worker_loads=worker_loads, mean_load=None, load_distance=None, noise=None, collocation=_collocation(view)
        )
    found = _deviations(view)
    distances = (found[worker.id] if worker.draining else abs(found[worker.id]) for worker in view.workers)
    return Evaluation(
        worker_loads=worker_loads,
        mean_load=_mean_load(view),
        load_distance=max(0.0, *distances),
        noise=history.noise,
        collocation=_collocation(view),
    )


def _collocation(view: DemandView) -> float | None:
    if not view.flows:
        return None
    owners = view.owners
    rates = [
        (rate, owners[source] == owners[target])
        for (source, target), rate in view.flows.items()
        if source in owners and target in owners
    ]
    total = sum(rate for rate, _ in rates)
    return sum(rate for rate, local in rates if local) / total if total else None


def _worker_loads(view: DemandView) -> dict[WorkerId, float]:
    """Percent of each worker's own capacity."""
    loads = view.owned.loads_of_workers()
    return {worker.id: loads.get(worker.id, 0.0) / worker.capacity for worker in view.workers}


def _mean_load(view: DemandView) -> float:
    """Total load divided by the capacity of the workers that stay, or of all workers if none stays."""
    kept = [worker for worker in view.workers if not worker.draining] or view.workers
    return float(view.owned.load.sum()) / sum(worker.capacity for worker in kept)


def _deviations(view: DemandView) -> dict[WorkerId, float]:
    mean = _mean_load(view)
    return {worker: load - mean for worker, load in _worker_loads(view).items()}
