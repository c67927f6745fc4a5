"""Chooses standbys: keep, fill the gaps, improve; where that stays above the bound, align peaks and improve again.

Present standbys stay where they may.  Gaps are filled domain by domain, rank by rank, largest load first.  A first
standby goes to a survivor that stays below the domain's bound after the loss; of those it takes the one that follows
least, so that following is spread.  If no survivor stays below, it takes the one with the least resulting load.  A
further standby inherits nothing and goes where the load is least.

Aligning places first standbys again so that peaks fall together.  What following costs is spent all the time, but a key
group is inherited only after the loss of its owner.  So a worker that has to keep room for one large key group can
inherit as much after every other loss, for nothing but following it. The *peak* of a worker is the most that it
inherits after any one loss.  A pass aims at a level: largest first, each key group goes to the worker whose peak rises
least, of those that stay at or below the level; among equals to the one with the least load.  Where none stays below,
it goes where the load is least.

Passes halve the interval of levels first.  Further ones aim a little below the best value, with the order disturbed.
"""

from dataclasses import dataclass, replace

import numpy as np

from trimtab_models.solving import Never, StopRule
from trimtab_models.standbys.bound import (
    AIM,
    domain_bounds,
    following_bound,
    orphans_by_domain,
    peaks_bound,
    water_level,
)
from trimtab_models.standbys.improve import NEGLIGIBLE, Improving, LossLedger
from trimtab_models.standbys.problem import (
    UNPLACED,
    Bools,
    DomainLosses,
    Floats,
    Ints,
    StandbyBudget,
    StandbyProblem,
    StandbyScore,
    evaluate,
    is_new,
    losses,
)

WAVE = 8
"""One in so many candidates takes a key group at a time."""
SPREADING = 0.02
"""Load, as a share of the mean, that following an average share of all state counts beside its cost."""
PLACINGS = 6_000
"""Most key groups that are placed, in all passes together: less than 0.1 s of CPU."""
PASSES = 30
"""Most passes."""
HALVINGS = 8
DISTURBED = 0.15
"""Standard deviation of the logarithm of the sizes by which a disturbed pass orders."""
BELOW = 0.1
"""Percent of a worker: what such a pass is to gain."""
PREFERRED = 1e3
"""A rise of a peak weighs so much more than a higher load, and a load above the level weighs more than either."""
BARRED = 1e9
ROUNDING = 1e-9
WORTHWHILE = 0.5
"""Least share of `tolerance` by which present standbys must lower the worst load after a loss to be replaced."""


def kept_standbys(problem: StandbyProblem) -> Ints:
    """The present standbys that may stay, in their order."""
    kept = np.full((len(problem.owner), problem.wanted), UNPLACED, np.int64)
    if not kept.size or not problem.present.size:
        return kept
    apart, owner = problem.apart[problem.owner], problem.owner
    due, rank = problem.due, np.zeros(len(owner), np.int64)
    home = problem.levels[problem.outside, owner]
    taken = [problem.levels[apart, owner]]
    for column in problem.present.T:
        at = np.maximum(column, 0)
        place = problem.levels[apart, at]
        fits = (column != UNPLACED) & ~problem.removing[at] & (problem.levels[problem.outside, at] != home)
        fits &= rank < due
        for other in taken:
            fits &= place != other
        kept[np.flatnonzero(fits), rank[fits]] = column[fits]
        taken.append(np.where(fits, place, UNPLACED))
        rank += fits
    return kept


class Filling:
    """Fills the gaps of an assignment in place."""

    def __init__(self, problem: StandbyProblem, assignment: Ints, chosen: Ints) -> None:
        """`chosen` = the key groups to fill."""
        self._problem = problem
        self._able = np.flatnonzero(~problem.removing)
        self._open = np.zeros(len(assignment), np.bool_)
        self._open[chosen] = True
        self._assignment = assignment
        weight = spreading_weights(problem)
        mean = float(problem.own.sum() / problem.capacity.sum())
        able = max(1, int((~problem.removing).sum()))
        self._spreading = SPREADING * (mean or 1.0) * weight * able / (max(1, problem.wanted) * (weight.sum() or 1.0))
        self._loads = problem.loads(assignment)
        self._highest = float((self._loads / problem.capacity).max(initial=0.0))
        self._spread = problem.followed(assignment, self._spreading)
        self._used = np.array([problem.followed(assignment, usage) for usage in problem.usage]).reshape(
            problem.limit.shape
        )

    def fill(self) -> None:
        """Fill what can be filled; a gap remains where limits leave no place."""
        domains = orphans_by_domain(self._problem)
        for orphans in domains:
            for rank in range(self._problem.wanted):
                count = (self._assignment[orphans] != UNPLACED).sum(axis=1)
                open_ = self._open[orphans] & (count == rank) & (rank < self._problem.due[orphans])
                gaps = orphans[open_]
                for row in np.unique(self._problem.outside[gaps]).tolist():
                    self._fill_domain(rank, orphans, gaps[self._problem.outside[gaps] == row])

    def _fill_domain(self, rank: int, orphans: Ints, gaps: Ints) -> None:
        """Fill gaps of `orphans` of one domain, whose standbys are to be outside the same domain."""
        problem = self._problem
        after = self._loads.copy()
        if rank == 0:
            heirs = self._assignment[orphans, 0]
            placed = heirs != UNPLACED
            known = orphans[placed]
            np.add.at(after, heirs[placed], problem.load[known] - problem.follow[known])
        workers = self._candidates(int(gaps[0]), after, len(gaps))
        if not len(workers):
            return
        capacity, spread = problem.capacity[workers], self._spread[workers] / problem.capacity[workers]
        level = after[workers] / capacity
        target = 0.0
        if rank == 0:
            order = np.argsort(level, kind="stable")
            water = water_level(after[workers][order], capacity[order], float(problem.load[gaps].sum()))
            target = max(water, self._highest)
        restricted = bool(len(problem.limit)) or problem.wanted > 1
        added = problem.load if rank == 0 else problem.follow
        wave = 1 if restricted else max(1, len(workers) // WAVE)
        for start in range(0, len(gaps), wave):
            batch = gaps[start : start + wave]
            value = np.maximum(level + added[batch[0]] / capacity, target) + spread
            if restricted:
                value[~self._possible(int(batch[0]), workers)] = np.inf
            if len(batch) == 1:
                at = value.argmin(keepdims=True)
                if value[at[0]] == np.inf:
                    continue
            else:
                at = np.argpartition(value, len(batch) - 1)[: len(batch)]
                at = at[np.argsort(level[at], kind="stable")]  # the largest goes where the load is least
            self._place(batch, rank, workers[at])
            level[at] += added[batch] / capacity[at]
            spread[at] += self._spreading[batch] / capacity[at]

    def _candidates(self, gap: int, after: Floats, count: int) -> Ints:
        """Able workers for this gap and others of its domain.

        In a large problem only those with the least load, and those that follow least.
        """
        problem = self._problem
        able: Ints = self._able[~problem.beside(gap)[self._able]]
        most = max(32, count)
        if len(able) <= 2 * most or problem.wanted > 1 or len(problem.limit):
            return able
        relative, spread = (after / problem.capacity)[able], (self._spread / problem.capacity)[able]
        light = np.argpartition(relative, most)[:most]
        idle = np.argpartition(relative + spread, most)[:most]
        chosen: Ints = able[np.unique(np.concatenate((light, idle)))]
        return chosen

    def _possible(self, gap: int, workers: Ints) -> Bools:
        problem = self._problem
        names = problem.levels[problem.apart[problem.owner[gap]]]
        found = self._assignment[gap]
        possible = ~np.isin(names[workers], names[found[found != UNPLACED]])
        for usage, limit, used in zip(problem.usage, problem.limit, self._used, strict=True):
            possible &= used[workers] + usage[gap] <= limit[workers]
        return possible

    def _place(self, gaps: Ints, rank: int, workers: Ints) -> None:
        """Give each gap a worker; the workers differ."""
        self._assignment[gaps, rank] = workers
        self._loads[workers] += self._problem.follow[gaps]
        self._spread[workers] += self._spreading[gaps]
        if len(self._used):
            self._used[:, workers] += self._problem.usage[:, gaps]
        self._highest = max(self._highest, float((self._loads[workers] / self._problem.capacity[workers]).max()))


def spreading_weights(problem: StandbyProblem) -> Floats:
    """(K,) what spreading counts: half the number of key groups, half their bytes."""
    mean = float(problem.state_bytes.mean()) if len(problem.state_bytes) else 0.0
    return 1.0 + problem.state_bytes / (mean or 1.0)


def is_affordable(problem: StandbyProblem, movable: Bools) -> bool:
    """Whether one pass at least is within PLACINGS."""
    return max(int(movable.sum()), problem.domains * len(problem.capacity)) <= PLACINGS


def aligned(
    problem: StandbyProblem, assignment: Ints, movable: Bools, bounds: tuple[float, float], stop: StopRule
) -> Ints | None:
    """The assignment with other first standbys for the `movable` (K,) key groups, which have one.

    `bounds` = a bound on the worst load after a loss, and a value that is reached.  None if there is nothing to move,
    no pass can be afforded, or limits left a key group without a place.
    """
    moved = np.flatnonzero(movable & (assignment != UNPLACED).any(axis=1))
    if not len(moved) or not is_affordable(problem, movable):
        return None
    most = min(PASSES, PLACINGS // len(moved))
    passes = _Passes(problem, assignment, moved)
    size = (problem.load - problem.follow)[moved]
    order = np.argsort(-size, kind="stable")
    low, high = bounds
    best, heirs = np.inf, np.full(len(moved), UNPLACED)
    random = np.random.default_rng(0)
    for number in range(most):
        if stop() or best <= bounds[0] + BELOW:
            break
        halving = number < HALVINGS
        if not halving:
            order = np.argsort(-size * np.exp(DISTURBED * random.standard_normal(len(moved))), kind="stable")
        level = 0.5 * (low + high) if halving else best - BELOW
        value, found = passes.place(order, level)
        low, high = (low, level) if value <= level + ROUNDING else (level, high)
        if value < best:
            best, heirs = value, found
    if (heirs == UNPLACED).any():
        return None
    result = assignment.copy()
    result[moved, 0] = heirs
    return result


class _Passes:
    """Passes over the key groups that are `moved`; all others stay as they are."""

    def __init__(self, problem: StandbyProblem, assignment: Ints, moved: Ints) -> None:
        rest = assignment.copy()
        rest[moved, 0] = UNPLACED
        self._problem = problem
        self._moved = moved
        self._loads = problem.loads(rest)
        self._inherited = problem.load - problem.follow
        self._of = problem.domain[problem.owner]
        self._table: Floats = np.zeros((problem.domains, len(problem.capacity)))
        placed = np.flatnonzero(rest[:, 0] != UNPLACED)
        np.add.at(self._table, (self._of[placed], rest[placed, 0]), self._inherited[placed])
        self._used = np.array([problem.followed(rest, usage) for usage in problem.usage]).reshape(problem.limit.shape)
        self._barred = _barred(problem, rest, moved)

    def place(self, order: Ints, level: float) -> tuple[float, Ints]:
        """One pass; the worst value, infinite if a key group has no place, and the heirs."""
        problem, table, used = self._problem, self._table.copy(), self._used.copy()
        loads, peak, capacity = self._loads.copy(), table.max(axis=0), problem.capacity
        room = level * capacity
        heirs = np.full(len(self._moved), UNPLACED)
        for place in order.tolist():
            key_group = self._moved[place]
            domain, follow = self._of[key_group], problem.follow[key_group]
            peaks = np.maximum(peak, table[domain] + self._inherited[key_group])
            over = (loads + follow + peaks - room) / capacity
            cost = np.where(over <= ROUNDING, PREFERRED * (peaks - peak) + over, BARRED + over)
            cost[self._barred[place]] = np.inf
            if len(used):
                full = used + problem.usage[:, key_group, None] > problem.limit
                cost[full.any(axis=0)] = np.inf
                used_here = problem.usage[:, key_group]
            heir = int(cost.argmin())
            if cost[heir] == np.inf:
                return np.inf, heirs
            heirs[place] = heir
            table[domain, heir] += self._inherited[key_group]
            peak[heir] = peaks[heir]
            loads[heir] += follow
            if len(used):
                used[:, heir] += used_here
        return float(((loads + peak) / capacity).max()), heirs


def _barred(problem: StandbyProblem, rest: Ints, moved: Ints) -> Bools:
    """(P, N) the workers that may not be the first standby of each key group that is moved."""
    owner, each = problem.owner[moved], np.arange(len(moved))
    near = problem.levels[problem.outside[moved]]
    barred: Bools = (near == near[each, owner][:, None]) | problem.removing
    places = problem.levels[problem.apart[owner]]
    for others in rest[moved, 1:].T:
        barred |= (others != UNPLACED)[:, None] & (places == places[each, others][:, None])
    return barred


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class StandbyResult:
    """Standbys, what each loss then leads to, and a bound on the worst of it.

    `assignment` (K, wanted) = the standbys in order.  `lower_bound`: no assignment that gives every key group its
    standbys has a lower `score.worst` (percent of a worker).
    """

    assignment: Ints
    score: StandbyScore
    losses: DomainLosses
    lower_bound: float

    @property
    def gap(self) -> float:
        """Worst value - bound, in percent of a worker: how far the plan is from the optimum at most."""
        return max(0.0, self.score.worst - self.lower_bound)


@dataclass(frozen=True, slots=True, kw_only=True)
class StandbyParams:
    """Most steps of the search, and how close to its bound a domain is left alone (percent of a worker).

    `peaks`: whether to bound a result by Peaks as well, which takes longer.
    """

    steps: int = 20_000
    precision: float = 0.1
    peaks: bool = True


DEFAULT_PARAMS = StandbyParams()


def solve(
    problem: StandbyProblem, *, stop: StopRule | None = None, params: StandbyParams = DEFAULT_PARAMS
) -> StandbyResult:
    """The standbys.  Deterministic, as long as `stop` does not end the search."""
    stop = stop or Never()
    assignment = kept_standbys(problem)
    gaps = _gaps(problem, assignment)
    bounds = domain_bounds(problem)
    proven: float | None = None
    if gaps.any():
        _fill(problem, assignment, gaps)
        # What is new is cut down to the budget afterwards.
        assignment, proven = _improved(replace(problem, budget=StandbyBudget()), assignment, bounds, stop, params)
        _cut(problem, assignment)
    elif problem.present.size:
        _replace(problem, assignment, bounds, stop, params)
    return rated(problem, assignment, bounds, proven, peaks=params.peaks)


def rated(
    problem: StandbyProblem,
    assignment: Ints,
    bounds: Floats | None = None,
    proven: float | None = None,
    *,
    peaks: bool = True,
) -> StandbyResult:
    """A given assignment with its value and bound; by Peaks as well, where the other bounds are below it by AIM.

    `proven` = the bound by Following, if it is known.
    """
    bounds = domain_bounds(problem) if bounds is None else bounds
    score = evaluate(problem, assignment)
    reached = score.worst if not score.missing else 2.0 * max(float(bounds.max(initial=0.0)), score.worst)
    proven = _fluid_bound(problem, bounds, reached) if proven is None else min(proven, reached)
    if peaks and not score.missing and score.worst - proven > AIM:
        proven = peaks_bound(problem, proven, reached)
    return StandbyResult(assignment=assignment, score=score, losses=losses(problem, assignment), lower_bound=proven)


def _fluid_bound(problem: StandbyProblem, bounds: Floats, reached: float) -> float:
    """The largest of the bounds of the domains, or the one by Following, between them and `reached`."""
    proven = float(bounds.max(initial=0.0))
    return following_bound(problem, proven, reached) if proven < reached else proven


def _improved(
    problem: StandbyProblem, assignment: Ints, bounds: Floats, stop: StopRule, params: StandbyParams
) -> tuple[Ints, float | None]:
    """The assignment with better first standbys, of those that are not present; the bound by Following, if needed."""
    if not assignment.size:
        return assignment, None
    new = is_new(problem, assignment)[:, 0]
    search = Improving(LossLedger(problem, assignment), bounds, new, stop, params.steps)
    search.run(params.precision)
    if not is_affordable(problem, new):
        return assignment, None
    score = evaluate(problem, assignment)
    proven = _fluid_bound(problem, bounds, score.worst)
    if score.worst - proven <= params.precision:
        return assignment, proven
    other = aligned(problem, assignment, new, (proven, score.worst), stop)
    if other is None:
        return assignment, proven
    Improving(LossLedger(problem, other), bounds, new, stop, search.left).run(params.precision)
    return (other if evaluate(problem, other).worst < score.worst - NEGLIGIBLE else assignment), proven


def _gaps(problem: StandbyProblem, assignment: Ints) -> Bools:
    """(K,) whether a key group has fewer standbys than it can have, and may get more."""
    gaps: Bools = ((assignment != UNPLACED).sum(axis=1) < problem.due) & ~problem.frozen
    return gaps


def _fill(problem: StandbyProblem, assignment: Ints, gaps: Bools) -> None:
    """Fill the gaps, or as many as the budget can pay for: those with the largest loads.

    A cold restore stops the load of a key group for a time that grows with its bytes, so what a standby saves per byte
    is its load.
    """
    able = int((~problem.removing).sum())
    most = min(problem.budget.changes, problem.budget.worker_changes * able)
    chosen = np.flatnonzero(gaps)
    if most < len(chosen):
        found = (assignment[chosen] != UNPLACED).sum(axis=1)
        chosen = chosen[np.lexsort((-problem.load[chosen], found))[: max(1, int(most))]]
    Filling(problem, assignment, chosen).fill()


def _cut(problem: StandbyProblem, assignment: Ints) -> None:
    """Drop new standbys beyond the budget: further ones before first ones, and then those of the least load."""
    if not problem.budget.limited:
        return
    budget = problem.budget
    key_group, rank = np.nonzero(is_new(problem, assignment))
    order = np.lexsort((-problem.load[key_group], rank))
    key_group, rank = key_group[order], rank[order]
    target = assignment[key_group, rank]
    count, size = _running(target, np.ones(len(target))), _running(target, problem.state_bytes[key_group])
    fits = (count <= 1) | ((count <= budget.worker_changes) & (size <= budget.worker_bytes))
    in_all, bytes_in_all = np.cumsum(fits), np.cumsum(np.where(fits, problem.state_bytes[key_group], 0.0))
    fits &= (in_all <= 1) | ((in_all <= budget.changes) & (bytes_in_all <= budget.state_bytes))
    assignment[key_group[~fits], rank[~fits]] = UNPLACED
    # Move the others up.
    ranks = np.argsort(assignment == UNPLACED, axis=1, kind="stable")
    assignment[:] = np.take_along_axis(assignment, ranks, axis=1)


def _running(group: Ints, amount: Floats) -> Floats:
    """For each entry, the sum of the amounts of its group up to and with this entry."""
    order = np.argsort(group, kind="stable")
    sums = np.cumsum(amount[order])
    starts = np.flatnonzero(np.diff(group[order], prepend=-1))
    before = np.repeat(sums[starts] - amount[order][starts], np.diff(np.append(starts, len(group))))
    found = np.empty(len(group))
    found[order] = sums - before
    return found


def _replace(problem: StandbyProblem, assignment: Ints, bounds: Floats, stop: StopRule, params: StandbyParams) -> None:
    """Replace present standbys where that pays: the domains with the largest gain per byte first."""
    slack = max(problem.tolerance, params.precision)
    highest = losses(problem, assignment).highest
    doubtful = np.flatnonzero(highest - bounds > slack)
    if not len(doubtful):
        return
    search = Improving(LossLedger(problem, assignment), bounds, ~problem.frozen, stop, params.steps)
    least = WORTHWHILE * slack
    search.lower_worst_if(float(bounds.max()) + params.precision, least)
    search.limit(float(losses(problem, assignment).highest.max()))
    worth = {}
    for domain in doubtful[np.argsort(-highest[doubtful], kind="stable")].tolist():
        gain, price = search.potential(domain)
        if gain >= least:
            worth[domain] = gain / (price + 1.0)
    for domain in sorted(worth, key=lambda each: (-worth[each], each)):
        search.improve_if(domain, least)
