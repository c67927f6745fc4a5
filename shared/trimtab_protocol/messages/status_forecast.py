"""The forecast of an app's demand in the status, and how good such forecasts have been."""

from dataclasses import dataclass
from typing import Annotated

from trimtab_protocol.messages.codec import Most, Range, Text

MAX_AHEAD = 300
"""Forecast values of one app."""
MAX_CORES = 1e9
"""The largest forecast value, in cores."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AccuracyStatus:
    """Errors of forecasts `horizon_s` ahead over the tested time: mean absolute errors in cores; None = not known.

    Of the model, the last value, and the value one period before (`seasonal`); `_pct` = the symmetric percentages of
    the first two.  `scored` of `tested` steps were known.  `better`: the model was clearly better than the last value.
    """

    horizon_s: float
    tested: int
    scored: int
    better: bool
    error: float | None = None
    last_error: float | None = None
    seasonal_error: float | None = None
    error_pct: float | None = None
    last_error_pct: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ForecastStatus:
    """The forecast of an app; None = unknown, for the reason in `text`.

    `peak_cores` = the highest demand until a worker that is started now runs.  It repeats by `period_s`, and was fitted
    `at`.  `known_s` = time of which the demand is known.  `near` = how good forecasts until a worker runs were, `far` =
    those within the delay of a scale-in.  `used`: the number of workers follows the forecast.  `ahead` = the mean
    demand in cores of each `step_s` from `ahead_at` on; none if there is no forecast now.
    """

    text: Annotated[str, Text(4000)]
    used: bool = False
    peak_cores: float | None = None
    period_s: float | None = None
    at: float | None = None
    known_s: float | None = None
    near: AccuracyStatus | None = None
    far: AccuracyStatus | None = None
    ahead_at: float | None = None
    step_s: float | None = None
    ahead: Annotated[tuple[float, ...], Most(MAX_AHEAD), Range(0.0, MAX_CORES)] = ()
