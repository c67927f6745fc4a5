"""Keeps the present standbys that may stay, and fills the gaps.

Gaps are filled domain by domain, rank by rank, largest load first.  A first standby goes to a survivor that stays below
the domain's bound after the loss; of those it takes the one that follows least, so that following is spread.  If no
survivor stays below, it takes the one with the least resulting load.  A further standby inherits nothing and goes where
the load is least.
"""

import numpy as np

from trimtab_models.standbys.bound import orphans_by_domain, water_level
from trimtab_models.standbys.problem import UNPLACED, Bools, Floats, Ints, StandbyProblem

WAVE = 8
"""One in so many candidates takes a key group at a time."""
SPREADING = 0.02
"""Load, as a share of the mean, that following an average share of all state counts beside its cost."""


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
