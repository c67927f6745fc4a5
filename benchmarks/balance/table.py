"""The table of the balance model: gap to the proven bound, by cluster size, budget and time.

    python -m benchmarks.balance.table [--quick] [--largest] [--nodes N] [--bytes] [--wall | --calibrated]
                                       [--first-plans] [--seeds N]

Instances: those of the paper (`uneven_cluster`), 20 % of whose nodes changed by 20, 50 or 80
percent of their load. Budgets: 13, 20, 50 migrations at paper sizes, 1, 2, 3, 5, 10 % of the key groups at all. A
budget *binds* if the strongest bound is above 1 pp, and is *ample* if it is below 0.01 pp, else *middle*.  With --bytes
a move costs its state, log-normal (sigma 1) and growing with the root of the load, and budgets are 0.5, 1, 2, 3, 5 % of
all bytes.  Times are CPU seconds of this single-threaded process, so that other work on the machine changes the result
less; with --wall they are wall-clock seconds.  With --calibrated they are reference seconds (`ReferenceClock`), so
that neighbours of a virtual machine, which slow down its cores, hardly change it.
"""

import argparse
import os
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np

from trimtab_models.balance.improve import Effort
from trimtab_models.balance.problem import BalanceProblem
from trimtab_models.balance.result import BalanceResult
from trimtab_models.balance.solve import BalanceParams, solve
from trimtab_models.simulation.workloads import uneven_cluster
from trimtab_models.solving import Deadline, Never

BINDS, MIDDLE, AMPLE = "binds", "middle", "ample"
CHANGES = (20, 50, 80)
PAPER_BUDGETS = (13, 20, 50)
SHARES = (0.01, 0.02, 0.03, 0.05, 0.10)
BYTE_SHARES = (0.005, 0.01, 0.02, 0.03, 0.05)
UNLIMITED = BalanceParams(effort=Effort(steps=10**9), polish=Effort(steps=0), certify=True)
NO_SEARCH = BalanceParams(effort=Effort(steps=0), polish=Effort(steps=0))
CROWDED = 50.0  # factor on the wall-clock limit of CP-SAT, which also waits for other processes
STRONGEST_BOUND = BalanceParams(effort=Effort(steps=1), polish=Effort(steps=0))
PYTHON_ROUNDS, NUMPY_ROUNDS = 5_000, 22
REFERENCE_S = 1.44e-3  # CPU time of one repeat on the undisturbed core: the first percentile of 746 in 15 s
REPEATS = 3  # the median of so many counts
EVERY_S = 0.1


class ReferenceClock:
    """Reference seconds of this process since the clock was made, on a core whose speed changes.

    A *reference second* is a CPU second of an undisturbed core of an AMD EPYC (Milan, 2.45 GHz; Python 3.11, numpy 2).
    Some fixed work, which takes REFERENCE_S there, is done every EVERY_S of CPU time, and its own time does not count.
    Half of it is plain Python, and half is numpy on arrays of the size of a small cluster, as in the balance solver.
    Neighbours slow down other work less than this, or more, by up to a third.
    """

    def __init__(self) -> None:
        self._values = np.random.default_rng(0).random(1_200)
        self._table = dict.fromkeys(range(1_024), 0)
        self._reference_s, self.factors = 0.0, [self._measured()]
        self._at = self._read = time.process_time()

    def __call__(self) -> float:
        """The reference seconds now."""
        now = time.process_time()
        self._reference_s += (now - self._read) / self.factors[-1]
        self._read = now
        if now - self._at >= EVERY_S:
            self.calibrate()
        return self._reference_s

    def calibrate(self) -> None:
        """Measure the speed of the core anew."""
        self.factors.append(self._measured())
        self._at = self._read = time.process_time()

    def _measured(self) -> float:
        """CPU seconds per reference second."""
        taken = []
        for _ in range(REPEATS):
            before = time.process_time()
            self._work()
            taken.append(time.process_time() - before)
        return float(np.median(taken)) / REFERENCE_S

    def _work(self) -> None:
        values, table, total = self._values, self._table, 0
        for number in range(PYTHON_ROUNDS):
            table[number & 1023] = total
            total += table.get((number * 7) & 1023, 0) & 255
        for _ in range(NUMPY_ROUNDS):
            ordered = values[np.argsort(values, kind="stable")]
            np.maximum(ordered - 0.5, 0).sum()
            np.minimum(values, 0.3).max()


@dataclass(frozen=True, slots=True, kw_only=True)
class Aim:
    """After `seconds`, the gap is at most `gap` (pp) in `share` of the runs."""

    budget: str
    seconds: float
    gap: float
    share: float = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """A row of the table."""

    nodes: int
    key_groups: int
    first_plan_s: float
    aims: tuple[Aim, ...]

    def budgets(self) -> list[int]:
        """Budgets in migrations."""
        shares = [round(share * self.key_groups) for share in SHARES]
        return sorted({*shares, *(PAPER_BUDGETS if self.nodes <= 60 else ())})


PAPER_AIMS = (
    Aim(budget=BINDS, seconds=0.1, gap=0.02, share=0.8),
    Aim(budget=BINDS, seconds=5, gap=0.1, share=0.95),
    Aim(budget=MIDDLE, seconds=1, gap=0.3),
    Aim(budget=MIDDLE, seconds=5, gap=0.15),
    Aim(budget=AMPLE, seconds=0.1, gap=0.05),
)
SIZES = (
    Size(nodes=20, key_groups=400, first_plan_s=0.005, aims=PAPER_AIMS),
    Size(nodes=60, key_groups=1_200, first_plan_s=0.005, aims=PAPER_AIMS),
    Size(
        nodes=200, key_groups=4_000, first_plan_s=0.01,
        aims=(
            Aim(budget=BINDS, seconds=0.1, gap=0.02),
            Aim(budget=MIDDLE, seconds=5, gap=0.2),
            Aim(budget=AMPLE, seconds=2, gap=0.05),
        ),
    ),
    Size(
        nodes=1_000, key_groups=50_000, first_plan_s=0.1,
        aims=(
            Aim(budget=BINDS, seconds=0.2, gap=0.01),
            Aim(budget=MIDDLE, seconds=10, gap=0.08),
            Aim(budget=AMPLE, seconds=5, gap=0.1),
        ),
    ),
    Size(
        nodes=1_000, key_groups=100_000, first_plan_s=0.2,
        aims=(
            Aim(budget=BINDS, seconds=0.2, gap=0.01),
            Aim(budget=MIDDLE, seconds=10, gap=0.15),
            Aim(budget=AMPLE, seconds=10, gap=0.02),
        ),
    ),
)  # fmt: skip
LARGEST = Size(
    nodes=10_000, key_groups=1_000_000, first_plan_s=5,
    aims=(
        Aim(budget=BINDS, seconds=5, gap=0.01),
        Aim(budget=MIDDLE, seconds=60, gap=0.25),
        Aim(budget=AMPLE, seconds=60, gap=0.15),
    ),
)  # fmt: skip


def solved(
    problem: BalanceProblem, seconds: float, clock: Callable[[], float], params: BalanceParams
) -> tuple[BalanceResult, float]:
    """The plan after at most `seconds`, and the time used."""
    if isinstance(clock, ReferenceClock):
        clock.calibrate()
    started = clock()
    wall = 1.0 if clock is time.perf_counter else CROWDED
    stop = Deadline(clock, started + seconds, wall_per_s=wall) if np.isfinite(seconds) else Never()
    result = solve(problem, stop=stop, seed=0, params=params)
    assert isinstance(result, BalanceResult)
    return result, clock() - started


def problems_of(size: Size, seeds: int, *, by_bytes: bool) -> Iterator[BalanceProblem]:
    """All instances of a row, with all budgets."""
    for change in CHANGES:
        for seed in range(seeds):
            cluster = uneven_cluster(size.nodes, size.key_groups, change, seed)
            if not by_bytes:
                for budget in size.budgets():
                    yield replace(cluster, max_migrations=budget)
                continue
            state = np.exp(np.random.default_rng(seed).normal(0, 1, size.key_groups))
            cost = 1e6 * state * np.sqrt(cluster.load / cluster.load.mean())
            for share in BYTE_SHARES:
                yield replace(cluster, cost_bytes=cost, max_cost_bytes=share * float(cost.sum()))


def budget_class(bound: float) -> str:
    """The class of a budget: binding, middle or ample."""
    return BINDS if bound > 1 else AMPLE if bound < 0.01 else MIDDLE


def print_row(size: Size, seeds: int, clock: Callable[[], float], *, by_bytes: bool) -> None:
    """Measures and prints one row of the table, a line per aim."""
    gaps: dict[Aim, list[float]] = defaultdict(list)
    first: list[float] = []
    for problem in problems_of(size, seeds, by_bytes=by_bytes):
        plan, seconds = solved(problem, np.inf, clock, NO_SEARCH)
        first.append(seconds)
        if not size.aims:
            continue
        kind = budget_class(max(plan.lower_bound, solved(problem, np.inf, clock, STRONGEST_BOUND)[0].lower_bound))
        for aim in size.aims:
            if aim.budget == kind:
                found, _ = solved(problem, aim.seconds, clock, UNLIMITED)
                gaps[aim].append(found.gap_pp)
    name = f"{size.nodes:,} / {size.key_groups:,}"
    print_line(
        name,
        "first plan",
        f"{np.median(first):.3f} s",
        f"{size.first_plan_s} s",
        float(np.median(first)) <= size.first_plan_s,
    )
    for aim in size.aims:
        wanted = f"<= {aim.gap} pp in {aim.share:.0%}"
        if not gaps[aim]:
            print_line(name, f"{aim.budget} {aim.seconds} s", "no such instance", wanted, None)
            continue
        reached = np.array(gaps[aim])
        share = float((reached <= aim.gap + 1e-6).mean())
        measured = f"median {np.median(reached):.3f} pp, {share:.0%} of {len(reached)} runs"
        print_line(name, f"{aim.budget} {aim.seconds} s", measured, wanted, share >= aim.share)


def print_line(name: str, what: str, measured: str, aim: str, reached: bool | None) -> None:
    """One line of the table."""
    verdict = "" if reached is None else "reached" if reached else "NOT reached"
    print(f"{name:>18} | {what:<14} | {measured:<38} | {aim:<22} | {verdict}", flush=True)


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="paper sizes only, one instance each")
    parser.add_argument("--largest", action="store_true", help="only 10,000 nodes with 1,000,000 key groups")
    parser.add_argument("--nodes", type=int, metavar="N", help="only the rows with so many nodes")
    parser.add_argument("--bytes", action="store_true", help="budgets of bytes instead of migrations")
    parser.add_argument("--first-plans", action="store_true", help="only the time until the first plan")
    seconds = parser.add_mutually_exclusive_group()
    seconds.add_argument("--wall", action="store_true", help="seconds of the clock instead of CPU seconds")
    seconds.add_argument("--calibrated", action="store_true", help="reference seconds instead of CPU seconds")
    parser.add_argument(
        "--seeds", type=int, help="instances per kind (default 3; 1 with --quick and from 1,000 nodes on)"
    )
    args = parser.parse_args()
    reference = ReferenceClock() if args.calibrated else None
    clock = reference or (time.perf_counter if args.wall else time.process_time)
    print_line("nodes / key groups", "budget, time", "measured", "aim", None)
    for size in (LARGEST,) if args.largest else SIZES[:2] if args.quick else SIZES:
        if args.nodes not in (None, size.nodes):
            continue
        seeds = args.seeds or (1 if args.quick or size.nodes >= 1_000 else 3)
        row = replace(size, aims=()) if args.first_plans else size
        print_row(row, seeds, clock, by_bytes=args.bytes)
    if reference:
        low, middle, high = np.quantile(reference.factors, (0.05, 0.5, 0.95))
        print(f"CPU seconds per reference second: median {middle:.2f}, from {low:.2f} (5 %) to {high:.2f} (95 %)")


if __name__ == "__main__":
    main()
