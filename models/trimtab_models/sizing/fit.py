"""The coefficients of an operator on a type of machine, from what agents measure: CPU = e * rate + MET.

Huber's robust regression by iteratively reweighted least squares: samples farther from the line than 1.345 robust
standard deviations (a garbage collection, a neighbour's burst) weigh less the farther they are. Neither coefficient is
negative; where the line would have it so, the other is fitted alone.

The paper claims 92 % accuracy (its largest error is 8 %); every fit here states its own.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from trimtab_models.sizing.problem import Floats

HUBER = 1.345  # 95 % as good as least squares where errors are normal
MAD_TO_SIGMA = 1.4826
ITERATIONS = 50
ROUNDING_PP = 1e-9  # below it samples are on the line


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """`cost` (e) in percent per tuple/s, `fixed` (MET) in percent; errors in percentage points of the machine.

    `accuracy` is 1 - (sum of absolute errors / sum of measured CPU), as a share; `doubted` counts samples that were
    given less than their full weight.
    """

    cost: float
    fixed: float
    samples: int
    doubted: int
    median_error_pp: float
    largest_error_pp: float
    accuracy: float


@dataclass(frozen=True, slots=True, kw_only=True)
class NotFitted:
    """Why there are no coefficients yet."""

    reason: str


def fit_coefficients(rates: Sequence[float], cpu: Sequence[float]) -> Fit | NotFitted:
    """The line through (tuples/s, percent of the machine) of one instance; needs two different rates."""
    x, y = np.array(rates, np.float64), np.array(cpu, np.float64)
    if x.shape != y.shape or not (np.isfinite(x).all() and np.isfinite(y).all()):
        raise ValueError("rates and cpu must be finite and as many")
    if len(np.unique(x)) < 2:
        return NotFitted(reason="rate and fixed cost cannot be told apart: all samples have the same rate")
    design = np.column_stack((x, np.ones(len(x))))
    coefficients, weights = _huber(design, y)
    if (coefficients < 0).any():
        alone = int(coefficients.argmax())  # at most one can be negative where CPU is not
        kept, weights = _huber(design[:, [alone]], y)
        coefficients = np.zeros(2)
        coefficients[alone] = max(0.0, float(kept[0]))
    errors = np.abs(design @ coefficients - y)
    total = float(np.abs(y).sum())
    return Fit(
        cost=float(coefficients[0]),
        fixed=float(coefficients[1]),
        samples=len(x),
        doubted=int((weights < 1).sum()),
        median_error_pp=float(np.median(errors)),
        largest_error_pp=float(errors.max()),
        accuracy=1 - float(errors.sum()) / total if total else 1.0,
    )


def _huber(design: Floats, y: Floats) -> tuple[Floats, Floats]:
    """Coefficients and the weights of the samples."""
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
