"""Fits the cost of a remote tuple from statistics: c_s at the sending end and c_d at the receiving end.

The model of one key group in one period: load = base_o + work_o * (rate received) + c_s * (rate sent to remote key
groups) + c_d * (rate received from remote ones), with base_o and work_o of its operator o.  The fit is least squares
with Huber's weights, so that periods with other activity (a compaction, another process) count less.  Costs are not
negative.  They can be distinguished from work only if key groups of one operator differ in their remote share.
"""

from dataclasses import dataclass
from enum import Enum

import numpy as np

from trimtab_models.balance.problem import Bools, Floats, Ints

HUBER = 1.345  # standard deviations; 95 % efficient where the noise is normal
ROUNDS = 20
NORMAL = 1.4826  # standard deviations per median absolute deviation
OWN_SHARE = 1e-3  # least share of a column's length that other columns do not explain


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Observations:
    """S samples, one per key group and period; loads in percent of a capacity-1 node, rates in tuples/s."""

    load: Floats
    operator: Ints
    received: Floats
    remote_sent: Floats
    remote_received: Floats

    def __post_init__(self) -> None:
        if any(getattr(self, name).shape != self.load.shape for name in self.__slots__):
            raise ValueError("every sample needs all columns")


class Unidentified(Enum):
    """Why the costs cannot be determined."""

    TOO_FEW = "fewer samples than three for every coefficient"
    REMOTE_ALIKE = "remote rates do not vary apart from the other rates"


@dataclass(frozen=True, slots=True, kw_only=True)
class CostFit:
    """Costs in percent per remote tuple/s with their standard errors.

    `error` is the median of |measured - fitted| / mean load, `outliers` the share of samples with a reduced weight.
    """

    serialise_cost: float
    deserialise_cost: float
    serialise_error: float
    deserialise_error: float
    error: float
    outliers: float
    samples: int


def fit_costs(observations: Observations) -> CostFit | Unidentified:
    """The costs that explain `observations` best, or why they cannot be determined."""
    operators, at = np.unique(observations.operator, return_inverse=True)
    member = (at[:, None] == np.arange(len(operators))).astype(np.float64)
    remote = np.stack((observations.remote_sent, observations.remote_received), axis=1)
    columns = np.concatenate((member, member * observations.received[:, None], remote), axis=1)
    used = np.abs(columns).max(axis=0, initial=0.0) > 0
    if len(at) < 3 * int(used.sum()) or not len(at):
        return Unidentified.TOO_FEW
    if any(used[-end] and not _distinct(columns[:, used], int(used[-end:].sum())) for end in (1, 2)):
        return Unidentified.REMOTE_ALIKE
    if not used[-2:].any():
        return Unidentified.REMOTE_ALIKE
    return _fitted(columns, used, observations.load)


def _distinct(columns: Floats, end: int) -> bool:
    """Whether the others do not explain the column that is `end` places from the end."""
    column, others = columns[:, -end], np.delete(columns, columns.shape[1] - end, axis=1)
    left = column - others @ np.linalg.lstsq(others, column, rcond=None)[0]
    return bool(np.linalg.norm(left) > OWN_SHARE * np.linalg.norm(column))


def _fitted(columns: Floats, used: Bools, load: Floats) -> CostFit:
    free = used.copy()
    while True:
        coefficients, errors, weights = _huber(columns[:, free], load)
        costs, deviations = np.zeros(columns.shape[1]), np.zeros(columns.shape[1])
        costs[free], deviations[free] = coefficients, errors
        negative = np.flatnonzero(costs[-2:] < 0)
        if not len(negative):
            break
        free[len(free) - 2 + int(costs[-2:].argmin())] = False
    residual = np.abs(load - columns @ costs)
    mean = float(load.mean())
    return CostFit(
        serialise_cost=float(costs[-2]),
        deserialise_cost=float(costs[-1]),
        serialise_error=float(deviations[-2]),
        deserialise_error=float(deviations[-1]),
        error=float(np.median(residual)) / mean if mean else 0.0,
        outliers=float((weights < 1).mean()),
        samples=len(load),
    )


def _huber(columns: Floats, load: Floats) -> tuple[Floats, Floats, Floats]:
    """Coefficients, their standard errors, and the weight of each sample."""
    scale = np.maximum(np.abs(columns).max(axis=0), 1e-300)
    scaled, weights = columns / scale, np.ones(len(load))
    for _ in range(ROUNDS):
        root = np.sqrt(weights)
        coefficients = np.linalg.lstsq(scaled * root[:, None], load * root, rcond=None)[0]
        residual = load - scaled @ coefficients
        spread = NORMAL * float(np.median(np.abs(residual)))
        if spread <= 1e-12 * float(np.abs(load).max(initial=0.0)):
            break
        weights = np.minimum(1.0, HUBER * spread / np.maximum(np.abs(residual), 1e-300))
    freedom = max(1, len(load) - columns.shape[1])
    variance = float((weights * residual**2).sum()) / freedom
    covariance = np.linalg.pinv((scaled * weights[:, None]).T @ scaled) * variance
    errors: Floats = np.sqrt(np.maximum(0.0, np.diag(covariance))) / scale
    return coefficients / scale, errors, weights


def prediction_error(predicted: Floats, measured: Floats) -> float:
    """Error of predicted against measured loads: sum of |differences| / sum of measured."""
    total = float(measured.sum())
    return float(np.abs(predicted - measured).sum()) / total if total else 0.0
