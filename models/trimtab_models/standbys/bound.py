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

Peaks: a bound for small problems, by a linear program, that knows that large key groups do not divide.

The *peak* t of a worker is the most that it inherits after any one loss, beyond what following costs it.  Below a level
u a worker with room `u c_n - L_n` that follows F needs `F + t <= room` (its peak comes on top of all that it follows).
Who takes a large key group has a high peak, and may follow little for the rest of the time; the fluid bounds spread the
key group over many workers, and do not see this.

The program.  Peaks fall into classes `a < t <= b`, whose borders lie just below the sizes of large key groups.  Take
any assignment that stays at or below u after every loss.  Let `y` of a worker and a class be 1 if its peak is in the
class, and add up in each class, over the workers in it: the large key groups that they take (`x`), what they inherit of
the others by domain (`z`), and what each of them follows (`F`).  Then

- a worker has one class, and every key group an heir in one of them;
- a worker in a class follows at most `room - a`;
- after the loss of D the workers of a class outside D inherit at most b or their room each, and at most their room
  without what they follow;
- a key group larger than b is in no class up to b, and nobody with a peak up to b takes two key groups of one domain
  that are larger than b / 2, or three that are larger than b / 3;
- together the workers of a class follow at least what their key groups cost.

Sums over fewer workers say more: where there are few, they are not added up, so that each class is one worker's.

All of this is linear.  So if the program is infeasible, even with fractions, no assignment stays at or below u.  The
program is solved with a shortage that it minimises: a shortage above the solver's precision refutes the level.
"""

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

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
AIM = 1.0
"""Percent of a worker: a plan closer to its bound is close enough, and no program is solved for it."""
TRIALS = 5
"""Number of levels that are tried."""
SEPARATE = 5
"""With so many workers or fewer, each has classes of its own."""
CLASSES = 9
LEAST = 0.3
"""Of the largest room: the lowest border."""
APART = 0.02
"""Of the largest room: the least distance of two borders."""
LARGE = 0.3
"""Of the largest room: from here on a key group is one for the program."""
LIMIT = 1_200
"""Most variables of a program."""
SHORTAGE = 1e-3
"""Percent of a worker, far above the precision of the solver."""
BELOW = 1e-6
"""Percent of a worker: a border is so much below the size of a key group."""


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


def peaks_bound(problem: StandbyProblem, proven: float, reached: float) -> float:
    """The bound by Peaks, between `proven`, which must be at least the present loads, and `reached` (percent)."""
    if problem.domains < 2 or not len(problem.owner):
        return proven
    low, high = proven, reached
    for _ in range(TRIALS):
        level = 0.5 * (low + high)
        program = _Program.at(problem, level)
        if program is None or program.size > LIMIT:
            break
        low, high = (level, high) if program.shortage() > SHORTAGE else (low, level)
    return low


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Program:
    """The program at a level; G = large key groups, W = able workers with room.

    `ratio` = the least cost of following per load inherited of the other key groups.  `rest` = what following costs
    beyond that and the large ones.
    """

    domains: int
    room: Floats  # (W,)
    domain: Ints  # (W,)
    load: Floats  # (G,)
    follow: Floats  # (G,)
    lost_with: Ints  # (G,)
    others: Floats  # (D,) what is inherited of the other key groups
    ratio: float
    rest: float
    borders: tuple[float, ...]

    @classmethod
    def at(cls, problem: StandbyProblem, level: float) -> "_Program | None":
        """The program; None where nobody has room."""
        room = level * problem.capacity - problem.own
        able = np.flatnonzero(~problem.removing & (room > 0.0))
        if not len(able):
            return None
        largest = float(room[able].max())
        due = problem.due > 0
        inherited = np.where(due, problem.load - problem.follow, 0.0)
        is_large = inherited > LARGE * largest
        large, small = np.flatnonzero(is_large), np.flatnonzero(~is_large & (inherited > 0.0))
        ratio = float((problem.follow[small] / inherited[small]).min(initial=np.inf)) if len(small) else 0.0
        of = problem.domain[problem.owner]
        followed = float((problem.due * problem.follow).sum() - problem.follow[large].sum())
        return cls(
            domains=problem.domains,
            room=room[able],
            domain=problem.domain[able],
            load=problem.load[large],
            follow=problem.follow[large],
            lost_with=of[large],
            others=np.bincount(of[small], inherited[small], problem.domains).astype(np.float64),
            ratio=ratio,
            rest=max(0.0, followed - ratio * float(inherited[small].sum())),
            borders=_borders(inherited[large], largest),
        )

    @property
    def size(self) -> int:
        """About the number of variables."""
        each = len(self.load) + self.domains
        return (len(self.borders) - 1) * (len(self.pools) * each + 2 * len(self.room))

    @property
    def pools(self) -> list[list[int]]:
        """The workers whose quantities are added up."""
        every = list(range(len(self.room)))
        return [[each] for each in every] if len(every) <= SEPARATE else [every]

    def shortage(self) -> float:
        """What cannot be placed, in percent of a worker; 0 if the program has no solution that is known to be best."""
        from ortools.math_opt.python import mathopt  # type: ignore[import-untyped]  # (slow to load)

        model = mathopt.Model()
        total = mathopt.fast_sum
        in_classes = [_Class.add(self, model, pool, *ends) for pool in self.pools for ends in pairwise(self.borders)]
        for worker in range(len(self.room)):
            shares = [each.share[worker] for each in in_classes if worker in each.share]
            model.add_linear_constraint(total(shares) <= 1.0)
        lacks = []
        for key_group, load in enumerate(self.load.tolist()):
            lack = model.add_variable(lb=0.0)
            places = [each.takes[key_group] for each in in_classes if key_group in each.takes]
            model.add_linear_constraint(total([*places, lack]) >= 1.0)
            lacks.append(load * lack)
        for domain, others in enumerate(self.others.tolist()):
            lack = model.add_variable(lb=0.0)
            model.add_linear_constraint(total([*(each.inherits[domain] for each in in_classes), lack]) >= others)
            lacks.append(lack)
        lack = model.add_variable(lb=0.0)
        model.add_linear_constraint(total([*(each.rest for each in in_classes), lack]) >= self.rest)
        model.minimize(total([*lacks, lack]))
        result = mathopt.solve(model, mathopt.SolverType.GLOP)
        if result.termination.reason is not mathopt.TerminationReason.OPTIMAL:
            return 0.0
        return float(result.objective_value())


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Class:
    """The variables of a class of peaks, for a pool of workers.

    `share` of each worker, what each `follows`, `takes` of each large key group that can be here, `inherits` (D,) of
    the others, and the `rest` of what following costs.
    """

    share: dict[int, Any]
    follows: dict[int, Any]
    takes: dict[int, Any]
    inherits: list[Any]
    rest: Any

    @classmethod
    def add(cls, program: _Program, model: Any, pool: list[int], low: float, high: float) -> "_Class":
        """Add the class with peaks from `low` to `high` to the model."""
        from ortools.math_opt.python import mathopt

        total, room, inherited = mathopt.fast_sum, program.room, program.load - program.follow
        share = {each: model.add_variable(lb=0.0, ub=1.0) for each in pool if room[each] > low}
        follows = {each: model.add_variable(lb=0.0) for each in share}
        for each, part in share.items():
            model.add_linear_constraint(follows[each] - float(room[each] - low) * part <= 0.0)
        takes = {}
        for key_group in np.flatnonzero(inherited <= high).tolist():
            fits = (program.domain != program.lost_with[key_group]) & (program.load[key_group] <= room)
            fits &= program.follow[key_group] <= room - low
            if heirs := [share[each] for each in share if fits[each]]:
                takes[key_group] = model.add_variable(lb=0.0)
                model.add_linear_constraint(takes[key_group] - total(heirs) <= 0.0)
        inherits = [model.add_variable(lb=0.0) for _ in range(program.domains)]
        rest = model.add_variable(lb=0.0)
        costs = [float(program.follow[key_group]) * part for key_group, part in takes.items()]
        costs += [program.ratio * each for each in inherits]
        model.add_linear_constraint(total([*costs, rest]) - total(follows.values()) <= 0.0)
        found = cls(share=share, follows=follows, takes=takes, inherits=inherits, rest=rest)
        for domain in range(program.domains):
            found._lose(program, model, domain, high)
        return found

    def _lose(self, program: _Program, model: Any, domain: int, high: float) -> None:
        """Add what holds after the loss of a domain."""
        from ortools.math_opt.python import mathopt

        total, inherited = mathopt.fast_sum, (program.load - program.follow).tolist()
        room = {each: float(program.room[each]) for each in self.share if program.domain[each] != domain}
        orphans = [(inherited[each], part) for each, part in self.takes.items() if program.lost_with[each] == domain]
        taken = total([*(load * part for load, part in orphans), self.inherits[domain]])
        most = total(min(high, each) * self.share[worker] for worker, each in room.items())
        model.add_linear_constraint(taken - most <= 0.0)
        in_all = total(each * self.share[worker] - self.follows[worker] for worker, each in room.items())
        model.add_linear_constraint(taken - in_all <= 0.0)
        for number in (1, 2):
            large = [part for load, part in orphans if load > high / (number + 1) + BELOW]
            if len(large) > number:
                here = total(self.share[worker] for worker in room)
                model.add_linear_constraint(total(large) - number * here <= 0.0)


def _borders(inherited: Floats, room: float) -> tuple[float, ...]:
    """The borders of the classes from 0 to the largest room: just below the largest sizes, with some distance."""
    borders = [room]
    for size in np.sort(inherited - BELOW)[::-1].tolist():
        if size < LEAST * room or len(borders) == CLASSES:
            break
        if size <= borders[-1] - APART * room:
            borders.append(size)
    return (0.0, *reversed(borders))
