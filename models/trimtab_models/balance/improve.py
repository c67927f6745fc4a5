"""Improves a plan: bisects a target band between the bound and the present load distance, with a search per target.

Each target is first tried with trades between pairs of nodes (`trades.py`), from the plan and from the present
allocation.  The second start matters for tight budgets, for which a plan is better built anew.  When trades gain
nothing, tabu search (`tabu.py`) continues from their result.  Up to `WHOLE_NODES` nodes, one search sees the whole
cluster. Above, the nodes are distributed by deviation into groups of about `GROUP_NODES` with similar totals, and every
group outside the band is repaired on its own.

In the end unnecessary moves are removed, without making the balance worse.
"""

from dataclasses import dataclass
from enum import Enum

import numpy as np

from trimtab_models.balance.evaluate import BalanceScore, evaluate, slack
from trimtab_models.balance.problem import UNPLACED, BalanceProblem, Floats, Ints
from trimtab_models.balance.tabu import EPSILON_PP, Band, Search, SearchState
from trimtab_models.balance.trades import Trader
from trimtab_models.solving import StopRule

WHOLE_NODES = 120
GROUP_NODES = 40
THRIFT = (0.25, 1.0)
GROUP_HASTE = 10  # patience is divided by this for a group: there are many groups, formed again and again
WORTH_ANOTHER_ROUND = 0.75  # share of the violations that may remain for another round of groups
MIN_GAIN_PP = 1e-9
CLOSE_PP = 0.005  # a target closer to the plan is not worth a search: start again from the bound


class Side(Enum):
    """The objective: the load distance, or one side of it while the other is held."""

    BOTH = "both"
    OVER = "over"
    UNDER = "under"

    def of(self, score: BalanceScore) -> float:
        """The value of this objective, in pp."""
        match self:
            case Side.BOTH:
                return score.load_distance
            case Side.OVER:
                return score.over
            case Side.UNDER:
                return score.under

    def band(self, target: float, held: float) -> Band:
        """The band for `target`, with the other side at most `held`."""
        match self:
            case Side.BOTH:
                return Band(under=target, over=target)
            case Side.OVER:
                return Band(under=held, over=target)
            case Side.UNDER:
                return Band(under=target, over=held)


@dataclass(frozen=True, slots=True, kw_only=True)
class Effort:
    """Limits of a search: `patience` = steps without progress; `steps` in all, plus `steps_per_node` per node."""

    steps: int
    steps_per_node: int = 0
    patience: int = 400  # of the first tabu searches; doubles each time the targets close in on the plan
    longest_patience: int = 6400

    def total(self, nodes: int) -> int:
        """Steps in all for a cluster of `nodes`."""
        return self.steps + self.steps_per_node * nodes


@dataclass(frozen=True, slots=True, kw_only=True)
class Improved:
    """A plan and its score."""

    allocation: Ints
    score: BalanceScore


class Improver:
    """Searches again and again from the best plan so far.  Every improvement is evaluated from scratch."""

    def __init__(
        self, problem: BalanceProblem, stayed: Ints, random: np.random.Generator, stop: StopRule, *, returning: bool
    ) -> None:
        """`stayed` = the plan that moves nothing.  With `returning` False nothing goes back to a draining node."""
        self._problem, self._stayed, self._random, self._stop = problem, stayed, random, stop
        self._returning = returning
        self.steps = 0

    def lower(self, start: Ints, side: Side, proven: float, goal: float, effort: Effort) -> Improved:
        """The best plan found from `start` with a lower `side`; stops at `goal`, which is >= `proven`, the bound."""
        best, score = start, evaluate(self._problem, start)
        held, low, patience = score.load_distance, proven, 0
        end = self.steps + effort.total(len(self._problem.capacity))
        while side.of(score) > goal + MIN_GAIN_PP and not self._stop() and self.steps < end:
            value = side.of(score)
            if value - low <= CLOSE_PP:
                low = proven + 0.5 * (low - proven)
                patience = min(2 * patience, effort.longest_patience) if patience else effort.patience
            target = low + 0.5 * (value - low) if value - low > 4 * CLOSE_PP else low
            target = max(target, goal)
            starts = [best, self._stayed] if side is Side.BOTH and self._returning else [best]
            if patience:  # with patience, an attempt is mostly tabu search, so one start is enough
                starts = [starts[int(self._random.integers(len(starts)))]]
            for allocation in self._attempt(starts, side.band(target, held), patience, end):
                found = evaluate(self._problem, allocation)
                if found.allowed and side.of(found) < side.of(score) - MIN_GAIN_PP and _holds(found, side, held):
                    best, score = allocation, found
            if side.of(score) > target + 2 * EPSILON_PP:
                low = max(low, target)
        return Improved(allocation=best, score=score)

    def _attempt(self, starts: list[Ints], band: Band, patience: int, end: int) -> list[Ints]:
        """Allocations closer to `band`: by trades, and with `patience` by tabu search from the best of these."""
        traded, least = None, np.inf
        for start in starts:
            state = SearchState(self._problem, start, returning=self._returning)
            trader = Trader(state, band, self._random, self._stop, thrift=self._random.uniform(*THRIFT))
            reached = trader.run(end - self.steps)
            self.steps += max(1, trader.steps)
            if reached:
                return [state.at]
            violations = float(band.violations(state.deviations, state.removing).sum())
            if violations < least:
                traded, least = state, violations
            if self.steps >= end or self._stop():
                break
        assert traded is not None
        return [traded.at.copy(), *(self._search(traded, band, patience, end) if patience else [])]

    def _search(self, state: SearchState, band: Band, patience: int, end: int) -> list[Ints]:
        if len(state.capacity) > WHOLE_NODES:
            deals = GroupRepair(state, band, self._random, patience, self._stop, end - self.steps)
            states = deals.run()
            self.steps = end - deals.steps_left
            return states
        search = Search(state, band, self._random)
        search.run(patience, end - self.steps, self._stop)
        self.steps += search.steps
        return [search.best_at]


def _holds(score: BalanceScore, side: Side, held: float) -> bool:
    return side is Side.BOTH or score.load_distance <= held + MIN_GAIN_PP


class GroupRepair:
    """Repairs a large state in groups of nodes.  Forms new groups until a round gains too little."""

    def __init__(
        self,
        state: SearchState,
        band: Band,
        random: np.random.Generator,
        patience: int,
        stop: StopRule,
        steps: int,
    ) -> None:
        self._state, self._band, self._random = state, band, random
        self._patience, self._stop = max(1, patience // GROUP_HASTE), stop
        self._steps_left = steps

    @property
    def steps_left(self) -> int:
        """Steps that are left."""
        return self._steps_left

    def run(self) -> list[Ints]:
        """The allocations after each round of groups that changed something, in order."""
        states: list[Ints] = []
        before = np.inf
        while not self._over():
            violations = self._band.violations(self._state.deviations, self._state.removing)
            total = float(violations.sum())
            if violations.max(initial=0.0) <= EPSILON_PP or total > WORTH_ANOTHER_ROUND * before:
                break
            before = total
            if self._repair_groups(violations):
                states.append(self._state.at.copy())
        return states

    def _over(self) -> bool:
        return self._steps_left <= 0 or self._stop()

    def _form_groups(self) -> Ints:
        """(N,) the group of each node; neighbours in the order of deviations go to different groups."""
        state, nodes = self._state, len(self._state.capacity)
        groups = max(1, nodes // GROUP_NODES)
        noise = self._random.normal(0.0, 0.05 * max(0.5 * (self._band.over + self._band.under), 0.01), nodes)
        order = np.argsort(state.deviations + noise, kind="stable")
        dealt = np.empty(nodes, np.int64)
        for first in range(0, nodes, groups):
            row = order[first : first + groups]
            dealt[row] = self._random.permutation(groups)[: len(row)]
        return dealt

    def _repair_groups(self, violations: Floats) -> bool:
        state = self._state
        group_of = self._form_groups()
        outside = np.bincount(group_of, violations > EPSILON_PP)
        nodes_by_group = np.argsort(group_of, kind="stable")
        node_ends = np.cumsum(np.bincount(group_of))
        at_group = group_of[state.at]
        key_groups_by_group = np.argsort(at_group, kind="stable")
        ends = np.cumsum(np.bincount(at_group, minlength=len(node_ends)))
        free = np.maximum(0.0, state.allowances - state.spent)
        pool, retraded = free.copy(), False
        for group in np.argsort(-outside, kind="stable"):
            if not outside[group] or self._over():
                break
            share = np.minimum(pool, np.maximum(free * outside[group] / outside.sum(), 2.0))
            nodes = nodes_by_group[node_ends[group - 1] if group else 0 : node_ends[group]]
            key_groups = key_groups_by_group[ends[group - 1] if group else 0 : ends[group]]
            part = state.part(nodes, key_groups, share)
            spent = part.spent.copy()
            if self._repair(part, float(violations[nodes].sum()), spent + pool):
                self._adopt(part, nodes, key_groups)
                pool = np.maximum(0.0, pool - (part.spent - spent))
                retraded = True
        state.spent = state.prices[:, state.at != state.home].sum(axis=1)
        return retraded

    def _repair(self, part: SearchState, before: float, allowance: Floats) -> bool:
        """Search `part`; returns whether its violations fell within `allowance`."""
        search = Search(part, self._band, self._random)
        search.run(self._patience, self._steps_left, self._stop)
        self._steps_left -= search.steps
        part.restore(search.least_at)
        after = float(self._band.violations(part.deviations, part.removing).sum())
        return after < before - 1e-12 and bool((part.spent <= allowance + EPSILON_PP).all())

    def _adopt(self, part: SearchState, nodes: Ints, key_groups: Ints) -> None:
        state = self._state
        state.at[key_groups] = nodes[part.at]
        state.deviations[nodes] = part.deviations
        state.used[:, nodes] = part.used


def improve_second_side(improver: Improver, plan: Improved, effort: Effort, tolerance: float) -> Improved:
    """`plan` with its looser side lowered too, without a higher load distance."""
    side = Side.UNDER if plan.score.over >= plan.score.under else Side.OVER
    if side.of(plan.score) <= tolerance:
        return plan
    return improver.lower(plan.allocation, side, 0.0, tolerance, effort)


def trim(problem: BalanceProblem, allocation: Ints, band: Band, stop: StopRule, *, returning: bool) -> Ints:
    """(K,) `allocation` with moved key groups sent home, most expensive first, while every node stays inside `band`.

    With `returning` False nothing goes back to a draining node.
    """
    trimmed = allocation.copy()
    away = np.flatnonzero((allocation != problem.home) & (problem.home != UNPLACED))
    if not returning:
        away = away[~problem.to_leave(problem.home)[away]]
    away = away[np.lexsort((problem.load[away], -problem.cost_bytes[away]))]
    deviations = problem.deviations(allocation).tolist()
    used, limit = problem.usages(allocation), problem.limit + slack(problem)
    least, capacity = np.where(problem.removing, -np.inf, -band.under).tolist(), problem.capacity.tolist()
    places = zip(*(row[away].tolist() for row in (allocation, problem.home, problem.load)), strict=True)
    for key_group, (source, home, load) in zip(away.tolist(), places, strict=True):
        if stop():
            break
        left = deviations[source] - load / capacity[source]
        filled = deviations[home] + load / capacity[home]
        if left < least[source] or filled > band.over or not problem.may(key_group, home):
            continue
        if len(limit):
            usage = used[:, home] + problem.usage_on(key_group, home)
            if (usage > limit[:, home]).any():
                continue
            used[:, home] = usage
            used[:, source] -= problem.usage_on(key_group, source)
        trimmed[key_group] = home
        deviations[source], deviations[home] = left, filled
    return trimmed


def held(score: BalanceScore, goal: float, tolerance: float) -> Band:
    """The band that the third objective must keep: load distance up to `goal`, other side up to `tolerance`."""
    tight, loose = max(score.load_distance, goal), max(min(score.over, score.under), min(goal, tolerance))
    return Band(under=loose, over=tight) if score.over >= score.under else Band(under=tight, over=loose)
