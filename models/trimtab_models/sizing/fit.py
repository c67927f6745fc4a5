"""Fits the coefficients of an operator on a type of machine from measurements: CPU = e * rate + MET.

Huber's robust regression by iteratively reweighted least squares: samples farther from the line than 1.345 robust
standard deviations (garbage collection, bursts of other processes) get less weight with distance.  No coefficient is
negative; if one would be, the other is fitted alone.

The paper claims an accuracy of 92 % (largest error 8 %); every fit here states its own.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from trimtab_models.sizing.problem import Floats

HUBER = 1.345  # 95 % efficient for normal errors
MAD_TO_SIGMA = 1.4826
ITERATIONS = 50
ROUNDING_PP = 1e-9  # samples closer to the line count as on it


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """`cost` (e) in percent per tuple/s, `fixed` (MET) in percent of the machine.

    `accuracy` = 1 - (sum of absolute errors / sum of measured CPU), as a share; `doubted` = number of samples with less
    than full weight.
    """

    cost: float
    fixed: float
    doubted: int
    accuracy: float


@dataclass(frozen=True, slots=True, kw_only=True)
class NotFitted:
    """There are no coefficients yet, for this reason."""

    reason: str


def fit_coefficients(rates: Sequence[float], cpu: Sequence[float]) -> Fit | NotFitted:
    """The line through samples (tuples/s, percent of the machine) of one instance; needs two different rates."""
    x, y = np.array(rates, np.float64), np.array(cpu, np.float64)
    if x.shape != y.shape or not (np.isfinite(x).all() and np.isfinite(y).all()):
        raise ValueError("rates and cpu must be finite and of equal length")
    if len(np.unique(x)) < 2:
        return NotFitted(reason="rate and fixed cost cannot be told apart: all samples have the same rate")
    design = np.column_stack((x, np.ones(len(x))))
    coefficients, weights = _huber(design, y)
    if (coefficients < 0).any():
        alone = int(coefficients.argmax())  # at most one can be negative if CPU is not
        kept, weights = _huber(design[:, [alone]], y)
        coefficients = np.zeros(2)
        coefficients[alone] = max(0.0, float(kept[0]))
    errors = np.abs(design @ coefficients - y)
    total = float(np.abs(y).sum())
    return Fit(
        cost=float(coefficients[0]),
        fixed=float(coefficients[1]),
        doubted=int((weights < 1).sum()),
        accuracy=1 - float(errors.sum()) / total if total else 1.0,
    )


def _huber(design: Floats, y: Floats) -> tuple[Floats, Floats]:
    """The coefficients, and the weight of each sample."""
    weights = np.ones(len(y))
    coefficients: Floats = np.zeros(design.shape[1])
    for _ in range(ITERATIONS):
        root = np.sqrt(weights)
        found = np.asarray(np.linalg.lstsq(design * root[:, None], y * root, rcond=None)[0], np.float64)
        errors = np.abs(design @ found - y)
        allowed = max(ROUNDING_PP, HUBER * MAD_TO_SIGMA * float(np.median(errors)))
        weights = allowed / np.maximum(errors, allowed)
        if np.allclose(found, coefficients, rtol=1e-9, atol=1e-12):
            break
        coefficients = found
    return coefficients, weights
