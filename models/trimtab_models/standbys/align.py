"""Places first standbys anew so that peaks fall together.

What following costs is spent all the time, but a key group is inherited only after the loss of its owner.  So a worker
that has to keep room for one large key group can inherit as much after every other loss, for nothing but following it.
The *peak* of a worker is the most that it inherits after any one loss.  A pass aims at a level: largest first, each key
group goes to the worker whose peak rises least, of those that stay at or below the level; among equals to the one with
the least load.  Where none stays below, it goes where the load is least.

Passes halve the interval of levels first.  Further ones aim a little below the best value, with the order disturbed.
"""

import numpy as np

from trimtab_models.solving import StopRule
from trimtab_models.standbys.problem import UNPLACED, Bools, Floats, Ints, StandbyProblem

PLACINGS = 6_000
"""Most key groups that are placed, in all passes together: less than 0.1 s of CPU."""
PASSES = 30
"""Most passes."""
HALVINGS = 8
DISTURBED = 0.15
"""Standard deviation of the logarithm of the sizes by which a disturbed pass orders."""
BELOW = 0.1
"""Percent of a worker: what such a pass is to gain."""
PREFERRED = 1e3
"""A rise of a peak weighs so much more than a higher load, and a load above the level weighs more than either."""
BARRED = 1e9
ROUNDING = 1e-9


def is_affordable(problem: StandbyProblem, movable: Bools) -> bool:
    """Whether one pass at least is within PLACINGS."""
    return max(int(movable.sum()), problem.domains * len(problem.capacity)) <= PLACINGS


def aligned(
    problem: StandbyProblem, assignment: Ints, movable: Bools, bounds: tuple[float, float], stop: StopRule
) -> Ints | None:
    """The assignment with other first standbys for the `movable` (K,) key groups, which have one.

    `bounds` = a bound on the worst load after a loss, and a value that is reached.  None if there is nothing to move,
    no pass can be afforded, or limits left a key group without a place.
    """
    moved = np.flatnonzero(movable & (assignment != UNPLACED).any(axis=1))
    if not len(moved) or not is_affordable(problem, movable):
        return None
    most = min(PASSES, PLACINGS // len(moved))
    passes = _Passes(problem, assignment, moved)
    size = (problem.load - problem.follow)[moved]
    order = np.argsort(-size, kind="stable")
    low, high = bounds
    best, heirs = np.inf, np.full(len(moved), UNPLACED)
    random = np.random.default_rng(0)
    for number in range(most):
        if stop() or best <= bounds[0] + BELOW:
            break
        halving = number < HALVINGS
        if not halving:
            order = np.argsort(-size * np.exp(DISTURBED * random.standard_normal(len(moved))), kind="stable")
        level = 0.5 * (low + high) if halving else best - BELOW
        value, found = passes.place(order, level)
        low, high = (low, level) if value <= level + ROUNDING else (level, high)
        if value < best:
            best, heirs = value, found
    if (heirs == UNPLACED).any():
        return None
    result = assignment.copy()
    result[moved, 0] = heirs
    return result


class _Passes:
    """Passes over the key groups that are `moved`; all others stay as they are."""

    def __init__(self, problem: StandbyProblem, assignment: Ints, moved: Ints) -> None:
        rest = assignment.copy()
        rest[moved, 0] = UNPLACED
        self._problem = problem
        self._moved = moved
        self._loads = problem.loads(rest)
        self._inherited = problem.load - problem.follow
        self._of = problem.domain[problem.owner]
        self._table: Floats = np.zeros((problem.domains, len(problem.capacity)))
        placed = np.flatnonzero(rest[:, 0] != UNPLACED)
        np.add.at(self._table, (self._of[placed], rest[placed, 0]), self._inherited[placed])
        self._used = np.array([problem.followed(rest, usage) for usage in problem.usage]).reshape(problem.limit.shape)
        self._barred = _barred(problem, rest, moved)

    def place(self, order: Ints, level: float) -> tuple[float, Ints]:
        """One pass; the worst value, infinite if a key group has no place, and the heirs."""
        problem, table, used = self._problem, self._table.copy(), self._used.copy()
        loads, peak, capacity = self._loads.copy(), table.max(axis=0), problem.capacity
        room = level * capacity
        heirs = np.full(len(self._moved), UNPLACED)
        for place in order.tolist():
            key_group = self._moved[place]
            domain, follow = self._of[key_group], problem.follow[key_group]
            peaks = np.maximum(peak, table[domain] + self._inherited[key_group])
            over = (loads + follow + peaks - room) / capacity
            cost = np.where(over <= ROUNDING, PREFERRED * (peaks - peak) + over, BARRED + over)
            cost[self._barred[place]] = np.inf
            if len(used):
                full = used + problem.usage[:, key_group, None] > problem.limit
                cost[full.any(axis=0)] = np.inf
                used_here = problem.usage[:, key_group]
            heir = int(cost.argmin())
            if cost[heir] == np.inf:
                return np.inf, heirs
            heirs[place] = heir
            table[domain, heir] += self._inherited[key_group]
            peak[heir] = peaks[heir]
            loads[heir] += follow
            if len(used):
                used[:, heir] += used_here
        return float(((loads + peak) / capacity).max()), heirs


def _barred(problem: StandbyProblem, rest: Ints, moved: Ints) -> Bools:
    """(P, N) the workers that may not be the first standby of each key group that is moved."""
    owner, each = problem.owner[moved], np.arange(len(moved))
    near = problem.levels[problem.outside[moved]]
    barred: Bools = (near == near[each, owner][:, None]) | problem.removing
    places = problem.levels[problem.apart[owner]]
    for others in rest[moved, 1:].T:
        barred |= (others != UNPLACED)[:, None] & (places == places[each, others][:, None])
    return barred
