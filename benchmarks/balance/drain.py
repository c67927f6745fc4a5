"""Rounds until drained nodes are empty, with `milp` at a time limit and by the plain rule.

    python benchmarks/balance/drain.py [--seconds S] [--hot N] [--seeds N]

60 nodes at 50 % with 20 key groups each (+-20 %), 10 of them to be emptied, `--hot` others at 100 %, 20 moves a round.
Prints the key groups that leave in each round, and the largest load distance after any round. Seconds are CPU seconds.
"""

import argparse
import os
import time
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np

from trimtab_models.balance.bound import lower_bound
from trimtab_models.balance.drain import plain_drain
from trimtab_models.balance.evaluate import evaluate
from trimtab_models.balance.problem import BalanceProblem, Ints
from trimtab_models.balance.result import BalanceResult
from trimtab_models.balance.solve import BalanceParams, solve
from trimtab_models.solving import Deadline, Never

NODES, PER_NODE, MARKED, MOVES = 60, 20, 10, 20
URGENT_PP = BalanceParams().urgent
LONGEST = 40


def cluster(hot: int, seed: int) -> BalanceProblem:
    """The cluster before the first round."""
    random = np.random.default_rng(seed)
    count, home = NODES * PER_NODE, np.repeat(np.arange(NODES), PER_NODE)
    load = 50 / PER_NODE * random.uniform(0.8, 1.2, count)
    removing = np.zeros(NODES, np.bool_)
    removing[random.choice(NODES, MARKED, replace=False)] = True
    for node in random.choice(np.flatnonzero(~removing), hot, replace=False):
        load[home == node] *= 100 / load[home == node].sum()
    return BalanceProblem(
        load=load, cost_bytes=np.ones(count), home=home, pinned=np.zeros(count, np.bool_),
        in_flight=np.zeros(count, np.bool_), capacity=np.ones(NODES), removing=removing,
        usage=np.zeros((0, count)), limit=np.zeros((0, NODES)), max_migrations=MOVES,
    )  # fmt: skip


def by_rule(problem: BalanceProblem) -> Ints:
    """The plan of the plain rule."""
    now = evaluate(problem, problem.home).load_distance
    return plain_drain(problem, problem.home, max(lower_bound(problem, now, Never()), URGENT_PP), Never())


def by_milp(seconds: float) -> Callable[[BalanceProblem], Ints]:
    """The plans of `milp` within `seconds`."""

    def planned(problem: BalanceProblem) -> Ints:
        result = solve(problem, stop=Deadline(time.process_time, time.process_time() + seconds), seed=0)
        assert isinstance(result, BalanceResult)
        return result.allocation

    return planned


def print_rounds(name: str, problem: BalanceProblem, plan: Callable[[BalanceProblem], Ints]) -> None:
    """Plays the rounds and prints a line."""
    left = [int(problem.removing[problem.home].sum())]
    distances: list[float] = []
    while left[-1] and len(distances) < LONGEST:
        problem = replace(problem, home=plan(problem))
        left.append(int(problem.removing[problem.home].sum()))
        distances.append(evaluate(problem, problem.home).load_distance)
    leaving = " ".join(str(before - after) for before, after in pairwise(left))
    print(
        f"{name:<12} {len(distances):>2} rounds, load distance <= {max(distances):.1f}, leaving: {leaving}", flush=True
    )


def main() -> None:
    """Prints two lines per seed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--hot", type=int, default=1)
    parser.add_argument("--seeds", type=int, default=3)
    args = parser.parse_args()
    for seed in range(7, 7 + args.seeds):
        problem = cluster(args.hot, seed)
        print_rounds("plain rule", problem, by_rule)
        print_rounds(f"milp, {args.seconds} s", problem, by_milp(args.seconds))


if __name__ == "__main__":
    main()
