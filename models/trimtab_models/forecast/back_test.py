"""How good forecasts would have been: a back-test with a rolling origin, beside two simple forecasts.

The last part of the series is forecast as it would have been live: at each step, with what was known by then.  The
pattern is fitted anew once per `refit` steps.  Beside it stand the last known value, and the value of one period
before (seasonal naive).  All three are scored at the same steps: those at which all of them and the value are known.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from trimtab_models.forecast.seasonal import MAX_STALE, Floats, Seasonal, fit_seasonal, levels

MARGIN = 0.1
"""The share by which the mean error must be below that of the last value.  A smaller gain may be luck."""
MIN_SCORED = 0.5
"""The share of the tested steps that must be scored."""


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
