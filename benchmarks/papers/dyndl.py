"""DynDL 2018: Table 2, makespans over seeds, running times; LTFPA, HTA and BAR are reconstructions."""

import json
import time
from collections.abc import Iterator, Sequence
from functools import partial

import numpy as np

from benchmarks.dyndl.figures import ONLINE, SOLVERS, solved, table_2
from benchmarks.dyndl.generate import Experiment, generate
from benchmarks.papers.row import Missing, Row
from trimtab_models.dyndl.offline import solve_offline
from trimtab_models.dyndl.online import OnlineParams, WaitingRule, solve_online
from trimtab_models.dyndl.problem import problem_of
from trimtab_models.dyndl.result import encode_schedule

SEEDS = 10
RUNS = 3
OTHER_OFFLINE = ("LIST", "LTFPA (reconstruction)", "HTA (reconstruction)", "BAR (reconstruction)")


def rows(*, long: bool) -> Iterator[Row | Missing]:
    """Table 2, figures 5 to 11."""
    del long
    yield from example()
    yield from initial_loads()
    yield from skewness()
    yield from network()
    yield from numbers()
    yield from times()
    yield Missing(figure="Fig. 10, 11", what="50 and 100 jobs, DynDLOn and DELAY", why="measured on eight real servers")
    yield Missing(figure="Fig. 1", what="illustration", why="no figures")


def example() -> Iterator[Row]:
    """The instance of Table 2."""
    problem = problem_of(table_2())
    offline = solved(solve_offline, problem, 0)
    for name, paper, waiting in (
        ("Hadoop", 3.5, WaitingRule.NONE), ("DELAY", 3.25, WaitingRule.FIXED), ("DynDLOn", 3.25, WaitingRule.ADAPTIVE)
    ):  # fmt: skip
        makespan = solved(partial(solve_online, params=OnlineParams(waiting=waiting)), problem, 0).score.makespan
        yield Row(figure="Fig. 2", what=f"makespan of Table 2, {name}", paper=f"{paper:g}", ours=f"{makespan:g}")
    yield Row(
        figure="Fig. 3, 4", what="makespan of Table 2, DynDLOff", paper="3", ours=f"{offline.score.makespan:g}",
        baseline=f"balanced local assignment: {offline.local_makespan:g}, bound {offline.lower_bound:g}",
    )  # fmt: skip


def makespans(experiment: Experiment, names: Sequence[str], seeds: int = SEEDS) -> dict[str, np.ndarray]:
    """(seeds,) makespans by scheduler."""
    problems = [problem_of(generate(experiment, seed=seed)) for seed in range(seeds)]
    return {
        name: np.array([solved(SOLVERS[name], problem, seed).score.makespan for seed, problem in enumerate(problems)])
        for name in names
    }


def spread(values: np.ndarray) -> str:
    """Mean and p10 .. p90."""
    low, high = np.percentile(values, [10, 90])
    return f"{values.mean():.1f} ({low:.1f} .. {high:.1f})"


def initial_loads() -> Iterator[Row]:
    """Figure 5."""
    for beta, (online, offline) in {100: (4, 3), 1_000: (15, 13), 10_000: (78, 73)}.items():
        found = makespans(Experiment(beta=beta), (*ONLINE, *OTHER_OFFLINE, "DynDLOff"))
        others = min((found[name].mean(), name) for name in ONLINE if name != "DynDLOn")
        yield Row(
            figure="Fig. 5a", what=f"makespan of DynDLOn, beta {beta:,}", paper=f"{online} (one run)",
            ours=spread(found["DynDLOn"]), baseline=f"{others[1]}: {others[0]:.1f}",
        )  # fmt: skip
        best = min((found[name].mean(), name) for name in OTHER_OFFLINE)
        yield Row(
            figure="Fig. 5a", what=f"makespan of DynDLOff, beta {beta:,}", paper=f"{offline} (one run)",
            ours=spread(found["DynDLOff"]), baseline=f"{best[1]}: {best[0]:.1f}",
        )  # fmt: skip
        if beta == 10_000:
            less = 100 * (1 - found["DynDLOff"].mean() / best[0])
            yield Row(
                figure="Fig. 5a", what="DynDLOff below all other offline ones", paper=">= 30 %", ours=f"{less:.0f} %",
                baseline="LIST: "
                f"{100 * (1 - found['DynDLOff'].mean() / found['LIST'].mean()):.0f} %, the others reconstructions",
            )  # fmt: skip


def skewness() -> Iterator[Row]:
    """Figure 6."""
    for alpha in (10, 20, 40):
        found = makespans(Experiment(alpha=alpha), ("DELAY", "DynDLOn", "Hadoop"))
        less = 100 * (1 - found["DynDLOn"].mean() / found["DELAY"].mean())
        yield Row(
            figure="Fig. 6a", what=f"DynDLOn's makespan below DELAY's, alpha {alpha}", paper="30 %",
            ours=f"{less:.0f} % ({found['DynDLOn'].mean():.1f})",
            baseline=f"DELAY: {found['DELAY'].mean():.1f}, Hadoop: {found['Hadoop'].mean():.1f}",
        )  # fmt: skip


def network() -> Iterator[Row]:
    """Figure 7."""
    found = {theta: makespans(Experiment(beta=1_000, theta=theta), tuple(ONLINE)) for theta in (1, 4)}
    growth = {name: found[4][name].mean() / found[1][name].mean() for name in ONLINE}
    yield Row(
        figure="Fig. 7a", what="makespan at theta 4 / at theta 1", paper="DynDLOn slightly, others much more",
        ours=f"DynDLOn: {growth['DynDLOn']:.2f}",
        baseline=f"DELAY: {growth['DELAY']:.2f}, Hadoop: {growth['Hadoop']:.2f}",
    )  # fmt: skip


def numbers() -> Iterator[Row]:
    """Figure 8."""
    for tasks in (200, 2_000, 20_000):
        names = (*ONLINE, "LIST", "LTFPA (reconstruction)", "DynDLOff")
        found = makespans(Experiment(tasks=tasks, beta=1_000), names, seeds=3)
        best = min(found["DELAY"].mean(), found["Hadoop"].mean())
        online = 100 * (1 - found["DynDLOn"].mean() / best)
        other = min(found["LIST"].mean(), found["LTFPA (reconstruction)"].mean())
        offline = 100 * (1 - found["DynDLOff"].mean() / other)
        yield Row(
            figure="Fig. 8a", what=f"below the best other, {tasks:,} tasks: on, off",
            paper="20 %, 10 %" if tasks < 20_000 else "close", ours=f"{online:.0f} %, {offline:.0f} %",
            baseline=f"Hadoop or DELAY: {best:.1f}, LIST or LTFPA: {other:.1f}",
        )  # fmt: skip


def times() -> Iterator[Row | Missing]:
    """Figure 9: time from the instance in memory to the JSON text of the plan."""
    sizes = [
        ("Fig. 9a", Experiment(tasks=3_500, servers=1_000, core_num=10, beta=1_000), 124.21),
        ("Fig. 9c", Experiment(tasks=10_000, servers=1_000, core_num=10, beta=1_000), 341.67),
        ("Fig. 9d", Experiment(tasks=10_000, servers=1_000, core_num=100, beta=1_000), 4_810.0),
    ]
    for figure, experiment, paper in sizes:
        instance = generate(experiment, seed=1)
        seconds = []
        for _ in range(RUNS):
            started = time.process_time()
            problem = problem_of(instance)
            result = solved(solve_offline, problem, 0)
            json.dumps(encode_schedule(instance, problem, result, method="dyndl-off"))
            seconds.append(time.process_time() - started)
        cores = experiment.servers * experiment.core_num
        yield Row(
            figure=figure, what=f"DynDLOff, {experiment.tasks:,} tasks on {cores:,} cores",
            paper=f"{paper:,.0f} ms (Java)", ours=f"{1000 * min(seconds):.0f} ms CPU, best of {len(seconds)}",
        )  # fmt: skip
    yield Missing(
        figure="Fig. 9b",
        what="49 to 107 ms as cores grow from 10 to 70",
        why="contradicts 342 ms at 10 cores (Fig. 9c)",
    )
