"""Independent balance problems as Spark tasks: the solves of a fleet's jobs, or of one large cluster's groups, at once.

Every task runs the very solver that the controller runs in its own process, so the answers are the same; Spark only
says where. The workers need `trimtab_models` and numpy (`--py-files`, or the same environment). Nothing in a
controller's round comes here: one job's round is solved in its solver process.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

from pyspark.sql import SparkSession

from trimtab_models.balance import BalanceResult, Params, Problem, solve
from trimtab_models.balance.groups import deal, join
from trimtab_models.balance.problem import Ints
from trimtab_models.balance.solve import DEFAULT_PARAMS
from trimtab_models.solving import Deadline, Infeasible, Never


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """One solve. `time_limit_s` counts from when a worker takes it up; None searches to the end of the effort."""

    problem: Problem
    seed: int = 0
    params: Params = DEFAULT_PARAMS
    time_limit_s: float | None = None


def solve_task(task: Task) -> BalanceResult | Infeasible:
    """What a worker does with a task: the solver, in whatever process this is."""
    stop = Never() if task.time_limit_s is None else Deadline(time.monotonic, time.monotonic() + task.time_limit_s)
    return solve(task.problem, stop=stop, seed=task.seed, params=task.params)


def solve_jobs(spark: SparkSession, tasks: Sequence[Task]) -> list[BalanceResult | Infeasible]:
    """The results of `tasks`, in their order; each is a Spark task of its own."""
    if not tasks:
        return []
    results: list[BalanceResult | Infeasible] = (
        spark.sparkContext.parallelize(tasks, len(tasks)).map(solve_task).collect()
    )
    return results


def solve_in_groups(spark: SparkSession, task: Task, groups: int) -> Ints | Infeasible:
    """A plan for one large problem (key group -> node) from its groups, solved apart; evaluate it before use."""
    parts = deal(task.problem, groups)
    results = solve_jobs(spark, [replace(task, problem=part.problem) for part in parts])
    allocations = []
    for result in results:
        if isinstance(result, Infeasible):
            return result
        allocations.append(result.allocation)
    return join(task.problem, parts, allocations)
