"""The table of the standby model: gap to the bound, baselines, seconds.

    python -m benchmarks.standbys [--instances N] [--share S ...] [--exact SECONDS] [--speed] [--largest]

Instances: 20 key groups a worker with log-normal loads (sigma 1) at a mean load of 50 %, owned by largest load first
(*balanced*) or at random in equal numbers (*random*).  Following costs a share S of a key group's load; the controller
assumes 0.2, and where it is measured to cost nothing, the share is 0.  Gaps are in percent of a worker.  `--exact`
compares the smallest instances with the best plan and bound of CP-SAT within so many seconds each.  `--speed` measures
large apps only, `--largest` 10,000 workers with 1,000,000 key groups.  Times are CPU seconds.
"""

import argparse
import os
import time

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np

from benchmarks.standbys.baselines import fewest_key_groups, rack_aware_standbys
from benchmarks.standbys.exact import optimum
from benchmarks.standbys.instances import FOLLOWING_SHARE, instance
from trimtab_models.standbys.problem import StandbyProblem, evaluate, is_allowed
from trimtab_models.standbys.solve import StandbyResult, solve

WORKERS = (4, 8, 16, 30, 60)
EACH = 20
SPEEDS = ((60, 1_200, 0.05), (1_000, 100_000, 1.0))
LARGEST = (10_000, 1_000_000, 10.0)
AIM = 1.0


def solved(problem: StandbyProblem) -> tuple[StandbyResult, float]:
    """The plan and its CPU seconds."""
    started = time.process_time()
    result = solve(problem)
    seconds = time.process_time() - started
    assert is_allowed(problem, result.assignment)
    assert not result.score.missing
    return result, seconds


def print_gaps(share: float, instances: int) -> None:
    """A line per size and kind of owners, and one for all of them."""
    every: list[float] = []
    for workers in WORKERS:
        for balanced in (True, False):
            gaps, seconds, worse = [], [], 0
            less: dict[str, list[float]] = {"fewest": [], "rack-aware": []}
            for seed in range(instances):
                problem = instance(workers, EACH * workers, seed, balanced=balanced, share=share)
                result, taken = solved(problem)
                gaps.append(result.gap)
                seconds.append(taken)
                for name, baseline in (("fewest", fewest_key_groups), ("rack-aware", rack_aware_standbys)):
                    less[name].append(evaluate(problem, baseline(problem)).worst - result.score.worst)
                    worse += less[name][-1] < -1e-6
            every += gaps
            print(
                f"{share:>5} {workers:>7} {'balanced' if balanced else 'random':>9} | {_quantiles(gaps)} | "
                f"{np.median(less['fewest']):>8.1f} {np.median(less['rack-aware']):>10.1f} {worse:>6} | "
                f"{np.median(seconds):.3f} s",
                flush=True,
            )
    print(f"{share:>5}     all           | {_quantiles(every)}")


def _quantiles(gaps: list[float]) -> str:
    found = np.array(gaps)
    middle, most, worst = np.quantile(found, (0.5, 0.95, 1.0))
    return f"{middle:>6.2f} {most:>6.2f} {worst:>6.2f} {(found <= AIM).mean():>6.0%}"


def print_exact(share: float, seconds: float) -> None:
    """The smallest instances beside CP-SAT."""
    for workers in WORKERS[:2]:
        for seed in range(6):
            problem = instance(workers, EACH * workers, seed, balanced=seed % 2 == 0, share=share)
            result, _ = solved(problem)
            best, bound = optimum(problem, result.assignment, seconds)
            print(
                f"{share:>5} {workers:>3} workers, seed {seed}: {result.score.worst:.2f} "
                f"(bound {result.lower_bound:.2f}), CP-SAT {best:.2f} (bound {bound:.2f})",
                flush=True,
            )


def print_speed(workers: int, key_groups: int, aim_s: float, share: float, runs: int) -> None:
    """A line per kind of owners; the largest only at random, as balanced ones take longer to make than to plan."""
    for balanced in (True, False) if workers < LARGEST[0] else (False,):
        found = [solved(instance(workers, key_groups, seed, balanced=balanced, share=share)) for seed in range(runs)]
        seconds = float(np.median([taken for _, taken in found]))
        print(
            f"{share:>5} {workers:,} workers, {key_groups:,} key groups, {'balanced' if balanced else 'random'}: "
            f"{seconds:.3f} s ({'reached' if seconds <= aim_s else 'NOT reached'}: {aim_s} s), "
            f"gap {max(result.gap for result, _ in found):.2f} at most, "
            f"most followed bytes {max(result.score.unevenness for result, _ in found):.1f} times the mean",
            flush=True,
        )


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--instances", type=int, default=20, metavar="N")
    parser.add_argument("--share", type=float, nargs="+", default=[0.0, FOLLOWING_SHARE], metavar="S")
    parser.add_argument("--exact", type=float, metavar="SECONDS", help="beside CP-SAT")
    parser.add_argument("--speed", action="store_true", help="only large apps")
    parser.add_argument("--largest", action="store_true", help="only the largest app")
    args = parser.parse_args()
    if args.exact:
        for share in args.share:
            print_exact(share, args.exact)
        return
    if not (args.speed or args.largest):
        print("share workers    owners | gap: median, 95 %, worst, <= 1 | above: fewest, rack-aware, worse | time")
        for share in args.share:
            print_gaps(share, args.instances)
        return
    for share in args.share:
        for workers, key_groups, aim_s in (LARGEST,) if args.largest else SPEEDS:
            print_speed(workers, key_groups, aim_s, share, 1 if args.largest else 3)


if __name__ == "__main__":
    main()
