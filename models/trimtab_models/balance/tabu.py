"""Bringing every node into a target band: tabu search on the sum of violations.

Each step takes a random node outside the band and the best of all shifts of one key group and swaps of two between it
and its most complementary partners (for an overloaded node the least loaded ones, and the reverse). What was touched
may not be touched again for a few steps. Budgets may be overdrawn on the way, at a penalty; then moved key groups are
sent home, which refunds them. Limits and marks are never broken.
"""

from dataclasses import dataclass

import numpy as np

from trimtab_models.balance.evaluate import slack
from trimtab_models.balance.problem import UNPLACED, Bools, Floats, Ints, Problem
from trimtab_models.solving.stop import Stop

EPSILON_PP = 1e-9
TENURE = 8  # steps that a key group rests after a move, up to twice that
PARTNERS = 64
PAIRS = 20_000  # swaps looked at per step; above it fewer partners


@dataclass(frozen=True, slots=True, kw_only=True)
class Band:
    """Deviations allowed: from `-under` (not for marked nodes) to `over`, in pp."""

    under: float
    over: float

    def violations(self, deviations: Floats, removing: Bools) -> Floats:
        """How far each node is outside, in pp."""
        below = np.where(removing, 0.0, -deviations - self.under)
        return np.maximum(0.0, np.maximum(deviations - self.over, below))


class Board:
    """A working allocation of some key groups on some nodes, with the sums that a search keeps up to date.

    `home` may be UNPLACED (unplaced, or home outside of these nodes): such a key group cannot be sent home.
    """

    def __init__(self, problem: Problem, allocation: Ints, *, returning: bool = True) -> None:
        """With `returning` False nothing that has left a marked node is sent back there."""
        self.load, self.capacity, self.removing = problem.load, problem.capacity, problem.removing
        self.home, self.movable = problem.home, problem.movable
        self.returnable = self.movable & (self.home != UNPLACED)
        if not returning:
            self.returnable &= ~problem.removing[problem.home] | (allocation == problem.home)
        self.usage, self.limit = problem.usage, problem.limit + slack(problem)
        scale = problem.prices.mean(axis=1, keepdims=True) if problem.prices.size else 1.0
        self.prices = problem.prices / scale  # an average move costs 1, so that penalties of all budgets compare
        self.allowances = problem.allowances / np.ravel(scale)[: len(problem.allowances)]
        self.at = allocation.copy()
        self.deviations = problem.deviations(allocation)
        self.used = problem.usages(allocation)
        self.spent = self.prices[:, self.at != self.home].sum(axis=1)

    def part(self, nodes: Ints, key_groups: Ints, share: Floats) -> "Board":
        """The `nodes` and all the `key_groups` on them as a board of its own, which may spend `share` more."""
        part = object.__new__(Board)
        local = np.full(len(self.capacity) + 1, UNPLACED, np.int64)  # the last entry serves UNPLACED itself
        local[nodes] = np.arange(len(nodes))
        part.load, part.movable = self.load[key_groups], self.movable[key_groups]
        part.capacity, part.removing = self.capacity[nodes], self.removing[nodes]
        part.home, part.at = local[self.home[key_groups]], local[self.at[key_groups]]
        part.returnable = self.returnable[key_groups] & (part.home != UNPLACED)
        part.usage, part.limit = self.usage[:, key_groups], self.limit[:, nodes]
        part.used, part.deviations = self.used[:, nodes], self.deviations[nodes]
        part.prices = self.prices[:, key_groups]
        away = self.at[key_groups] != self.home[key_groups]
        part.spent = part.prices[:, away].sum(axis=1)
        part.allowances = part.spent + share
        return part

    def overdraft(self) -> float:
        """Sum over the budgets of what is spent beyond them."""
        return float(np.maximum(0.0, self.spent - self.allowances).sum())

    def move(self, key_group: int, target: int) -> None:
        """Puts `key_group` on the node `target` and keeps all sums."""
        source, load, usage = self.at[key_group], self.load[key_group], self.usage[:, key_group]
        self.deviations[source] -= load / self.capacity[source]
        self.deviations[target] += load / self.capacity[target]
        self.used[:, source] -= usage
        self.used[:, target] += usage
        self.spent += self.price_of(key_group, target)
        self.at[key_group] = target

    def restore(self, allocation: Ints) -> None:
        """Goes back to `allocation`, undoing moves one by one."""
        for key_group in np.flatnonzero(self.at != allocation).tolist():
            self.move(key_group, int(allocation[key_group]))

    def price_of(self, key_group: int, target: int) -> Floats:
        """(B,) what the move adds to each budget: leaving home costs, going home refunds."""
        factor = int(self.at[key_group] == self.home[key_group]) - int(target == self.home[key_group])
        return self.prices[:, key_group] * factor


Move = tuple[int, int]  # key group, new node


class Search:
    """One attempt to bring `board` into `band`; the board is changed in place."""

    def __init__(self, board: Board, band: Band, random: np.random.Generator) -> None:
        self._board, self._band, self._random = board, band, random
        self._rest_until = np.where(board.movable, 0, np.iinfo(np.int64).max)
        self._violations = band.violations(board.deviations, board.removing)
        self._dearest = board.prices.max(axis=1, initial=0.0)
        self._step = 0
        self._floor = np.where(board.removing, np.inf, band.under)
        self._least_worst = self._least_sum = np.inf
        self.best_at = board.at.copy()  # within the budget, the worst node is nearest to the band
        self.least_at = board.at.copy()  # within the budget, the sum of violations is least

    @property
    def steps(self) -> int:
        """Steps taken so far."""
        return self._step

    def run(self, patience: int, steps: int, stop: Stop) -> bool:
        """True when the band is reached within the budget; gives up after `patience` steps without progress."""
        board, stalled, best = self._board, 0, np.inf
        while True:
            overdraft = board.overdraft()
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
            self._least_worst, self.best_at = worst, self._board.at.copy()
        if total < self._least_sum:
            self._least_sum, self.least_at = total, self._board.at.copy()

    def _choose(self, overdrawn: bool, worst: float) -> tuple[Move, ...]:
        if worst <= EPSILON_PP or (overdrawn and self._random.random() < 0.5):
            return self._best_return()
        outside = np.flatnonzero(self._violations > EPSILON_PP)
        node = int(outside[self._random.integers(len(outside))])
        overloaded = bool(self._board.deviations[node] > 0)
        mine = np.flatnonzero((self._board.at == node) & (self._rest_until <= self._step))
        theirs, partners = self._partners(node, overloaded, len(mine))
        shift = self._best_shift_out(node, mine, partners) if overloaded else self._best_shift_in(node, theirs)
        swap = self._best_swap(node, mine, theirs)
        best = min((shift, swap), key=lambda choice: choice[0])
        return best[1] if np.isfinite(best[0]) else ()

    def _apply(self, key_group: int, target: int) -> None:
        board, source = self._board, int(self._board.at[key_group])
        board.move(key_group, target)
        self._rest_until[key_group] = self._step + TENURE + int(self._random.integers(TENURE))
        touched = np.array((source, target))
        self._violations[touched] = self._band.violations(board.deviations[touched], board.removing[touched])

    def _partners(self, node: int, overloaded: bool, mine: int) -> tuple[Ints, Ints]:
        """The key groups on the most complementary nodes, and those nodes."""
        board = self._board
        possible = ~board.removing if overloaded else np.ones(len(board.capacity), np.bool_)
        possible[node] = False
        partners = np.flatnonzero(possible)
        per_node = len(board.at) // len(board.capacity) + 1
        wanted = int(np.clip(PAIRS // (per_node * max(1, mine)), 8, PARTNERS))
        if len(partners) > wanted:
            key = board.deviations[partners] if overloaded else -board.deviations[partners]
            partners = partners[np.argpartition(key, wanted)[:wanted]]
        chosen = np.zeros(len(board.capacity), np.bool_)
        chosen[partners] = True
        return np.flatnonzero(chosen[board.at] & (self._rest_until <= self._step)), partners

    def _change(self, nodes: Ints | int, deviations: Floats) -> Floats:
        """By how much the violations of `nodes` change if their deviations become `deviations` (last axis)."""
        return (
            np.maximum(0.0, np.maximum(deviations - self._band.over, -deviations - self._floor[nodes]))
            - self._violations[nodes]
        )

    def _penalty(self, added: Floats) -> Floats:
        """What adding `added` ((B, ...), overwritten) to the spending does to the overdraft."""
        board = self._board
        added -= (board.allowances - board.spent).reshape(-1, *[1] * (added.ndim - 1))
        np.maximum(0.0, added, out=added)
        total: Floats = added[0] if len(added) == 1 else added.sum(axis=0)
        total -= board.overdraft()
        return total

    def _best_return(self) -> tuple[Move, ...]:
        board = self._board
        away = np.flatnonzero(board.returnable & (board.at != board.home) & (self._rest_until <= self._step))
        if not len(away):
            return ()
        source, home = board.at[away], board.home[away]
        change = self._change(source, board.deviations[source] - board.load[away] / board.capacity[source])
        change += self._change(home, board.deviations[home] + board.load[away] / board.capacity[home])
        change += self._penalty(-board.prices[:, away])
        change += EPSILON_PP * self._random.random(len(away))
        if len(board.limit):
            change[(board.used[:, home] + board.usage[:, away] > board.limit[:, home]).any(axis=0)] = np.inf
        choice = int(change.argmin())
        return ((int(away[choice]), int(home[choice])),) if np.isfinite(change[choice]) else ()

    def _best_shift_out(self, node: int, mine: Ints, partners: Ints) -> tuple[float, tuple[Move, ...]]:
        board = self._board
        if not len(mine) or not len(partners):
            return np.inf, ()
        load = board.load[mine][:, None]
        change = self._change(partners, board.deviations[partners] + load / board.capacity[partners])
        change += self._change(node, board.deviations[node] - load / board.capacity[node])
        home = board.home[mine]
        leaving = (home == node)[:, None].astype(np.float64) - (home[:, None] == partners)
        change += self._penalty(board.prices[:, mine][:, :, None] * leaving)
        if len(board.limit):
            full = board.used[:, None, partners] + board.usage[:, mine, None] > board.limit[:, None, partners]
            change[full.any(axis=0)] = np.inf
        row, column = divmod(int(change.argmin()), len(partners))
        return float(change[row, column]), ((int(mine[row]), int(partners[column])),)

    def _best_shift_in(self, node: int, theirs: Ints) -> tuple[float, tuple[Move, ...]]:
        board = self._board
        if not len(theirs):
            return np.inf, ()
        source, load = board.at[theirs], board.load[theirs]
        change = self._change(source, board.deviations[source] - load / board.capacity[source])
        change += self._change(node, board.deviations[node] + load / board.capacity[node])
        home = board.home[theirs]
        leaving = (home == source).astype(np.float64) - (home == node)
        change += self._penalty(board.prices[:, theirs] * leaving)
        if len(board.limit):
            full = board.used[:, [node]] + board.usage[:, theirs] > board.limit[:, [node]]
            change[full.any(axis=0)] = np.inf
        choice = int(change.argmin())
        return float(change[choice]), ((int(theirs[choice]), node),)

    def _best_swap(self, node: int, mine: Ints, theirs: Ints) -> tuple[float, tuple[Move, ...]]:
        """The best exchange of one of `mine` for one of `theirs`; marked nodes may not receive, so do not swap."""
        board = self._board
        theirs = theirs[~board.removing[board.at[theirs]]]
        if not len(mine) or not len(theirs) or board.removing[node]:
            return np.inf, ()
        other = board.at[theirs]
        middle, half = 0.5 * (self._band.over - self._band.under), 0.5 * (self._band.over + self._band.under)
        shifted = board.load[mine][:, None] - board.load[theirs]
        change = np.abs(shifted / board.capacity[node] - (board.deviations[node] - middle))
        np.maximum(change, half, out=change)
        shifted /= board.capacity[other]
        shifted += board.deviations[other] - middle
        np.abs(shifted, out=shifted)
        np.maximum(shifted, half, out=shifted)
        change += shifted
        change -= self._violations[other] + (self._violations[node] + 2 * half)
        if (board.spent + 2 * self._dearest > board.allowances).any():
            change += self._swap_penalty(node, mine, theirs, other)
        if len(board.limit):
            change[self._swap_too_full(node, mine, theirs, other)] = np.inf
        row, column = divmod(int(change.argmin()), len(theirs))
        given, taken = int(mine[row]), int(theirs[column])
        return float(change[row, column]), ((given, int(other[column])), (taken, node))

    def _swap_penalty(self, node: int, mine: Ints, theirs: Ints, other: Ints) -> Floats:
        board = self._board
        my_home, their_home = board.home[mine], board.home[theirs]
        given, taken = board.prices[:, mine], board.prices[:, theirs]
        added = (given * (my_home == node))[:, :, None] + (
            taken * ((their_home == other).astype(np.float64) - (their_home == node))
        )[:, None, :]
        rows, columns = np.nonzero(my_home[:, None] == other)  # few
        added[:, rows, columns] -= given[:, rows]
        return self._penalty(added)

    def _swap_too_full(self, node: int, mine: Ints, theirs: Ints, other: Ints) -> Bools:
        board = self._board
        shifted = board.usage[:, mine, None] - board.usage[:, None, theirs]
        full_other = board.used[:, None, other] + shifted > board.limit[:, None, other]
        full_node = board.used[:, node, None, None] - shifted > board.limit[:, node, None, None]
        too_full: Bools = np.logical_or.reduce(full_other | full_node, axis=0)
        return too_full
