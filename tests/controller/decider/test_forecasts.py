"""The demand of apps over time, when it is fitted and forecast, and what is recorded of it."""

import math

import numpy as np
import pytest

from trimtab_controller.decider.memory.forecasts import (
    DAY,
    KEPT_DAYS,
    MAX_FIT_AGE_S,
    NOTHING_AHEAD,
    RETRY_S,
    STEP_S,
    DemandRecord,
    DemandSeries,
    Forecasts,
    Times,
    encode_demand,
    series_of,
)
from trimtab_controller.decider.values.scaling import Mode
from trimtab_controller.decider.values.settings import ForecastSettings
from trimtab_models.forecast import Accuracy, Error, Fitted, NoForecast, Seasonal
from trimtab_protocol.messages.codec import decoded
from trimtab_protocol.messages.decode import BadMessage
from trimtab_protocol.messages.names import AppId

APP, OTHER = AppId("orders"), AppId("other")
TIMES = Times(lead_s=150.0, hold_s=3600.0)
MONDAY = 20_000 * 86_400.0
"""The begin of a day."""


def seen(*windows, series=None):
    """A series after windows of (start, end, cores)."""
    series = series or DemandSeries()
    for start, end, cores in windows:
        series.observe(MONDAY + start, MONDAY + end, cores)
    return series


def values(series):
    return [None if math.isnan(each) else round(each, 3) for each in series.values]


# --- the series


def test_a_step_has_the_mean_demand_of_its_windows() -> None:
    series = seen((0, 100, 1.0), (100, 300, 4.0), (300, 310, 9.0))
    assert (series.first, values(series), series.end) == (20_000 * DAY, [3.0], 20_000 * DAY + 1)


def test_a_step_that_was_known_for_less_than_half_of_its_time_is_unknown_and_not_zero() -> None:
    assert values(seen((0, 140, 1.0), (140, 300, None), (300, 310, 9.0))) == [None]
    assert values(seen((0, 150, 1.0), (150, 300, None), (300, 310, 9.0))) == [1.0]


def test_four_weeks_are_kept() -> None:
    series = DemandSeries()
    series.continue_with(0, [1.0] * (KEPT_DAYS * DAY))
    first = KEPT_DAYS * DAY * STEP_S
    series.observe(first, first + STEP_S, 5.0)
    series.observe(first + STEP_S, first + STEP_S + 10, 5.0)
    assert (series.first, len(series.values), series.values[-1]) == (1, KEPT_DAYS * DAY, 5.0)
    series.observe(1e9, 1e9 + STEP_S, 7.0)
    assert (series.first, len(series.values)) == (int(1e9 // STEP_S), 0), "all of it is too old by then"


def test_the_records_of_days_make_up_the_series_again() -> None:
    series = DemandSeries()
    series.continue_with(20_000 * DAY + 200, [1.25, math.nan, 3.0] + [2.0] * 100)
    records = [decoded(encode_demand(APP, day, series.day(day)), DemandRecord) for day in (20_001, 20_000)]
    found = series_of(records)
    assert list(found) == [APP]
    assert found[APP].first == 20_000 * DAY, "what the day lacks is unknown"
    assert values(found[APP])[200:] == values(series)
    assert values(found[APP])[:200] == [None] * 200
    assert found[APP].end == series.end


@pytest.mark.parametrize(
    ("payload", "told"),
    [
        (b'{"v":1,"app":"a","day":1,"step_s":60,"cores":[]}', "step_s: found 60, expected 300"),
        (b'{"v":1,"app":"a","day":1,"step_s":300,"cores":[-1]}', "cores"),
        (b'{"v":1,"app":"a","day":1,"step_s":300,"cores":["1"]}', "cores"),
        (b'{"v":9,"app":"a","day":1,"step_s":300,"cores":[]}', "v"),
        (b"nothing", "JSON"),
    ],
)
def test_a_record_that_cannot_be_read_is_refused(payload, told) -> None:
    with pytest.raises(BadMessage, match=told):
        decoded(payload, DemandRecord)


# --- what is asked, learned and forecast


def history(days, *, now_steps=0):
    """An app with a peak of 3 cores in the sixth hour of each day."""
    hours = np.arange(days * DAY + now_steps) * STEP_S // 3600 % 24
    series = DemandSeries()
    series.continue_with(20_000 * DAY, np.where(hours == 6, 4.0, 1.0).tolist())
    return series


def accuracy(horizon, *, better=True):
    error = Error(mae=0.1 if better else 1.0, smape=2.0)
    return Accuracy(
        horizon=horizon, tested=DAY, scored=DAY, model=error, last=Error(mae=0.5, smape=9.0), seasonal=error
    )


def fitted(*, near=True, far=True):
    pattern = np.where(np.arange(DAY) * STEP_S // 3600 == 6, 3.0, 0.0)
    tests = (accuracy(3, better=near), accuracy(14, better=far))
    return Fitted(model=Seasonal(pattern=pattern, weight=1.0), tests=tests)


def forecasts(days=7, now_s=0.0, *, mode=Mode.ACT, found=None, app=APP):
    """Those of an app, `now_s` after the begin of a day, of which the demand until then is known."""
    made = Forecasts(settings=ForecastSettings(mode=mode), series={app: history(days, now_steps=int(now_s // STEP_S))})
    end_s = MONDAY + days * 86_400.0 + now_s
    made.observe(end_s - 10.0, end_s, {app: 1.0}, {app: TIMES})
    if found is not None:
        made.learn(app, found)
    return made


def later(made, seconds, app=APP):
    made.observe(made._now + seconds - 10.0, made._now + seconds, {app: 1.0}, {app: TIMES})
    return made


def test_what_is_off_remembers_and_forecasts_nothing() -> None:
    made = Forecasts()
    made.observe(MONDAY, MONDAY + 10, {APP: 1.0}, {APP: TIMES})
    assert (made.series, made.report(), made.records()) == ({}, {}, [])
    assert made.ahead(APP) == NOTHING_AHEAD


def test_the_horizons_reach_from_the_last_whole_step_to_the_step_after_a_worker_runs() -> None:
    assert TIMES.horizons == (3, 14)
    assert Times(lead_s=301.0, hold_s=10.0).horizons == (4, 4)
    assert Times(lead_s=1e6, hold_s=1e6).horizons == (DAY // 2, DAY // 2)


def test_a_fit_is_made_once_there_is_enough_history() -> None:
    assert forecasts(3).report()[APP].at is None, "three days, and the longest forecast"
    told = forecasts(4).report()[APP]
    assert (told.at, told.period_s) == (MONDAY + 4 * 86_400.0, 86_400.0)
    assert told.near.is_better


def test_one_app_is_fitted_per_window() -> None:
    made = Forecasts(settings=ForecastSettings(mode=Mode.ACT), series={APP: history(4), OTHER: history(4)})
    end_s, times = MONDAY + 4 * 86_400.0, {APP: TIMES, OTHER: TIMES}
    made.observe(end_s - 10.0, end_s, {}, times)
    assert made.report()[APP].at == end_s
    assert made.report()[OTHER].why == "other apps come first"
    made.observe(end_s, end_s + 10.0, {}, times)
    assert made.report()[OTHER].at == end_s + 10.0


def test_a_failed_fit_is_tried_again_and_an_older_one_goes_on() -> None:
    made = forecasts(3)
    made.series[APP] = gap = DemandSeries()
    gap.continue_with(20_000 * DAY, [1.0] * DAY + [math.nan] * 2 * DAY + [1.0] * DAY)
    later(made, 86_400.0)
    assert made.report()[APP].why == "50% of the values are known, 80% are needed"
    made.series[APP] = history(4)
    assert later(made, RETRY_S - 1).report()[APP].at is None
    at = later(made, 1).report()[APP].at
    made.learn(APP, NoForecast(reason="too few values"))
    assert made.report()[APP].at == at


def test_a_peak_is_seen_ahead_by_the_time_that_a_worker_needs() -> None:
    six = 6 * 3600.0
    early = forecasts(now_s=six - 600.0, found=fitted()).ahead(APP)
    assert early.soon.cores == pytest.approx(1.0), "a worker that is started now runs a step before it"
    assert early.later.cores == pytest.approx(4.0)
    assert early.later.in_s == pytest.approx(600.0)
    soon = forecasts(now_s=six - 120.0, found=fitted()).ahead(APP).soon
    assert (soon.cores, soon.in_s, soon.error, soon.last_error) == (pytest.approx(4.0), 120.0, 0.1, 0.5)
    assert str(soon) == "the forecast of 4.00 cores in 2 min (mean error 0.10 cores, of the last value 0.50)"


def test_a_forecast_that_was_not_better_is_told_and_not_followed() -> None:
    made = forecasts(now_s=6 * 3600.0 - 120.0, found=fitted(near=False, far=False))
    told = made.report()[APP]
    assert made.ahead(APP) == NOTHING_AHEAD
    assert (told.peak, told.used) == (pytest.approx(4.0), False)
    half = forecasts(now_s=6 * 3600.0 - 120.0, found=fitted(near=False)).ahead(APP)
    assert (half.soon, half.later.cores) == (None, pytest.approx(4.0))


def test_advice_is_told_and_not_followed() -> None:
    made = forecasts(now_s=6 * 3600.0 - 120.0, mode=Mode.ADVISE, found=fitted())
    assert made.ahead(APP) == NOTHING_AHEAD
    assert (made.report()[APP].peak, made.report()[APP].used) == (pytest.approx(4.0), False)


def test_without_the_last_values_nothing_is_forecast() -> None:
    made = later(forecasts(found=fitted()), 4 * STEP_S)
    assert made.ahead(APP) == NOTHING_AHEAD
    assert (made.report()[APP].why, made.report()[APP].peak) == ("the last values are unknown", None)


def test_an_old_fit_is_not_used() -> None:
    made, holes = forecasts(found=fitted()), DemandSeries()
    holes.continue_with(20_000 * DAY, [1.0] * DAY + [math.nan] * (6 * DAY) + [1.0] * (2 * DAY))
    made.series[APP] = holes  # too little is known of it for another fit
    assert later(made, MAX_FIT_AGE_S).ahead(APP).soon is not None
    assert later(made, 1).ahead(APP) == NOTHING_AHEAD


def test_how_much_history_is_missing_is_told() -> None:
    assert forecasts(2).report()[APP].why == "48.0 of 73.2 h of history"
    assert forecasts(2).report()[APP].known_s == 2 * 86_400.0


# --- records


def test_the_demand_is_recorded_by_day_and_a_successor_goes_on_with_it() -> None:
    made = Forecasts(settings=ForecastSettings(mode=Mode.ADVISE))
    start = MONDAY + 86_400.0 - 4 * STEP_S
    told = []
    for place in range(9):
        made.observe(start + place * STEP_S, start + (place + 1) * STEP_S, {APP: float(place)}, {APP: TIMES})
        told.append([key for key, _ in made.records()])
    day, following = b"demand/orders/20000", b"demand/orders/20001"
    assert told == [[], [], [], [day], [], [], [day, following], [], []]


def test_a_forgotten_app_and_a_forgotten_day_leave_no_record() -> None:
    made = forecasts(2)
    made.forget(APP)
    assert made.records() == [(b"demand/orders/20000", None), (b"demand/orders/20001", None)]
    assert made.records() == []
    made = forecasts(KEPT_DAYS, now_s=0.0)
    later(made, 86_400.0 + 2 * STEP_S)
    assert (b"demand/orders/20000", None) in made.records()


def test_an_app_that_nobody_has_reported_for_long_is_forgotten() -> None:
    made = forecasts(2)
    for days, left in ((1, [APP, OTHER]), (2, [OTHER])):
        at = MONDAY + (2 + days) * 86_400.0
        made.observe(at, at + 10.0, {OTHER: 1.0}, {OTHER: TIMES})
        assert sorted(made.series) == left
