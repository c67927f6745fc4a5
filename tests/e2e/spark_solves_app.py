"""Solves the problems of `test_spark_solves` through Spark, on two local cores, and prints what came back."""

import json
import sys
from collections.abc import Iterator
from contextlib import suppress

import numpy as np
import psutil

from spark_solves import Task, solve_in_groups, solve_jobs
from trimtab_controller.stream.session import open_session
from trimtab_models.balance.improve import Effort
from trimtab_models.balance.problem import BalanceProblem
from trimtab_models.balance.result import BalanceResult
from trimtab_models.balance.solve import BalanceParams

SHORT = BalanceParams(effort=Effort(steps=400), polish=Effort(steps=50))
GROUPS = 3
SECRET = "spark.ssl.keyPassword"
KEYS = {"spark.master": "local[2]", SECRET: 'hush\\n #"=:é\nhush'}


def cluster(seed: int, nodes: int, *, removing: bool = False) -> BalanceProblem:
    """Ten key groups of uneven load per node; a budget that binds."""
    random = np.random.default_rng(seed)
    count = 10 * nodes
    return BalanceProblem.plain(
        load=random.uniform(1, 10, count),
        home=np.repeat(np.arange(nodes), 10),
        capacity=np.ones(nodes),
        removing=np.full(nodes, removing),
        max_migrations=2 * nodes,
    )


def tasks() -> list[Task]:
    """Two jobs that have a plan and one that has none."""
    problems = [cluster(0, nodes=4), cluster(1, nodes=6), cluster(2, nodes=2, removing=True)]
    return [Task(problem=problem, seed=7, params=SHORT) for problem in problems]


def large() -> Task:
    """The one that is dealt into groups."""
    return Task(problem=cluster(3, nodes=9), seed=7, params=SHORT)


def command_lines() -> Iterator[str]:
    """Of all that this process has started and that still runs."""
    for process in psutil.Process().children(recursive=True):
        with suppress(psutil.NoSuchProcess):
            yield " ".join(process.cmdline())


if __name__ == "__main__":
    session = open_session("spark-solves", KEYS)
    try:
        told = session.sparkContext.getConf().get(SECRET)
        lines = list(command_lines())
        answers = [
            result.allocation.tolist() if isinstance(result, BalanceResult) else result.reason
            for result in solve_jobs(session, tasks())
        ]
        joined = solve_in_groups(session, large(), GROUPS)
        assert isinstance(joined, np.ndarray)
        json.dump({"jobs": answers, "groups": joined.tolist(), "told": told, "command_lines": lines}, sys.stdout)
    finally:
        session.stop()
