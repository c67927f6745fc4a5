"""`python -m tests.sim.simulate [--seed N | --rounds N [--from N]]`: one seed once more, or many seeds."""

import argparse
import sys
import time

from tests.sim.simulated.ledger import Violation
from tests.sim.simulated.ruled import RULED, RULED_EVERY
from tests.sim.simulated.simulation import Outcome, simulating


def main() -> int:
    """0: every invariant held; 1: the failing seeds are printed, and how to replay them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, help="replay this one")
    parser.add_argument("--rounds", type=int, default=10_000, help="simulate so many windows")
    parser.add_argument("--from", type=int, default=0, dest="first", help="the first seed")
    parser.add_argument("--rules", action="store_true", help="only clusters with rules")
    chosen = parser.parse_args()
    with simulating() as run:
        if chosen.seed is not None:
            return 1 if tell(run, chosen.seed) is None else 0
        return many(run, chosen.first, chosen.rounds, only_ruled=chosen.rules)


def tell(run: object, seed: int, *, brief: bool = False) -> Outcome | None:
    """Run a seed and print what became of it."""
    try:
        outcome: Outcome = run(seed)  # type: ignore[operator]
    except Violation as violation:
        print(f"{violation}\n  replay: python -m tests.sim.simulate --seed {seed}", flush=True)
        return None
    if not brief:
        print(outcome)
    return outcome


def many(run: object, first: int, rounds: int, *, only_ruled: bool = False) -> int:
    """Seeds from `first` on until so many rounds are done."""
    done = failed = seeds = plans = moved = faults = losses = steps = 0
    began = time.process_time()
    while done < rounds:
        seed = first + seeds if not only_ruled else RULED_EVERY * (first + seeds) + RULED
        outcome = tell(run, seed, brief=True)
        seeds += 1
        if outcome is None:
            failed += 1
            done += 1
            continue
        done += outcome.rounds
        steps += outcome.steps
        plans += outcome.plans
        moved += outcome.moved
        faults += outcome.faults
        losses += outcome.losses
    print(
        f"{seeds} seeds from {first}: {done} rounds, {steps} steps, {faults} faults, {plans} plans, "
        f"{losses} after a loss, {moved} key groups moved, {failed} seeds failed, "
        f"{time.process_time() - began:.1f} CPU-seconds"
    )
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
