"""Evaluate: loads smoothed over windows, how sure they are, node loads and load distance.

Loads are percent of one core; node loads and load distances are percent of the node's own capacity (contracts of
`trimtab solve`): mean = sum of loads / capacity of the workers that stay; load distance = largest deviation from it,
upwards only for a worker that is being drained.

A load is the mean over the windows at first, then exponentially smoothed.  Its variance follows by the same weights
(West 1979, incremental weighted mean and variance): with weights w_i that sum to 1 and f = sum of w_i^2, the windows
vary by v / (1 - f) around the mean, and the mean itself by f times that.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import NamedTuple

from trimtab_controller.decider.view import AppView, Owned, Worker
from trimtab_models.messages.names import KeyGroup, WorkerId

NOISE_ERRORS = 2.0
"""A load distance within so many standard errors of the node that sets it may well be none."""


class Smoothed(NamedTuple):
    """Weighted mean and variance of a key group's load over the windows."""

    mean: float
    variance: float


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """Loads of the key groups of an app up to a window.  They belong to the key group: a move does not void them.

    `concentration` = sum of the squared weights of the windows: 1 with one window, 1/n with n equal ones.
    """

    end_s: float = 0.0
    windows: int = 0
    concentration: float = 1.0
    loads: Mapping[KeyGroup, Smoothed] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """`load_distance` in pp, and the part of it that may be noise; None when every worker is being drained."""

    node_loads: Mapping[WorkerId, float]
    mean_load: float | None
    load_distance: float | None
    noise: float | None

    def __post_init__(self) -> None:
        object.__setattr__(self, "node_loads", MappingProxyType(dict(self.node_loads)))


def follow(view: AppView, history: History, smoothing: float) -> tuple[AppView, History]:
    """The view with its loads smoothed, and the history with this window in it."""
    windows = history.windows + 1
    weight = max(smoothing, 1.0 / windows)
    concentration = (1.0 - weight) ** 2 * history.concentration + weight**2
    loads = {row.key_group: _update(history.loads.get(row.key_group), row.load, weight) for row in view.key_groups}
    certainty = concentration / (1.0 - concentration) if windows > 1 and concentration < 1.0 else 0.0

    def smoothed(row: Owned) -> Owned:
        load = loads[row.key_group]
        return replace(row, load=load.mean, variance=load.variance * certainty)

    seen = replace(view, key_groups=tuple(smoothed(row) for row in view.key_groups))
    return seen, History(end_s=view.end_s, windows=windows, concentration=concentration, loads=loads)


def _update(before: Smoothed | None, load: float, weight: float) -> Smoothed:
    if before is None:
        return Smoothed(load, 0.0)
    step = load - before.mean
    return Smoothed(before.mean + weight * step, (1.0 - weight) * (before.variance + weight * step * step))


def evaluate(view: AppView) -> Evaluation:
    """Loads and load distance of the present placement."""
    loads = dict.fromkeys((worker.id for worker in view.workers), 0.0)
    variances = dict(loads)
    for row in view.key_groups:
        loads[row.owner] += row.load
        variances[row.owner] += row.variance
    node_loads = {worker.id: loads[worker.id] / worker.capacity for worker in view.workers}
    kept = sum(worker.capacity for worker in view.workers if not worker.draining)
    if not kept:
        return Evaluation(node_loads=node_loads, mean_load=None, load_distance=None, noise=None)
    mean = sum(loads.values()) / kept

    def deviation(worker: Worker) -> float:
        above = node_loads[worker.id] - mean
        return above if worker.draining else abs(above)

    worst = max(view.workers, key=deviation)
    own, others = variances[worst.id], sum(variances.values()) - variances[worst.id]
    # Of load / capacity - sum of loads / kept capacity, the loads being independent.
    variance = own * (1.0 / worst.capacity - 1.0 / kept) ** 2 + others / kept**2
    return Evaluation(
        node_loads=node_loads,
        mean_load=mean,
        load_distance=max(0.0, deviation(worst)),
        noise=NOISE_ERRORS * math.sqrt(variance),
    )
