"""Empties draining nodes.

According to the paper's lemmas, minimising the load distance empties these nodes by itself.  That is false for
indivisible key groups: with 40 equal key groups on 4 nodes, one of them draining, the optimum leaves one key group
there for ever.  So once the load distance is no longer urgent, a rule spends the rest of the budget: heaviest key
groups first, each to the least loaded remaining node, while no remaining node rises above `ceiling`.

A move that empties a draining node also fills a node below the band.  So `plain_drain` applies the rule at once, after
the fewest moves that relieve overloaded nodes.  A search may find a smaller load distance with moves that empty
nothing; `solve.py` says when that is worth it.
"""

from bisect import bisect_left, bisect_right
from dataclasses import dataclass
from enum import Enum

import numpy as np

from trimtab_models.balance.evaluate import slack
from trimtab_models.balance.problem import UNPLACED, BalanceProblem, Floats, Ints
from trimtab_models.balance.tabu import Band
from trimtab_models.solving import StopRule

TRIES = 8  # substitutes examined per move, since prices and limits may exclude the first ones


class Obstacle(Enum):
    """Why a key group cannot leave a draining node, in this or any similar round."""

    PINNED = "it is pinned"
    BUDGET = "its move alone is above the budget of a round"
    LIMITS = "no remaining node has room for it within its limits"
    LOAD = "it would lift any remaining node above the allowed load distance"


@dataclass(frozen=True, slots=True, kw_only=True)
class Alert:
    """A key group (index) that cannot leave its draining node (index)."""

    key_group: int
    node: int
    obstacle: Obstacle


class DrainBuilder:
    """Changes `allocation` move by move within the budget."""

    def __init__(self, problem: BalanceProblem, start: Ints, stop: StopRule) -> None:
        self._problem, self._stop = problem, stop
        self.allocation = start.copy()
        self._deviations = problem.deviations(start)
        self._used, self._limit = problem.usages(start), problem.limit + slack(problem)
        self._left = problem.allowances - problem.prices[:, start != problem.home].sum(axis=1)

    def _waiting(self) -> Ints:
        """The key groups that are on draining nodes and may leave."""
        return np.flatnonzero(self._problem.to_leave(self.allocation) & self._problem.movable)

    def substitute(self, band: Band) -> None:
        """Replaces moved key groups by key groups from draining nodes where that keeps `band`.

        A move that only filled a deficit then also empties a draining node.
        """
        problem = self._problem
        waiting = self._waiting()
        waiting = waiting[np.argsort(problem.load[waiting], kind="stable")]
        candidates, loads = waiting.tolist(), problem.load[waiting].tolist()
        away = np.flatnonzero((self.allocation != problem.home) & (problem.home != UNPLACED))
        for key_group in away[~problem.to_leave(problem.home)[away]].tolist():
            if not candidates or self._stop():
                break
            node, load = self.allocation[key_group], problem.load[key_group]
            if not self._may_return(key_group, band):
                continue
            room = (band.over - self._deviations[node]) * problem.capacity[node] + load
            last = bisect_right(loads, room) - 1
            for position in range(last, max(-1, last - TRIES), -1):
                short = self._deviations[node] + (loads[position] - load) / problem.capacity[node] < -band.under
                if short or not self._may_take(candidates[position], node, instead_of=key_group):
                    continue
                self._move(key_group, int(problem.home[key_group]))
                self._move(candidates[position], int(node))
                del candidates[position], loads[position]
                break

    def relieve(self, target: float) -> None:
        """Moves as few key groups as possible off remaining nodes above `target` (pp), to nodes that stay within it."""
        problem = self._problem
        above = np.flatnonzero(problem.kept & (self._deviations > target))
        for source in above[np.argsort(-self._deviations[above], kind="stable")].tolist():
            own = np.flatnonzero((self.allocation == source) & problem.movable & (problem.load > 0))
            own = own[np.argsort(problem.load[own], kind="stable")]
            candidates, loads = own.tolist(), problem.load[own].tolist()
            while candidates and self._deviations[source] > target and not self._stop():
                excess = (self._deviations[source] - target) * problem.capacity[source]
                position = min(
                    bisect_left(loads, excess), len(loads) - 1
                )  # the lightest that is enough, or the heaviest
                key_group = candidates.pop(position)
                del loads[position]
                if (problem.prices[:, key_group] <= self._left).all():
                    self._move_to_least_loaded(key_group, target)

    def empty(self, ceiling: float) -> None:
        """Moves key groups off draining nodes, heaviest first; no remaining node goes above `ceiling` (pp)."""
        problem = self._problem
        waiting = self._waiting()
        cheapest = problem.prices[:, waiting].min(axis=1, initial=np.inf)
        for key_group in waiting[np.argsort(-problem.load[waiting], kind="stable")].tolist():
            if self._stop() or (cheapest > self._left).any():
                break
            if (problem.prices[:, key_group] > self._left).any():
                continue
            self._move_to_least_loaded(key_group, ceiling)

    def _move_to_least_loaded(self, key_group: int, ceiling: float) -> None:
        """Moves `key_group` to the remaining node that is least loaded with it, if that stays within `ceiling`."""
        problem = self._problem
        after = self._deviations + problem.load[key_group] / problem.capacity
        room = problem.nodes_with_room(key_group, self._used, self._limit)
        after[problem.removing | ~room | (after > ceiling)] = np.inf
        after[self.allocation[key_group]] = np.inf
        node = int(after.argmin())
        if np.isfinite(after[node]):
            self._move(key_group, node)

    def _may_return(self, key_group: int, band: Band) -> bool:
        problem, home = self._problem, self._problem.home[key_group]
        after = self._deviations[home] + problem.load[key_group] / problem.capacity[home]
        used = self._used[:, home] + problem.usage_on(key_group, home)
        fits = bool((used <= self._limit[:, home]).all()) and bool(problem.may(key_group, home))
        return bool(after <= band.over) and fits

    def _may_take(self, key_group: int, node: int, *, instead_of: int) -> bool:
        problem = self._problem
        added: Floats = problem.prices[:, key_group] - problem.prices[:, instead_of]
        used = self._used[:, node] + problem.usage_on(key_group, node) - problem.usage_on(instead_of, node)
        fits = (used <= self._limit[:, node]).all() and problem.may(key_group, node)
        return bool((added <= self._left).all() and fits)

    def _move(self, key_group: int, target: int) -> None:
        problem, source = self._problem, self.allocation[key_group]
        load = problem.load[key_group]
        self._deviations[source] -= load / problem.capacity[source]
        self._deviations[target] += load / problem.capacity[target]
        self._used[:, source] -= problem.usage_on(key_group, source)
        self._used[:, target] += problem.usage_on(key_group, target)
        factor = int(source == problem.home[key_group]) - int(target == problem.home[key_group])
        self._left -= factor * problem.prices[:, key_group]
        self.allocation[key_group] = target


def plain_drain(problem: BalanceProblem, start: Ints, target: float, stop: StopRule) -> Ints:
    """(K,) the plan of the rule alone: remaining nodes down to `target` (pp), then the draining nodes emptied."""
    drain = DrainBuilder(problem, start, stop)
    drain.relieve(target)
    drain.empty(max(target, problem.max_load_distance))
    return drain.allocation


def alerts(problem: BalanceProblem, allocation: Ints, ceiling: float) -> tuple[Alert, ...]:
    """An alert for each key group that cannot leave a draining node; none for those that a later round can move."""
    found = []
    deviations, used, limit = problem.deviations(allocation), problem.usages(allocation), problem.limit + slack(problem)
    room = float(((ceiling - deviations) * problem.capacity)[problem.kept].max())
    suspects = ~problem.movable | (problem.prices > problem.allowances[:, None]).any(axis=0) | (problem.load > room)
    if len(problem.limit) or problem.allowed is not None:
        suspects[:] = True
    for key_group in np.flatnonzero(problem.to_leave(allocation) & suspects).tolist():
        fits = problem.kept & problem.nodes_with_room(key_group, used, limit)
        fits[allocation[key_group]] = False
        light = deviations + problem.load[key_group] / problem.capacity <= ceiling
        obstacle = None
        if not problem.movable[key_group]:
            obstacle = Obstacle.PINNED
        elif (problem.prices[:, key_group] > problem.allowances).any():
            obstacle = Obstacle.BUDGET
        elif not fits.any():
            obstacle = Obstacle.LIMITS
        elif not (fits & light).any():
            obstacle = Obstacle.LOAD
        if obstacle is not None:
            found.append(Alert(key_group=key_group, node=int(allocation[key_group]), obstacle=obstacle))
    return tuple(found)
