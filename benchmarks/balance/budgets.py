"""Gaps of `milp` on random instances by kind of budget: migrations, bytes, both.

    python benchmarks/balance/budgets.py [--size tiny|small|medium] [--instances N] [--seconds S ...] [--certify]

Loads and states are log-normal (sigma 1), state independent of load. *tiny* instances (3 nodes, 7 key groups) are also
enumerated by a dumb twin, so that their gap to the optimum is known; for the others the optimum is replaced by the best
plan of all times. `--certify` adds CP-SAT, as `trimtab solve milp` does. Times are CPU seconds.
"""

import argparse
import itertools
import os
import time
from collections.abc import Iterator
from dataclasses import replace

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np

from trimtab_models.balance.evaluate import evaluate
from trimtab_models.balance.improve import Effort
from trimtab_models.balance.problem import BalanceProblem
from trimtab_models.balance.result import BalanceResult
from trimtab_models.balance.solve import BalanceParams, solve
from trimtab_models.solving import Deadline

SIZES = {"tiny": (3, 7), "small": (6, 30), "medium": (20, 400)}
SHARES = {"tiny": (0.1, 0.5), "small": (0.05, 0.3), "medium": (0.01, 0.1)}  # of all key groups, or of all bytes
KINDS = ("migrations", "bytes", "both")
CROWDED = 50.0  # CP-SAT's wall-clock limit per CPU second: other processes may use the machine


def instances(size: str, kind: str, count: int) -> Iterator[BalanceProblem]:
    """`count` instances, the same for each kind but for the budget."""
    nodes, key_groups = SIZES[size]
    for seed in range(count):
        random = np.random.default_rng(seed)
        load = random.lognormal(0, 1, key_groups)
        cost = random.lognormal(10, 1, key_groups).round()
        share = random.uniform(*SHARES[size])
        problem = BalanceProblem(
            load=load * 50 * nodes / load.sum(), cost_bytes=cost, home=random.integers(0, nodes, key_groups),
            pinned=np.zeros(key_groups, np.bool_), in_flight=np.zeros(key_groups, np.bool_),
            capacity=np.ones(nodes), removing=np.zeros(nodes, np.bool_),
            usage=np.zeros((0, key_groups)), limit=np.zeros((0, nodes)),
        )  # fmt: skip
        if kind != "bytes":
            problem = replace(problem, max_migrations=max(1, round(share * key_groups)))
        if kind != "migrations":
            problem = replace(problem, max_cost_bytes=share * float(cost.sum()))
        yield problem


def optimum(problem: BalanceProblem) -> float:
    """The least load distance of all allocations."""
    plans = itertools.product(range(len(problem.capacity)), repeat=len(problem.load))
    scores = (evaluate(problem, np.array(plan)) for plan in plans)
    return min(score.load_distance for score in scores if score.allowed)


def solved(problem: BalanceProblem, seconds: float, params: BalanceParams) -> BalanceResult:
    """The plan after `seconds` of CPU."""
    stop = Deadline(time.process_time, time.process_time() + seconds, wall_per_s=CROWDED)
    result = solve(problem, stop=stop, seed=0, params=params)
    assert isinstance(result, BalanceResult)
    return result


def main() -> None:
    """Prints a line per size, kind of budget and time."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", choices=SIZES, action="append")
    parser.add_argument("--instances", type=int, default=20, metavar="N")
    parser.add_argument("--seconds", type=float, nargs="+", default=[0.05, 0.5, 2.0], metavar="S")
    parser.add_argument("--certify", action="store_true", help="with CP-SAT")
    args = parser.parse_args()
    params = BalanceParams(effort=Effort(steps=10**9), polish=Effort(steps=0), certify=args.certify)
    print("size, budget, CPU s       | gap to the optimum: median, worst | gap to the bound: median, worst | proven")
    for size, kind in itertools.product(args.size or SIZES, KINDS):
        problems = list(instances(size, kind, args.instances))
        plans = {seconds: [solved(problem, seconds, params) for problem in problems] for seconds in args.seconds}
        if size == "tiny":
            best = [optimum(problem) for problem in problems]
        else:
            best = [min(plan.score.load_distance for plan in times) for times in zip(*plans.values(), strict=True)]
        for seconds, found in plans.items():
            above = np.array([plan.score.load_distance for plan in found]) - best
            gap = np.array([plan.gap_pp for plan in found])
            print(
                f"{size:<6} {kind:<10} {seconds:>6} s | {np.median(above):>14.3f} {above.max():>18.3f} | "
                f"{np.median(gap):>14.3f} {gap.max():>16.3f} | {(gap <= 0.01).mean():>6.0%}",
                flush=True,
            )


if __name__ == "__main__":
    main()
