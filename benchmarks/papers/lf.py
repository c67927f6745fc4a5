"""Son, Moon 2020: cohesion and coupling, and the four problems of even scheduling."""

from collections.abc import Iterator

from benchmarks.papers.row import Missing, Row
from benchmarks.placement.table import PUBLISHED_GAIN, TABLE_3, chain, placed
from trimtab_models.placement import Job, PlacementScore, Scheduler

ON_STORM = "measured on a Storm cluster of eight machines"


def scores(job: Job) -> tuple[PlacementScore, PlacementScore]:
    """Even and L/F."""
    return placed(job, Scheduler.EVEN).score, placed(job, Scheduler.LF).score


def rows(*, long: bool) -> Iterator[Row | Missing]:
    """Figures 3 to 13."""
    del long
    yield from problems()
    lf = placed(chain((3, 2, 3), nodes=4, ports=1), Scheduler.LF)
    sizes = sorted(map(len, lf.pipelines), reverse=True)
    yield Row(
        figure="Fig. 4", what="pipelines of 3 Sample, 2 Extract, 3 Count", paper="4: sizes 3, 3, 1, 1",
        ours=f"{len(sizes)}: sizes {', '.join(map(str, sizes))}",
    )  # fmt: skip
    for factor, slots in ((1, "8 slots"), (10, "80 slots")):
        for name, gain in PUBLISHED_GAIN.items():
            job = chain(tuple(factor * count for count in TABLE_3[name]), nodes=8, ports=factor)
            even, lf_score = scores(job)
            yield Row(
                figure="Fig. 6a", what=f"cohesion gain, {name}, {slots}", paper=f"+{gain:g} %",
                ours=f"+{100 * (lf_score.cohesion / even.cohesion - 1):.2f} %",
                baseline=f"even: {even.cohesion:g} -> L/F: {lf_score.cohesion:g}",
            )  # fmt: skip
            yield Row(
                figure="Fig. 6b", what=f"coupling, {name}, {slots}", paper="the same",
                ours=f"L/F: {lf_score.coupling:g}", baseline=f"even: {even.coupling:g}",
            )  # fmt: skip
    even, lf_score = scores(chain(TABLE_3["linear"], nodes=8, ports=1))
    yield Row(
        figure="Fig. 7d, e", what="processes used, linear", paper="1 (even: 8)", ours=str(lf_score.slots_used),
        baseline=f"even: {even.slots_used}",
    )  # fmt: skip
    for figure, what in (
        ("Fig. 7-8", "latency, CPU, memory with local-or-shuffle grouping"),
        ("Fig. 9-10", "latency, CPU, memory with shuffle grouping"),
        ("Fig. 12-13", "page view count, unique page view count"),
    ):
        yield Missing(figure=figure, what=what, why=ON_STORM)
    yield Missing(figure="Fig. 1, 2, 11", what="illustrations", why="no figures")


def problems() -> Iterator[Row]:
    """Figures 3 (even) and 5 (L/F)."""
    even, lf = scores(chain((2, 2), nodes=4, ports=1))
    yield Row(
        figure="Fig. 3a, 5a", what="resource overuse: slots for 2-2", paper="2 (even: 4)", ours=str(lf.slots_used),
        baseline=f"even: {even.slots_used}",
    )  # fmt: skip
    for part, name, counts in (
        ("b", "resource misuse: remote senders of 1-1", (1, 1)),
        ("c", "partial locality: remote senders of 2-3", (2, 3)),
        ("d", "no locality: remote senders of 2-4-2", (2, 4, 2)),
    ):
        even, lf = scores(chain(counts, nodes=4, ports=1))
        yield Row(
            figure=f"Fig. 3{part}, 5{part}", what=name, paper="0", ours=str(lf.remote_senders),
            baseline=f"even: {even.remote_senders}",
        )  # fmt: skip
