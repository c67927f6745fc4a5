"""Elastic Allocator 2014: its evenness compared with even and random assignment; the coefficients are ours.

The paper's model: nodes with CPU and bandwidth, operators that need both in proportion to r / s.

    load(node) = C0 + sum of e * r / s        bandwidth(node) = B0 + sum of u * r / s

in percent of the node's capacity, summed over the operators on it; `r` is an operator's input rate, `s` its service
rate (tuples/s).  The paper multiplies by a node's available CPU and gives no unit; here `e` and `u` are in percent.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from benchmarks.papers.row import Missing, Row
from trimtab_models.elastic.matching import HEAVY_FROM, NOWHERE, NodeLevel, ResourceDemands, level_of, match
from trimtab_models.solving import Never, StopRule

NODES, OPERATORS, RATES, SEEDS = 10, 20, (200, 600, 1_200), 10
FULL_RATE = 1_200.0  # tuples/s at which the query needs half of the free capacity


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerNode:
    """A node; `cpu_pct` (C0) and `bandwidth_pct` (B0) are in use before anything is placed."""

    id: str
    cpu_pct: float
    bandwidth_pct: float


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryOperator:
    """An operator; `cpu_pct` (e) and `bandwidth_pct` (u) of a node when `input_rate` (r) = `service_rate` (s)."""

    id: str
    cpu_pct: float
    bandwidth_pct: float
    input_rate: float
    service_rate: float

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


def cluster(random: np.random.Generator) -> list[WorkerNode]:
    """Ten nodes with join and word count running on some."""
    running = random.uniform(0, 40, (NODES, 2))
    return [WorkerNode(id=f"n{at}", cpu_pct=cpu, bandwidth_pct=band) for at, (cpu, band) in enumerate(running.tolist())]


def query(random: np.random.Generator, rate: float) -> list[QueryOperator]:
    """The operators of the query to allocate."""
    need = random.uniform(5, 25, (OPERATORS, 2)).tolist()
    return [
        QueryOperator(id=f"o{at}", cpu_pct=cpu, bandwidth_pct=band, input_rate=rate, service_rate=FULL_RATE)
        for at, (cpu, band) in enumerate(need)
    ]


def deviation(nodes: list[WorkerNode], operators: list[QueryOperator], assignment: dict[str, str]) -> float:
    """The sum of the standard deviations of CPU and bandwidth in percent."""
    used = {node.id: np.array([node.cpu_pct, node.bandwidth_pct]) for node in nodes}
    for operator in operators:
        used[assignment[operator.id]] += operator.ratio * np.array([operator.cpu_pct, operator.bandwidth_pct])
    return float(np.array(list(used.values())).std(axis=0).sum())


def rows(*, long: bool) -> Iterator[Row | Missing]:
    """Figures 4 and 5."""
    del long
    yield Missing(figure="Fig. 4", what="utilisation under varying input", why="a picture without numbers, on Storm")
    for rate in RATES:
        found: dict[str, list[float]] = {"ours": [], "even": [], "random": []}
        for seed in range(SEEDS):
            random = np.random.default_rng(seed)
            nodes, operators = cluster(random), query(random, float(rate))
            ours = allocate(nodes, operators, stop=Never(), operations=10**9)
            found["ours"].append(deviation(nodes, operators, dict(ours.assignment)))
            even = {operator.id: nodes[at % NODES].id for at, operator in enumerate(operators)}
            found["even"].append(deviation(nodes, operators, even))
            drawn = {operator.id: nodes[random.integers(NODES)].id for operator in operators}
            found["random"].append(deviation(nodes, operators, drawn))
        median = {name: float(np.median(values)) for name, values in found.items()}
        yield Row(
            figure="Fig. 5", what=f"deviation of CPU + bandwidth at {rate:,} tuples/s", paper="least of the three",
            ours=f"{median['ours']:.1f} pp", baseline=f"even: {median['even']:.1f}, random: {median['random']:.1f}",
        )  # fmt: skip
    yield Missing(figure="Table I, 1-3", what="notation and illustrations", why="no figures")
