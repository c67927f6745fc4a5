"""Prometheus counters: with all their labels from the start, and as mirrors of totals kept elsewhere."""

from collections.abc import Iterable
from itertools import product
from typing import TypeVar

from prometheus_client import Counter, Histogram

M = TypeVar("M", Counter, Histogram)


class Followed(Counter):
    """Mirrors a total that is kept elsewhere.  When that total restarts at zero, Prometheus sees a counter reset."""

    def follow(self, count: int) -> None:
        """Set the total."""
        self._value.set(count)


def from_zero(metric: M, *values: Iterable[str]) -> M:
    """The metric, at zero for each combination of these values of its labels.

    A counter that appears with its first event shows no increase, so no alert would see that event.
    """
    for combination in product(*values):
        metric.labels(*combination)
    return metric
