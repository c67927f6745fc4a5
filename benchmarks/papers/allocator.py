"""The paper's model: nodes with CPU and bandwidth, operators that need both in proportion to r / s.

    load(node) = C0 + sum of e * r / s        bandwidth(node) = B0 + sum of u * r / s

in percent of the node's capacity, summed over the operators on it; `r` is an operator's input rate, `s` its service
rate (tuples/s).  The paper multiplies by a node's available CPU and gives no unit; here `e` and `u` are in percent.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from trimtab_models.elastic.matching import HEAVY_FROM, NOWHERE, NodeLevel, ResourceDemands, level_of, match
from trimtab_models.instances.reading import check_number
from trimtab_models.solving import StopRule


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerNode:
    """A node; `cpu_pct` (C0) and `bandwidth_pct` (B0) are in use before anything is placed."""

    id: str
    cpu_pct: float
    bandwidth_pct: float

    def __post_init__(self) -> None:
        check_number(".cpu_pct", self.cpu_pct)
        check_number(".bandwidth_pct", self.bandwidth_pct)


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryOperator:
    """An operator; `cpu_pct` (e) and `bandwidth_pct` (u) of a node when `input_rate` (r) = `service_rate` (s)."""

    id: str
    cpu_pct: float
    bandwidth_pct: float
    input_rate: float
    service_rate: float

    def __post_init__(self) -> None:
        for name in ("cpu_pct", "bandwidth_pct", "input_rate"):
            check_number(f".{name}", getattr(self, name))
        check_number(".service_rate", self.service_rate, positive=True)

    @property
    def ratio(self) -> float:
        """r / s; above 1 the operator is overloaded."""
        return self.input_rate / self.service_rate


@dataclass(frozen=True, slots=True, kw_only=True)
class Allocation:
    """Operator -> node; `refused` = operators on no node; `levels` = levels of the nodes afterwards."""

    assignment: Mapping[str, str]
    refused: tuple[str, ...]
    levels: Mapping[str, NodeLevel]


def allocate(
    nodes: Sequence[WorkerNode],
    operators: Sequence[QueryOperator],
    *,
    stop: StopRule,
    operations: int,
    threshold: float = HEAVY_FROM,
) -> Allocation:
    """Place `operators` with at most `operations` trials of an operator on a node, then the rest on light nodes."""
    used = np.array([[node.cpu_pct for node in nodes], [node.bandwidth_pct for node in nodes]], np.float64)
    demand = np.array(
        [
            [operator.cpu_pct * operator.ratio for operator in operators],
            [operator.bandwidth_pct * operator.ratio for operator in operators],
        ],
        np.float64,
    )
    demands = ResourceDemands(used=used, demand=demand, per_unit=np.ones_like(used), ceiling=np.full_like(used, np.inf))
    matched = match(demands, threshold=threshold, operations=operations, stop=stop)
    placed = [(item, node) for item, node in enumerate(matched.node.tolist()) if node != NOWHERE]
    for item, node in placed:
        used[:, node] += demand[:, item]
    return Allocation(
        assignment={operators[item].id: nodes[node].id for item, node in placed},
        refused=tuple(operators[item].id for item in matched.refused),
        levels={node.id: level_of(float(busy)) for node, busy in zip(nodes, used.max(axis=0), strict=True)},
    )
