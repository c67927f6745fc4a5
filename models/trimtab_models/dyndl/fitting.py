"""Fits g_s from measured restores: the cost of a remote restore beside n - 1 others on its host.

The unit is a local restore; durations are normalised by bytes.  The prior a + b * n divides the free bandwidth of the
network interface among n restores.  For every observed n, the median and the 90th percentile are shrunk towards the
prior, depending on the number of samples, then made non-decreasing (isotonic regression).  Beyond the observed n the
curve continues with the slope of the prior; beyond the number of slots it is constant.  Plan with the p90 curve: it
gives an upper bound on the recovery time for all costs below it.  The p50 curve is for reports.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from trimtab_models.dyndl.problem import Floats, Ints
from trimtab_models.instances.scheduling import LOCAL_COST, AffineCost, TableCost

PRIOR_SAMPLES = 10.0
MEDIAN, HIGH = 50.0, 90.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RestoreSample:
    """One remote restore; `concurrent` >= 1 = remote restores on its host while it ran, including itself."""

    concurrent: int
    duration_s: float
    state_bytes: float

    def __post_init__(self) -> None:
        if self.concurrent < 1 or not 0 <= self.duration_s < np.inf or not 0 < self.state_bytes < np.inf:
            raise ValueError("concurrent must be at least 1, and seconds and bytes above 0")


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalRestore:
    """The unit of cost: the median local restore."""

    duration_s: float
    state_bytes: float

    def __post_init__(self) -> None:
        if not 0 < self.duration_s < np.inf or not 0 < self.state_bytes < np.inf:
            raise ValueError("seconds and bytes must be above 0")


@dataclass(frozen=True, slots=True, kw_only=True)
class FittedCost:
    """Both curves, up to the number of slots of the host."""

    median: TableCost
    high: TableCost


def network_prior(share: float) -> AffineCost:
    """The prior a + b * n: n restores share the bandwidth that the foreground (p95) leaves.

    The unit is a restore that nothing slows down.  It takes the `share` b of the free bandwidth, so n restores take
    max(1, b * n) as long.  1 - b + b * n is an upper estimate of that, exact for n = 1 and, where one restore alone
    needs all of it or more (b >= 1), for all n.
    """
    return AffineCost(a=max(0.0, LOCAL_COST - share), b=share)


def fit_cost(samples: Sequence[RestoreSample], *, local: LocalRestore, prior: AffineCost, slots: int) -> FittedCost:
    """The curves g(1) .. g(slots) of a host with `slots` >= 1 restore slots; without samples they are the prior."""
    if slots < 1:
        raise ValueError("slots must be at least 1")
    concurrent = np.minimum(np.array([sample.concurrent for sample in samples], np.int64), slots)
    seconds_per_byte = np.array([sample.duration_s / sample.state_bytes for sample in samples], np.float64)
    cost = seconds_per_byte * local.state_bytes / local.duration_s
    median = _curve(concurrent, cost, MEDIAN, prior, slots)
    high = np.maximum(_curve(concurrent, cost, HIGH, prior, slots), median)
    return FittedCost(median=TableCost(values=tuple(median.tolist())), high=TableCost(values=tuple(high.tolist())))


def _curve(concurrent: Ints, cost: Floats, percentile: float, prior: AffineCost, slots: int) -> Floats:
    expected = np.array([prior.at(n) for n in range(1, slots + 1)])
    observed = int(concurrent.max(initial=1))
    values, weights = expected[:observed].copy(), np.full(observed, PRIOR_SAMPLES)
    for n in np.unique(concurrent).tolist():
        here = cost[concurrent == n]
        weights[n - 1] += len(here)
        share = len(here) / weights[n - 1]
        values[n - 1] = share * float(np.percentile(here, percentile)) + (1 - share) * expected[n - 1]
    rising = isotonic(values, weights)
    beyond = rising[-1] + expected[observed:] - expected[observed - 1]
    curve: Floats = np.maximum(np.concatenate((rising, beyond)), LOCAL_COST)
    return curve


def isotonic(values: Floats, weights: Floats) -> Floats:
    """The non-decreasing curve with the least weighted squared distance to `values` (pool adjacent violators)."""
    pools: list[tuple[float, float, int]] = []  # mean, weight, length
    for value, weight in zip(values.tolist(), weights.tolist(), strict=True):
        mean, total, length = value, weight, 1
        while pools and pools[-1][0] > mean:
            before, its_weight, its_length = pools.pop()
            mean = (before * its_weight + mean * total) / (its_weight + total)
            total, length = its_weight + total, its_length + length
        pools.append((mean, total, length))
    return np.repeat([mean for mean, _, _ in pools], [length for _, _, length in pools]).astype(np.float64)
