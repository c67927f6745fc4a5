"""What `[balance] method = "albic"` does to apps that gain by it, and to those that do not, beside "milp".

    python -m benchmarks.default_method [--seeds 10] [--windows 120]

The decider plays `TalkingJob` (`benchmarks.remote_costs` describes it): 24 pairs of key groups on three workers, 50
tuples per second and pair, and a third of the key groups three times as busy at first.  Its plans are carried out at
once.  No sample is odd, since what odd ones move by chance would hide the difference.  A remote tuple costs 110 us more
at each end, or nothing; pairs are together by chance, or all are apart; tuples within a worker skip the broker and are
counted, or go through it.  Printed are sums over the seeds: plans, moves, those of them in trials, the pairs that end
together, and the load at the end as a share of that of "milp".
"""

import argparse
from dataclasses import dataclass, replace

import numpy as np

from tests.controller.decider.talking_job import BUSY, TalkingJob
from tests.controller.decider.test_measured_collocation import Watched
from trimtab_controller.decider.values.decision import Planned
from trimtab_controller.decider.values.settings import Settings
from trimtab_controller.solver.answer import Method

COST_S, RATE = 110e-6, 50.0
LAST_WINDOWS = 10
CASES = {
    "no local topic, by chance": (0.0, TalkingJob(by_broker=True)),
    "no local topic, all apart": (0.0, TalkingJob(by_broker=True, apart=True)),
    "local, saves nothing, by chance": (0.0, TalkingJob(counted=True)),
    "local, saves nothing, all apart": (0.0, TalkingJob(counted=True, apart=True)),
    "old plug-in, no local topic, all apart": (0.0, TalkingJob(apart=True)),
    "local, saves, by chance": (COST_S, TalkingJob(counted=True)),
    "local, saves, all apart": (COST_S, TalkingJob(counted=True, apart=True)),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What a run did; `load` = cores of all key groups at the end, without noise."""

    plans: int
    moves: int
    trial_moves: int
    together: int
    load: float


def played(job: TalkingJob, cost_s: float, method: Method, seed: int, windows: int) -> Found:
    """One job under one method."""
    job = replace(job, seed=seed, rate=RATE, sending=cost_s, receiving=cost_s, owners={}, noise=replace(BUSY, odd=0.0))
    job.rates[:8] *= 3.0
    watched = Watched(job, Settings(method=method), acting=True).run(windows)
    plans = [each.plan for each in watched.decisions if isinstance(each, Planned)]
    return Found(
        plans=len(plans),
        moves=watched.moves,
        trial_moves=sum(len(plan.moves) for plan in plans if plan.detail.startswith("trial")),
        together=job.pairs - job.remote,
        load=float(np.mean([sum(row.cpu or 0.0 for row in job.window().key_groups) for _ in range(LAST_WINDOWS)])),
    )


def main() -> None:
    """Play and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--windows", type=int, default=120)
    given = parser.parse_args()
    print(f"{'':40} method  plans  moves  trials  together    load")
    for name, (cost_s, job) in CASES.items():
        base = 0.0
        for method in (Method.MILP, Method.ALBIC):
            found = [played(job, cost_s, method, seed, given.windows) for seed in range(given.seeds)]
            load = sum(each.load for each in found)
            base = base or load
            sums = [
                sum(getattr(each, what) for each in found) for what in ("plans", "moves", "trial_moves", "together")
            ]
            print(
                f"{name:40} {method:6} {sums[0]:6d} {sums[1]:6d} {sums[2]:7d} {sums[3]:5d}/{job.pairs * len(found)}"
                f" {load / base:7.3f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
