"""What ALBIC learns from statistics: smoothed rates, and the cost of a remote tuple."""

from dataclasses import replace

import numpy as np
import pytest

from trimtab_models.albic import Observations, RateHistory, Unidentified, fit_costs, prediction_error

AB, AC = ("a", "b"), ("a", "c")


def test_rates_are_believed_after_three_periods():
    history = RateHistory().after({AB: 8.0}).after({AB: 8.0})
    assert history.rates() is None
    assert history.after({AB: 8.0}).rates() == {AB: 8}


def test_rates_are_smoothed_and_a_missing_pair_sent_nothing():
    history = RateHistory(weight=0.5).after({AB: 8.0}).after({AC: 8.0}).after({AB: 8.0, AC: 0.0})
    assert history.rates() == {AB: 6, AC: 2}


def test_a_pair_that_stays_silent_is_forgotten():
    history = RateHistory(weight=0.5).after({AB: 8.0})
    for _ in range(12):
        history = history.after({AC: 1.0})
    assert history.rates() == {AC: pytest.approx(1, rel=1e-3)}


@pytest.mark.parametrize("weight", [0.0, 1.1])
def test_a_weight_that_would_never_or_over_learn_is_refused(weight):
    with pytest.raises(ValueError, match="weight"):
        RateHistory(weight=weight)


def observed(random, samples=400, noise=0.0, serialise=0.02, deserialise=0.03):
    """Two operators with their own work per tuple; what is remote varies from key group to key group."""
    operator = random.integers(0, 2, samples)
    received, sent = random.uniform(50, 150, samples), random.uniform(20, 60, samples)
    remote_sent, remote_received = sent * random.random(samples), received * random.random(samples)
    load = np.array([0.5, 1.0])[operator] + np.array([0.01, 0.04])[operator] * received
    load = load + serialise * remote_sent + deserialise * remote_received
    return Observations(
        load=load * (1 + noise * random.standard_normal(samples)),
        operator=operator,
        received=received,
        remote_sent=remote_sent,
        remote_received=remote_received,
    )


def test_costs_are_found_exactly_without_noise():
    fit = fit_costs(observed(np.random.default_rng(0)))
    assert (fit.serialise_cost, fit.deserialise_cost) == (pytest.approx(0.02), pytest.approx(0.03))
    assert fit.error < 1e-9


def test_costs_are_found_within_their_errors_under_noise():
    fit = fit_costs(observed(np.random.default_rng(1), noise=0.05))
    assert abs(fit.serialise_cost - 0.02) < 3 * fit.serialise_error < 0.01
    assert abs(fit.deserialise_cost - 0.03) < 3 * fit.deserialise_error < 0.01
    assert 0.02 < fit.error < 0.06


def test_a_tenth_of_wild_samples_does_not_decide():
    random = np.random.default_rng(2)
    clean = observed(random, noise=0.02)
    load = clean.load.copy()
    load[random.choice(400, 40, replace=False)] += 50
    wild = fit_costs(replace(clean, load=load))
    assert wild.serialise_cost == pytest.approx(0.02, abs=0.004)
    assert wild.deserialise_cost == pytest.approx(0.03, abs=0.004)
    assert wild.outliers > 0.1


def test_costs_are_not_negative():
    fit = fit_costs(observed(np.random.default_rng(3), noise=0.1, serialise=0.0))
    assert fit.serialise_cost >= 0
    assert fit.deserialise_cost == pytest.approx(0.03, abs=0.01)


def test_where_all_is_remote_costs_cannot_be_told_from_work():
    base = observed(np.random.default_rng(4))
    assert fit_costs(replace(base, remote_received=base.received)) is Unidentified.REMOTE_ALIKE
    alike = replace(base, remote_sent=0.5 * base.received, remote_received=np.zeros(400))
    assert fit_costs(alike) is Unidentified.REMOTE_ALIKE
    nothing = replace(base, remote_sent=np.zeros(400), remote_received=np.zeros(400))
    assert fit_costs(nothing) is Unidentified.REMOTE_ALIKE


def test_one_end_alone_can_be_fitted():
    base = observed(np.random.default_rng(5), deserialise=0.0)
    fit = fit_costs(replace(base, remote_received=np.zeros(400)))
    assert (fit.serialise_cost, fit.deserialise_cost) == (pytest.approx(0.02), 0)


def test_few_samples_say_nothing():
    assert fit_costs(observed(np.random.default_rng(6), samples=17)) is Unidentified.TOO_FEW
    assert fit_costs(observed(np.random.default_rng(6), samples=0)) is Unidentified.TOO_FEW


def test_a_prediction_is_judged_by_the_next_measurement():
    assert prediction_error(np.array([10.0, 12.0]), np.array([10.0, 10.0])) == pytest.approx(0.1)
    assert prediction_error(np.zeros(2), np.zeros(2)) == 0
