"""Nasiri et al. 2020: what can be said of its gains without MET, which the text lacks."""

from collections.abc import Iterator
from itertools import product

import numpy as np
from benchmarks.papers.row import Missing, Row
from benchmarks.placement.table import (
    MET_PERCENT,
    PUBLISHED_SIMULATED,
    SCENARIOS,
    TABLE_III_SECONDS,
    best_of_all,
    paper_rate,
    random_job,
    sized,
    topologies,
)

from trimtab_models.instances import CostedOperator, Edge, Machine, SizingInstance
from trimtab_models.sizing import Params, Problem, max_rate, placement_of, problem_of, round_robin

TINY_JOBS = 20


def scenario_problem(
    components: list[tuple[str, bool]], edges: list[tuple[int, int]], machines: tuple[int, ...]
) -> Problem:
    """A topology of Table III's components on so many machines of each type."""
    types = [f"machine{kind}" for kind, count in enumerate(machines) for _ in range(count)]
    operators = tuple(
        CostedOperator(
            id=f"o{at}", source=source, alpha=1.0,
            cost={f"machine{kind}": 100 * seconds for kind, seconds in enumerate(TABLE_III_SECONDS[component])},
            fixed={f"machine{kind}": MET_PERCENT for kind in range(len(machines))},
        )
        for at, (component, source) in enumerate(components)
    )  # fmt: skip
    return problem_of(
        SizingInstance(
            machines=tuple(Machine(id=f"m{at}", type=type_) for at, type_ in enumerate(types)),
            source_rate=1e-3,
            operators=operators,
            edges=tuple(Edge(source=f"o{source}", target=f"o{target}") for source, target in edges),
        )
    )


def rows(*, long: bool) -> Iterator[Row | Missing]:
    """Tables III to V, figures 6 to 10."""
    del long
    yield Missing(
        figure="Fig. 6", what="CPU prediction, error < 8 %", why="measured on Storm; ours is fitted to agents' reports"
    )
    yield Missing(
        figure="Fig. 7", what="instances of RollingCount, UniqueVisitor", why="their profiles are not published"
    )
    yield Missing(figure="Fig. 8, 9", what="gain of 7-44 % over Storm, measured", why="Storm on three machines, no MET")
    random = np.random.default_rng(0)
    ratios = []
    for _ in range(TINY_JOBS):
        problem = random_job(random, 2, int(random.integers(2, 4)), 6)
        best = best_of_all(problem)
        ratios.append((sized(problem, Params()).source_rate / best, paper_rate(problem) / best))
    ours, rule = np.array(ratios).T
    yield Row(
        figure="Fig. 8", what=f"rate / best of all placements, {TINY_JOBS} random jobs", paper=">= 0.96 (three jobs)",
        ours=f"least {ours.min():.3f}, median {np.median(ours):.3f}",
        baseline=f"the paper's rule: least {rule.min():.3f}, median {np.median(rule):.3f}",
    )  # fmt: skip
    for (name, components, edges), scenario in product(topologies(), SCENARIOS):
        problem = scenario_problem(components, edges, SCENARIOS[scenario])
        result = sized(problem, Params())
        instances = result.placement.sum(axis=1)
        dealt = max_rate(problem, placement_of(problem, instances, round_robin(instances, len(problem.machines))))
        yield Row(
            figure="Fig. 10", what=f"gain over round robin, {name}, {scenario}; MET {MET_PERCENT:g} %",
            paper=f"{PUBLISHED_SIMULATED[scenario]} (MET unknown)",
            ours=f"{100 * (result.source_rate / dealt - 1):+.0f} %",
            baseline=f"fluid bound {100 * (result.fluid_bound / dealt - 1):+.0f} %, "
            f"the paper's rule {100 * (paper_rate(problem) / dealt - 1):+.0f} %",
        )  # fmt: skip
    yield Missing(figure="Table V", what="gain in throughput / gain in utilisation", why="its equations 9, 10 are lost")
