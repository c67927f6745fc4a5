"""A forecast of a demand that repeats by day or week, and whether it has been better than the last value.

The series has a fixed step; the model is a pattern that repeats, and a level that is followed:

    value(t + h) = pattern((t + h) mod period) + level(t)

The pattern is the classical decomposition, made robust: the median, over the last periods, of how far the values lie
from their moving mean over one period.  So a single incident does not become part of it.  (STL, Cleveland et al. 1990,
was worse on every series of `benchmarks.forecast`, and needs SciPy.)  The level is what is left of the values without
the pattern, smoothed exponentially; of some weights the one is taken that forecasts the fitted series best at the
horizon that matters.  With weight 1 the forecast is the last value plus what the pattern says of the time between.

Values are numbered by steps since a common origin, so that the same number mod period is the same time of the day.
NaN = unknown.  A moving mean needs every value: unknown ones are replaced by the median of the same time in other
periods, only there.

How good forecasts would have been: a back-test with a rolling origin, beside two simple forecasts.

The last part of the series is forecast as it would have been live: at each step, with what was known by then.  The
pattern is fitted anew once per `refit` steps.  Beside it stand the last known value, and the value of one period
before (seasonal naive).  All three are scored at the same steps: those at which all of them and the value are known.
"""

from collections.abc import Sequence
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
MARGIN = 0.1
"""The share by which the mean error must be below that of the last value.  A smaller gain may be luck."""
MIN_SCORED = 0.5
"""The share of the tested steps that must be scored."""
MIN_PERIODS = 3
"""Periods of history that are needed: two to fit, and one to test."""
MIN_KNOWN = 0.8
"""The share of the values that must be known."""
MAX_REFITS = 3
"""Parts of the tested time; the pattern is fitted anew for each."""


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Error:
    """`mae` = mean absolute error, in the unit of the series; `smape` = its symmetric percentage (0 to 200 %)."""

    mae: float
    smape: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Accuracy:
    """The errors `horizon` steps ahead over `scored` of `tested` steps: of the model, the last value, a period before.

    Nothing is known of the errors, and all are None, if no step could be scored.
    """

    horizon: int
    tested: int
    scored: int
    model: Error | None
    last: Error | None
    seasonal: Error | None

    @property
    def is_better(self) -> bool:
        """Whether the model has clearly been better than the last value."""
        if self.model is None or self.last is None or self.scored < MIN_SCORED * self.tested:
            return False
        return self.model.mae <= (1.0 - MARGIN) * self.last.mae


def back_test(
    values: Floats, first: int, period: int, horizons: Sequence[int], *, begin: int, refit: int
) -> tuple[Accuracy, ...]:
    """The errors at each horizon, for the values from index `begin` on.

    Before it there are two periods and the longest horizon at least.  The weight of the level is fitted for the first
    horizon.
    """
    rows = [_forecasts(values, first, period, horizons, start, refit) for start in range(begin, len(values), refit)]
    found = np.concatenate(rows, axis=1)
    at = np.arange(begin, begin + found.shape[1])
    truth = values[at]
    seasonal = values[at - period]
    last = last_known(values)
    return tuple(
        _score(horizon, truth, model, last[at - horizon], seasonal)
        for horizon, model in zip(horizons, found, strict=True)
    )


def last_known(values: Floats) -> Floats:
    """At each step the last known value; NaN where that is too old."""
    places = np.where(np.isnan(values), -1, np.arange(len(values)))
    places = np.maximum.accumulate(places)
    age = np.arange(len(values)) - places
    return np.where((places >= 0) & (age < MAX_STALE), values[places], np.nan)


def _forecasts(values: Floats, first: int, period: int, horizons: Sequence[int], start: int, refit: int) -> Floats:
    """(horizons, steps) what would have been forecast for the steps from `start` on.

    The pattern is fitted with what was known at the first of the origins.
    """
    model: Seasonal = fit_seasonal(values[: start - max(horizons) + 1], first, period, horizons[0])
    end = min(len(values), start + refit)
    begin = max(0, start - period - max(horizons))
    numbers = first + np.arange(begin, end)
    level = levels(values[begin:end] - model.at(numbers), model.weight)
    fresh = ~np.isnan(last_known(values[begin:end]))
    targets = np.arange(start, end)
    rows = []
    for horizon in horizons:
        origin = targets - horizon - begin
        ahead = np.maximum(0.0, model.at(first + targets) + level[origin])
        rows.append(np.where(fresh[origin], ahead, np.nan))
    return np.array(rows)


def _score(horizon: int, truth: Floats, model: Floats, last: Floats, seasonal: Floats) -> Accuracy:
    known = ~np.isnan(truth) & ~np.isnan(model) & ~np.isnan(last) & ~np.isnan(seasonal)
    count = int(known.sum())
    if not count:
        return Accuracy(horizon=horizon, tested=len(truth), scored=0, model=None, last=None, seasonal=None)
    errors = [_error(truth[known], each[known]) for each in (model, last, seasonal)]
    return Accuracy(
        horizon=horizon, tested=len(truth), scored=count, model=errors[0], last=errors[1], seasonal=errors[2]
    )


def _error(truth: Floats, forecast: Floats) -> Error:
    apart, size = np.abs(truth - forecast), np.abs(truth) + np.abs(forecast)
    share = np.where(size > 0.0, 2.0 * apart / np.where(size > 0.0, size, 1.0), 0.0)
    return Error(mae=float(apart.mean()), smape=100.0 * float(share.mean()))


@dataclass(frozen=True, slots=True, kw_only=True)
class NoForecast:
    """Why there is no model."""

    reason: str


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Fitted:
    """The model, and its errors at each horizon that was asked for."""

    model: Seasonal
    tests: tuple[Accuracy, ...]


def fit(
    values: Floats, first: int, *, periods: Sequence[int], horizons: Sequence[int], refit: int
) -> Fitted | NoForecast:
    """The model with the least error at the first horizon.

    `periods` = the ones to try, those that the series is too short for are left out.  `refit` = steps after which the
    pattern would be fitted anew.  Tested is what two periods to fit leave of the series, MAX_REFITS * `refit` steps at
    most.
    """
    known = np.flatnonzero(~np.isnan(values))
    if not len(known):
        return NoForecast(reason="no value is known")
    values, first = values[known[0] :], first + int(known[0])
    share = len(known) / len(values)
    if share < MIN_KNOWN:
        return NoForecast(reason=f"{share:.0%} of the values are known, {MIN_KNOWN:.0%} are needed")
    farthest = max(horizons)
    possible = [period for period in periods if len(values) >= MIN_PERIODS * period + farthest]
    if not possible:
        return NoForecast(reason=f"{len(values)} values, {MIN_PERIODS * min(periods) + farthest} are needed")
    found: list[tuple[int, tuple[Accuracy, ...]]] = []
    for period in possible:
        tested = min(MAX_REFITS * refit, len(values) - 2 * period - farthest)
        tests = back_test(values, first, period, horizons, begin=len(values) - tested, refit=refit)
        found.append((period, tests))
    period, tests = min(found, key=lambda each: each[1][0].model.mae if each[1][0].model else np.inf)
    return Fitted(model=fit_seasonal(values, first, period, horizons[0]), tests=tests)
