"""`python -m tests.sim.simulate [--seed N | --rounds N [--from N]]`: one seed once more, or many seeds."""

import argparse
import sys
import time

from tests.sim.simulated.budgeted import BUDGETED, BUDGETED_EVERY, WINDOWED
from tests.sim.simulated.ledger import Violation
from tests.sim.simulated.ruled import RULED, RULED_EVERY
from tests.sim.simulated.simulation import Outcome, simulating
from tests.sim.simulated.zoned import ZONED, ZONED_EVERY


def main() -> int:
    """0: every invariant held; 1: the failing seeds are printed, and how to replay them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, help="replay this one")
    parser.add_argument("--rounds", type=int, default=10_000, help="simulate so many windows")
    parser.add_argument("--from", type=int, default=0, dest="first", help="the first seed")
    parser.add_argument("--budget", action="store_true", help="only clusters with a disruption budget")
    parser.add_argument("--windows", action="store_true", help="only clusters whose plans begin in windows only")
    parser.add_argument("--rules", action="store_true", help="only clusters with rules")
    parser.add_argument("--zones", action="store_true", help="only clusters whose hosts have zones")
    chosen = parser.parse_args()
    with simulating() as run:
        if chosen.seed is not None:
            return 1 if tell(run, chosen.seed) is None else 0
        every, only = (
            (ZONED_EVERY, ZONED)
            if chosen.zones
            else (BUDGETED_EVERY, WINDOWED)
            if chosen.windows
            else (RULED_EVERY, RULED)
            if chosen.rules
            else (BUDGETED_EVERY, BUDGETED)
            if chosen.budget
            else (1, 0)
        )
        return many(run, range(every * chosen.first + only, 10**9, every), chosen.rounds)


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


def many(run: object, seeds_to_run: range, rounds: int) -> int:
    """These seeds until so many rounds are done."""
    used_share = 0.0
    in_windows = released = done = failed = seeds = plans = moved = faults = losses = steps = 0
    began = time.process_time()
    while done < rounds:
        outcome = tell(run, seeds_to_run[seeds], brief=True)
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
        released += outcome.released
        in_windows += outcome.in_windows
        used_share = max(used_share, outcome.used_share)
    print(
        f"{seeds} seeds from {seeds_to_run[0]}: {done} rounds, {steps} steps, {faults} faults, {plans} plans, "
        f"{losses} after a loss, {moved} key groups moved, {failed} seeds failed, "
        f"{released} hand-overs within a budget, of which at most {used_share:.0%} was used, "
        f"{in_windows} plans within windows, "
        f"{time.process_time() - began:.1f} CPU-seconds"
    )
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
