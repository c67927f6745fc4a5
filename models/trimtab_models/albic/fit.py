"""Fits what a tuple costs because it goes to another node: c_s at the sending end and c_d at the receiving end.

Source: Madsen et al. 2017, section 4.3.2, fits them from the agents' statistics.  The model of a key group k of one
operator at one node in one period, per tuple that it receives:

    CPU = work + base / rate + in * (tuples from key groups) + out * (tuples to key groups)
          + c_s * (tuples to remote key groups) + c_d * (tuples from remote key groups)
          + node in this period + key group + noise

Tuples from and to key groups have a cost of their own besides, so only the difference between local and remote remains
for c_s and c_d.  Where no pair changes between the two, and all pairs are alike, that difference cannot be known.

*Time.*  Caches warm up, other programs run, clocks change: then all tuples become cheaper or dearer, and a key group
that became local meanwhile must not have the credit.  So each period has an intercept of its own, for each node where
there are enough samples, else for all nodes.  What changes for all at once cancels out, and what is left are
differences in differences: key groups that became local, less those that did not, in the same windows.

*Key groups* differ by nature.  Their effects are random ones of variance s_a^2, beside noise of variance s_w^2, and
Henderson's mixed-model equations weigh both ways to see a cost as these variances allow: between key groups within a
period, and between periods of a key group.  With the other columns A, weights W and l = s_w^2 / s_a^2, they are

    N b = sum over k of A_k' M_k y_k    with    N = sum over k of A_k' M_k A_k,    M_k = W_k - w_k w_k' / (sum w_k + l)

Huber's weights let odd samples count less.  Samples of a key group repeat each other, and a wrong l would spoil an
error that believes in it, so errors are those of the jackknife over key groups: b - b_without_k = (N - N_k)^-1 u_k.
Here u_k is the part of k in the residual of the normal equations, and N and N_k are their derivatives, to which samples
bounded by Huber's weights add nothing.  The intercepts are fitted anew without k as well, so what the control group
leaves open is in the error.  It has as many degrees of freedom as key groups contribute to the difference (the
effective number of clusters, less one).

No library in reach has this: scikit-learn's HuberRegressor has no errors, statsmodels' RLM only those of independent
samples (its issue 1379), and its MixedLM is not robust.  numpy has the linear algebra.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from statistics import NormalDist

import numpy as np

from trimtab_models.balance.problem import Bools, Floats, Ints

HUBER = 1.345  # standard deviations; 95 % efficient where the noise is normal
ITERATIONS, RATIO_ITERATIONS = 20, 6
NORMAL = 1.4826  # standard deviations per median absolute deviation
TINY = 1e-300
EXACT = 1e-9  # residuals below this share of the largest sample are none
RIDGE = 1e-12  # share of the trace of the normal equations that keeps intercepts apart which say the same
OWN_SHARE = 0.1  # least share of a column's length that other columns do not explain; counts are not exact
VARIES = 0.05  # least variation of what else may explain the CPU, as a share
LARGEST_SHARE = 0.9  # of the difference that a single key group may contribute
PER_INTERCEPT = 4  # samples per node and period, or per node, from which these have intercepts
MOST_INTERCEPTS = 64  # a fit takes their square
LEAST_RATIO = 0.01  # of the variances of noise and key groups
LEAST_FREEDOM = 2.0
CHANCE = 0.001
"""Probability, at most, that a cost of zero counts as a saving in one fit."""


class Unknown(StrEnum):
    """Why a cost is not known."""

    NO_TUPLES = "no tuples between key groups"
    ALL_LOCAL = "all tuples were local"
    ALL_REMOTE = "no tuple was local"
    ALIKE = "local and remote do not differ apart from time, node and rates"
    FEW = "too few key groups differ"


@dataclass(frozen=True, slots=True, kw_only=True)
class TupleCost:
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
    """S samples of the key groups of one operator; a key group has at most one in each period.

    `cpu` = CPU seconds per tuple received, `rate` = tuples received per second; the other amounts per tuple received:
    tuples to and from key groups, and those of them that were remote.
    """

    key_group: Ints
    node: Ints
    period: Ints
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
    """The costs of one operator."""

    sending: TupleCost | Unknown
    receiving: TupleCost | Unknown


def fit_costs(samples: Samples) -> CostFit:
    """The costs that explain `samples` best, or why they are not known."""
    remote = (samples.remote_sent, samples.remote_received)
    pairs = (samples.sent, samples.received)
    reasons = [_one_sided(part, whole) for part, whole in zip(remote, pairs, strict=True)]
    wanted = [place for place, reason in enumerate(reasons) if reason is None]
    found: list[TupleCost | Unknown | None] = list(reasons)
    if wanted:
        columns = np.stack((*(remote[place] for place in wanted), 1.0 / samples.rate, *pairs), axis=1)
        costs = _Regression(_Design.of(samples, columns, len(wanted))).costs()
        for place, cost in zip(wanted, costs, strict=True):
            found[place] = cost
    sending, receiving = (each if each is not None else Unknown.ALIKE for each in found)
    return CostFit(sending=sending, receiving=receiving)


def _one_sided(remote: Floats, pairs: Floats) -> Unknown | None:
    """Why there is no difference between local and remote to see at all."""
    total = float(pairs.sum())
    if not total > 0.0:
        return Unknown.NO_TUPLES
    share = float(remote.sum()) / total
    if share < EXACT:
        return Unknown.ALL_LOCAL
    return Unknown.ALL_REMOTE if share > 1.0 - EXACT else None


def _intercepts(samples: Samples) -> tuple[list[Ints], bool]:
    """The groups (S,) of samples that have an intercept each, and whether those of nodes are among them."""
    _, node = np.unique(samples.node, return_inverse=True)
    _, period = np.unique(samples.period, return_inverse=True)
    nodes, periods = int(node.max()) + 1, int(period.max()) + 1
    _, both = np.unique(period * nodes + node, return_inverse=True)
    count = int(both.max()) + 1
    if count <= MOST_INTERCEPTS and len(node) >= PER_INTERCEPT * count:
        return [both], True
    if nodes + periods <= MOST_INTERCEPTS and len(node) >= PER_INTERCEPT * nodes:
        return [period, node], True
    return [period], False


def _centred(values: Floats, group: Ints) -> Floats:
    """`values` (S, C) without the mean of each group."""
    count = np.bincount(group)
    means = np.stack([np.bincount(group, each) for each in values.T], axis=1) / count[:, None]
    centred: Floats = values - means[group]
    return centred


@dataclass(frozen=True, slots=True)
class _Design:
    """The regression's columns (S, C): first the `wanted` costs, then what else may explain the CPU, then intercepts.

    Samples are in the order of their key groups, K in number, which begin at `starts`.  Columns and CPU are in units
    of `scale` (C,) and `unit`; `spare` = key groups beyond the coefficients that a period must tell.
    """

    columns: Floats
    cpu: Floats
    scale: Floats
    unit: float
    key_group: Ints
    node: Ints
    starts: Ints
    wanted: int
    spare: int
    with_nodes: bool

    @classmethod
    def of(cls, samples: Samples, columns: Floats, wanted: int) -> "_Design":
        order = np.argsort(samples.key_group, kind="stable")
        _, starts, key_group = np.unique(samples.key_group[order], return_index=True, return_inverse=True)
        groups, with_nodes = _intercepts(samples)
        scale = np.maximum(np.abs(columns).max(axis=0), TINY)
        columns, unit = columns / scale, max(float(np.abs(samples.cpu).max()), TINY)
        used: Bools = np.linalg.norm(_centred(columns, groups[0]), axis=0) > VARIES * np.linalg.norm(columns, axis=0)
        used[:wanted] = True
        intercepts = [np.eye(int(group.max()) + 1)[group] for group in groups]
        per_period = math.ceil(intercepts[0].shape[1] / len(np.unique(samples.period)))
        return cls(
            columns=np.concatenate((columns[:, used], *intercepts), axis=1)[order],
            cpu=samples.cpu[order] / unit,
            scale=scale,
            unit=unit,
            key_group=key_group,
            node=np.unique(samples.node[order], return_inverse=True)[1],
            starts=starts,
            wanted=wanted,
            spare=len(starts) - int(used.sum()) - per_period,
            with_nodes=with_nodes,
        )


class _Regression:
    """Robust regression with random effects of key groups."""

    def __init__(self, design: _Design) -> None:
        self._design = design
        self._counts = np.bincount(design.key_group)
        self._ratio = math.inf
        self._weights = np.ones(len(design.cpu))
        self._fit()

    def _fit(self) -> None:
        for iteration in range(ITERATIONS):
            self._solve()
            spread = NORMAL * float(np.median(np.abs(self._residual)))
            if spread <= EXACT:
                return
            weights, ratio, allowed = self._weights, self._ratio, HUBER * spread
            self._weights = np.minimum(1.0, allowed / np.maximum(np.abs(self._residual), allowed))
            if iteration < RATIO_ITERATIONS:
                self._ratio = self._variances()
            if self._ratio == ratio and np.allclose(self._weights, weights, atol=1e-3):
                break
        self._solve()

    def _sums(self, values: Floats, weights: Floats | None = None) -> Floats:
        """Weighted sums of `values` (S, ...) by key group."""
        weights = self._weights if weights is None else weights
        sums: Floats = np.add.reduceat((values.T * weights).T, self._design.starts, axis=0)
        return sums

    def _solve(self) -> None:
        """The coefficients for the present weights and ratio; the residuals, with and without key groups' effects."""
        columns, cpu = self._design.columns, self._design.cpu
        self._total = self._sums(np.ones(len(cpu))) + self._ratio
        sums = self._sums(columns)
        shrunk = sums / self._total[:, None]
        weighted = (columns * self._weights[:, None]).T
        normal = _definite(weighted @ columns - sums.T @ shrunk)
        self._coefficients = np.linalg.solve(normal, weighted @ cpu - shrunk.T @ self._sums(cpu))
        self._whole = cpu - columns @ self._coefficients
        self._residual = self._whole - (self._sums(self._whole) / self._total)[self._design.key_group]

    def _variances(self) -> float:
        """The variance of the noise, as a share of that between key groups; infinite if these do not differ."""
        count, key_group = self._counts, self._design.key_group
        if count.max() < 2:
            return math.inf
        mean = self._sums(self._whole) / np.maximum(self._sums(np.ones(len(key_group))), TINY)
        inside = (self._whole - mean[key_group])[count[key_group] > 1]
        repeated = count[count > 1]
        within = (NORMAL * float(np.median(np.abs(inside)))) ** 2 * repeated.sum() / (repeated - 1).sum()
        between = (NORMAL * float(np.median(np.abs(mean - np.median(mean))))) ** 2 - within * np.mean(1.0 / count)
        return max(LEAST_RATIO, float(within / between)) if between > 0.0 else math.inf

    def costs(self) -> list[TupleCost | Unknown]:
        """The costs looked for, in the order of their columns."""
        parts = self._parts()
        normal = _definite(parts.sum(axis=0))
        inverse = np.linalg.inv(normal)
        left = self._sums(self._design.columns * self._residual[:, None])
        found: list[TupleCost | Unknown] = []
        for place in range(self._design.wanted):
            direction = inverse[:, place] / inverse[place, place]
            own = self._design.columns @ direction
            length = np.linalg.norm(self._design.columns[:, place])
            if np.linalg.norm(own * np.sqrt(self._weights)) <= OWN_SHARE * length:
                found.append(Unknown.ALIKE)
                continue
            share: Floats = np.einsum("i,kij,j->k", direction, parts, direction, optimize=True) * inverse[place, place]
            freedom, error = self._freedom(share), math.inf
            if freedom >= LEAST_FREEDOM:
                error = _jackknifed(np.linalg.solve(normal - parts, left[:, :, None])[:, place, 0].astype(np.float64))
            known = [(error, freedom)]
            if not self._design.with_nodes:
                known.append(self._node_error(own, float(inverse[place, place])))
            found.append(self._cost(place, known))
        return found

    def _cost(self, place: int, known: Sequence[tuple[float, float]]) -> TupleCost | Unknown:
        """The cost with the largest of its errors; each has as many degrees of freedom as it comes with."""
        if min(freedom for _, freedom in known) < LEAST_FREEDOM:
            return Unknown.FEW
        error, freedom = max(known)
        unit = self._design.unit / float(self._design.scale[place])
        return TupleCost(value=float(self._coefficients[place]) * unit, error=error * unit, freedom=freedom)

    def _parts(self) -> Floats:
        """(K, C, C) what each key group adds to the derivative of the normal equations.

        A sample that is bounded by Huber's weights adds nothing: its pull stays the same.
        """
        columns, count, full = self._design.columns, self._counts, np.where(self._weights >= 1.0, 1.0, 0.0)
        place = np.arange(len(columns)) - self._design.starts[self._design.key_group]
        rows = np.zeros((len(count), int(count.max()), columns.shape[1]))
        rows[self._design.key_group, place] = columns * full[:, None]
        sums, total = self._sums(columns, full), self._sums(np.ones(len(full)), full) + self._ratio
        parts: Floats = rows.transpose(0, 2, 1) @ rows - sums[:, :, None] * (sums / total[:, None])[:, None, :]
        return parts

    def _node_error(self, own: Floats, scale: float) -> tuple[float, float]:
        """As by the jackknife over nodes, where they have no intercepts; `scale` = of the coefficient's variance."""
        node, full = self._design.node, np.where(self._weights >= 1.0, 1.0, 0.0)
        total = self._sums(np.ones(len(full)), full) + self._ratio
        effect = (self._sums(own, full) / total)[self._design.key_group]
        share = (np.bincount(node, full * own * (own - effect)) * scale).astype(np.float64)
        pull = np.bincount(node, self._weights * own * self._residual)
        changes = pull * scale / np.maximum(1.0 - share, TINY)
        return _jackknifed(changes.astype(np.float64)), self._freedom(share)

    def _freedom(self, share: Floats) -> float:
        """Degrees of freedom of an error from clusters that contribute `share` each; 0: one does nearly all."""
        if not (float(share.sum()) > 1.0 - OWN_SHARE and float(share.max()) <= LARGEST_SHARE):
            return 0.0
        return min(float(self._design.spare), 1.0 / float((share**2).sum()) - 1.0)


def _definite(normal: Floats) -> Floats:
    """`normal` (C, C), with so much on its diagonal that columns that say the same do no harm."""
    kept: Floats = normal + RIDGE * np.trace(normal) * np.eye(len(normal))
    return kept


def _jackknifed(change: Floats) -> float:
    """The standard error, from what changes without each cluster."""
    return math.sqrt((len(change) - 1) / len(change) * float((change**2).sum()))


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
