"""Measures the time of DynDL, from the instance in memory to the assignment as JSON text.

    python -m benchmarks.dyndl.speed [--runs N]

Instances: the generator of the paper's experiments with beta 1,000, alpha 0, theta 1. `solve` goes from the parsed
instance to the JSON text of the plan with bound and ratio; `read` goes from JSON text to instance.  CPU is the CPU time
of this single-threaded process, wall is wall-clock time; both are medians over the runs.  CPU is also given for the
best run, since a busy machine shares caches and frequencies.  The paper measured Java on an i7-8700.  At the end, one
decision of DynDLOn, and the controller's schedule of a batch whose targets are given.
"""

import argparse
import json
import os
import statistics
import time
from dataclasses import dataclass

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np

from benchmarks.dyndl.generate import Experiment, encode_scheduling, generate
from trimtab_models.dyndl.given import GivenProblem, solve_given
from trimtab_models.dyndl.offline import solve_offline
from trimtab_models.dyndl.online import Start, Wait, WaitingPolicy, WaitingRule
from trimtab_models.dyndl.problem import ScheduleProblem, problem_of
from trimtab_models.dyndl.result import ScheduleResult, encode_schedule
from trimtab_models.instances.scheduling import TableCost, parse_scheduling
from trimtab_models.solving import Never

BETA = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """A row of the table."""

    experiment: Experiment
    paper_ms: int
    limit_ms: int


SIZES = (
    Size(experiment=Experiment(tasks=10_000, servers=1_000, core_num=100, beta=BETA), paper_ms=4_810, limit_ms=500),
    Size(experiment=Experiment(tasks=10_000, servers=10_000, core_num=10, beta=BETA), paper_ms=4_810, limit_ms=500),
    Size(experiment=Experiment(tasks=3_500, servers=1_000, core_num=10, beta=BETA), paper_ms=124, limit_ms=40),
    Size(experiment=Experiment(tasks=10_000, servers=1_000, core_num=10, beta=BETA), paper_ms=342, limit_ms=100),
)
DECISION_LIMIT_US = 50
GIVEN_LIMIT_MS = 100


def print_size(size: Size, runs: int) -> None:
    """Measures and prints one row."""
    text = json.dumps(encode_scheduling(generate(size.experiment, seed=1)))
    instance = parse_scheduling(text)
    cpu, wall, reading = [], [], []
    for _ in range(runs):
        started = time.process_time()
        parse_scheduling(text)
        reading.append(time.process_time() - started)
        started, started_wall = time.process_time(), time.perf_counter()
        problem = problem_of(instance)
        result = solve_offline(problem, stop=Never())
        assert isinstance(result, ScheduleResult)
        json.dumps(encode_schedule(instance, problem, result, method="dyndl-off"))
        cpu.append(time.process_time() - started)
        wall.append(time.perf_counter() - started_wall)
    assert isinstance(result, ScheduleResult)
    each = size.experiment
    name = f"{each.tasks:,} tasks, {each.servers:,} x {each.core_num} cores"
    times = [statistics.median(cpu), min(cpu), statistics.median(wall), statistics.median(reading)]
    verdict = "reached" if times[0] * 1e3 <= size.limit_ms else "NOT reached"
    milliseconds = [f"{seconds * 1e3:.0f}" for seconds in times]
    print_line(name, str(size.paper_ms), f"<= {size.limit_ms}", *milliseconds, f"{result.ratio:.3f}", verdict)


def print_decisions(runs: int) -> None:
    """Offers every core of a large cluster once: a local task, a wait, or after the wait a remote task."""
    problem = problem_of(generate(Experiment(tasks=10_000, servers=10_000, core_num=10, beta=BETA), seed=1))
    times = [microseconds for _ in range(runs) for microseconds in decide_all(problem)]
    times.sort()
    print(f"\none decision of DynDLOn, {len(times):,} measured: median {statistics.median(times):.2f} us, ", end="")
    p99 = times[int(0.99 * len(times))]
    print(f"p99 {p99:.2f} us (aim {DECISION_LIMIT_US} us: {'reached' if p99 <= DECISION_LIMIT_US else 'NOT reached'})")


def decide_all(problem: ScheduleProblem) -> list[float]:
    """CPU microseconds of every decision; the cores ask again when their wait is over."""
    policy = WaitingPolicy(problem, WaitingRule.ADAPTIVE, seed=1)
    times = []
    for idle_for in (0.0, problem.wait, 100.0):
        for server in problem.server_of.tolist():
            started = time.process_time_ns()
            decision: Start | Wait = policy.decide(idle_for, server, 0.0)
            times.append((time.process_time_ns() - started) / 1e3)
            assert isinstance(decision, Start | Wait)
    return times


def print_given(runs: int) -> None:
    """Schedules restores whose targets are given, as the controller does with a plan."""
    random = np.random.default_rng(1)
    tasks, servers, slots = 10_000, 1_000, 8
    problem = GivenProblem(
        server=random.integers(0, servers, tasks),
        size=random.uniform(1.0, 20.0, tasks),
        local=random.random(tasks) < 0.3,
        slots=np.full(servers, slots),
        costs=[TableCost(values=tuple(1.0 + 0.4 * n for n in range(slots)))] * servers,
        running=[()] * servers,
    )
    times = []
    for _ in range(runs):
        started = time.process_time()
        found = solve_given(problem)
        times.append(1e3 * (time.process_time() - started))
    middle = statistics.median(times)
    print(
        f"\n{tasks:,} restores with given targets on {servers:,} hosts with {slots} slots: {middle:.0f} ms, "
        f"{found.makespan / found.lower_bound:.3f} of the bound "
        f"(aim {GIVEN_LIMIT_MS} ms: {'reached' if middle <= GIVEN_LIMIT_MS else 'NOT reached'})"
    )


def print_line(*cells: str) -> None:
    """One line of the table."""
    widths = (36, 8, 8, 10, 8, 10, 8, 8, 12)
    print(" | ".join(cell.rjust(width) for cell, width in zip(cells, widths, strict=True)), flush=True)


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=7, help="runs per row (7)")
    args = parser.parse_args()
    print_line("instance; all times in ms", "paper", "aim", "CPU median", "CPU best", "wall", "read CPU", "/ bound", "")
    for size in SIZES:
        print_size(size, args.runs)
    print_decisions(args.runs)
    print_given(args.runs)


if __name__ == "__main__":
    main()
