"""Compares the figures of the DynDL paper (Applied Sciences 8(11), 2018, 2216, section 6.1.2) with ours.

    python -m benchmarks.dyndl.figures [--seeds N] [--all]

Each line is one experiment and scheduler: makespan by the model's formula as mean and p10 .. p90 over the seeds, the
share of local tasks, the mean ratio to the proven lower bound, and the paper's figure if its text states one (the
others are only pictures, of single runs).  Online policies pick remote tasks at random, as in the paper.  LTFPA, HTA
and BAR are reconstructions, so their lines cannot be compared.  The default prints the instance of Table 2 and the
effect of initial loads; --all adds load skewness, network conditions and numbers of tasks.
"""

import argparse
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np

from benchmarks.dyndl.exact import solve_exact
from benchmarks.dyndl.generate import Experiment, generate
from benchmarks.dyndl.reconstructions import solve_bar, solve_hta, solve_ltfpa
from trimtab_models.dyndl.offline import solve_list, solve_offline
from trimtab_models.dyndl.online import OnlineParams, WaitingRule, solve_online
from trimtab_models.dyndl.problem import ScheduleProblem, problem_of
from trimtab_models.dyndl.result import ScheduleResult
from trimtab_models.instances.scheduling import AffineCost, SchedulingInstance, SchedulingServer, Task
from trimtab_models.solving import Infeasible, Never

Solver = Callable[..., ScheduleResult | Infeasible]
ONLINE = {
    name: partial(solve_online, params=OnlineParams(waiting=waiting, at_random=True))
    for name, waiting in (("Hadoop", WaitingRule.NONE), ("DELAY", WaitingRule.FIXED), ("DynDLOn", WaitingRule.ADAPTIVE))
}
SOLVERS: dict[str, Solver] = ONLINE | {
    "LIST": solve_list,
    "LTFPA (reconstruction)": solve_ltfpa,
    "HTA (reconstruction)": solve_hta,
    "BAR (reconstruction)": solve_bar,
    "DynDLOff": solve_offline,
    "optimum (exact tier)": solve_exact,
}
SLOW = {"HTA (reconstruction)": 200, "optimum (exact tier)": 200}  # most tasks; the paper left HTA out too


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One experiment; `paper` = figures that the text states."""

    name: str
    experiment: Experiment
    paper: dict[str, float]


def loads() -> Iterator[Row]:
    """Effects of initial loads (Figure 5)."""
    stated = {100: (4, 3), 1_000: (15, 13), 10_000: (78, 73)}
    for beta, (online, offline) in stated.items():
        yield Row(
            name=f"beta {beta:,}", experiment=Experiment(beta=beta), paper={"DynDLOn": online, "DynDLOff": offline}
        )


def others() -> Iterator[Row]:
    """Figures 6, 7 and 8, for which the text states no makespan."""
    for alpha in (10, 20, 40):
        yield Row(name=f"alpha {alpha}", experiment=Experiment(alpha=alpha), paper={})
    for theta in (1, 2, 4):
        yield Row(name=f"theta {theta}", experiment=Experiment(beta=1_000, theta=theta), paper={})
    for tasks in (200, 2_000, 20_000):
        yield Row(name=f"{tasks:,} tasks", experiment=Experiment(tasks=tasks, beta=1_000), paper={})


def print_row(row: Row, seeds: int) -> None:
    """A line per scheduler."""
    problems = [problem_of(generate(row.experiment, seed=seed)) for seed in range(seeds)]
    for name, solver in SOLVERS.items():
        if row.experiment.tasks > SLOW.get(name, row.experiment.tasks):
            continue
        results = [solved(solver, problem, seed) for seed, problem in enumerate(problems)]
        makespans = np.array([result.score.makespan for result in results])
        low, high = np.percentile(makespans, [10, 90])
        local = np.mean([1 - result.score.remote_tasks / row.experiment.tasks for result in results])
        ratio = np.mean([result.ratio for result in results])
        paper = f"{row.paper[name]:.0f}" if name in row.paper else "-"
        print_line(
            row.name, name, paper, f"{makespans.mean():.1f}", f"{low:.1f} .. {high:.1f}", f"{local:.0%}", f"{ratio:.2f}"
        )


def solved(solver: Solver, problem: ScheduleProblem, seed: int) -> ScheduleResult:
    """The schedule of a feasible problem."""
    result = solver(problem, stop=Never(), seed=seed)
    assert isinstance(result, ScheduleResult)
    return result


def print_line(*cells: str) -> None:
    """One line of the table."""
    widths = (14, 22, 7, 8, 16, 7, 7)
    print(
        " | ".join(
            cell.ljust(width) if at < 2 else cell.rjust(width)
            for at, (cell, width) in enumerate(zip(cells, widths, strict=True))
        ),
        flush=True,
    )


def table_2() -> SchedulingInstance:
    """The paper's example, with the wait of its figure 2."""
    cost = AffineCost(a=1.0, b=0.5)
    cores = {"s1": (0.75, 0.5), "s2": (0.25, 2.0), "s3": (2.25, 14.0), "s4": (2.5, 3.75)}
    replicas = {"t1": "s1 s2", "t2": "s2 s4", "t3": "s2 s3", "t4": "s2 s3", "t5": "s3 s4"}
    return SchedulingInstance(
        servers=tuple(SchedulingServer(id=id_, cores=row, g=cost) for id_, row in cores.items()),
        tasks=tuple(Task(id=id_, replicas=tuple(holders.split())) for id_, holders in replicas.items()),
        wait=0.25,
    )


def print_table_2() -> None:
    """Figures 2 to 4: deterministic, remote tasks by the lowest id."""
    problem = problem_of(table_2())
    offline = solved(solve_offline, problem, 0)
    rows: list[tuple[str, float, ScheduleResult]] = [
        (name, paper, solved(partial(solve_online, params=OnlineParams(waiting=waiting)), problem, 0))
        for name, paper, waiting in (
            ("Hadoop", 3.5, WaitingRule.NONE),
            ("DELAY", 3.25, WaitingRule.FIXED),
            ("DynDLOn", 3.25, WaitingRule.ADAPTIVE),
        )
    ]
    rows += [("DynDLOff", 3.0, offline), ("optimum (exact tier)", 3.0, solved(solve_exact, problem, 0))]
    for name, paper, result in rows:
        local = 1 - result.score.remote_tasks / problem.tasks
        print_line(
            "Table 2", name, f"{paper:g}", f"{result.score.makespan:g}", "", f"{local:.0%}", f"{result.ratio:.2f}"
        )
    print_line("Table 2", "balanced (phase I)", "3.25", f"{offline.local_makespan:g}", "", "", "")


def main() -> None:
    """Prints the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=30, help="instances per experiment (30)")
    parser.add_argument("--all", action="store_true", help="also what the paper shows in pictures only")
    args = parser.parse_args()
    print_line("experiment", "scheduler", "paper", "mean", "p10 .. p90", "local", "/ bound")
    print_table_2()
    for row in (*loads(), *(others() if args.all else ())):
        print_row(row, args.seeds)


if __name__ == "__main__":
    main()
