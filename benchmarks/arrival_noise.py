"""Computes how much a worker's share of the flights varies between windows: in the order of the file, and evenly paced.

This is why the replay of `examples/flights` gives every key group an even pace.  It takes at most a minute of CPU:

    PYTHONPATH=examples python benchmarks/arrival_noise.py
"""

import random
import sys
from collections.abc import Callable, Iterable
from statistics import fmean, pstdev

from flights.dataset import partition_of, read_flights
from flights.replay import Replay

KEY_GROUPS, WORKERS, RATE = 64, 4, 220.0
ROWS = 60_000
PLACEMENTS = 20

Windows = list[list[int]]
"""Flights of each key group in each window."""


def as_in_the_file(partitions: list[int], window_s: float) -> Windows:
    """RATE rows of the file per second, in its order."""
    size = int(RATE * window_s)
    return [counted(partitions[at : at + size]) for at in range(0, len(partitions) - size + 1, size)]


def evenly(partitions: list[int], window_s: float) -> Windows:
    """As `flights.replay` sends them."""
    replay = Replay(partitions, key_groups=KEY_GROUPS, rate=RATE)
    replay.due(0.0)
    count = int(len(partitions) / RATE / window_s)
    return [counted(partitions[row] for row in replay.due((at + 1) * window_s)) for at in range(count)]


def counted(partitions: Iterable[int]) -> list[int]:
    """Number of flights per key group."""
    counts = [0] * KEY_GROUPS
    for partition in partitions:
        counts[partition] += 1
    return counts


def variation(windows: Windows) -> float:
    """Relative standard deviation of the share of a worker with a quarter of the key groups, over random placements."""
    chance = random.Random(1)
    found = []
    for _ in range(PLACEMENTS):
        order = chance.sample(range(KEY_GROUPS), KEY_GROUPS)
        for worker in range(WORKERS):
            shares = [sum(window[k] for k in order[worker::WORKERS]) / sum(window) for window in windows]
            found.append(pstdev(shares) / fmean(shares))
    return fmean(found)


def main() -> int:
    """Print the table."""
    partitions = [partition_of(flight.airplane, KEY_GROUPS) for flight in read_flights(limit=ROWS)]
    ways: dict[str, Callable[[list[int], float], Windows]] = {"as in the file": as_in_the_file, "evenly": evenly}
    print(f"{RATE:g} flights/s, {KEY_GROUPS} key groups on {WORKERS} workers: variation of a worker's share")
    for name, way in ways.items():
        cells = (f"{window_s:g} s: {variation(way(partitions, window_s)):.2%}" for window_s in (5.0, 10.0, 20.0))
        print(f"  {name:15} {', '.join(cells)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
