"""Evaluate: loads smoothed over windows, node loads and load distance.

Loads are percent of one core; node loads and load distances are percent of the node's own capacity (contracts of
`trimtab solve`): mean = sum of loads / capacity of the workers that stay; load distance = largest deviation from it,
upwards only for a worker that is being drained.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

from trimtab_controller.decider.view import AppView, Owned
from trimtab_models.messages.names import KeyGroup, WorkerId


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """`load_distance` in pp; None when every worker is being drained."""

    node_loads: Mapping[WorkerId, float]
    mean_load: float | None
    load_distance: float | None

    def __post_init__(self) -> None:
        object.__setattr__(self, "node_loads", MappingProxyType(dict(self.node_loads)))


def smooth(view: AppView, previous: Mapping[KeyGroup, float], weight: float) -> AppView:
    """The view with each load = weight * its own + (1 - weight) * the previous one, where there is one."""

    def blended(row: Owned) -> Owned:
        before = previous.get(row.key_group)
        return row if before is None else replace(row, load=weight * row.load + (1.0 - weight) * before)

    return replace(view, key_groups=tuple(blended(row) for row in view.key_groups))


def evaluate(view: AppView) -> Evaluation:
    """Loads and load distance of the present placement."""
    loads = dict.fromkeys((worker.id for worker in view.workers), 0.0)
    for row in view.key_groups:
        loads[row.owner] += row.load
    node_loads = {worker.id: loads[worker.id] / worker.capacity for worker in view.workers}
    kept = sum(worker.capacity for worker in view.workers if not worker.draining)
    if not kept:
        return Evaluation(node_loads=node_loads, mean_load=None, load_distance=None)
    mean = sum(loads.values()) / kept
    deviations = (
        node_loads[worker.id] - mean if worker.draining else abs(node_loads[worker.id] - mean)
        for worker in view.workers
    )
    return Evaluation(node_loads=node_loads, mean_load=mean, load_distance=max(0.0, *deviations))
