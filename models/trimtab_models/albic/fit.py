"""Fits what a tuple costs because it goes to another node: c_s at the sending end and c_d at the receiving end.

Source: Madsen et al. 2017, section 4.3.2, fits them from the agents' statistics.  The model of a key group of one
operator at one node, per tuple that it receives, while its partners stay where they are:

    CPU = work + base / rate + in * (tuples from key groups) + out * (tuples to key groups)
          + c_s * (tuples to remote key groups) + c_d * (tuples from remote key groups) + node + key group + noise

Tuples from and to key groups have a cost of their own besides, so only the difference between local and remote remains
for c_s and c_d.  Where no pair changes between the two, and all pairs are alike, that difference cannot be known.

Huber's weights let odd samples count less.  Nodes have an intercept each, since what all key groups of a node share (a
slow host, full batches) is no cost of a tuple.  Key groups differ, and their samples repeat each other: an error that
takes samples for independent is far too small.  So errors are those of the jackknife over key groups, and have as many
degrees of freedom as key groups contribute to the difference (the effective number of clusters, less one).

No library in reach has this: scikit-learn's HuberRegressor has no errors, and statsmodels' RLM only those of
independent samples (its issue 1379).  numpy has the least squares.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from statistics import NormalDist

import numpy as np

from trimtab_models.balance.problem import Bools, Floats, Ints

HUBER = 1.345  # standard deviations; 95 % efficient where the noise is normal
ITERATIONS = 20
NORMAL = 1.4826  # standard deviations per median absolute deviation
EXACT = 1e-12  # residuals below this share of the largest sample are none
OWN_SHARE = 0.1  # least share of a column's length that other columns do not explain; counts are not exact
VARIES = 0.05  # least variation of what else may explain the CPU, as a share
LARGEST_SHARE = 0.9  # of the difference that a single key group may contribute
PER_NODE = 4  # samples per node from which nodes have intercepts; with fewer, samples of a node count as one
LEAST_FREEDOM = 2.0
CHANCE = 0.001
"""Probability, at most, that a cost of zero counts as a saving in one fit."""


class Unknown(StrEnum):
    """Why a cost is not known."""

    NO_TUPLES = "no tuples between key groups"
    ALL_LOCAL = "all tuples were local"
    ALL_REMOTE = "no tuple was local"
    ALIKE = "local and remote do not differ apart from node and rates"
    FEW = "too few key groups differ"


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """A fitted cost and its standard error, CPU seconds per tuple; `freedom` = degrees of freedom of the error.

    It may be negative by chance.
    """

    value: float
    error: float
    freedom: float

    @property
    def significant(self) -> bool:
        """Whether a cost of zero or less would look like this with a probability below CHANCE."""
        return self.value > student_quantile(self.freedom, 1.0 - CHANCE) * self.error


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Samples:
    """S samples of the key groups of one operator; a key group has one for each place of it and of its partners.

    `cpu` = CPU seconds per tuple received, `rate` = tuples received per second; the other amounts per tuple received:
    tuples to and from key groups, and those of them that were remote.
    """

    key_group: Ints
    node: Ints
    cpu: Floats
    rate: Floats
    sent: Floats
    received: Floats
    remote_sent: Floats
    remote_received: Floats

    def __post_init__(self) -> None:
        if any(getattr(self, name).shape != self.cpu.shape for name in self.__slots__):
            raise ValueError("every sample needs all columns")
        if len(self.rate) and self.rate.min() <= 0.0:
            raise ValueError("the rate of a sample must be above 0")


@dataclass(frozen=True, slots=True, kw_only=True)
class CostFit:
    """The costs of one operator; `samples` and `key_groups` = how many there were."""

    sending: Cost | Unknown
    receiving: Cost | Unknown
    samples: int
    key_groups: int


def fit_costs(samples: Samples) -> CostFit:
    """The costs that explain `samples` best, or why they are not known."""
    remote = (samples.remote_sent, samples.remote_received)
    pairs = (samples.sent, samples.received)
    reasons = [_one_sided(part, whole) for part, whole in zip(remote, pairs, strict=True)]
    wanted = [place for place, reason in enumerate(reasons) if reason is None]
    found: list[Cost | Unknown | None] = list(reasons)
    if wanted:
        columns = np.stack((*(remote[place] for place in wanted), 1.0 / samples.rate, *pairs), axis=1)
        costs = _Regression(samples, columns, len(wanted)).costs()
        for place, cost in zip(wanted, costs, strict=True):
            found[place] = cost
    sending, receiving = (each if each is not None else Unknown.ALIKE for each in found)
    return CostFit(
        sending=sending,
        receiving=receiving,
        samples=len(samples.cpu),
        key_groups=len(np.unique(samples.key_group)),
    )


def _one_sided(remote: Floats, pairs: Floats) -> Unknown | None:
    """Why there is no difference between local and remote to see at all."""
    total = float(pairs.sum())
    if not total > 0.0:
        return Unknown.NO_TUPLES
    share = float(remote.sum()) / total
    if share < EXACT:
        return Unknown.ALL_LOCAL
    return Unknown.ALL_REMOTE if share > 1.0 - EXACT else None


class _Regression:
    """Robust regression of the CPU on `columns` (S, C), of which the first `wanted` are the costs looked for."""

    def __init__(self, samples: Samples, columns: Floats, wanted: int) -> None:
        self._samples, self._wanted = samples, wanted
        self._key_group = np.unique(samples.key_group, return_inverse=True)[1]
        self._node = np.unique(samples.node, return_inverse=True)[1]
        self._with_nodes = len(samples.cpu) >= PER_NODE * (int(self._node.max()) + 1)
        self._scale = np.maximum(np.abs(columns).max(axis=0), 1e-300)
        self._columns, self._cpu = columns / self._scale, samples.cpu
        self._columns = self._columns[:, self._varying()]
        self._coefficient_count = self._columns.shape[1] + (int(self._node.max()) + 1 if self._with_nodes else 1)
        self._fit()

    def _varying(self) -> Bools:
        """(C,) the columns to use: those of costs, and the others if they vary."""
        length = np.linalg.norm(self._columns, axis=0)
        varies: Bools = np.linalg.norm(self._centred(np.ones(len(self._cpu)))[:, :-1], axis=0) > VARIES * length
        varies[: self._wanted] = True
        return varies

    def _fit(self) -> None:
        weights = np.ones(len(self._cpu))
        for _ in range(ITERATIONS):
            centred = self._centred(weights)
            root = np.sqrt(weights)[:, None]
            weighted, cpu = (centred * root)[:, :-1], (centred * root)[:, -1]
            coefficients = np.linalg.lstsq(weighted, cpu, rcond=None)[0]
            residual = centred[:, -1] - centred[:, :-1] @ coefficients
            spread = NORMAL * float(np.median(np.abs(residual)))
            before, allowed = weights, HUBER * spread
            if spread <= EXACT * float(np.abs(self._cpu).max(initial=0.0)):
                weights = np.ones(len(self._cpu))
                break
            weights = np.minimum(1.0, allowed / np.maximum(np.abs(residual), allowed))
            if np.allclose(weights, before, atol=1e-6):
                break
        self._weights, self._coefficients, self._residual = weights, coefficients, residual
        self._weighted = self._centred(weights)[:, :-1]

    def _centred(self, weights: Floats) -> Floats:
        """Columns and CPU without the weighted mean of each node, or of all samples."""
        values = np.concatenate((self._columns, self._cpu[:, None]), axis=1)
        group = self._node if self._with_nodes else np.zeros(len(self._cpu), np.int64)
        total = np.maximum(np.bincount(group, weights), 1e-300)
        means = np.stack([np.bincount(group, weights * each) for each in values.T], axis=1) / total[:, None]
        centred: Floats = values - means[group]
        return centred

    def costs(self) -> list[Cost | Unknown]:
        """The costs looked for, in the order of their columns."""
        return [self._cost(place) for place in range(self._wanted)]

    def _cost(self, place: int) -> Cost | Unknown:
        root = np.sqrt(self._weights)
        column, others = self._weighted[:, place], np.delete(self._weighted, place, axis=1)
        explained = np.linalg.lstsq(others * root[:, None], column * root, rcond=None)[0]
        own = column - others @ explained
        if np.linalg.norm(own) <= OWN_SHARE * np.linalg.norm(self._columns[:, place]):
            return Unknown.ALIKE
        clusters = [self._key_group] if self._with_nodes else [self._key_group, self._node]
        jackknifed = [self._error(own, cluster) for cluster in clusters]
        known = [each for each in jackknifed if each is not None]
        if len(known) < len(clusters):
            return Unknown.FEW
        error, freedom = max(known)
        scale = float(self._scale[place])
        return Cost(value=float(self._coefficients[place]) / scale, error=error / scale, freedom=freedom)

    def _error(self, own: Floats, cluster: Ints) -> tuple[float, float] | None:
        """Standard error by the jackknife over clusters, and its degrees of freedom; None: too few contribute."""
        whole: Bools = self._weights >= 1.0
        share = np.bincount(cluster, np.where(whole, own**2, 0.0))
        total = float(share.sum())
        if not total > 0.0 or float(share.max()) > LARGEST_SHARE * total:
            return None
        count = len(share)
        spare = count - self._coefficient_count
        freedom = min(spare, total**2 / float((share**2).sum()) - 1.0)
        if freedom < LEAST_FREEDOM:
            return None
        change = np.bincount(cluster, self._weights * own * self._residual) / (total - share)
        # The fit of the other columns makes residuals smaller than errors.
        return count / spare * math.sqrt((count - 1) / count * float((change**2).sum())), freedom


def student_quantile(freedom: float, probability: float) -> float:
    """The quantile of Student's t, by the expansion of Abramowitz and Stegun 26.7.5; within 15 % for 2 or more."""
    z = NormalDist().inv_cdf(probability)
    terms: Sequence[float] = (
        (z**3 + z) / 4.0,
        (5.0 * z**5 + 16.0 * z**3 + 3.0 * z) / 96.0,
        (3.0 * z**7 + 19.0 * z**5 + 17.0 * z**3 - 15.0 * z) / 384.0,
        (79.0 * z**9 + 776.0 * z**7 + 1482.0 * z**5 - 1920.0 * z**3 - 945.0 * z) / 92160.0,
    )
    return z + sum(term / freedom ** (power + 1) for power, term in enumerate(terms))
