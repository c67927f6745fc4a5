"""Compares other solvers with ours on the same balance instances, in one run, with equal time limits.

    python -m benchmarks.peers.table [--seconds 5] [--large] [--seeds 1] [--environment DIR]

Instances are those of the paper's section 5.1 (`uneven_cluster`), node loads changed by 50 %.
`gap` is the distance to the best proven lower bound (of ours, SCIP's and HiGHS's).  Seconds are wall-clock seconds,
including the construction of the model.  Our solver uses one thread, the others as many as they want.

HiGHS, SCIP and CP-SAT get the full model of the paper through OR-Tools MathOpt, with the present allocation as a hint.
METIS partitions all key groups from scratch; its parts are assigned to nodes such that few key groups move, and it
ignores the budget.  Meta's Rebalancer runs in its own environment, see `meta_rebalancer.py`.
"""

import argparse
import datetime
import os
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import pymetis
from ortools.math_opt.python import mathopt  # type: ignore[import-untyped]

from benchmarks.peers import meta_rebalancer
from trimtab_models.balance.evaluate import evaluate
from trimtab_models.balance.improve import Effort
from trimtab_models.balance.problem import BalanceProblem
from trimtab_models.balance.result import BalanceResult
from trimtab_models.balance.solve import BalanceParams, solve, solve_flux
from trimtab_models.simulation.workloads import uneven_cluster
from trimtab_models.solving import Deadline, Never

CHANGE_PERCENT = 50
SIZES = ((20, 400), (60, 1_200))
LARGE = (1_000, 50_000)
BUDGETS = (20, 50)
UNLIMITED = BalanceParams(effort=Effort(steps=10**9), certify=True)
ENVIRONMENT = Path("out/peers")
FINENESS = 1_000_000
SOLVERS: Mapping[str, mathopt.SolverType] = {
    "HiGHS": mathopt.SolverType.HIGHS,
    "SCIP": mathopt.SolverType.GSCIP,
    "CP-SAT": mathopt.SolverType.CP_SAT,
}


def partition(problem: BalanceProblem, seed: int) -> np.ndarray:
    """(K,) node of each key group, by METIS; key groups of one node are linked in a chain, so that few of them move."""
    order = np.argsort(problem.home, kind="stable")
    tied = problem.home[order[:-1]] == problem.home[order[1:]]
    neighbours: list[list[int]] = [[] for _ in order]
    for first, second in zip(order[:-1][tied].tolist(), order[1:][tied].tolist(), strict=True):
        neighbours[first].append(second)
        neighbours[second].append(first)
    weights = np.maximum(1, np.rint(problem.load / problem.load.sum() * FINENESS)).astype(np.int64).tolist()
    nodes = len(problem.capacity)
    options = pymetis.Options(seed=seed)
    _, labels = pymetis.part_graph(nodes, adjacency=neighbours, vweights=weights, options=options)
    return named(np.array(labels, np.int64), problem.home, nodes)


def named(labels: np.ndarray, home: np.ndarray, nodes: int) -> np.ndarray:
    """(K,) node of each key group, with each part on the node that shares most key groups with it."""
    shared = np.zeros((nodes, nodes), np.int64)
    np.add.at(shared, (labels, home), 1)
    node_of = np.full(nodes, -1, np.int64)
    for flat in np.argsort(-shared, axis=None, kind="stable").tolist():
        part, node = divmod(flat, nodes)
        if node_of[part] < 0 and node not in node_of:
            node_of[part] = node
    nodes_of_key_groups: np.ndarray = node_of[labels]
    return nodes_of_key_groups


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """The answer of a solver; `bound` in pp, no allocation if none was found in time."""

    allocation: np.ndarray | None
    bound: float
    seconds: float


def solve_fully(problem: BalanceProblem, name: str, seconds: float) -> Reply:
    """Solve the full model, a Boolean per key group and node, by the solver `name` within `seconds`, building too."""
    started = time.monotonic()
    model = mathopt.Model()
    nodes, key_groups = len(problem.capacity), len(problem.load)
    stands = [[model.add_binary_variable() for _ in range(nodes)] for _ in range(key_groups)]
    distance = model.add_variable(lb=0)
    for row in stands:
        model.add_linear_constraint(mathopt.fast_sum(row) == 1)
    for node, capacity in enumerate(problem.capacity.tolist()):
        loads = (problem.load / capacity).tolist()
        node_load = mathopt.fast_sum(load * row[node] for load, row in zip(loads, stands, strict=True))
        model.add_linear_constraint(node_load - distance <= problem.mean)
        model.add_linear_constraint(node_load + distance >= problem.mean)
    home = problem.home.tolist()
    stay = mathopt.fast_sum(row[node] for row, node in zip(stands, home, strict=True))
    model.add_linear_constraint(stay >= key_groups - (problem.max_migrations or 0))
    model.minimize(distance)
    left = max(0.0, seconds - (time.monotonic() - started))
    hint = {distance: evaluate(problem, problem.home).load_distance} | {
        variable: float(node == at) for row, at in zip(stands, home, strict=True) for node, variable in enumerate(row)
    }
    result = mathopt.solve(
        model,
        SOLVERS[name],
        params=mathopt.SolveParameters(time_limit=datetime.timedelta(seconds=left)),
        model_params=mathopt.ModelSolveParameters(solution_hints=[mathopt.SolutionHint(variable_values=hint)]),
    )
    allocation = None
    if result.has_primal_feasible_solution():
        values = result.variable_values()
        allocation = np.array([max(range(nodes), key=lambda node: values[row[node]]) for row in stands], np.int64)
    bound = max(0.0, result.best_objective_bound())
    return Reply(allocation=allocation, bound=bound if np.isfinite(bound) else 0.0, seconds=time.monotonic() - started)


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The answer of a solver: an allocation, or why there is none; `bound` in pp if it proved one."""

    solver: str
    seconds: float
    allocation: np.ndarray | None = None
    bound: float = 0.0
    note: str = ""


def answers(problem: BalanceProblem, seconds: float, peer: meta_rebalancer.Peer, *, exact: bool) -> Iterator[Answer]:
    """The answers of all solvers; `exact` = also of those that need the full model."""
    for solver in (ours, flux):
        yield solver(problem, seconds)
    for formula, enough in (("IDEAL", False), ("SQUARES", False), ("MAX", True)):
        if enough and not exact:
            continue
        name = f"Rebalancer {'HiGHS' if enough else formula}"
        reply = peer.solve(problem, seconds, formula=formula, exact=enough)
        yield Answer(solver=name, seconds=reply.seconds, allocation=reply.allocation, note=reply.note)
    if exact:
        for name in SOLVERS:
            found = solve_fully(problem, name, seconds)
            yield Answer(solver=name, seconds=found.seconds, allocation=found.allocation, bound=found.bound)
    yield timed("METIS", lambda: partition(problem, seed=0), note="ignores the budget")


def ours(problem: BalanceProblem, seconds: float) -> Answer:
    """Our balance model, until the limit or a proof."""
    started = time.monotonic()
    result = solve(problem, stop=Deadline(time.monotonic, started + seconds), seed=0, params=UNLIMITED)
    taken = time.monotonic() - started
    assert isinstance(result, BalanceResult)
    return Answer(
        solver="Trimtab milp", seconds=taken, allocation=result.allocation, bound=result.lower_bound,
        note=result.status.value,
    )  # fmt: skip


def flux(problem: BalanceProblem, seconds: float) -> Answer:
    """The published baseline Flux, which ends by itself."""
    del seconds

    def planned() -> np.ndarray:
        result = solve_flux(problem, stop=Never(), seed=0)
        assert isinstance(result, BalanceResult)
        return result.allocation

    return timed("Flux", planned)


def timed(solver: str, function: Callable[[], np.ndarray], note: str = "") -> Answer:
    """The result of `function`, and its time."""
    started = time.monotonic()
    allocation = function()
    return Answer(solver=solver, seconds=time.monotonic() - started, allocation=allocation, note=note)


def print_instance(problem: BalanceProblem, name: str, found: list[Answer]) -> None:
    """Print one line per solver."""
    bound = max(answer.bound for answer in found)
    stayed = evaluate(problem, problem.home).load_distance
    print(f"\n{name}: load distance {stayed:.2f} before, proven bound {bound:.3f}")
    print(f"  {'solver':<20} | {'load distance':>13} | {'gap pp':>7} | {'moves':>6} | {'seconds':>7} |")
    for answer in found:
        if answer.allocation is None:
            print(f"  {answer.solver:<20} | {'-':>13} | {'-':>7} | {'-':>6} | {answer.seconds:7.2f} | {answer.note}")
            continue
        score = evaluate(problem, answer.allocation)
        gap = f"{max(0.0, score.load_distance - bound):7.3f}" if score.allowed else f"{'-':>7}"
        print(
            f"  {answer.solver:<20} | {score.load_distance:13.3f} | {gap} | {score.migrations:6} "
            f"| {answer.seconds:7.2f} | {answer.note}",
            flush=True,
        )


def main() -> None:
    """Print a table per instance."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=5.0, help="every solver's limit (5)")
    parser.add_argument("--seeds", type=int, default=1, help="instances per size and budget (1)")
    parser.add_argument("--large", action="store_true", help="1,000 nodes with 50,000 key groups, without full models")
    parser.add_argument(
        "--environment", type=Path, default=ENVIRONMENT, help="where Rebalancer is installed (out/peers)"
    )
    args = parser.parse_args()
    peer = meta_rebalancer.find(args.environment)
    print(f"Rebalancer: {peer.version}")
    for nodes, key_groups in (LARGE,) if args.large else SIZES:
        for seed in range(args.seeds):
            cluster = uneven_cluster(nodes, key_groups, CHANGE_PERCENT, seed)
            for budget in (round(key_groups * share) for share in (0.01, 0.03)) if args.large else BUDGETS:
                problem = replace(cluster, max_migrations=budget)
                name = f"{nodes:,} nodes, {key_groups:,} key groups, {budget:,} moves, seed {seed}"
                print_instance(problem, name, list(answers(problem, args.seconds, peer, exact=not args.large)))


if __name__ == "__main__":
    main()
