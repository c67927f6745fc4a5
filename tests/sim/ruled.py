"""`python -m tests.sim.ruled [--rounds N] [--from SEED | --seed SEED]`: rounds with rules, and none is broken."""

import argparse
import sys

from tests.sim.simulated.ledger import Violation
from tests.sim.simulated.ruled_rounds import Counts, RuledCluster


def main() -> int:
    """0: no rule was broken; 1: the failing seeds are printed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=10_000, help="simulate so many rounds")
    parser.add_argument("--from", type=int, default=0, dest="first", help="the first seed")
    parser.add_argument("--seed", type=int, help="only this one")
    chosen = parser.parse_args()
    if chosen.seed is not None:
        print(RuledCluster(chosen.seed).run())
        return 0
    counts, seed, failed = Counts(), chosen.first, 0
    while counts.rounds < chosen.rounds:
        cluster = RuledCluster(seed)
        try:
            counts.add(cluster.run())
        except Violation as violation:
            failed += 1
            counts.add(cluster.counts)
            print(f"{violation}\n  replay: python -m tests.sim.ruled --seed {seed}", flush=True)
        seed += 1
    print(f"{counts}" if not failed else f"{failed} of {seed - chosen.first} clusters broke a rule")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
