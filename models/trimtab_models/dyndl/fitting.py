"""g_s from measured restores: what a remote restore costs beside n - 1 others on its host, in units of a local one.

Durations are normalised by bytes. The prior 1 + b * n shares what the network interface has left among the n restores.
For every observed n the median and the 90th percentile are shrunk to the prior by the number of their samples, then
made non-decreasing (isotonic regression). Beyond the observed n the curve goes on with the slope of the prior, beyond
the number of slots it is constant. Planning with the p90 curve gives an upper bound on the recovery time for every
cost below it; the p50 is for reporting.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from trimtab_models.dyndl.arrays import Floats, Ints
from trimtab_models.instances.scheduling import LOCAL_COST, AffineCost, TableCost

PRIOR_SAMPLES = 10.0
MEDIAN, HIGH = 50.0, 90.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RestoreSample:
    """One remote restore: `concurrent` >= 1 remote restores on its host (itself included) while it ran."""

    concurrent: int
    duration_s: float
    state_bytes: float

    def __post_init__(self) -> None:
        if self.concurrent < 1 or not 0 <= self.duration_s < np.inf or not 0 < self.state_bytes < np.inf:
            raise ValueError("a restore runs beside itself, for some time, and moves some bytes")


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalRestore:
    """The unit of cost: the median local restore."""

    duration_s: float
    state_bytes: float

    def __post_init__(self) -> None:
        if not 0 < self.duration_s < np.inf or not 0 < self.state_bytes < np.inf:
            raise ValueError("a restore takes some time and some bytes")


@dataclass(frozen=True, slots=True, kw_only=True)
class FittedCost:
    """Both curves, as far as the host has slots."""

    median: TableCost
    high: TableCost
    samples: int


def network_prior(local: LocalRestore, *, capacity_bytes_per_s: float, foreground_bytes_per_s: float) -> AffineCost:
    """1 + b * n: n restores of the usual size share what the foreground's p95 leaves of the host's network.

    Raises ValueError where it leaves nothing.
    """
    free = capacity_bytes_per_s - foreground_bytes_per_s
    if not free > 0:
        raise ValueError("the foreground uses the whole network: no remote restore has a prior here")
    return AffineCost(a=LOCAL_COST, b=local.state_bytes / free / local.duration_s)


def fit_cost(samples: Sequence[RestoreSample], *, local: LocalRestore, prior: AffineCost, slots: int) -> FittedCost:
    """The curves g(1) .. g(slots) of a host with `slots` >= 1 restore slots; without samples they are the prior."""
    if slots < 1:
        raise ValueError("a host that restores has a slot")
    concurrent = np.minimum(np.array([sample.concurrent for sample in samples], np.int64), slots)
    seconds_per_byte = np.array([sample.duration_s / sample.state_bytes for sample in samples], np.float64)
    cost = seconds_per_byte * local.state_bytes / local.duration_s
    median = _curve(concurrent, cost, MEDIAN, prior, slots)
    high = np.maximum(_curve(concurrent, cost, HIGH, prior, slots), median)
    return FittedCost(
        median=TableCost(values=tuple(median.tolist())),
        high=TableCost(values=tuple(high.tolist())),
        samples=len(samples),
    )


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
