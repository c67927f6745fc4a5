"""Bounds: loads after a loss that no assignment can stay below.

For the loss of one domain, with survivors that own `L_n` and orphans of loads `l_k`:

- Present: the highest `L_n / c_n`.
- Water: the least level u with `sum of max(0, u c_n - L_n) >= sum of l_k`.  The heir of a key group carries all of its
  load: what following costs it before is a part of that.
- Pieces: of the m largest orphans either two share a worker, or one is on a worker that is not among the m - 1 on which
  the m-th largest leads to the least load.

Following: a standby is followed all the time, so the mean load after a loss contains what all other standbys cost.  It
is an average over several losses, with weights w_D, since one loss alone could have them all at the lost workers.  Let
workers below a trial level take what they can, and C_D be the capacity of those that survive D.  The level is refuted
when for some weights (a dual solution of the fluid problem) it is below `sum over D of w_D (own load of these survivors
+ orphans) / C_D + sum over k of f_k min over n of (sum over D without n of w_D / C_D)`.
"""

from dataclasses import dataclass

import numpy as np

from trimtab_models.standbys.problem import Bools, Floats, Ints, StandbyProblem, highest_outside

ENTRIES = 4_000_000
"""Most entries of the tables for Pieces, key groups by workers, where capacities differ; with more workers fewer of the
largest orphans are looked at."""
PRECISION = 0.01
"""Precision of the trial level, in percent of a worker."""
ASCENTS = 30
"""Steps in search of the best weights."""
STRIDE = 0.5
"""Length of the first of them, in the exponent of the weights."""
LIGHTEST = 256
"""Number of the least loaded workers that take the water in a large problem, unless it rises above them."""
MASSED = 64
"""Most of the largest orphans that Pieces looks at."""


def domain_bounds(problem: StandbyProblem) -> Floats:
    """(D,) for each domain, a bound on the highest load of a survivor of its loss (Present, Water, Pieces)."""
    relative = problem.own / problem.capacity
    bounds, _ = highest_outside(problem, relative)
    able = np.flatnonzero(~problem.removing)
    able = able[np.argsort(relative[able], kind="stable")]
    sizes = np.bincount(problem.domain, minlength=problem.domains)
    alike = bool((problem.capacity[able] == problem.capacity[able[:1]]).all())
    for domain, orphans in enumerate(orphans_by_domain(problem)):
        if not len(orphans):
            continue
        load = problem.load[orphans]
        lightest = able[: LIGHTEST + sizes[domain]] if alike else able
        while True:
            survivors = lightest[problem.domain[lightest] != domain]
            own, capacity = problem.own[survivors], problem.capacity[survivors]
            water = water_level(own, capacity, float(load.sum()))
            if len(lightest) == len(able) or water <= relative[survivors[-1]]:
                break
            lightest = able
        pieces = _pieces(own, capacity, load, ENTRIES / problem.domains)
        bounds[domain] = max(bounds[domain], water, pieces)
    return bounds


def orphans_by_domain(problem: StandbyProblem) -> list[Ints]:
    """For each domain the key groups that lose their owner with it and can have a standby, largest load first."""
    domain = problem.domain[problem.owner]
    known = np.flatnonzero(problem.due > 0)
    order = known[np.lexsort((-problem.load[known], domain[known]))]
    return np.split(order, np.searchsorted(domain[order], np.arange(1, problem.domains)))[: problem.domains]


def water_level(own: Floats, capacity: Floats, load: float) -> float:
    """The least level that takes `load` above what workers own; `own / capacity` must be ascending."""
    if not len(own):
        return 0.0
    level: Floats = (np.cumsum(own) + load) / np.cumsum(capacity)
    over = level[:-1] * capacity[1:] <= own[1:]  # the next worker is above this level already
    first = int(over.argmax()) if over.any() else len(own) - 1
    return float(level[first])


def _pieces(own: Floats, capacity: Floats, load: Floats, entries: float) -> float:
    """Pieces for orphans in descending order, on workers in ascending order of `own / capacity`."""
    if not len(own):
        return 0.0
    count = min(len(load), MASSED)
    best, alike = own[:1] / capacity[:1], bool((capacity == capacity[0]).all())
    if not alike:
        count = max(1, min(count, int(entries / len(own))))
    largest = load[:count]
    if alike:
        distinct = min(count, len(own))
        apart, least = (own[:distinct] + largest[:distinct]) / capacity[0], own[0] / capacity[0]
        shared = least + (largest[1:] + largest[:-1]) / capacity[0]
    else:
        places = (own + largest[:, None]) / capacity
        apart = np.array([np.partition(row, at)[at] for at, row in enumerate(places[: len(own)])])
        shared = ((own + (largest[1:] + largest[:-1])[:, None]) / capacity).min(axis=1)
    shared = np.append(np.inf, shared)
    apart = np.append(apart, np.full(count - len(apart), np.inf))
    return float(np.minimum(apart, shared).max(initial=float(best[0])))


def following_bound(problem: StandbyProblem, proven: float, reached: float) -> float:
    """The bound by Following, between `proven` and `reached` (percent)."""
    fluid = _Fluid(problem)
    low, high = proven, reached
    trial = reached
    while high - low > PRECISION:
        value = fluid.value(trial)
        low = max(low, min(value, trial))  # a dual solution for `trial` holds for every lower level too
        high = high if value > trial else trial
        if (fluid.takers(low) == fluid.takers(high)).all():
            break
        trial = 0.5 * (low + high)
    return min(low, reached)


class _Fluid:
    """Following, at a trial level: able workers with room for the lightest key group take all orphans."""

    def __init__(self, problem: StandbyProblem) -> None:
        self._problem = problem
        due, of = problem.due, problem.domain[problem.owner]
        inherited = np.where(due > 0, problem.load - problem.follow, 0.0)
        self._inherited = np.bincount(of, inherited, problem.domains)
        self._followed: Floats = np.bincount(of, due * problem.follow, problem.domains).astype(np.float64)
        self._lightest = float(problem.load[due > 0].min(initial=np.inf))

    def takers(self, level: float) -> Bools:
        """(N,) the workers that can take anything without rising above `level`."""
        problem = self._problem
        takers: Bools = ~problem.removing & (problem.own + self._lightest <= level * problem.capacity)
        return takers

    def value(self, level: float) -> float:
        """A level that no assignment stays below, if one stays at or below `level` at all; infinite if none does."""
        problem, takers = self._problem, self.takers(level)
        size = problem.domains
        own_of = np.bincount(problem.domain[takers], problem.own[takers], size)
        capacity_of = np.bincount(problem.domain[takers], problem.capacity[takers], size)
        capacity = capacity_of.sum() - capacity_of
        alone = capacity <= 0
        if alone.any():
            return np.inf if (alone & (self._inherited + self._followed > 0)).any() else 0.0
        return _Dual(
            capacity=capacity,
            carried=own_of.sum() - own_of + self._inherited,
            followed=self._followed,
            taking=capacity_of > 0,
        ).value()


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Dual:
    """The dual solutions with a weight for each domain's loss."""

    capacity: Floats  # (D,) of the workers that survive the domain
    carried: Floats  # (D,) their own load and the orphans'
    followed: Floats  # (D,) what following the domain's key groups costs
    taking: Bools  # (D,) whether a worker of the domain takes anything

    def value(self) -> float:
        """The best value that equal weights of the worst losses, and a few steps of ascent from there, lead to."""
        size = len(self.capacity)
        order = np.argsort(-self.carried / self.capacity, kind="stable")
        best, weights = -np.inf, np.zeros(size)
        for count in sorted({1, 2, 3, (size + 1) // 2, size}):
            trial = np.zeros(size)
            trial[order[:count]] = 1.0 / min(count, size)
            value, _ = self._rated(trial)
            if value > best:
                best, weights = value, trial
        weights = 0.9 * weights + 0.1 / size
        for step in range(ASCENTS):
            value, slope = self._rated(weights)
            best = max(best, value)
            steepest = float(np.abs(slope - value).max())
            if steepest <= 0.0:
                break
            weights = weights * np.exp(STRIDE / np.sqrt(1.0 + step) * (slope - value) / steepest)
            weights /= weights.sum()
        return best

    def _rated(self, weights: Floats) -> tuple[float, Floats]:
        """The value of these weights, and its slope by each of them."""
        price = weights / self.capacity
        least, where = _least_elsewhere(np.where(self.taking, price.sum() - price, np.inf))
        value = float(price @ self.carried + self.followed @ least)
        lost = np.bincount(where, self.followed, len(price))
        return value, (self.carried + self.followed.sum() - lost) / self.capacity


def _least_elsewhere(values: Floats) -> tuple[Floats, Ints]:
    """For each of two places or more, the least of the values at all other places, and where it is."""
    first, second = np.argsort(values, kind="stable")[:2]
    found, where = np.full(len(values), values[first]), np.full(len(values), first)
    found[first], where[first] = values[second], second
    return found, where
