"""A seasonal model of a series with a fixed step: a pattern that repeats, and a level that is followed.

    value(t + h) = pattern((t + h) mod period) + level(t)

The pattern is the classical decomposition, made robust: the median, over the last periods, of how far the values lie
from their moving mean over one period.  So a single incident does not become part of it.  (STL, Cleveland et al. 1990,
was worse on every series of `benchmarks.forecast`, and needs SciPy.)  The level is what is left of the values without
the pattern, smoothed exponentially; of some weights the one is taken that forecasts the fitted series best at the
horizon that matters.  With weight 1 the forecast is the last value plus what the pattern says of the time between.

Values are numbered by steps since a common origin, so that the same number mod period is the same time of the day.
NaN = unknown.  A moving mean needs every value: unknown ones are replaced by the median of the same time in other
periods, only there.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

WEIGHTS = (0.05, 0.1, 0.2, 0.4, 0.7, 1.0)
"""Weights of the newest value in the level that are tried."""
PATTERN_PERIODS = 7
"""The last periods that the pattern is made of: a lasting change is part of it after four."""
MAX_STALE = 3
"""Steps that the last known value may be old, for a forecast to start from it."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Seasonal:
    """`pattern` = (period,) by number mod period; `weight` of the newest value in the level."""

    pattern: Floats
    weight: float

    @property
    def period(self) -> int:
        """Steps after which the pattern repeats."""
        return len(self.pattern)

    def at(self, numbers: NDArray[np.int64]) -> Floats:
        """The pattern at these steps."""
        found: Floats = self.pattern[numbers % self.period]
        return found


def fit_seasonal(values: Floats, first: int, period: int, horizon: int) -> Seasonal:
    """The model of a series that begins with step number `first`, for forecasts over `horizon` steps.

    Raises ValueError if the series has fewer than two periods, or no known value.
    """
    if len(values) < 2 * period or np.isnan(values).all():
        raise ValueError(f"found {len(values)} values, expected at least two periods of {period}, some of them known")
    apart = _from_moving_mean(filled(values, period), period)
    rows = min(PATTERN_PERIODS, len(values) // period)
    numbers = first + np.arange(len(values))
    pattern = np.empty(period)
    pattern[numbers[-period:] % period] = np.median(apart[-rows * period :].reshape(rows, period), axis=0)
    rest = values - pattern[numbers % period]
    weight = min(WEIGHTS, key=lambda each: _squared_error(levels(rest, each), rest, horizon))
    return Seasonal(pattern=pattern, weight=weight)


def predict(model: Seasonal, values: Floats, first: int, steps: int) -> Floats | None:
    """(steps,) the next values; None if the last values are unknown."""
    recent = values[-model.period :]
    known = np.flatnonzero(~np.isnan(recent))
    if not len(known) or len(recent) - known[-1] > MAX_STALE:
        return None
    end = first + len(values)
    numbers = np.arange(end - len(recent), end)
    level = levels(recent - model.at(numbers), model.weight)[-1]
    ahead: Floats = np.maximum(0.0, model.at(np.arange(end, end + steps)) + level)
    return ahead


def levels(rest: Floats, weight: float) -> Floats:
    """The level after each value; an unknown one leaves it as it was.  NaN before the first known one."""
    found, level = np.empty(len(rest)), np.nan
    for place, value in enumerate(rest.tolist()):
        if value == value:  # known
            level = value if level != level else level + weight * (value - level)
        found[place] = level
    return found


def filled(values: Floats, period: int) -> Floats:
    """The series with the median of the same time in other periods for unknown values; else of all values."""
    missing = np.isnan(values)
    if not missing.any():
        return values
    padded = np.full(-(-len(values) // period) * period, np.nan)
    padded[: len(values)] = values
    rows = padded.reshape(-1, period)
    usual = np.full(period, np.nanmedian(values))
    some = ~np.isnan(rows).all(axis=0)
    usual[some] = np.nanmedian(rows[:, some], axis=0)
    return np.where(missing, usual[np.arange(len(values)) % period], values)


def _from_moving_mean(values: Floats, period: int) -> Floats:
    """How far each value lies from the mean of the period around it; near the ends, of the nearest whole period."""
    sums = np.concatenate(([0.0], np.cumsum(values)))
    begin = np.clip(np.arange(len(values)) - period // 2, 0, len(values) - period)
    apart: Floats = values - (sums[begin + period] - sums[begin]) / period
    return apart


def _squared_error(level: Floats, rest: Floats, horizon: int) -> float:
    """The mean squared error of the level as forecast of what is left without the pattern."""
    apart = (rest[horizon:] - level[:-horizon]) ** 2
    return float(np.nanmean(apart)) if not np.isnan(apart).all() else np.inf
