"""Peaks: a bound for small problems, by a linear program, that knows that large key groups do not divide.

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

from trimtab_models.standbys.problem import Floats, Ints, StandbyProblem

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
