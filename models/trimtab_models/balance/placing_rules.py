"""Rules about which nodes key groups may be on, for a solver that knows limits of nodes.

Key groups with the same nodes form a *class*.  Each class is a resource of which a key group of the class uses 1, and
of which the nodes that are barred to it have none.  A key group that is on a barred node now uses nothing of it there.
So it does not make the problem infeasible: it is to leave if there is a node for it, and cannot come back.
"""

from dataclasses import dataclass, replace

import numpy as np

from trimtab_models.balance.problem import UNPLACED, Bools, Ints, Problem
from trimtab_models.solving.spared import Spared

FREE = -1
"""The class of key groups that may be on any node."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PlacingRules:
    """C classes of K key groups, and the nodes that each may be on.  Nobody writes to the arrays.

    `frozen` key groups stay where they are, unless they are unplaced.
    """

    class_of: Ints  # (K,) or FREE
    allowed: Bools  # (C, N)
    frozen: Bools  # (K,)

    def __post_init__(self) -> None:
        if self.frozen.shape != self.class_of.shape:
            raise ValueError("every key group needs a class and a frozen flag")
        if len(self.class_of) and not FREE <= self.class_of.min() <= self.class_of.max() < len(self.allowed):
            raise ValueError("class_of must name classes")

    def keep(self, allocation: Ints) -> Bools:
        """(K,) which key groups are on nodes that they may be on; unplaced ones are."""
        bound = np.flatnonzero((self.class_of != FREE) & (allocation != UNPLACED))
        kept = np.ones(len(self.class_of), np.bool_)
        kept[bound] = self.allowed[self.class_of[bound], allocation[bound]]
        return kept

    def allowed_on(self, key_group: int) -> Bools:
        """(N,) the nodes that a key group may be on."""
        which = int(self.class_of[key_group])
        allowed: Bools = np.ones(self.allowed.shape[1], np.bool_) if which == FREE else self.allowed[which].copy()
        return allowed

    def applied(self, problem: Problem) -> Problem:
        """`problem` with these rules."""
        classes = np.unique(self.class_of[self.class_of != FREE])
        usage = (self.class_of == classes[:, None]).astype(np.float64)
        barred = np.flatnonzero(~self.keep(problem.home))
        evicted = np.zeros(len(self.class_of), np.bool_)
        with_room: Bools = np.logical_or.reduce(self.allowed & problem.kept, axis=1)
        room = with_room[self.class_of[barred]]
        evicted[barred] = room & ~self.frozen[barred] & ~problem.pinned[barred]
        size = len(problem.load), len(problem.capacity)
        at_home = Spared.of(barred, problem.home[barred], usage[:, barred], size)
        ruled = problem.with_limits(usage, np.where(self.allowed[classes], np.inf, 0.0), at_home)
        return replace(
            ruled,
            evicted=evicted if evicted.any() else None,
            pinned=problem.pinned | (self.frozen & (problem.home != UNPLACED)),
        )

    def lower_bound(self, problem: Problem) -> float:
        """A bound (pp) on the load distance of all plans that keep the rules, with divisible key groups and any budget.

        What may be on some nodes only is there, and on other nodes there is only what may be there.  Only sets of nodes
        that classes may be on, and what is left of the others, are tried.  0 while key groups are to leave, since
        what a plan leaves for later breaks the rules.
        """
        placed = problem.home[problem.home != UNPLACED]
        if not len(self.allowed) or not self.keep(problem.home).all() or problem.removing[placed].any():
            return 0.0
        loads = np.bincount(
            self.class_of[self.class_of != FREE], problem.load[self.class_of != FREE], len(self.allowed)
        )
        free = float(problem.load[self.class_of == FREE].sum())
        found = 0.0
        for inside in self.allowed:
            capacity = float(problem.capacity[inside & problem.kept].sum())
            if capacity:
                bound_there = float(loads[~(self.allowed & ~inside & problem.kept).any(axis=1)].sum())
                most_there = free + float(loads[(self.allowed & inside & problem.kept).any(axis=1)].sum())
                found = max(found, bound_there / capacity - problem.mean, problem.mean - most_there / capacity)
            outside = problem.kept & ~inside
            capacity = float(problem.capacity[outside].sum())
            if capacity:
                most_there = free + float(loads[(self.allowed & outside).any(axis=1)].sum())
                found = max(found, problem.mean - most_there / capacity)
        return found
