"""Measures what rules cost: load distance, gap and time, without rules and with rules on a tenth of the key groups.

    python -m benchmarks.rules [--seconds 5]

Clusters as in `benchmarks.hosts`, without limits of hosts.  "kept" = ten rules, each a pool of a tenth of the workers
for a hundredth of the key groups, which are there already; "broken" = the same, with these key groups anywhere.
"kinds" = rules of all kinds that place key groups, for a tenth of them, which are anywhere: a third is pinned by 40
rules to a worker each, a third is kept in one of four zones, and a third may not be on a tenth of the workers.
`breaches` counts moves that break a rule, `left` the key groups that a plan has not yet brought into their pool.  Times
are seconds of CPU, so that other programs do not change the plans; the limit is one, too.
"""

import argparse
import statistics
import time
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from benchmarks.hosts import SIZES, question
from trimtab_controller.solver.answer import Answer, Placing, Question
from trimtab_controller.solver.balance import answer, rules_of

SEEDS = range(3)
POOLS, PINS, ZONES = 10, 40, 4


def with_kinds(asked: Question, seed: int) -> Question:
    """The question with pins, zones and exclusions; key groups of the same rule form a class."""
    random = np.random.default_rng(seed)
    key_groups, workers = len(asked.load), len(asked.capacity)
    chosen = random.permutation(key_groups)[: key_groups // 10]
    pinned, zoned, excluded = np.array_split(chosen, 3)
    class_of = np.full(key_groups, -1, np.int32)
    class_of[pinned] = np.arange(len(pinned)) % PINS
    class_of[zoned] = PINS + np.arange(len(zoned)) % ZONES
    class_of[excluded] = PINS + ZONES
    at, zone = np.arange(workers), np.arange(workers) * ZONES // workers
    pins = at == random.choice(workers, PINS, replace=False)[:, None]
    allowed = np.concatenate((pins, zone == np.arange(ZONES)[:, None], (at >= workers // 10)[None, :]))
    placing = Placing(class_of=class_of, allowed=allowed, frozen=np.zeros(key_groups, np.bool_))
    return replace(asked, placing=placing)


def with_rules(asked: Question, seed: int, *, kept: bool) -> Question:
    """The question with ten pools."""
    random = np.random.default_rng(seed)
    key_groups, workers = len(asked.load), len(asked.capacity)
    class_of = np.full(key_groups, -1, np.int32)
    chosen = random.permutation(key_groups)[: key_groups // 10]
    class_of[chosen] = np.arange(len(chosen)) % POOLS
    pool = np.arange(workers) * POOLS // workers
    owner = asked.owner.copy()
    if kept:
        for which in range(POOLS):
            inside, here = np.flatnonzero(class_of == which), np.flatnonzero(pool == which)
            owner[inside] = here[np.arange(len(inside)) % len(here)]
    allowed = pool == np.arange(POOLS)[:, None]
    placing = Placing(class_of=class_of, allowed=allowed, frozen=np.zeros(key_groups, np.bool_))
    return replace(asked, owner=owner, placing=placing)


def compare(seconds: float) -> Iterator[str]:
    """A line for each size and kind of rules; medians over the seeds."""
    for workers, key_groups, budget in SIZES:
        for kind in ("no rules", "kept", "broken", "kinds"):
            distances, gaps, times, breaches, left = [], [], [], 0, 0
            for seed in SEEDS:
                asked = question(workers, key_groups, budget, seed, seconds)
                if kind == "kinds":
                    asked = with_kinds(asked, seed)
                elif kind != "no rules":
                    asked = with_rules(asked, seed, kept=kind == "kept")
                found = answer(asked, time.process_time)
                assert isinstance(found, Answer)
                distances.append(found.load_distance)
                gaps.append(found.load_distance - found.lower_bound)
                times.append(found.solve_s)
                if (rules := rules_of(asked)) is not None:
                    plan = asked.owner.astype(np.int64)
                    moved = [key_group for key_group, _ in found.moves]
                    plan[moved] = [target for _, target in found.moves]
                    breaches += int((~rules.keep(plan)[moved]).sum())
                    left += int((~rules.keep(plan)).sum())
            figures = [statistics.median(each) for each in (distances, gaps, times)]
            yield (
                f"{workers:6d} {key_groups:8d} {kind:>9}  load distance {figures[0]:6.2f}  gap {figures[1]:5.2f} pp"
                f"  {figures[2]:5.2f} s  breaches {breaches}  left {left}"
            )


def main() -> None:
    """Print the lines."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=5.0, help="time limit of the solver")
    for line in compare(parser.parse_args().seconds):
        print(line, flush=True)


if __name__ == "__main__":
    main()
