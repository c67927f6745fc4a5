"""The seasonal model: what it forecasts, how it is tested, and when it must not be used."""

import numpy as np
import pytest

from tests.narrow import of_type
from trimtab_models.forecast import (
    Accuracy,
    Error,
    Fitted,
    NoForecast,
    Seasonal,
    _forecasts,
    back_test,
    fit,
    fit_seasonal,
    last_known,
    levels,
    predict,
)

DAY = 24
WEEK = 7 * DAY


def days(count, *, noise=0.0, seed=0, level=5.0, height=3.0):
    """Hours with a peak around noon."""
    hours = np.arange(count * DAY)
    peak = np.exp(-(((hours % DAY) - 12) ** 2) / 8.0)
    return level + height * peak + np.random.default_rng(seed).normal(0.0, noise, len(hours))


def walk(count, seed=0):
    """A random walk, which nothing forecasts better than its last value."""
    return 50.0 + np.cumsum(np.random.default_rng(seed).normal(0.0, 1.0, count * DAY))


def fitted(values, **changes):
    return fit(values, 0, **{"periods": (DAY,), "horizons": (2, 6), "refit": DAY, **changes})


def test_a_clean_pattern_is_forecast():
    series = days(8)
    model = fit_seasonal(series[: 7 * DAY], 0, DAY, 2)
    ahead = predict(model, series[: 7 * DAY], 0, DAY)
    assert ahead == pytest.approx(series[7 * DAY :], abs=0.05)


def test_the_number_of_a_value_says_which_time_of_the_day_it_is():
    series = days(8)
    model = fit_seasonal(series[5 : 7 * DAY + 5], 5, DAY, 2)
    ahead = predict(model, series[5 : 7 * DAY + 5], 5, 12)
    assert ahead == pytest.approx(series[7 * DAY + 5 : 7 * DAY + 17], abs=0.05)


def test_the_level_is_followed():
    series = days(8)
    model = fit_seasonal(series[: 7 * DAY], 0, DAY, 2)
    higher = np.concatenate((series[: 7 * DAY - 12], series[7 * DAY - 12 : 7 * DAY] + 2.0))
    before, after = predict(model, series[: 7 * DAY], 0, 6), predict(model, higher, 0, 6)
    assert before is not None
    assert after is not None
    assert (after - before > 0.09).all()
    assert predict(Seasonal(pattern=model.pattern, weight=1.0), higher, 0, 6) == pytest.approx(
        series[7 * DAY : 7 * DAY + 6] + 2.0, abs=0.05
    )


def test_a_forecast_is_never_negative():
    model = Seasonal(pattern=np.array([0.0, -9.0]), weight=1.0)
    assert predict(model, np.array([1.0, 1.0, 1.0, 1.0]), 0, 2).tolist() == [1.0 + 9.0, 1.0]
    assert predict(model, np.array([1.0, -8.0, 1.0]), 0, 1).tolist() == [0.0]


def test_without_recent_values_there_is_no_forecast():
    series = days(7)
    model = fit_seasonal(series, 0, DAY, 2)
    assert predict(model, np.append(series, [np.nan] * 2), 0, 1) is not None
    assert predict(model, np.append(series, [np.nan] * 3), 0, 1) is None
    assert predict(model, np.full(DAY, np.nan), 0, 1) is None


def test_an_unknown_value_leaves_the_level_as_it_was():
    nan = np.nan
    assert levels(np.array([nan, 2.0, nan, 4.0]), 0.5).tolist()[1:] == [2.0, 2.0, 3.0]
    assert np.isnan(levels(np.array([nan]), 0.5)).all()


def test_gaps_do_not_become_part_of_the_pattern():
    series = days(8, noise=0.05)
    holes = series[: 7 * DAY].copy()
    holes[DAY + 10 : DAY + 15] = np.nan  # over a peak
    model = fit_seasonal(holes, 0, DAY, 2)
    assert predict(model, holes, 0, DAY) == pytest.approx(series[7 * DAY :], abs=0.4)


def test_one_incident_does_not_become_part_of_the_pattern():
    series = days(8, noise=0.05)
    hit = series[: 7 * DAY].copy()
    hit[3 * DAY + 3] += 40.0
    assert predict(fit_seasonal(hit, 0, DAY, 2), hit, 0, DAY) == pytest.approx(series[7 * DAY :], abs=0.6)


def test_a_demand_that_repeats_is_forecast_better_than_by_its_last_value():
    found = of_type(Fitted, fitted(days(7, noise=0.1)))
    near, far = found.tests
    assert (near.horizon, far.horizon) == (2, 6)
    assert near.is_better
    assert far.is_better
    assert far.model.mae < 0.2 < 0.5 < far.last.mae


@pytest.mark.parametrize("seed", range(5))
def test_a_random_walk_is_not(seed):
    assert not of_type(Fitted, fitted(walk(10, seed))).tests[0].is_better


def test_the_period_with_the_least_error_is_taken():
    week = np.concatenate([days(1, height=3.0 if day < 5 else 0.0) for day in range(7)])
    series = np.tile(week, 4) + np.random.default_rng(1).normal(0.0, 0.05, 4 * WEEK)
    found = fitted(series, periods=(DAY, WEEK))
    assert found.model.period == WEEK
    assert fitted(days(28, noise=0.5), periods=(DAY, WEEK)).model.period == DAY


def test_a_period_that_the_series_is_too_short_for_is_left_out():
    assert fitted(days(8), periods=(DAY, WEEK)).model.period == DAY


def test_too_little_is_said():
    assert fitted(np.full(50, np.nan)) == NoForecast(reason="no value is known")
    assert fitted(days(2)) == NoForecast(reason="48 values, 78 are needed")
    holes = days(7)
    holes[10:80] = np.nan
    assert fitted(holes) == NoForecast(reason="58% of the values are known, 80% are needed")


def test_what_was_not_known_before_the_first_value_does_not_count():
    assert isinstance(fitted(np.concatenate((np.full(400, np.nan), days(5)))), Fitted)


def test_the_back_test_agrees_with_forecasts_made_one_by_one():
    series = days(6, noise=0.3)
    series[100] = np.nan
    (tested,) = back_test(series, 0, DAY, (2,), begin=4 * DAY, refit=DAY)
    apart = []
    for day in (4, 5):
        model = fit_seasonal(series[: day * DAY - 1], 0, DAY, 2)
        for target in range(day * DAY, day * DAY + DAY):
            one = predict(model, series[max(0, day * DAY - DAY - 2) : target - 1], max(0, day * DAY - DAY - 2), 2)
            assert one is not None
            if not np.isnan(series[[target, target - DAY]]).any():
                apart.append((abs(one[1] - series[target]), abs(last_known(series)[target - 2] - series[target])))
    assert tested.scored == len(apart) == 2 * DAY - 2
    assert tested.tested == 2 * DAY
    assert tested.last.mae == pytest.approx(np.mean([each[1] for each in apart]))
    assert tested.model.mae == pytest.approx(np.mean([each[0] for each in apart]), rel=0.05)


def test_nothing_after_the_origin_is_used():
    series, other = days(6, noise=0.3), days(6, noise=0.3)
    later = 5 * DAY + 12
    other[later:] = 77.0
    rows = [_forecasts(each, 0, DAY, (2, 6), 5 * DAY, DAY) for each in (series, other)]
    for place, horizon in enumerate((2, 6)):
        same = 12 + horizon
        assert rows[0][place, :same] == pytest.approx(rows[1][place, :same], abs=1e-12)
        assert rows[0][place, same] != pytest.approx(rows[1][place, same], abs=1.0)


def test_the_value_before_a_gap_stands_in_for_it_a_short_time():
    nan = np.nan
    found = last_known(np.array([nan, 1.0, nan, nan, nan, 2.0]))
    assert np.nan_to_num(found, nan=-1.0).tolist() == [-1.0, 1.0, 1.0, 1.0, -1.0, 2.0]


def test_a_model_that_is_barely_better_or_barely_tested_is_not_used():
    def tested(mae, scored=80):
        error, last = Error(mae=mae, smape=1.0), Error(mae=1.0, smape=10.0)
        return Accuracy(horizon=2, tested=100, scored=scored, model=error, last=last, seasonal=last)

    assert tested(0.9).is_better
    assert not tested(0.91).is_better
    assert tested(0.1, scored=50).is_better
    assert not tested(0.1, scored=49).is_better
    assert not Accuracy(horizon=2, tested=100, scored=0, model=None, last=None, seasonal=None).is_better


def test_too_short_a_series_is_refused():
    with pytest.raises(ValueError, match="found 47 values, expected at least two periods of 24"):
        fit_seasonal(days(2)[1:], 0, DAY, 1)
