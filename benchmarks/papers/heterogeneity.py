"""Nasiri et al. 2020: its gains, as far as they can be computed without MET, which the text does not give."""

from collections.abc import Iterator

import numpy as np

from benchmarks.papers.row import Missing, Row
from benchmarks.placement.table import (
    MET_PERCENT,
    PUBLISHED_SIMULATED,
    best_of_all,
    dealt_rate,
    paper_rate,
    random_job,
    scenarios,
    sized,
)
from trimtab_models.sizing.solve import SizingParams

TINY_JOBS = 20


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
        ratios.append((sized(problem, SizingParams()).source_rate / best, paper_rate(problem) / best))
    ours, rule = np.array(ratios).T
    yield Row(
        figure="Fig. 8", what=f"rate / best of all placements, {TINY_JOBS} random jobs", paper=">= 0.96 (three jobs)",
        ours=f"least {ours.min():.3f}, median {np.median(ours):.3f}",
        baseline=f"the paper's rule: least {rule.min():.3f}, median {np.median(rule):.3f}",
    )  # fmt: skip
    for name, scenario, problem in scenarios():
        result = sized(problem, SizingParams())
        dealt = dealt_rate(problem, result)
        yield Row(
            figure="Fig. 10", what=f"gain over round robin, {name}, {scenario}; MET {MET_PERCENT:g} %",
            paper=f"{PUBLISHED_SIMULATED[scenario]} (MET unknown)",
            ours=f"{100 * (result.source_rate / dealt - 1):+.0f} %",
            baseline=f"fluid bound {100 * (result.fluid_bound / dealt - 1):+.0f} %, "
            f"the paper's rule {100 * (paper_rate(problem) / dealt - 1):+.0f} %",
        )  # fmt: skip
    yield Missing(figure="Table V", what="gain in throughput / gain in utilisation", why="its equations 9, 10 are lost")
