"""Fitting g_s from measured restores."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trimtab_models.dyndl.fitting import LocalRestore, RestoreSample, fit_cost, isotonic, network_prior
from trimtab_models.instances.scheduling import AffineCost

LOCAL = LocalRestore(duration_s=2.0, state_bytes=1e6)
PRIOR = AffineCost(a=1.0, b=0.5)


def restores(concurrent: int, costs: list[float], state_bytes: float = 1e6) -> list[RestoreSample]:
    """Restores that cost so many local ones of their size."""
    seconds = [cost * LOCAL.duration_s * state_bytes / LOCAL.state_bytes for cost in costs]
    return [RestoreSample(concurrent=concurrent, duration_s=each, state_bytes=state_bytes) for each in seconds]


def test_without_samples_the_curve_is_the_prior():
    fitted = fit_cost([], local=LOCAL, prior=PRIOR, slots=4)
    assert fitted.median.values == fitted.high.values == (1.5, 2.0, 2.5, 3.0)
    assert fitted.samples == 0


def test_the_prior_shares_what_the_foreground_leaves_of_the_network():
    def prior(alone: float, capacity: float) -> list[float]:
        found = network_prior(alone_bytes_per_s=alone, capacity_bytes_per_s=capacity, foreground_bytes_per_s=1e6)
        return [found.at(n) for n in (1, 2, 4)]

    assert prior(0.25e6, 2e6) == [1.0, 1.25, 1.75]  # four restores fit side by side: 1 to 4 of them are hardly slower
    assert prior(1e6, 2e6) == [1.0, 2.0, 4.0]
    assert prior(1e6, 1.25e6) == [4.0, 8.0, 16.0]
    with pytest.raises(ValueError, match="whole bandwidth"):
        prior(1e6, 1e6)


def test_samples_pull_the_curve_away_from_the_prior_by_their_number():
    few = fit_cost(restores(1, [3.5] * 10), local=LOCAL, prior=PRIOR, slots=1)
    many = fit_cost(restores(1, [3.5] * 990), local=LOCAL, prior=PRIOR, slots=1)
    assert few.median.values == pytest.approx((2.5,))
    assert many.median.values == pytest.approx((3.48,))


def test_durations_are_normalised_by_bytes():
    small = fit_cost(restores(2, [4.0] * 50, state_bytes=1e3), local=LOCAL, prior=PRIOR, slots=3)
    large = fit_cost(restores(2, [4.0] * 50, state_bytes=1e9), local=LOCAL, prior=PRIOR, slots=3)
    assert small.median.values == pytest.approx(large.median.values)


def test_linear_beyond_what_was_observed_and_constant_beyond_the_slots():
    fitted = fit_cost(restores(2, [4.0] * 90), local=LOCAL, prior=PRIOR, slots=4)
    second = 0.9 * 4.0 + 0.1 * 2.0
    assert fitted.median.values == pytest.approx((1.5, second, second + 0.5, second + 1.0))
    assert fitted.median.at(100) == fitted.median.values[-1]
    over = fit_cost(restores(9, [4.0] * 90), local=LOCAL, prior=PRIOR, slots=2)
    assert over.median.values == pytest.approx((1.5, second))


def test_plans_are_made_with_the_90th_percentile():
    costs = [2.0] * 80 + [6.0] * 20
    fitted = fit_cost(restores(1, costs * 100), local=LOCAL, prior=PRIOR, slots=2)
    assert fitted.median.values[0] == pytest.approx(2.0, abs=0.01)
    assert fitted.high.values[0] == pytest.approx(6.0, abs=0.01)


def test_a_curve_that_was_measured_is_found_again():
    random = np.random.default_rng(5)
    truth = [1.8, 2.0, 3.5, 3.5, 6.0]
    samples = [
        sample
        for n, cost in enumerate(truth, start=1)
        for sample in restores(n, (cost * random.lognormal(0, 0.2, 400)).tolist())
    ]
    fitted = fit_cost(samples, local=LOCAL, prior=PRIOR, slots=5)
    assert fitted.median.values == pytest.approx(truth, rel=0.06)


curves = st.lists(st.floats(0, 10), min_size=1, max_size=7)


@settings(max_examples=50)
@given(st.lists(st.tuples(st.integers(1, 9), st.floats(0, 20)), max_size=30), st.integers(1, 6))
def test_fitted_curves_are_costs_that_the_model_takes(measured, slots):
    samples = [sample for n, cost in measured for sample in restores(n, [cost])]
    fitted = fit_cost(samples, local=LOCAL, prior=PRIOR, slots=slots)
    assert len(fitted.median.values) == len(fitted.high.values) == slots
    assert all(low <= high for low, high in zip(fitted.median.values, fitted.high.values, strict=True))


@settings(max_examples=50)
@given(curves, st.randoms(use_true_random=False))
def test_the_isotonic_curve_is_the_min_max_of_means(values, random):
    """The twin: at each place the largest, over starts, of the smallest mean up to an end."""
    weights = [random.choice([1.0, 2.0, 5.0]) for _ in values]
    twin = []
    for at in range(len(values)):
        best = -math.inf
        for start in range(at + 1):
            ends = range(at + 1, len(values) + 1)
            means = [np.average(values[start:end], weights=weights[start:end]) for end in ends]
            best = max(best, min(means))
        twin.append(best)
    assert isotonic(np.array(values), np.array(weights)) == pytest.approx(twin)


@pytest.mark.parametrize(
    "broken", [{"concurrent": 0}, {"duration_s": -1.0}, {"state_bytes": 0.0}, {"duration_s": math.nan}]
)
def test_a_restore_that_cannot_have_been_is_refused(broken):
    with pytest.raises(ValueError):
        RestoreSample(**{"concurrent": 1, "duration_s": 1.0, "state_bytes": 1.0} | broken)
