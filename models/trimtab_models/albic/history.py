"""Rates smoothed over periods, because a single period is noisy."""

from collections.abc import Mapping
from dataclasses import dataclass, field

FEWEST_PERIODS = 3
FORGOTTEN = 1e-3  # a rate that has decayed to this share of its maximum is dropped

Pair = tuple[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Smoothed:
    """A rate and its maximum so far."""

    rate: float
    largest: float


@dataclass(frozen=True, slots=True, kw_only=True)
class RateHistory:
    """Exponentially smoothed rates (tuples/s) of pairs (from, to); `weight` = weight of the newest period."""

    weight: float = 0.5
    periods: int = 0
    smoothed: Mapping[Pair, Smoothed] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not 0 < self.weight <= 1:
            raise ValueError("weight must be above 0 and at most 1")

    def after(self, rates: Mapping[Pair, float]) -> "RateHistory":
        """The history with one more period, which must be complete: absent pairs sent nothing."""
        first = not self.periods
        smoothed = {}
        for pair in self.smoothed.keys() | rates.keys():
            now, before = rates.get(pair, 0.0), self.smoothed.get(pair, Smoothed(rate=0.0, largest=0.0))
            rate = now if first else self.weight * now + (1 - self.weight) * before.rate
            largest = max(rate, before.largest)
            if rate > FORGOTTEN * largest:
                smoothed[pair] = Smoothed(rate=rate, largest=largest)
        return RateHistory(weight=self.weight, periods=self.periods + 1, smoothed=smoothed)

    def rates(self) -> dict[Pair, float] | None:
        """The smoothed rates, or None before the third period."""
        if self.periods < FEWEST_PERIODS:
            return None
        return {pair: each.rate for pair, each in sorted(self.smoothed.items())}
