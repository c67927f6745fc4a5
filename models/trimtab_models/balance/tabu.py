"""Brings every node into a target band by tabu search on the sum of violations.

Each step takes a random node outside the band.  It makes the best shift of one key group, or swap of two, between this
node and its most complementary partners (for an overloaded node the least loaded ones, and the reverse).  A moved key
group rests for a few steps.  Budgets may be overdrawn on the way, at a penalty; sending key groups home refunds them.
Limits are never exceeded, and draining nodes never receive anything.
"""

from dataclasses import dataclass

import numpy as np

from trimtab_models.balance.evaluate import slack
from trimtab_models.balance.problem import UNPLACED, BalanceProblem, Bools, Floats, Ints
from trimtab_models.solving import StopRule
from trimtab_models.spared import Places, usage_on

EPSILON_PP = 1e-9
TENURE = 8  # a moved key group rests for this many steps, up to twice as many
PARTNERS = 64
PAIRS = 20_000  # most swaps examined per step; limits the number of partners


@dataclass(frozen=True, slots=True, kw_only=True)
class Band:
    """Allowed deviations, from `-under` to `over` in pp; draining nodes have no lower end."""

    under: float
    over: float

    def violations(self, deviations: Floats, removing: Bools) -> Floats:
        """Distance of each node from the band, in pp."""
        below = np.where(removing, 0.0, -deviations - self.under)
        return np.maximum(0.0, np.maximum(deviations - self.over, below))


class SearchState:
    """A changing allocation of some key groups on some nodes, with the sums that a search keeps up to date.

    A key group whose `home` is UNPLACED (unplaced, or at home on other nodes) cannot be sent home.
    """

    def __init__(self, problem: BalanceProblem, allocation: Ints, *, returning: bool = True) -> None:
        """With `returning` False no key group is sent back to a draining node."""
        self.load, self.capacity, self.removing = problem.load, problem.capacity, problem.removing
        self.home, self.movable = problem.home, problem.movable
        self.returnable = self.movable & (self.home != UNPLACED)
        if not returning:
            self.returnable &= ~problem.to_leave(problem.home) | (allocation == problem.home)
        self.usage, self.limit = problem.usage, problem.limit + slack(problem)
        self.spared, self.allowed = problem.spared, problem.allowed
        scale = problem.prices.mean(axis=1, keepdims=True) if problem.prices.size else 1.0
        self.prices = problem.prices / scale  # an average move costs 1 in every budget
        self.allowances = problem.allowances / np.ravel(scale)[: len(problem.allowances)]
        self.at = allocation.copy()
        self.deviations = problem.deviations(allocation)
        self.used = problem.usages(allocation)
        self.spent = self.prices[:, self.at != self.home].sum(axis=1)

    def part(self, nodes: Ints, key_groups: Ints, share: Floats) -> "SearchState":
        """A separate state of `nodes` with all `key_groups` on them, which may spend `share` more."""
        part = object.__new__(SearchState)
        local = np.full(len(self.capacity) + 1, UNPLACED, np.int64)  # the last entry is for UNPLACED (-1)
        local[nodes] = np.arange(len(nodes))
        part.load, part.movable = self.load[key_groups], self.movable[key_groups]
        part.capacity, part.removing = self.capacity[nodes], self.removing[nodes]
        part.home, part.at = local[self.home[key_groups]], local[self.at[key_groups]]
        part.returnable = self.returnable[key_groups] & (part.home != UNPLACED)
        part.usage, part.limit = self.usage[:, key_groups], self.limit[:, nodes]
        part.spared = None if self.spared is None else self.spared.part(key_groups, nodes)
        part.allowed = None if self.allowed is None else self.allowed.part(key_groups, nodes)
        part.used, part.deviations = self.used[:, nodes], self.deviations[nodes]
        part.prices = self.prices[:, key_groups]
        away = self.at[key_groups] != self.home[key_groups]
        part.spent = part.prices[:, away].sum(axis=1)
        part.allowances = part.spent + share
        return part

    def usage_on(self, key_groups: Places, nodes: Places) -> Floats:
        """(R, ...) what these key groups use on these nodes: see `spared.usage_on`."""
        return usage_on(self.usage, self.spared, key_groups, nodes)

    def overdraft(self) -> float:
        """Sum of the spending beyond each budget."""
        return float(np.maximum(0.0, self.spent - self.allowances).sum())

    def move(self, key_group: int, target: int) -> None:
        """Move `key_group` to the node `target` and update all sums."""
        source, load = self.at[key_group], self.load[key_group]
        self.deviations[source] -= load / self.capacity[source]
        self.deviations[target] += load / self.capacity[target]
        self.used[:, source] -= self.usage_on(key_group, source)
        self.used[:, target] += self.usage_on(key_group, target)
        self.spent += self.price_of(key_group, target)
        self.at[key_group] = target

    def restore(self, allocation: Ints) -> None:
        """Return to `allocation`, undoing moves one by one."""
        for key_group in np.flatnonzero(self.at != allocation).tolist():
            self.move(key_group, int(allocation[key_group]))

    def price_of(self, key_group: int, target: int) -> Floats:
        """(B,) cost of the move in each budget; leaving home costs, going home refunds."""
        factor = int(self.at[key_group] == self.home[key_group]) - int(target == self.home[key_group])
        return self.prices[:, key_group] * factor


Move = tuple[int, int]  # key group, new node


class Search:
    """One attempt to bring `state` into `band`; changes the state in place."""

    def __init__(self, state: SearchState, band: Band, random: np.random.Generator) -> None:
        self._state, self._band, self._random = state, band, random
        self._rest_until = np.where(state.movable, 0, np.iinfo(np.int64).max)
        self._violations = band.violations(state.deviations, state.removing)
        self._dearest = state.prices.max(axis=1, initial=0.0)
        self._step = 0
        self._floor = np.where(state.removing, np.inf, band.under)
        self._least_worst = self._least_sum = np.inf
        self.best_at = state.at.copy()  # within the budget, with the smallest largest violation
        self.least_at = state.at.copy()  # within the budget, with the smallest sum of violations

    @property
    def steps(self) -> int:
        """Steps taken so far."""
        return self._step

    def run(self, patience: int, steps: int, stop: StopRule) -> bool:
        """Search, up to `patience` steps without progress; returns whether the band is reached within the budget."""
        state, stalled, best = self._state, 0, np.inf
        while True:
            overdraft = state.overdraft()
            worst, total = float(self._violations.max(initial=0.0)), float(self._violations.sum())
            if overdraft <= EPSILON_PP:
                self._note(worst, total)
                if worst <= EPSILON_PP:
                    return True
            value = total + overdraft
            best, stalled = (value, 0) if value < best - EPSILON_PP else (best, stalled + 1)
            if stalled > patience or self._step >= steps or stop():
                return False
            self._step += 1
            for key_group, target in self._choose(overdraft > EPSILON_PP, worst):
                self._apply(key_group, target)

    def _note(self, worst: float, total: float) -> None:
        if worst < self._least_worst:
            self._least_worst, self.best_at = worst, self._state.at.copy()
        if total < self._least_sum:
            self._least_sum, self.least_at = total, self._state.at.copy()

    def _choose(self, overdrawn: bool, worst: float) -> tuple[Move, ...]:
        if worst <= EPSILON_PP or (overdrawn and self._random.random() < 0.5):
            return self._best_return()
        outside = np.flatnonzero(self._violations > EPSILON_PP)
        node = int(outside[self._random.integers(len(outside))])
        overloaded = bool(self._state.deviations[node] > 0)
        mine = np.flatnonzero((self._state.at == node) & (self._rest_until <= self._step))
        theirs, partners = self._partners(node, overloaded, len(mine))
        shift = self._best_shift_out(node, mine, partners) if overloaded else self._best_shift_in(node, theirs)
        swap = self._best_swap(node, mine, theirs)
        best = min((shift, swap), key=lambda choice: choice[0])
        return best[1] if np.isfinite(best[0]) else ()

    def _apply(self, key_group: int, target: int) -> None:
        state, source = self._state, int(self._state.at[key_group])
        state.move(key_group, target)
        self._rest_until[key_group] = self._step + TENURE + int(self._random.integers(TENURE))
        touched = np.array((source, target))
        self._violations[touched] = self._band.violations(state.deviations[touched], state.removing[touched])

    def _partners(self, node: int, overloaded: bool, mine: int) -> tuple[Ints, Ints]:
        """The key groups on the most complementary nodes, and those nodes."""
        state = self._state
        possible = ~state.removing if overloaded else np.ones(len(state.capacity), np.bool_)
        possible[node] = False
        partners = np.flatnonzero(possible)
        per_node = len(state.at) // len(state.capacity) + 1
        wanted = int(np.clip(PAIRS // (per_node * max(1, mine)), 8, PARTNERS))
        if len(partners) > wanted:
            key = state.deviations[partners] if overloaded else -state.deviations[partners]
            partners = partners[np.argpartition(key, wanted)[:wanted]]
        chosen = np.zeros(len(state.capacity), np.bool_)
        chosen[partners] = True
        return np.flatnonzero(chosen[state.at] & (self._rest_until <= self._step)), partners

    def _change(self, nodes: Ints | int, deviations: Floats) -> Floats:
        """Change of the violations of `nodes` if their deviations become `deviations` (last axis)."""
        return (
            np.maximum(0.0, np.maximum(deviations - self._band.over, -deviations - self._floor[nodes]))
            - self._violations[nodes]
        )

    def _penalty(self, added: Floats) -> Floats:
        """Penalty for the overdraft if `added` (B, ...) is spent; overwrites `added`."""
        state = self._state
        added -= (state.allowances - state.spent).reshape(-1, *[1] * (added.ndim - 1))
        np.maximum(0.0, added, out=added)
        total: Floats = added[0] if len(added) == 1 else added.sum(axis=0)
        total -= state.overdraft()
        return total

    def _best_return(self) -> tuple[Move, ...]:
        state = self._state
        away = np.flatnonzero(state.returnable & (state.at != state.home) & (self._rest_until <= self._step))
        if not len(away):
            return ()
        source, home = state.at[away], state.home[away]
        change = self._change(source, state.deviations[source] - state.load[away] / state.capacity[source])
        change += self._change(home, state.deviations[home] + state.load[away] / state.capacity[home])
        change += self._penalty(-state.prices[:, away])
        change += EPSILON_PP * self._random.random(len(away))
        if len(state.limit):
            full = state.used[:, home] + state.usage_on(away, home) > state.limit[:, home]
            change[full.any(axis=0)] = np.inf
        if state.allowed is not None:
            change[~state.allowed.may(away, home)] = np.inf
        choice = int(change.argmin())
        return ((int(away[choice]), int(home[choice])),) if np.isfinite(change[choice]) else ()

    def _best_shift_out(self, node: int, mine: Ints, partners: Ints) -> tuple[float, tuple[Move, ...]]:
        state = self._state
        if not len(mine) or not len(partners):
            return np.inf, ()
        load = state.load[mine][:, None]
        change = self._change(partners, state.deviations[partners] + load / state.capacity[partners])
        change += self._change(node, state.deviations[node] - load / state.capacity[node])
        home = state.home[mine]
        leaving = (home == node)[:, None].astype(np.float64) - (home[:, None] == partners)
        change += self._penalty(state.prices[:, mine][:, :, None] * leaving)
        if len(state.limit):
            added = state.usage_on(mine[:, None], partners)
            full = state.used[:, None, partners] + added > state.limit[:, None, partners]
            change[full.any(axis=0)] = np.inf
        if state.allowed is not None:
            change[~state.allowed.may(mine[:, None], partners)] = np.inf
        row, column = divmod(int(change.argmin()), len(partners))
        return float(change[row, column]), ((int(mine[row]), int(partners[column])),)

    def _best_shift_in(self, node: int, theirs: Ints) -> tuple[float, tuple[Move, ...]]:
        state = self._state
        if not len(theirs):
            return np.inf, ()
        source, load = state.at[theirs], state.load[theirs]
        change = self._change(source, state.deviations[source] - load / state.capacity[source])
        change += self._change(node, state.deviations[node] + load / state.capacity[node])
        home = state.home[theirs]
        leaving = (home == source).astype(np.float64) - (home == node)
        change += self._penalty(state.prices[:, theirs] * leaving)
        if len(state.limit):
            full = state.used[:, [node]] + state.usage_on(theirs, node) > state.limit[:, [node]]
            change[full.any(axis=0)] = np.inf
        if state.allowed is not None:
            change[~state.allowed.may(theirs, node)] = np.inf
        choice = int(change.argmin())
        return float(change[choice]), ((int(theirs[choice]), node),)

    def _best_swap(self, node: int, mine: Ints, theirs: Ints) -> tuple[float, tuple[Move, ...]]:
        """The best exchange of one of `mine` for one of `theirs`; a draining node may not receive, so not swap."""
        state = self._state
        theirs = theirs[~state.removing[state.at[theirs]]]
        if not len(mine) or not len(theirs) or state.removing[node]:
            return np.inf, ()
        other = state.at[theirs]
        middle, half = 0.5 * (self._band.over - self._band.under), 0.5 * (self._band.over + self._band.under)
        shifted = state.load[mine][:, None] - state.load[theirs]
        change = np.abs(shifted / state.capacity[node] - (state.deviations[node] - middle))
        np.maximum(change, half, out=change)
        shifted /= state.capacity[other]
        shifted += state.deviations[other] - middle
        np.abs(shifted, out=shifted)
        np.maximum(shifted, half, out=shifted)
        change += shifted
        change -= self._violations[other] + (self._violations[node] + 2 * half)
        if (state.spent + 2 * self._dearest > state.allowances).any():
            change += self._swap_penalty(node, mine, theirs, other)
        if len(state.limit):
            change[self._swap_too_full(node, mine, theirs, other)] = np.inf
        if state.allowed is not None:
            change[~state.allowed.may(mine[:, None], other)] = np.inf
            change[:, ~state.allowed.may(theirs, node)] = np.inf
        row, column = divmod(int(change.argmin()), len(theirs))
        given, taken = int(mine[row]), int(theirs[column])
        return float(change[row, column]), ((given, int(other[column])), (taken, node))

    def _swap_penalty(self, node: int, mine: Ints, theirs: Ints, other: Ints) -> Floats:
        state = self._state
        my_home, their_home = state.home[mine], state.home[theirs]
        given, taken = state.prices[:, mine], state.prices[:, theirs]
        added = (given * (my_home == node))[:, :, None] + (
            taken * ((their_home == other).astype(np.float64) - (their_home == node))
        )[:, None, :]
        rows, columns = np.nonzero(my_home[:, None] == other)  # few
        added[:, rows, columns] -= given[:, rows]
        return self._penalty(added)

    def _swap_too_full(self, node: int, mine: Ints, theirs: Ints, other: Ints) -> Bools:
        state = self._state
        shifted = state.usage_on(mine[:, None], other) - state.usage_on(theirs, other)[:, None]
        full_other = state.used[:, None, other] + shifted > state.limit[:, None, other]
        if state.spared is not None:
            shifted = state.usage_on(mine, node)[:, :, None] - state.usage_on(theirs, node)[:, None]
        full_node = state.used[:, node, None, None] - shifted > state.limit[:, node, None, None]
        too_full: Bools = np.logical_or.reduce(full_other | full_node, axis=0)
        return too_full
