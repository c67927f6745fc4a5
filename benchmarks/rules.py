"""Measures what rules cost: load distance, gap and time, without rules and with rules on a tenth of the key groups.

    python -m benchmarks.rules [--seconds 5]

Clusters as in `benchmarks.hosts`, without limits of hosts.  "kept" = ten rules, each a pool of a tenth of the workers
for a hundredth of the key groups, which are there already; "broken" = the same, with these key groups anywhere.
"kinds" = rules of all kinds that place key groups, for a tenth of them, which are anywhere: a third is pinned by 40
rules to a worker each, a third is kept in one of four zones, and a third may not be on a tenth of the workers.
`breaches` counts moves that break a rule, `left` the key groups that the first plan has not yet brought to where they
may be; the last column is the load distance that a second plan leaves.  The gap is to the proven bound: of all plans
that leave nothing where it may not be, if the plan does.  Times are seconds of CPU, so that other programs do not
change the plans; the limit is one, too.
"""

import argparse
import statistics
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """A plan, and the load distance (pp) that the next one leaves."""

    distance: float
    gap: float
    seconds: float
    breaches: int
    left: int
    next_distance: float


def measured(asked: Question) -> Measured:
    """The first plan for a question, and the next one from there."""
    first, broken, left, owner = planned(asked)
    then, broken_then, _, _ = planned(replace(asked, owner=owner))
    return Measured(
        distance=first.load_distance,
        gap=first.load_distance - first.lower_bound,
        seconds=first.solve_s,
        breaches=broken + broken_then,
        left=left,
        next_distance=then.load_distance,
    )


def planned(asked: Question) -> tuple[Answer, int, int, NDArray[np.int32]]:
    """A plan, how many of its moves break a rule, how many key groups are still to move because of one, the owners."""
    found = answer(asked, time.process_time)
    assert isinstance(found, Answer)
    owner, moved = asked.owner.copy(), [key_group for key_group, _ in found.moves]
    owner[moved] = [target for _, target in found.moves]
    rules = rules_of(asked)
    broken = np.zeros(len(owner), np.bool_) if rules is None else ~rules.keep(owner.astype(np.int64))
    return found, int(broken[moved].sum()), int(broken.sum()), owner


def compare(seconds: float) -> Iterator[str]:
    """A line for each size and kind of rules; medians over the seeds, sums of what is counted."""
    for workers, key_groups, budget in SIZES:
        for kind in ("no rules", "kept", "broken", "kinds"):
            found = []
            for seed in SEEDS:
                asked = question(workers, key_groups, budget, seed, seconds)
                if kind == "kinds":
                    asked = with_kinds(asked, seed)
                elif kind != "no rules":
                    asked = with_rules(asked, seed, kept=kind == "kept")
                found.append(measured(asked))
            distance, gap, taken, after = (
                statistics.median(getattr(each, name) for each in found)
                for name in ("distance", "gap", "seconds", "next_distance")
            )
            breaches, left = (sum(getattr(each, name) for each in found) for name in ("breaches", "left"))
            yield (
                f"{workers:6d} {key_groups:8d} {kind:>9}  load distance {distance:6.2f}  gap {gap:5.2f} pp"
                f"  {taken:5.2f} s  breaches {breaches}  left {left}  after the next plan {after:5.2f}"
            )


def main() -> None:
    """Print the lines."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=5.0, help="time limit of the solver")
    for line in compare(parser.parse_args().seconds):
        print(line, flush=True)


if __name__ == "__main__":
    main()
