"""Elastic Allocator 2014: its evenness compared with even and random assignment; the coefficients are ours."""

from collections.abc import Iterator

import numpy as np

from benchmarks.papers.allocator import QueryOperator, WorkerNode, allocate
from benchmarks.papers.row import Missing, Row
from trimtab_models.solving import Never

NODES, OPERATORS, RATES, SEEDS = 10, 20, (200, 600, 1_200), 10
FULL_RATE = 1_200.0  # tuples/s at which the query needs half of the free capacity


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
