"""Meta's Rebalancer on one instance: JSON on standard input, an allocation on standard output.

It needs Python 3.12 and the package `rebalancer`, so `meta_rebalancer.py` starts it as a separate process.  The model
has objects with a load, containers of equal capacity, a limit on the number of moved objects, and a formula for the
balance goal.  The solver is local search with single moves and swaps, which its authors recommend from 1,000 objects
on, or HiGHS on the exact model.
"""

import json
import sys
import time
from typing import Any

from rebalancer import ProblemSolver
from rebalancer.specs import (
    BalanceSpec,
    ConstraintSpec,
    GoalSpec,
    LocalSearchSolverSpec,
    MinimizeMovementSpec,
    MoveTypeSpec,
    OptimalSolverSpec,
    SingleMoveTypeSpec,
    SolverSpec,
    SwapMoveTypeSpec,
)

# The binding accepts enumerations only as numbers, those of the Thrift definitions.
FORMULAS = {"LINEAR": 1, "SQUARES": 2, "MAX": 3, "IDEAL": 4}
HIGHS = 2


def main() -> None:
    """Read the instance, solve it, and write the allocation."""
    instance = json.load(sys.stdin)
    hosts = [f"h{node}" for node in range(instance["nodes"])]
    placed: dict[str, list[str]] = {host: [] for host in hosts}
    for key_group, node in enumerate(instance["home"]):
        placed[hosts[node]].append(f"k{key_group}")
    solver = ProblemSolver(service_name="rebalancer", service_scope="benchmark")
    solver.set_log_level(instance.get("log", "ERR")).disable_solution_summary()
    solver.set_object_name("task").set_container_name("host").set_assignment(placed)
    solver.add_object_dimension("load", {f"k{at}": load for at, load in enumerate(instance["load"])})
    solver.add_container_dimension("load", {}, default_value=100.0)
    movement = MinimizeMovementSpec(
        name="budget", scope="host", dimension="task_count", doNotNormalize=True, allowance=float(instance["budget"])
    )
    solver.add_constraint(ConstraintSpec(minimizeMovementSpec=movement))
    balance = BalanceSpec(name="balance", scope="host", dimension="load", formula=FORMULAS[instance["formula"]])
    solver.add_goal(GoalSpec(balanceSpec=balance))
    solver.add_solver(_solver(instance))
    started = time.perf_counter()
    assignment = solver.solve()["assignment"]
    seconds = time.perf_counter() - started
    allocation = [int(assignment[f"k{at}"][1:]) for at in range(len(instance["home"]))]
    json.dump({"allocation": allocation, "seconds": seconds}, sys.stdout)


def _solver(instance: dict[str, Any]) -> SolverSpec:
    seconds = max(1, int(instance["seconds"]))
    if instance["exact"]:
        exact = OptimalSolverSpec(solveTime=seconds, solverPackage=HIGHS, suppressLogs=True)
        return SolverSpec(optimalSolverSpec=exact)
    moves = [MoveTypeSpec(singleMoveTypeSpec=SingleMoveTypeSpec()), MoveTypeSpec(swapMoveTypeSpec=SwapMoveTypeSpec())]
    return SolverSpec(localSearchSolverSpec=LocalSearchSolverSpec(solveTime=seconds, moveTypeList=moves))


if __name__ == "__main__":
    main()
