"""Local search on a placement: raise the rate, repair overloaded machines by single steps, repeat.

The paper's rule adds one instance at a time and never removes one, so it can end far below the optimum.  Here a step
adds, removes or moves one instance, or swaps two, whichever reduces the sum of overshoots most.  If a target cannot be
repaired, the raise is halved.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from trimtab_models.sizing.problem import Bools, Floats, Ints, SizingProblem, max_rate, use_of
from trimtab_models.solving.stop import StopRule

FIRST_RAISE, LAST_RAISE = 0.25, 1e-5  # relative to the rate
LEAST_RATE = 1e-3  # relative to the bound: first rate if no rate is known
FIT = 1e-12  # a smaller overshoot is rounding


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """Limits of a search: `instances` and `steps` at most, and no rate above `bound`."""

    instances: int
    steps: int
    bound: float


def improve(problem: SizingProblem, placement: Ints, scope: Scope, stop: StopRule) -> Ints:
    """(O, M) a placement that sustains at least the rate of `placement`; unchanged if no better one is found."""
    best, rate, raised, steps = placement, max_rate(problem, placement), FIRST_RAISE, scope.steps
    while raised >= LAST_RAISE and rate < scope.bound * (1 - LAST_RAISE) and steps > 0 and not stop():
        target = min(max(rate, LEAST_RATE * scope.bound) * (1 + raised), scope.bound) if rate >= 0 else 0.0
        repaired, taken = _repaired(problem, best, target, scope.instances, steps, stop)
        steps -= taken
        if repaired is not None:
            best, rate = repaired, max(target, max_rate(problem, repaired))
        elif rate < 0:
            break
        else:
            raised /= 2
    return best


def _repaired(
    problem: SizingProblem, placement: Ints, rate: float, limit: int, steps: int, stop: StopRule
) -> tuple[Ints | None, int]:
    """`placement` changed until it sustains `rate`, or None; and the number of steps."""
    current = placement.copy()
    for taken in range(steps):
        overshoot = float(_over(problem, use_of(problem, current, rate)).sum())
        if overshoot <= FIT:
            return current, taken + 1
        left, step = min(_steps(problem, current, rate, limit), default=(np.inf, ()), key=lambda each: each[0])
        if left >= overshoot * (1 - 1e-9) or stop():
            return None, taken + 1
        for operator, machine, change in step:
            current[operator, machine] += change
    return None, steps


Step = tuple[tuple[int, int, int], ...]
"""Changes of counts: (operator, machine, +1 or -1)."""


def _over(problem: SizingProblem, use: Floats) -> Floats:
    """(M,) overshoot of each machine relative to its capacity, summed over resources."""
    over: Floats = np.maximum(0, use / problem.capacity - 1).sum(axis=0)
    return over


def _steps(problem: SizingProblem, placement: Ints, rate: float, limit: int) -> Iterator[tuple[float, Step]]:
    """The best step of each kind for each operator, with the overshoot that remains."""
    counts = placement.sum(axis=1)
    use = use_of(problem, placement, rate)
    for operator, count in enumerate(counts.tolist()):
        here = placement[operator]
        if counts.sum() < limit:
            relieved, added = _recounted(problem, use, operator, here, rate, count + 1)
            left, machine = _best(problem, relieved, relieved + added, np.ones(len(here), np.bool_))
            yield left, ((operator, machine, 1),)
        if count > 1:
            burdened, added = _recounted(problem, use, operator, here, rate, count - 1)
            left, machine = _best(problem, burdened, burdened - added, here > 0)
            yield left, ((operator, machine, -1),)
        _, added = _recounted(problem, use, operator, here, rate, count)
        yield from _moves(problem, use, operator, here, added)
    yield from _swaps(problem, use, placement, rate)


def _recounted(
    problem: SizingProblem, use: Floats, operator: int, here: Ints, rate: float, count: int
) -> tuple[Floats, Floats]:
    """(Q, M) use of the present instances if the operator has `count` instances in all; and use of one more."""
    share = problem.relative[operator] * rate
    change = share / count - share / here.sum()
    per_rate = problem.per_rate[:, operator]
    return use + per_rate * here * change, per_rate * share / count + problem.per_instance[:, operator]


def _best(problem: SizingProblem, before: Floats, after: Floats, allowed: Bools) -> tuple[float, int]:
    """The machine where `after` instead of `before` leaves the least overshoot; and that overshoot."""
    over = _over(problem, before)
    change = np.where(allowed, _over(problem, after) - over, np.inf)
    machine = int(change.argmin())
    return float(over.sum() + change[machine]), machine


def _moves(
    problem: SizingProblem, use: Floats, operator: int, here: Ints, added: Floats
) -> Iterator[tuple[float, Step]]:
    """Moves of one instance from the machine where it helps most to the one where it harms least."""
    if len(here) < 2:
        return
    over = _over(problem, use)
    leaving = np.where(here > 0, _over(problem, use - added) - over, np.inf)
    coming = _over(problem, use + added) - over
    source = int(leaving.argmin())
    coming[source] = np.inf
    target = int(coming.argmin())
    yield float(over.sum() + leaving[source] + coming[target]), ((operator, source, -1), (operator, target, 1))


def _swaps(problem: SizingProblem, use: Floats, placement: Ints, rate: float) -> Iterator[tuple[float, Step]]:
    """Swaps of an instance on the worst machine with one of another operator elsewhere."""
    over = _over(problem, use)
    worst = int(over.argmax())
    share = problem.relative * rate / placement.sum(axis=1)
    instance = problem.per_rate * share[:, None] + problem.per_instance  # (Q, O, M)
    for gone in np.flatnonzero(placement[:, worst]).tolist():
        for come in range(len(placement)):
            partners = (placement[come] > 0) & (np.arange(len(over)) != worst)
            if come == gone or not partners.any():
                continue
            here = use[:, worst] - instance[:, gone, worst] + instance[:, come, worst]
            there = _over(problem, use - instance[:, come] + instance[:, gone])
            change = np.where(partners, there - over, np.inf)
            other = int(change.argmin())
            mine = float(np.maximum(0, here / problem.capacity[:, worst] - 1).sum()) - over[worst]
            changes = ((gone, worst, -1), (come, other, -1), (gone, other, 1), (come, worst, 1))
            yield float(over.sum() + mine + change[other]), changes
