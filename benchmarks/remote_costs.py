"""How well the cost of a tuple between workers is measured: error and false alarms over windows, of which it is known.

    PYTHONPATH=examples python -m benchmarks.remote_costs [--jobs 200] [--sizes 3 6 8 12 24 48 96]
    PYTHONPATH=examples python -m benchmarks.remote_costs --recorded FOLDER

A job is `TalkingJob`: pairs of key groups on three workers, placed at random, so that a third of them is together.
Key groups of an operator differ by 15 % in cost, windows by 8 %, all of a worker's together by 3 %; counts at both ends
differ by 1 %, and 3 % of the samples cost two to six times as much.  Rates of pairs differ by 40 %.  A tuple costs
300 us at each end, and 110 us more there if it is remote.

The first table has, after so many windows: how many of the costs are known, the median and the p90 of the error
|found - true| as a share of the true cost, how often the truth is within two standard errors, and how many costs count
as significant.  The second one has the same jobs without any such cost: whatever counts then is a false alarm, also if
it counts in any one of the windows.  In the third one all pairs begin apart, and some come together after eight
windows, as in a trial; it has what is known eight windows later.  In the fourth one pairs come together in ten rounds,
while all tuples become dearer or cheaper by a part of their work that grows with each window; beside it how many costs
count in the same jobs without any.  It has a quarter of the jobs.  The last line has a job with six flows of a tuple
per second between key groups of 1 GB, which the decider watches with method "albic".

`--recorded` prints instead what is known after each window of a real job, which `python -m jobs --logs` has kept.
"""

import argparse
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from flights.demo.loads import collocation
from jobs.windows import kept
from tests.controller.decider.talking_job import APP, BUSY, HEAD, QUIET, TAIL, TalkingJob, kg
from trimtab_controller.decider.events import Decided, SnapshotArrived, Solve, SolverAnswered
from trimtab_controller.decider.machine import Decider
from trimtab_controller.decider.memory.remote_costs import RemoteCostTracker
from trimtab_controller.decider.policies.instance import question_of
from trimtab_controller.decider.values.decision import Planned
from trimtab_controller.decider.values.settings import Requirements, Settings
from trimtab_controller.execution.state import Execution
from trimtab_controller.solver.answer import Method
from trimtab_controller.solver.balance import answer
from trimtab_models.albic.fit import TupleCost

COST_S = 110e-6
LOOKS = (4, 7, 12, 24)
SIZES = (3, 6, 8, 12, 24, 48, 96)
TRIALS = (3, 4, 6, 12, 24)
"""Pairs that come together, at most half of them at once."""
TRIAL_WINDOWS = 8
"""Windows before they do, and after."""
ROUNDS, ROUND_WINDOWS = 10, 5
"""Rounds in which pairs come together while the work drifts, and the windows of one."""
FACTORS = (0.5, 1.0, 2.0)
"""The work of a tuple at the end, as a share of that at the beginning."""


@dataclass(frozen=True, slots=True)
class Seen:
    """A cost after so many windows; None: not known."""

    window: int
    cost: TupleCost | None


def watched(pairs: int, cost_s: float, seed: int) -> list[list[Seen]]:
    """Both costs of a job in each window from the first look on."""
    job = TalkingJob(pairs=pairs, sending=cost_s, receiving=cost_s, seed=seed, noise=BUSY)
    costs, found = RemoteCostTracker(), []
    for window in range(1, LOOKS[-1] + 1):
        costs.observe(job.window(), {})
        if window >= LOOKS[0]:
            fits = costs.of(APP)
            ends = fits[HEAD].sending, fits[TAIL].receiving
            found.append([Seen(window, each if isinstance(each, TupleCost) else None) for each in ends])
    return found


def errors(jobs: int, sizes: Sequence[int]) -> None:
    """The first table."""
    print("pairs windows   known   error p50     p90   within 2 errors   significant")
    for pairs in sizes:
        seen = [each for seed in range(jobs) for window in watched(pairs, COST_S, seed) for each in window]
        for look in LOOKS:
            print(f"{pairs:5d} {look:7d} {judged([each.cost for each in seen if each.window == look])}")


def judged(costs: Sequence[TupleCost | None]) -> str:
    """How many are known, how far they are off, and how many count."""
    known = [cost for cost in costs if cost is not None]
    if not known:
        return f"{0:7.1%}"
    off = np.array([abs(cost.value - COST_S) for cost in known])
    within = np.mean(off <= 2 * np.array([cost.error for cost in known]))
    counted = sum(cost.significant for cost in known) / len(costs)
    return (
        f"{len(known) / len(costs):7.1%} {np.median(off) / COST_S:11.1%} "
        f"{np.quantile(off, 0.9) / COST_S:7.1%} {within:17.1%} {counted:13.1%}"
    )


def tried(pairs: int, together: int, seed: int) -> list[TupleCost | None]:
    """Both costs of a job after a trial."""
    job = TalkingJob(pairs=pairs, sending=COST_S, receiving=COST_S, seed=seed, noise=BUSY, apart=True)
    costs = RemoteCostTracker()
    for window in range(2 * TRIAL_WINDOWS):
        if window == TRIAL_WINDOWS:
            for each in range(together):
                job.owners[kg(TAIL, each)] = job.owners[kg(HEAD, each)]
        costs.observe(job.window(), {})
    fits = costs.of(APP)
    return [each if isinstance(each, TupleCost) else None for each in (fits[HEAD].sending, fits[TAIL].receiving)]


def trials(jobs: int, sizes: Sequence[int]) -> None:
    """The third table."""
    print("pairs together   known   error p50     p90   within 2 errors   significant")
    for pairs in sizes:
        for together in (each for each in TRIALS if 2 * each <= pairs):
            found = [cost for seed in range(jobs) for cost in tried(pairs, together, seed)]
            print(f"{pairs:5d} {together:8d} {judged(found)}")


def drifted(pairs: int, cost_s: float, drift: float, seed: int) -> list[TupleCost | None]:
    """Both costs of a job whose pairs come together in rounds, while `drift` is added to its work in each window."""
    job = TalkingJob(pairs=pairs, sending=cost_s, receiving=cost_s, seed=seed, noise=BUSY, apart=True, drift=drift)
    costs, a_round = RemoteCostTracker(), max(1, pairs // (ROUNDS + 1))
    for window in range(ROUND_WINDOWS * (ROUNDS + 1)):
        if window and window % ROUND_WINDOWS == 0:
            first = a_round * (window // ROUND_WINDOWS - 1)
            for each in range(first, min(first + a_round, pairs - 1)):
                job.owners[kg(TAIL, each)] = job.owners[kg(HEAD, each)]
        costs.observe(job.window(), {})
    fits = costs.of(APP)
    return [each if isinstance(each, TupleCost) else None for each in (fits[HEAD].sending, fits[TAIL].receiving)]


def drifts(jobs: int, sizes: Sequence[int]) -> None:
    """The fourth table."""
    print("pairs work at the end   known   error p50     p90   within 2 errors   significant   without a cost")
    for pairs in sizes:
        for factor in FACTORS:
            drift = (factor - 1.0) / (ROUND_WINDOWS * (ROUNDS + 1) - 1)
            found, none = (
                [cost for seed in range(jobs) for cost in drifted(pairs, cost_s, drift, seed)]
                for cost_s in (COST_S, 0.0)
            )
            alarms = sum(cost is not None and cost.significant for cost in none)
            print(f"{pairs:5d} {factor:15g} {judged(found)} {alarms:9d} of {len(none)}")


def recorded(folder: Path) -> None:
    """What is known after each window of a job."""
    costs = RemoteCostTracker()
    for window in kept(folder):
        costs.observe(window, {})
        for app in sorted({block.app for block in window.blocks}):
            text = "; ".join(
                f"{operator} {end} {1e6 * cost.value:.0f} ± {1e6 * cost.error:.0f}{'*' if cost.significant else ''}"
                for operator, fit in costs.of(app).items()
                for end, cost in (("sends", fit.sending), ("receives", fit.receiving))
                if isinstance(cost, TupleCost)
            )
            share = collocation(window)
            print(f"{window.end_ms // 1000} {'' if share is None else f'{share:4.0%}'} {text}")


def false_alarms(jobs: int, sizes: Sequence[int]) -> None:
    """The second table."""
    print("pairs   false alarms per fit   costs with one in any window")
    for pairs in sizes:
        fits = alarms = ever = 0
        for seed in range(jobs):
            windows = watched(pairs, 0.0, seed)
            counted = np.array([[each.cost is not None and each.cost.significant for each in row] for row in windows])
            fits, alarms, ever = fits + counted.size, alarms + int(counted.sum()), ever + int(counted.any(axis=0).sum())
        print(f"{pairs:5d} {alarms:8d} of {fits:8d} {ever:20d} of {2 * jobs}")


def six_flows(cost_s: float | None) -> int:
    """How many key groups move."""
    settings = Settings(method=Method.ALBIC, min_windows=2, min_gain=0.0, remote_tuple_cpu_s=cost_s)
    job = TalkingJob(pairs=6, workers=2, rate=1.01, noise=replace(QUIET, windows=0.05), apart=True)
    job.state_bytes, moves = 10**9, 0
    decider = Decider(settings, Requirements(max_age_s=1e9), Execution(generation=1), acting=False)
    for _ in range(20):
        snapshot = job.window()
        now = snapshot.end_ms / 1000.0
        actions = decider.on_event(now, SnapshotArrived(snapshot=snapshot))
        if isinstance(actions[-1], Solve):
            found = answer(question_of(actions[-1].view, settings, 5.0))
            actions = decider.on_event(now, SolverAnswered(answer=found))
        for each in actions:
            if isinstance(each, Decided) and isinstance(each.decision, Planned):
                moves += len(each.decision.plan.moves)
    return moves


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=200, help="jobs per size")
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES, help="pairs of key groups")
    parser.add_argument("--recorded", type=Path, help="folder with the windows of a job")
    given = parser.parse_args()
    if given.recorded:
        recorded(given.recorded)
        return
    errors(given.jobs, given.sizes)
    false_alarms(given.jobs, given.sizes)
    trials(given.jobs, given.sizes)
    drifts(max(1, given.jobs // 4), given.sizes)
    moved = {said: six_flows(cost_s) for said, cost_s in (("measured", None), ("stated, 220 us", 220e-6))}
    told = ", ".join(f"{moves} ({said})" for said, moves in moved.items())
    print(f"six flows of a tuple per second between key groups of 1 GB: moves in 20 windows {told}")


if __name__ == "__main__":
    main()
