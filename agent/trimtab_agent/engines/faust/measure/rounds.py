"""Rounds of the network: messages that came or went together.

A fetch brings messages of several partitions, a produce request takes some away; each costs the worker the same,
however many share it.  Faust does not tell where one ends, but between two of them the event loop waits, or does what
else there is, longer than between two messages of one.
"""

import time
from collections import Counter
from collections.abc import Callable, Mapping

from faust.types import TP

GAP_NS = 1_000_000
"""A longer time between two messages parts two rounds."""
MAX_PARTITIONS = 4
"""Of a round that may still be one key group's: its sources and changelogs."""
SHARED: frozenset[TP] = frozenset()
"""Stands for the partitions of a round that had more."""


class Rounds:
    """Counts the rounds of one direction by the partitions they served."""

    __slots__ = ("_clock", "_counts", "_last_ns", "_partitions")

    def __init__(self, clock: Callable[[], int] = time.perf_counter_ns) -> None:
        self._clock = clock
        self._counts: Counter[frozenset[TP]] = Counter()
        self._partitions: set[TP] = set()
        self._last_ns = 0

    def message(self, partition: TP) -> None:
        """A message of this partition came or went."""
        now = self._clock()
        if now - self._last_ns > GAP_NS:
            self._end()
        self._last_ns = now
        self._partitions.add(partition)

    def take(self) -> Mapping[frozenset[TP], int]:
        """The rounds since the last call; one under way ends here."""
        self._end()
        counts, self._counts = self._counts, Counter()
        return counts

    def _end(self) -> None:
        if self._partitions:
            small = len(self._partitions) <= MAX_PARTITIONS
            self._counts[frozenset(self._partitions) if small else SHARED] += 1
            self._partitions.clear()
