"""`python -m tests.sim.ruled [--rounds N] [--from SEED | --seed SEED | --defects]`: no round breaks a rule."""

import argparse
import sys

from tests.sim.simulated.ledger import Violation
from tests.sim.simulated.ruled_defects import DEFECTS, planted
from tests.sim.simulated.ruled_rounds import Counts, RuledCluster

CLUSTERS = 40
"""In so many of them a planted defect must be found."""


def found(defect: str, first: int = 0) -> Violation | None:
    """What the clusters from seed `first` on find of a planted defect; None: nothing."""
    with planted(defect):
        for seed in range(first, first + CLUSTERS):
            try:
                RuledCluster(seed).run()
            except Violation as violation:
                return violation
    return None


def main() -> int:
    """0: no rule was broken, or all planted defects were found; 1: it says what failed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=10_000, help="simulate so many rounds")
    parser.add_argument("--from", type=int, default=0, dest="first", help="the first seed")
    parser.add_argument("--seed", type=int, help="only this one")
    parser.add_argument("--defects", action="store_true", help="plant defects instead, and say which are found")
    chosen = parser.parse_args()
    if chosen.defects:
        each = {defect: found(defect, chosen.first) for defect in DEFECTS}
        for defect, violation in each.items():
            print(f"{defect}: {violation or 'NOT FOUND'}", flush=True)
        return 0 if all(each.values()) else 1
    if chosen.seed is not None:
        print(RuledCluster(chosen.seed).run())
        return 0
    return simulate(chosen.rounds, chosen.first)


def simulate(rounds: int, first: int) -> int:
    """Clusters from seed `first` on until there are so many rounds; 1 if a rule was broken."""
    counts, seed, failed = Counts(), first, 0
    while counts.rounds < rounds:
        cluster = RuledCluster(seed)
        try:
            counts.add(cluster.run())
        except Violation as violation:
            failed += 1
            counts.add(cluster.counts)
            print(f"{violation}\n  replay: python -m tests.sim.ruled --seed {seed}", flush=True)
        seed += 1
    print(f"{counts}" if not failed else f"{failed} of {seed - first} clusters broke a rule")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
