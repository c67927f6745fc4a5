"""Estimates how often `make demo` reports a missed load distance although every worker is within the promise.

The runs are simulated, with each worker exactly at the promised distance, where false alarms are most frequent.  The
noise is normal, has heavy tails, drifts (each window keeps 30 % of the previous deviation), or is drawn from a real
run.  It takes half a minute:

    PYTHONPATH=examples python benchmarks/demo_false_alarms.py [--runs 20000] [--recorded out/demo/summary.json]

For comparison it shows the rate of an earlier check, which used a single window after a plan from a single window.
"""

import argparse
import json
import random
import sys
from collections.abc import Callable, Iterable
from math import sqrt
from pathlib import Path
from statistics import fmean, stdev

from flights.demo.noise import FALSE_ALARM, lower_limit, spreads
from flights.demo.scenario import DemoSettings
from flights.demo.summary import JUDGED_PHASES, MAX_DISTANCE_OVER_BOUND
from trimtab_protocol.messages.names import WorkerId

SD_PP = 0.3
DRIFT = 0.3
TAIL_DEGREES = 3

Noise = Callable[[random.Random, int], list[float]]
"""Returns the deviations (pp) of one worker in a number of windows."""


def normal(chance: random.Random, count: int) -> list[float]:
    """Independent normal noise."""
    return [chance.gauss(0.0, SD_PP) for _ in range(count)]


def heavy(chance: random.Random, count: int) -> list[float]:
    """Independent noise of Student's t distribution: one window in a hundred is beyond four standard errors."""

    def one() -> float:
        return chance.gauss(0.0, SD_PP) / sqrt(chance.gammavariate(TAIL_DEGREES / 2, 2.0) / TAIL_DEGREES)

    return [one() for _ in range(count)]


def drifting(chance: random.Random, count: int) -> list[float]:
    """Normal noise in which each window keeps a part of the previous deviation."""
    found = [chance.gauss(0.0, SD_PP)]
    while len(found) < count:
        found.append(DRIFT * found[-1] + sqrt(1.0 - DRIFT**2) * chance.gauss(0.0, SD_PP))
    return found


def recorded(spans: Iterable[list[dict[str, float]]]) -> Noise:
    """Noise drawn from the deviations of a run in spans without moves."""
    pool: list[float] = []
    for span in spans:
        for worker in {worker for window in span for worker in window}:
            values = [window[worker] for window in span if worker in window]
            if len(values) > 1:
                mean, widened = fmean(values), sqrt(len(values) / (len(values) - 1))
                pool += [widened * (value - mean) for value in values]
    return lambda chance, count: chance.choices(pool, k=count)


def false_alarm(noise: Noise, chance: random.Random, settings: DemoSettings) -> bool:
    """Whether one simulated run raises a false alarm."""
    workers = [WorkerId(f"w{number}") for number in range(settings.workers)]

    def span(present: list[WorkerId], count: int, at: float) -> list[dict[WorkerId, float]]:
        columns = {worker: noise(chance, count) for worker in present}
        return [{worker: at + column[row] for worker, column in columns.items()} for row in range(count)]

    calm = span(workers, settings.calm_windows, 0.0)
    judged = [span(workers, settings.judged_windows, MAX_DISTANCE_OVER_BOUND) for _ in range(JUDGED_PHASES)]
    known = spreads([calm, *judged])
    comparisons = len(workers) * JUDGED_PHASES
    return any(lower_limit(each, known, comparisons) > MAX_DISTANCE_OVER_BOUND for each in judged)


def one_window_alarm(noise: Noise, chance: random.Random, settings: DemoSettings) -> bool:
    """Whether a single window exceeds the earlier tolerance, after plans that level the previous noise."""
    spread = fmean(stdev(noise(chance, 4)) for _ in range(settings.workers))
    limit = max(MAX_DISTANCE_OVER_BOUND, 3.0 * sqrt(2.0) * spread)
    for _ in range(JUDGED_PHASES):
        seen, after = ([noise(chance, 1)[0] for _ in range(settings.workers)] for _ in range(2))
        if max(abs(now - before) for now, before in zip(after, seen, strict=True)) > limit:
            return True
    return False


def main() -> int:
    """Print the table; exit code 1 if independent normal noise raises more false alarms than stated."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--runs", type=int, default=20_000)
    parser.add_argument("--recorded", type=Path, action="append", default=[], help="summary.json of a run of the demo")
    arguments = parser.parse_args()
    noises: dict[str, Noise] = {"normal": normal, "heavy tails": heavy, "drifting": drifting}
    for path in arguments.recorded:
        noises[f"recorded in {path.parent.name}"] = recorded(json.loads(path.read_text())["still_windows"])
    print(f"false alarms in {arguments.runs:,} runs, at most {FALSE_ALARM:.2%} wanted; one window alone")
    rates = {}
    for name, noise in noises.items():
        chance, settings = random.Random(1), DemoSettings()
        rates[name] = sum(false_alarm(noise, chance, settings) for _ in range(arguments.runs)) / arguments.runs
        alone = sum(one_window_alarm(noise, chance, settings) for _ in range(arguments.runs)) / arguments.runs
        print(f"  {name:24} {rates[name]:7.3%} {alone:11.2%}")
    return 1 if rates["normal"] > FALSE_ALARM + 3.0 * sqrt(FALSE_ALARM / arguments.runs) else 0


if __name__ == "__main__":
    sys.exit(main())
