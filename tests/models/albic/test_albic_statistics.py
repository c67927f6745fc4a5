"""What ALBIC learns from statistics: the cost of a remote tuple."""

from dataclasses import replace

import numpy as np
import pytest

from tests.narrow import of_type
from trimtab_models.albic.fit import Samples, TupleCost, Unknown, fit_costs, student_quantile

SENDING, RECEIVING, WORK = 20e-6, 30e-6, 200e-6


def sampled(seed, key_groups=120, nodes=4, differ=0.0, noise=0.0):
    """Each key group is sampled at two places of it and of its partners; `differ` = how much key groups differ."""
    random = np.random.default_rng(seed)
    key_group = np.tile(np.arange(key_groups), 2)
    count = len(key_group)
    node, rate = random.integers(0, nodes, count), random.uniform(20, 200, count)
    sent, received = random.uniform(0.5, 2, count), random.uniform(0.5, 1, count)
    remote_sent, remote_received = sent * random.random(count), received * random.random(count)
    own = 1 + differ * random.standard_normal(key_groups)
    cpu = WORK * own[key_group] * np.array([1.0, 1.5, 0.8, 1.0])[node % 4]
    cpu = cpu + 1e-3 / rate + 5e-6 * sent + 8e-6 * received + SENDING * remote_sent + RECEIVING * remote_received
    return Samples(
        key_group=key_group,
        node=node,
        period=np.repeat([0, 1], key_groups),
        cpu=cpu * (1 + noise * random.standard_normal(count)),
        rate=rate,
        sent=sent,
        received=received,
        remote_sent=remote_sent,
        remote_received=remote_received,
    )


def costs_of(samples):
    fit = fit_costs(samples)
    assert isinstance(fit.sending, TupleCost)
    assert isinstance(fit.receiving, TupleCost)
    return fit.sending, fit.receiving


def test_costs_are_found_exactly_without_noise_whatever_nodes_cost():
    assert [each.value for each in costs_of(sampled(0))] == [pytest.approx(SENDING), pytest.approx(RECEIVING)]


@pytest.mark.parametrize("seed", range(3))
def test_costs_are_found_within_their_errors_though_key_groups_differ(seed):
    for cost, true in zip(costs_of(sampled(seed, 500, differ=0.1, noise=0.03)), (SENDING, RECEIVING), strict=True):
        assert abs(cost.value - true) < 3 * cost.error < 20e-6
        assert cost.freedom > 100


def test_a_twentieth_of_wild_samples_does_not_decide():
    samples = sampled(2, 500, differ=0.02)
    cpu = samples.cpu.copy()
    cpu[np.random.default_rng(2).choice(1000, 50, replace=False)] *= 10
    for cost, true in zip(costs_of(replace(samples, cpu=cpu)), (SENDING, RECEIVING), strict=True):
        assert cost.value == pytest.approx(true, abs=3e-6)
        assert cost.significant


def test_an_error_counts_key_groups_and_not_their_samples():
    """Ten times the same samples are no more evidence."""
    once = sampled(4, 60, differ=0.2)
    often = Samples(**{name: np.tile(getattr(once, name), 10) for name in Samples.__slots__})
    few, many = fit_costs(once).sending, fit_costs(often).sending
    assert many.value == pytest.approx(few.value, rel=0.05)
    assert many.error == pytest.approx(few.error, rel=0.2)
    assert many.freedom == pytest.approx(few.freedom, rel=0.2)


def test_what_cannot_be_told_apart_is_unknown_and_says_why():
    base = sampled(5)
    nothing = np.zeros(len(base.cpu))
    assert fit_costs(replace(base, remote_received=base.received)).receiving is Unknown.ALL_REMOTE
    assert fit_costs(replace(base, remote_received=nothing)).receiving is Unknown.ALL_LOCAL
    assert fit_costs(replace(base, received=nothing, remote_received=nothing)).receiving is Unknown.NO_TUPLES
    by_node = np.where(base.node == 0, base.received, nothing)
    even = np.full(len(base.cpu), 1.0)
    assert fit_costs(replace(base, received=even, remote_received=by_node > 0)).receiving is Unknown.ALIKE
    both = replace(base, sent=base.received, remote_sent=base.remote_received)
    assert (fit_costs(both).sending, fit_costs(both).receiving) == (Unknown.ALIKE, Unknown.ALIKE)
    alone = np.where(base.key_group == 7, 0.0, even)
    assert fit_costs(replace(base, received=even, remote_received=alone)).receiving in (Unknown.ALIKE, Unknown.FEW)
    assert isinstance(fit_costs(replace(base, remote_received=nothing)).sending, TupleCost), (
        "one end alone can be known"
    )


def drifting(seed, drift, key_groups=40, periods=6, differ=0.15, noise=0.04, cost=RECEIVING):
    """Two key groups per period become local, while all tuples become dearer: `drift` = by what share until the end."""
    random = np.random.default_rng(seed)
    key_group, period = np.tile(np.arange(key_groups), periods), np.repeat(np.arange(periods), key_groups)
    local = key_group < 4 * period
    own = 1 + differ * random.standard_normal(key_groups)
    work = WORK * own[key_group] * (1 + drift * period / (periods - 1))
    work = work * (1 + noise * random.standard_normal(len(period)))
    one = np.ones(len(period))
    return Samples(
        key_group=key_group,
        node=key_group % 4,
        period=period,
        cpu=work + np.where(local, 0.0, cost),
        rate=100.0 * one,
        sent=one,
        received=one,
        remote_sent=one,
        remote_received=np.where(local, 0.0, 1.0),
    )


def received_cost(samples):
    return of_type(TupleCost, fit_costs(samples).receiving)


@pytest.mark.parametrize("drift", [-0.5, 1.0])
def test_what_makes_all_tuples_dearer_or_cheaper_meanwhile_is_no_cost(drift):
    exact = received_cost(drifting(0, drift, differ=0.0, noise=0.0))
    assert exact.value == pytest.approx(RECEIVING, rel=1e-5)
    for seed in range(10):
        for true in (0.0, 2 * RECEIVING):
            cost = received_cost(drifting(seed, drift, cost=true))
            assert abs(cost.value - true) < 4 * cost.error < 40e-6
            assert cost.significant == (true > 0.0)


def test_errors_are_as_large_as_costs_are_wrong_though_all_drifts():
    """Two standard errors hold the truth in some 95 % of the jobs, and are not larger than they must be."""
    found = [received_cost(drifting(seed, 1.0)) for seed in range(200)]
    missed = np.array([(cost.value - RECEIVING) / cost.error for cost in found])
    assert np.mean(np.abs(missed) < 2) > 0.9
    assert 0.7 < missed.std() < 1.2
    assert abs(np.mean([cost.value for cost in found]) - RECEIVING) < 1e-6


def test_samples_with_wild_ones_among_them_have_honest_errors_too():
    missed = []
    for seed in range(150):
        samples, random = drifting(seed, 0.0), np.random.default_rng(seed)
        odd = np.where(random.random(len(samples.cpu)) < 0.05, random.uniform(2, 6, len(samples.cpu)), 1.0)
        cost = received_cost(replace(samples, cpu=samples.cpu * odd))
        missed.append((cost.value - RECEIVING) / cost.error)
    assert np.mean(np.abs(missed) < 2) > 0.9


def test_key_groups_that_all_change_at_once_cannot_be_told_from_time():
    samples = drifting(0, 1.0, periods=2)
    once = np.where(samples.period > 0, 0.0, 1.0)
    assert fit_costs(replace(samples, remote_received=once)).receiving is Unknown.ALIKE


def test_few_samples_say_nothing():
    for key_groups in (0, 1, 3):
        fit = fit_costs(sampled(6, key_groups))
        assert not isinstance(fit.sending, TupleCost)
        assert not isinstance(fit.receiving, TupleCost)


@pytest.mark.parametrize("key_groups", [5, 8, 12])
def test_few_key_groups_with_odd_samples_break_nothing(key_groups):
    for seed in range(100):
        samples, random = drifting(seed, 0.5, key_groups=key_groups, periods=3), np.random.default_rng(seed)
        odd = np.where(random.random(len(samples.cpu)) < 0.3, random.uniform(2, 6, len(samples.cpu)), 1.0)
        cost = fit_costs(replace(samples, cpu=samples.cpu * odd)).receiving
        assert isinstance(cost, Unknown) or 0.0 < cost.error < np.inf


def test_samples_without_tuples_are_refused():
    with pytest.raises(ValueError, match="rate"):
        replace(sampled(7), rate=np.zeros(240))
    with pytest.raises(ValueError, match="columns"):
        replace(sampled(7), rate=np.ones(3))


@pytest.mark.parametrize(("freedom", "true"), [(2, 22.327), (3, 10.215), (8, 4.501), (30, 3.385), (1e9, 3.090)])
def test_the_quantile_of_students_t_is_that_of_the_tables(freedom, true):
    assert student_quantile(freedom, 0.999) == pytest.approx(true, rel=0.15 if freedom < 3 else 0.03)
