"""Decides whether a measured load distance is really above a limit, or may be noise; pure.

While nothing moves, the deviation of a worker's load from the mean varies from window to window.  The run itself shows
by how much: `spreads` pools, for each worker, the variance about the mean of each span in which nothing moved.  The
mean over n windows then has the standard error s / sqrt(n), and (mean - true) / (s / sqrt(n)) follows Student's t
distribution with the degrees of freedom of s.  A run makes many such comparisons, one per span and worker, each at the
level FALSE_ALARM / comparisons.  If all promises are kept, it therefore reports a miss with a probability of at most
FALSE_ALARM (Bonferroni's inequality, for dependent comparisons too).
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import atan, cos, pi, sin, sqrt
from statistics import fmean

from trimtab_protocol.messages.names import WorkerId

FALSE_ALARM = 5e-4
"""Per run: one in two thousand, so that even noise with heavier tails stays near one in a thousand."""

Deviations = Mapping[WorkerId, float]
"""Load of each worker above the mean in one window (pp), as in `deviations`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """Standard deviation (pp) of a worker's deviation between windows, and its degrees of freedom."""

    pp: float
    degrees: int


def spreads(spans: Iterable[Sequence[Deviations]]) -> dict[WorkerId, Spread]:
    """The spread of each worker over all spans; a span with a single window adds nothing."""
    squares: dict[WorkerId, float] = defaultdict(float)
    degrees: dict[WorkerId, int] = defaultdict(int)
    for span in spans:
        for worker, values in _by_worker(span).items():
            mean = fmean(values)
            squares[worker] += sum((value - mean) ** 2 for value in values)
            degrees[worker] += len(values) - 1
    return {
        worker: Spread(pp=sqrt(squares[worker] / count), degrees=count) for worker, count in degrees.items() if count
    }


def means(span: Sequence[Deviations]) -> dict[WorkerId, float]:
    """The mean deviation of each worker over its windows."""
    return {worker: fmean(values) for worker, values in _by_worker(span).items()}


def lower_limit(span: Sequence[Deviations], known: Mapping[WorkerId, Spread], comparisons: int) -> float:
    """Lower confidence limit (pp) of the load distance over these windows, for one of `comparisons`.

    0 if the noise is unknown.
    """
    limits = [0.0]
    for worker, values in _by_worker(span).items():
        spread = known.get(worker)
        if spread is not None:
            quantile = t_quantile(FALSE_ALARM / comparisons, spread.degrees)
            limits.append(abs(fmean(values)) - quantile * spread.pp / sqrt(len(values)))
    return max(limits)


def _by_worker(span: Sequence[Deviations]) -> dict[WorkerId, list[float]]:
    values: dict[WorkerId, list[float]] = defaultdict(list)
    for window in span:
        for worker, deviation in window.items():
            values[worker].append(deviation)
    return values


@lru_cache(maxsize=1000)
def t_quantile(level: float, degrees: int) -> float:
    """The value that Student's t exceeds with probability `level`, from 1e-9 to 0.5."""
    if degrees < 1 or not 1e-9 <= level <= 0.5:
        raise ValueError(f"found level {level:g}, {degrees} degrees of freedom; expected 1e-9 to 0.5, and at least 1")
    low, high = 0.0, 1.0
    while _t_above(high, degrees) > level:
        low, high = high, 2.0 * high
    for _ in range(100):
        middle = (low + high) / 2.0
        low, high = (middle, high) if _t_above(middle, degrees) > level else (low, middle)
    return high


def _t_above(t: float, degrees: int) -> float:
    """P(T > t) for t >= 0, as a finite sum (Abramowitz and Stegun, 26.7.3 and 26.7.4)."""
    angle = atan(t / sqrt(degrees))
    cosine = cos(angle)
    odd = degrees % 2
    term, total = (cosine, cosine if degrees > 1 else 0.0) if odd else (1.0, 1.0)
    for k in range(2 + odd, degrees - 1, 2):
        term *= cosine**2 * (k - 1) / k
        total += term
    within = 2.0 / pi * (angle + sin(angle) * total) if odd else sin(angle) * total
    return (1.0 - within) / 2.0
