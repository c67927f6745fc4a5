"""Independent problems through a real local Spark: the same plans as in this process."""

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from node_groups import deal, join
from spark_solves import solve_task
from tests.e2e.spark_solves_app import GROUPS, KEYS, SECRET, large, tasks
from tests.paths import EXAMPLES, ROOT, python_path
from trimtab_models.balance.evaluate import evaluate
from trimtab_models.balance.result import BalanceResult

HERE = Path(__file__).parent

LIMIT_S = 240.0
"""A few seconds on a free machine."""


@pytest.fixture(scope="module")
def answers() -> Any:
    command = [sys.executable, str(HERE / "spark_solves_app.py")]
    environment = {**os.environ, "PYTHONPATH": python_path(EXAMPLES, ROOT)}  # Spark's Python workers inherit it
    answered = subprocess.run(command, capture_output=True, timeout=LIMIT_S, env=environment)
    assert answered.returncode == 0, answered.stderr.decode(errors="replace")[-4000:]
    return json.loads(answered.stdout)


@pytest.mark.timeout(300)
def test_spark_is_told_its_keys_where_nobody_else_reads_them(answers: Any) -> None:
    assert answers["told"] == KEYS[SECRET]
    assert any("org.apache.spark.deploy.SparkSubmit" in line for line in answers["command_lines"])
    assert [line for line in answers["command_lines"] if "hush" in line] == []


@pytest.mark.timeout(300)
def test_spark_gives_the_plans_that_this_process_gives(answers: Any) -> None:
    results = [solve_task(task) for task in tasks()]
    assert answers["jobs"] == [
        result.allocation.tolist() if isinstance(result, BalanceResult) else result.reason for result in results
    ]
    assert answers["jobs"][2] == "all nodes are draining"
    task = large()
    parts = deal(task.problem, GROUPS)
    plans = [solve_task(replace(task, problem=part.problem)) for part in parts]
    joined = join(task.problem, parts, [plan.allocation for plan in plans if isinstance(plan, BalanceResult)])
    assert answers["groups"] == joined.tolist()
    assert evaluate(task.problem, joined).allowed
