"""How to solve many balance problems at once on a Spark cluster: those of many jobs, or the parts of a large one.

An example for users of the library: no command of Trimtab does this, a controller solves one job's round in a process
of its own.  Each Spark task runs the same solver, so the plans are the same.  The Spark workers need `trimtab_models`,
numpy, this file and `node_groups.py` (`--py-files`, or the same environment).
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

from pyspark.sql import SparkSession

from node_groups import deal, join
from trimtab_models.balance.problem import BalanceProblem, Ints
from trimtab_models.balance.result import BalanceResult
from trimtab_models.balance.solve import DEFAULT_PARAMS, BalanceParams, solve
from trimtab_models.solving import Deadline, Infeasible, Never


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """One problem. `time_limit_s` begins when a worker takes it up; None: search until `params` end it."""

    problem: BalanceProblem
    seed: int = 0
    params: BalanceParams = DEFAULT_PARAMS
    time_limit_s: float | None = None


def solve_task(task: Task) -> BalanceResult | Infeasible:
    """Solve a task in this process."""
    stop = Never() if task.time_limit_s is None else Deadline(time.monotonic, time.monotonic() + task.time_limit_s)
    return solve(task.problem, stop=stop, seed=task.seed, params=task.params)


def solve_jobs(spark: SparkSession, tasks: Sequence[Task]) -> list[BalanceResult | Infeasible]:
    """Solve the tasks on Spark, and return their results in the same order."""
    if not tasks:
        return []
    results: list[BalanceResult | Infeasible] = (
        spark.sparkContext.parallelize(tasks, len(tasks)).map(solve_task).collect()
    )
    return results


def solve_in_groups(spark: SparkSession, task: Task, groups: int) -> Ints | Infeasible:
    """Solve a large problem in parts, and join their plans (key group -> node); evaluate the plan before use."""
    parts = deal(task.problem, groups)
    results = solve_jobs(spark, [replace(task, problem=part.problem) for part in parts])
    allocations = []
    for result in results:
        if isinstance(result, Infeasible):
            return result
        allocations.append(result.allocation)
    return join(task.problem, parts, allocations)
