"""Rules about which nodes key groups may be on."""

from dataclasses import dataclass, replace

import numpy as np

from trimtab_models.balance.allowed import AllowedNodes
from trimtab_models.balance.problem import UNPLACED, BalanceProblem, Bools, Ints

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

    def applied(self, problem: BalanceProblem) -> BalanceProblem:
        """`problem` with these rules.

        What is on a barred node is to leave it, if there is a node for it that is not draining.  What is unplaced, and
        has no such node, may be on any: an outage would be worse.
        """
        with_room = np.append(np.logical_or.reduce(self.allowed & problem.kept, axis=1), True)
        free = (self.class_of == FREE) | ((problem.home == UNPLACED) & ~with_room[self.class_of])
        evicted = ~self.keep(problem.home) & with_room[self.class_of] & ~self.frozen & ~problem.pinned
        anywhere = np.ones((1, len(problem.capacity)), np.bool_)
        return replace(
            problem,
            allowed=AllowedNodes(
                class_of=np.where(free, len(self.allowed), self.class_of),
                nodes=np.concatenate((self.allowed, anywhere)),
            ),
            evicted=evicted if evicted.any() else None,
            pinned=problem.pinned | (self.frozen & (problem.home != UNPLACED)),
        )
