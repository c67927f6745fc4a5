"""Examines every plan of a tiny problem, so that all three objectives are exactly met.

Key groups are assigned one after the other, heaviest first.  A partial plan is dropped as soon as it exceeds a budget,
a limit or the band, or if the key groups left cannot fill the nodes below the band.  All partial plans of one length
are kept in arrays.  The band starts near the proven bound and doubles until plans remain: the first band that contains
a plan contains the best one, and a band without a plan raises the bound.
"""

from dataclasses import dataclass
from math import inf

import numpy as np

from trimtab_models.balance.evaluate import slack
from trimtab_models.balance.exact import everywhere
from trimtab_models.balance.problem import UNPLACED, BalanceProblem, Bools, Floats, Ints
from trimtab_models.solving import StopRule

PAIRS = 600  # most pairs of a key group and a node
FEW_CELLS, CELLS = 250_000, 4_000_000  # (partial plan, node) pairs examined per band
BANDS = 6  # the first band is 2^-BANDS of the way from the bound to the plan
DEAREST = 1e200  # price of load that no key group carries
TIED_PP = 1e-9
ROUNDING = 1e-11  # of the total load


@dataclass(frozen=True, slots=True, kw_only=True)
class Enumeration:
    """No plan has a load distance (pp) below `lower_bound`.

    `plans` (X, K): with the optimum, and all plans near it; None if there were too many to examine.
    """

    lower_bound: float
    plans: Ints | None


def worth_trying(problem: BalanceProblem) -> bool:
    """Whether the problem is small, and so has a chance of being examined completely."""
    return len(problem.load) * len(problem.capacity) <= PAIRS


def enumerate_plans(
    problem: BalanceProblem, proven: float, reached: float, within: float, cells: int, stop: StopRule
) -> Enumeration:
    """The plans up to `within` above the least load distance, which lies between `proven` and `reached`.

    It gives up after `cells` pairs of a partial plan and a node.
    """
    trials = _Trials(problem)
    low = proven
    for halvings in range(BANDS, -1, -1):
        band = low + (reached - low) * 0.5**halvings + ROUNDING * max(1.0, reached)
        plans = trials.inside(band + within, cells, stop)
        if plans is None:
            break
        distances = np.maximum(*_sides(problem, plans))
        least = float(distances.min(initial=inf))
        if least <= band:
            return Enumeration(lower_bound=max(proven, least), plans=plans[distances <= least + within])
        proven = max(proven, min(band, reached))
    return Enumeration(lower_bound=proven, plans=None)


def by_objectives(problem: BalanceProblem, plans: Ints, goal: float, tolerance: float) -> Ints:
    """(X, K) the best of `plans` first: fewest moves, then fewest bytes, of those good enough in the other objectives.

    Good enough are a load distance up to `goal`, or else the least one, and at that the least other side, or one up to
    `tolerance`.
    """
    over, under = _sides(problem, plans)
    tight, loose = np.maximum(over, under), np.minimum(over, under)
    least = float(tight.min())
    other = float(loose[tight <= least + TIED_PP].min())
    enough = (tight <= max(least, goal) + TIED_PP) & (loose <= max(other, min(goal, tolerance)) + TIED_PP)
    moved = (plans[enough] != problem.home) & (problem.home != UNPLACED)
    order = np.lexsort((loose[enough], tight[enough], moved @ problem.cost_bytes, moved.sum(axis=1)))
    best: Ints = plans[enough][order]
    return best


def _sides(problem: BalanceProblem, plans: Ints) -> tuple[Floats, Floats]:
    """(X,) largest deviation above the mean, and below it, of each plan."""
    load = np.zeros((len(plans), len(problem.capacity)))
    for key_group in range(len(problem.load)):
        load[np.arange(len(plans)), plans[:, key_group]] += problem.load[key_group]
    deviations = load / problem.capacity - problem.mean
    over: Floats = deviations.max(axis=1, initial=0.0)
    under: Floats = (-deviations[:, problem.kept]).max(axis=1, initial=0.0)
    return over, under


class _Trials:
    """The partial plans of one problem."""

    def __init__(self, problem: BalanceProblem) -> None:
        self._problem = problem
        self._slack = ROUNDING * max(1.0, float(problem.load.sum()))
        self._limit = problem.limit + slack(problem)
        self._nodes = everywhere(problem)
        fixed_first = np.array([len(nodes) > 1 for nodes in self._nodes], np.bool_)
        self._order = np.lexsort((-problem.load, fixed_first))
        self._waiting = [_Unassigned(problem, self._order[step:]) for step in range(1, len(self._order) + 1)]

    def inside(self, d: float, cells: int, stop: StopRule) -> Ints | None:
        """(X, K) all plans of load distance `d`; None if there are too many partial ones, or `stop` ends it."""
        problem = self._problem
        load = np.zeros((1, len(problem.capacity)))
        spent = np.zeros((1, len(problem.prices)))
        used = np.zeros((1, len(problem.limit), len(problem.capacity)))
        steps: list[tuple[Ints, Ints]] = []  # per key group: the partial plan that it extends, and its node
        for step, key_group in enumerate(self._order.tolist()):
            before, node = self._choices(load, key_group, d)
            cells -= len(before) * len(problem.capacity)
            if cells < 0 or stop():
                return None
            row = np.arange(len(before))
            load, spent, used = load[before], spent[before], used[before]
            load[row, node] += problem.load[key_group]
            spent += np.outer(node != problem.home[key_group], problem.prices[:, key_group])
            used[row, :, node] += problem.usage_on(np.full(len(node), key_group), node).T
            kept = self._possible(load, spent, used, d, self._waiting[step])
            load, spent, used = load[kept], spent[kept], used[kept]
            steps.append((before[kept], node[kept]))
        return self._plans(steps)

    def _choices(self, load: Floats, key_group: int, d: float) -> tuple[Ints, Ints]:
        """Each pair of a partial plan and a node that has room for `key_group` inside the band."""
        problem = self._problem
        nodes = np.array(self._nodes[key_group])
        high = (problem.mean + d) * problem.capacity[nodes] + self._slack
        before, choice = np.nonzero(load[:, nodes] + problem.load[key_group] <= high)
        return before, nodes[choice]

    def _possible(self, load: Floats, spent: Floats, used: Floats, d: float, waiting: "_Unassigned") -> Bools:
        """Which partial plans keep the limits, and can be completed inside the band and the budgets."""
        problem = self._problem
        high = (problem.mean + d) * problem.capacity + self._slack
        low = np.where(problem.removing, -np.inf, (problem.mean - d) * problem.capacity - self._slack)
        possible: Bools = np.maximum(0.0, low - load).sum(axis=1) <= waiting.load + self._slack
        possible &= (used <= self._limit).all(axis=(1, 2))
        after = load + waiting.at_home  # if no further key group moves
        excess = np.maximum(0.0, after - high)
        deficit = np.maximum(0.0, np.maximum(0.0, low - after).sum(axis=1) - waiting.unplaced - self._slack)
        for row, allowance in enumerate(problem.allowances.tolist()):
            needed = np.maximum(excess @ waiting.cheapest[row], deficit * waiting.cheapest[row].min(initial=DEAREST))
            possible &= spent[:, row] + needed * (1 - 1e-9) <= allowance * (1 + 1e-12)
        return possible

    def _plans(self, steps: list[tuple[Ints, Ints]]) -> Ints:
        plans = np.zeros((len(steps[-1][0]) if steps else 1, len(steps)), np.int64)
        row = np.arange(len(plans))
        for key_group, (before, node) in zip(self._order[::-1].tolist(), reversed(steps), strict=True):
            plans[:, key_group] = node[row]
            row = before[row]
        return plans


class _Unassigned:
    """The key groups that are not assigned yet.

    `load` in all, `at_home` (N,) by node, `unplaced` of those without one; `cheapest` (B, N) the least price per load.
    """

    def __init__(self, problem: BalanceProblem, key_groups: Ints) -> None:
        self.load = float(problem.load[key_groups].sum())
        placed = key_groups[problem.home[key_groups] != UNPLACED]
        self.unplaced = self.load - float(problem.load[placed].sum())
        home = problem.home[placed]
        self.at_home = np.bincount(home, problem.load[placed], len(problem.capacity))
        self.cheapest = np.full((len(problem.prices), len(problem.capacity)), DEAREST)
        price = np.minimum(DEAREST, problem.prices[:, placed] / np.maximum(problem.load[placed], 1 / DEAREST))
        for row, per_load in zip(self.cheapest, price, strict=True):
            np.minimum.at(row, home, per_load)
