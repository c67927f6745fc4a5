"""The forecast of an app's demand in the status, and how good such forecasts have been."""

from dataclasses import dataclass

from trimtab_protocol.messages.decode import Fields, check_number

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

    text: str
    used: bool = False
    peak_cores: float | None = None
    period_s: float | None = None
    at: float | None = None
    known_s: float | None = None
    near: AccuracyStatus | None = None
    far: AccuracyStatus | None = None
    ahead_at: float | None = None
    step_s: float | None = None
    ahead: tuple[float, ...] = ()


def read_forecast_status(fields: Fields) -> ForecastStatus:
    """The forecast in these fields; raises BadMessage."""
    return ForecastStatus(
        text=fields.text("text", limit=4000),
        used=fields.flag("used"),
        peak_cores=fields.optional("peak_cores", fields.number),
        period_s=fields.optional("period_s", fields.number),
        at=fields.optional("at", fields.number),
        known_s=fields.optional("known_s", fields.number),
        near=fields.optional("near", lambda name: _read_accuracy(fields.fields(name))),
        far=fields.optional("far", lambda name: _read_accuracy(fields.fields(name))),
        ahead_at=fields.optional("ahead_at", fields.number),
        step_s=fields.optional("step_s", fields.number),
        ahead=tuple(check_number(each, at, 0.0, MAX_CORES) for at, each in fields.items("ahead", limit=MAX_AHEAD))
        if fields.has("ahead")
        else (),
    )


def _read_accuracy(fields: Fields) -> AccuracyStatus:
    return AccuracyStatus(
        horizon_s=fields.number("horizon_s"),
        tested=fields.integer("tested"),
        scored=fields.integer("scored"),
        better=fields.flag("better"),
        error=fields.optional("error", fields.number),
        last_error=fields.optional("last_error", fields.number),
        seasonal_error=fields.optional("seasonal_error", fields.number),
        error_pct=fields.optional("error_pct", fields.number),
        last_error_pct=fields.optional("last_error_pct", fields.number),
    )
