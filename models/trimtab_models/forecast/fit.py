"""Fits the seasonal model to a series, by the period that has forecast it best, and says how good that has been."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from trimtab_models.forecast.back_test import Accuracy, back_test
from trimtab_models.forecast.seasonal import Floats, Seasonal, fit_seasonal

MIN_PERIODS = 3
"""Periods of history that are needed: two to fit, and one to test."""
MIN_KNOWN = 0.8
"""The share of the values that must be known."""
MAX_REFITS = 3
"""Parts of the tested time; the pattern is fitted anew for each."""


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
