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

from tests.models.allowed_standbys import is_allowed
from trimtab_models.standbys.bound import orphans_by_domain
from trimtab_models.standbys.problem import UNPLACED, Ints, StandbyProblem, evaluate
from trimtab_models.standbys.solve import StandbyResult, solve

WORKERS = (4, 8, 16, 30, 60)
EACH = 20
SPEEDS = ((60, 1_200, 0.05), (1_000, 100_000, 1.0))
LARGEST = (10_000, 1_000_000, 10.0)
AIM = 1.0
MEAN_LOAD = 50.0
FOLLOWING_SHARE = 0.2
SCALE = 1_000
"""Steps per percent of a worker; CP-SAT knows integers only."""


def instance(
    workers: int,
    key_groups: int,
    seed: int,
    *,
    balanced: bool,
    share: float = FOLLOWING_SHARE,
    hosts: int | None = None,
    alike: bool = True,
) -> StandbyProblem:
    """Key groups with log-normal loads and states (sigma 1), at a mean load of 50 % of all workers, without standbys.

    `balanced`: owners by largest load first, as a balanced cluster has them; else equal numbers at random.  `hosts`:
    the workers share so many hosts.  Not `alike`: capacities of 0.5, 1 and 2.
    """
    random = np.random.default_rng(seed)
    load = random.lognormal(0, 1, key_groups)
    capacity = np.ones(workers) if alike else random.choice([0.5, 1.0, 2.0], workers)
    load *= MEAN_LOAD * capacity.sum() / load.sum()
    owner = random.permutation(np.arange(key_groups) % workers)
    if balanced:
        held = np.zeros(workers)
        for key_group in np.argsort(-load).tolist():
            at = int(((held + load[key_group]) / capacity).argmin())
            owner[key_group] = at
            held[at] += load[key_group]
    levels = [np.arange(workers)]
    if hosts is not None:
        levels.append(np.arange(workers) % hosts)
    return StandbyProblem(
        owner=owner.astype(np.int64),
        load=load,
        follow=share * load,
        state_bytes=random.lognormal(15, 1, key_groups),
        capacity=capacity,
        removing=np.zeros(workers, np.bool_),
        levels=np.array(levels, np.int64),
        present=np.full((key_groups, 0), UNPLACED, np.int64),
        frozen=np.zeros(key_groups, np.bool_),
        wanted=1,
        usage=np.zeros((0, key_groups)),
        limit=np.zeros((0, workers)),
    )


def fewest_key_groups(problem: StandbyProblem) -> Ints:
    """After a loss, each orphan goes to the survivor with the fewest key groups.

    The fallback of Trimtab's plug-in where no standby is known, and what Faust's assignor does.  Only first standbys.
    """
    assignment = np.full((len(problem.owner), problem.wanted), UNPLACED, np.int64)
    owned = np.bincount(problem.owner, minlength=len(problem.capacity)).astype(np.float64)
    for domain, orphans in enumerate(orphans_by_domain(problem)):
        held = np.where((problem.domain == domain) | problem.removing, np.inf, owned)
        for key_group in np.sort(orphans).tolist():
            heir = int(held.argmin())
            assignment[key_group, 0] = heir
            held[heir] += 1
    return assignment


def rack_aware_standbys(problem: StandbyProblem) -> Ints:
    """The standbys of Kafka Streams with rack awareness (ClientTagAwareStandbyTaskAssignor, Kafka 3.2 and later).

    Task by task, each standby goes to the client with the fewest tasks (active and standby) relative to its threads, of
    those that share no tag with the active task or an earlier standby.  Here a failure domain is the tag, a worker a
    client, and its capacity the number of threads.  Ties go to the first client.
    """
    assignment = np.full((len(problem.owner), problem.wanted), UNPLACED, np.int64)
    tasks = np.bincount(problem.owner, minlength=len(problem.capacity)).astype(np.float64)
    for key_group, owner in enumerate(problem.owner.tolist()):
        names = problem.levels[problem.apart[owner]]
        used = problem.beside(key_group) | problem.removing
        for rank in range(int(problem.due[key_group])):
            standby = int(np.where(used, np.inf, tasks / problem.capacity).argmin())
            assignment[key_group, rank] = standby
            tasks[standby] += 1
            used |= names == names[standby]
    return assignment


def optimum(problem: StandbyProblem, hint: np.ndarray, seconds: float) -> tuple[float, float]:
    """The best value and bound (percent of a worker) after at most `seconds`, beginning with the plan `hint`.

    For one standby per key group, without limits.  Both are off by up to a hundredth from rounding.
    """
    from ortools.sat.python import cp_model  # slow to load

    model = cp_model.CpModel()
    workers = range(len(problem.capacity))
    load, follow = (np.round(values * SCALE).astype(int) for values in (problem.load, problem.follow))
    own = np.bincount(problem.owner, load, len(workers)).astype(int)
    chosen: dict[tuple[int, int], cp_model.IntVar] = {}
    for key_group, owner in enumerate(problem.owner.tolist()):
        able = [n for n in workers if not problem.removing[n] and problem.domain[n] != problem.domain[owner]]
        for worker in able:
            chosen[key_group, worker] = model.new_bool_var("")
            model.add_hint(chosen[key_group, worker], int(hint[key_group, 0] == worker))
        model.add_exactly_one(chosen[key_group, worker] for worker in able)
    highest = model.new_int_var(0, 10_000 * SCALE, "")
    of = problem.domain[problem.owner]
    for domain in range(problem.domains):
        for worker in workers:
            if problem.domain[worker] == domain:
                continue
            carried = sum(
                int(load[key_group] if of[key_group] == domain else follow[key_group]) * chosen[key_group, worker]
                for key_group in range(len(problem.owner))
                if (key_group, worker) in chosen
            )
            model.add(SCALE * (int(own[worker]) + carried) <= int(problem.capacity[worker] * SCALE) * highest)
    model.minimize(highest)
    solver = cp_model.CpSolver()
    solver.parameters.max_time_in_seconds = seconds
    solver.solve(model)
    return solver.objective_value / SCALE, solver.best_objective_bound / SCALE


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
        problems = [instance(workers, key_groups, seed, balanced=balanced, share=share) for seed in range(runs)]
        found = [solved(problem) for problem in problems]
        seconds = float(np.median([taken for _, taken in found]))
        followed = [
            problem.followed(result.assignment, problem.state_bytes)
            for problem, (result, _) in zip(problems, found, strict=True)
        ]
        print(
            f"{share:>5} {workers:,} workers, {key_groups:,} key groups, {'balanced' if balanced else 'random'}: "
            f"{seconds:.3f} s ({'reached' if seconds <= aim_s else 'NOT reached'}: {aim_s} s), "
            f"gap {max(result.gap for result, _ in found):.2f} at most, "
            f"most followed bytes {max(each.max() / each.mean() for each in followed):.1f} times the mean",
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
