"""Coefficients from measurements: exact lines, noise, outliers, limits of what can be known."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trimtab_models.sizing.fit import Fit, NotFitted, fit_coefficients


@settings(max_examples=50)
@given(
    st.sampled_from([0, 0.05, 2]),
    st.sampled_from([0, 0.5, 30]),
    st.lists(st.floats(0, 1000), min_size=2, max_size=20, unique=True),
)
def test_samples_on_a_line_give_the_line(cost, fixed, rates):
    rates = sorted({round(rate, 1) for rate in rates} | {0.0, 1000.0})
    fit = fit_coefficients(rates, [cost * rate + fixed for rate in rates])
    assert isinstance(fit, Fit)
    assert (fit.cost, fit.fixed) == (pytest.approx(cost, abs=1e-7), pytest.approx(fixed, abs=1e-5))
    assert fit.accuracy > 0.999
    assert fit.doubted == 0


def measured(seed, outliers):
    """300 windows of an operator with e = 0.12, MET = 4 and 0.8 pp of noise; some with a collector's 30 pp on top."""
    random = np.random.default_rng(seed)
    rates = random.uniform(50, 600, 300)
    cpu = 0.12 * rates + 4 + random.normal(0, 0.8, 300)
    cpu[random.choice(300, outliers, replace=False)] += 30
    return rates, cpu


@pytest.mark.parametrize("outliers", [0, 30, 60])
def test_outliers_bend_the_line_far_less_than_least_squares(outliers):
    rates, cpu = measured(3, outliers)
    fit = fit_coefficients(rates, cpu)
    plain = np.polyfit(rates, cpu, 1)
    assert abs(fit.cost - 0.12) < 0.002
    assert abs(fit.fixed - 4) < 1.1
    assert not outliers or abs(fit.fixed - 4) < 0.5 * abs(plain[1] - 4)
    assert fit.doubted >= outliers


def test_section_6_2_the_claim_of_92_percent_is_checked_against_the_fits_own_error():
    rates, cpu = measured(4, 0)
    fit = fit_coefficients(rates, cpu)
    errors = np.abs(fit.cost * rates + fit.fixed - cpu)
    assert fit.accuracy == pytest.approx(1 - errors.sum() / cpu.sum())
    assert fit.accuracy > 0.92
    assert fit.samples == 300


def test_neither_coefficient_is_negative():
    through_zero = fit_coefficients([10, 20, 30], [4, 10, 16])  # the line would start at -2
    assert (through_zero.fixed, through_zero.cost) == (0, pytest.approx(0.5, abs=0.05))
    falling = fit_coefficients([10, 20, 30], [6, 5, 4])
    assert (falling.cost, falling.fixed) == (0, pytest.approx(5))


@pytest.mark.parametrize("rates", [[], [5], [5, 5, 5]])
def test_one_rate_cannot_tell_the_two_apart(rates):
    assert isinstance(fit_coefficients(rates, [3.0] * len(rates)), NotFitted)


def test_an_idle_operator_costs_nothing():
    fit = fit_coefficients([0, 1, 2], [0, 0, 0])
    assert (fit.cost, fit.fixed, fit.accuracy) == (pytest.approx(0), pytest.approx(0), 1)


@pytest.mark.parametrize(("rates", "cpu"), [([1, 2], [1]), ([1, float("nan")], [1, 2]), ([1, 2], [1, float("inf")])])
def test_samples_that_are_no_samples_are_refused(rates, cpu):
    with pytest.raises(ValueError, match="finite"):
        fit_coefficients(rates, cpu)
