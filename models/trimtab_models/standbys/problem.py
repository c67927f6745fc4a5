"""The standby problem as arrays, the input of every algorithm in this package.

Loads are in percent of a worker of capacity 1.  An *assignment* is an int array (K, wanted): key group -> its standbys
in order, UNPLACED where it has none.  The first standby owns the key group when its owner is lost.

`evaluate` judges an assignment from scratch, independently of the search that found it.
"""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

UNPLACED = -1
WORKER, HOST, ZONE = 0, 1, 2
"""Rows of `levels`; further rows are wider failure domains."""
NOBODY = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class StandbyBudget:
    """The most standbys that may begin to be restored: in all, and at each worker.

    One restore is always allowed at a worker, and one in all, however large: otherwise it could never begin.
    """

    changes: float = np.inf
    state_bytes: float = np.inf
    worker_changes: float = np.inf
    worker_bytes: float = np.inf

    @property
    def limited(self) -> bool:
        """Whether any limit is given."""
        return min(self.changes, self.state_bytes, self.worker_changes, self.worker_bytes) < np.inf


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class StandbyProblem:
    """K key groups owned by N workers, which lie in failure domains.  Nobody writes to the arrays.

    `levels` (M, N) numbers the failure domains of each worker, from the worker itself (row 0) over its host (row 1) to
    wider ones; each row is coarser than the one before.  The standbys of a worker's key groups are outside its widest
    domain that does not hold all workers that may stand by; it is *lost with* that domain, or with its domain in row
    `lost_by`, if that is smaller.  Standbys of `near_home` key groups need only be outside the domain of row `lost_by`.
    With `spread` no two of owner and standbys share a domain of the last row, even if that leaves fewer standbys.
    `removing` marks draining workers, which stand by for nobody.

    `besides` is what each worker uses for other work, whatever it owns or follows.

    `follow` is what following a key group costs a standby, at most its load.  `usage` and `limit` bound what a worker
    follows, such as bytes on its disk, in R resources.  `present` (K, P) are the standbys in order; those of `frozen`
    key groups stay as they are.  Others are replaced only where the highest load after a loss is above its bound by
    more than `tolerance` (percent of a worker), and falls by half of that or more.
    """

    owner: Ints  # (K,)
    load: Floats  # (K,)
    follow: Floats  # (K,)
    state_bytes: Floats  # (K,)
    capacity: Floats  # (N,)
    removing: Bools  # (N,)
    levels: Ints  # (M, N)
    present: Ints  # (K, P)
    frozen: Bools  # (K,)
    wanted: int
    usage: Floats  # (R, K)
    limit: Floats  # (R, N), infinite = no limit
    budget: StandbyBudget = StandbyBudget()
    besides: float = 0.0
    tolerance: float = 0.0
    lost_by: int | None = None  # None: the last row
    spread: bool = False
    near_home: Bools | None = None  # (K,)
    own: Floats = field(init=False)  # (N,) load of what each worker owns, and `besides`
    domain: Ints = field(init=False)  # (N,) the domain that each worker is lost with
    outside: Ints = field(init=False)  # (K,) row of `levels` in which standbys are in other domains than the owner
    due: Ints = field(init=False)  # (K,) number of standbys that a key group can have, at most `wanted`
    apart: Ints = field(init=False)  # (N,) row of `levels` in which the standbys of this worker's key groups differ

    def __post_init__(self) -> None:
        self._check()
        workers = len(self.capacity)
        _set(self, "own", self.besides + np.bincount(self.owner, self.load, workers))
        last = len(self.levels) - 1
        depth = np.full(workers, last) if self.spread else self._depth()
        lost = np.minimum(depth, last if self.lost_by is None else self.lost_by)
        codes = lost * (self.levels.max(initial=0) + 1) + self.levels[np.maximum(lost, 0), np.arange(workers)]
        _set(self, "domain", np.unique(codes, return_inverse=True)[1].astype(np.int64).reshape(workers))
        widest = last if self.spread else min(HOST, last)
        _set(self, "apart", np.minimum(np.maximum(depth, WORKER), widest))
        home = np.zeros(len(self.owner), np.bool_) if self.near_home is None or self.spread else self.near_home
        _set(self, "outside", np.maximum(np.where(home, lost[self.owner], depth[self.owner]), WORKER))
        far, near = self._due(depth, widest), self._due(lost, widest)
        _set(self, "due", np.where(home, near[self.owner], far[self.owner]))

    def beside(self, key_group: int) -> Bools:
        """(N,) the workers that are too near to the owner of a key group to stand by for it."""
        names = self.levels[self.outside[key_group]]
        found: Bools = names == names[self.owner[key_group]]
        return found

    def _check(self) -> None:
        key_groups, workers, resources = len(self.owner), len(self.capacity), len(self.limit)
        for name in ("load", "follow", "state_bytes"):
            if getattr(self, name).shape != (key_groups,):
                raise ValueError(f"{name} must have one entry per key group")
        if self.frozen.shape != (key_groups,):
            raise ValueError("frozen must have one flag per key group")
        if self.removing.shape != (workers,) or not (self.capacity > 0).all():
            raise ValueError("every worker needs a capacity above 0 and a removing flag")
        if self.levels.ndim != 2 or self.levels.shape[1] != workers or not len(self.levels):
            raise ValueError("levels must have one row per kind of failure domain, with one entry per worker")
        if self.usage.shape != (resources, key_groups) or self.limit.shape != (resources, workers):
            raise ValueError("usage and limit must have one row per resource")
        if self.present.ndim != 2 or len(self.present) != key_groups or self.wanted < 0:
            raise ValueError("present must have one row per key group, and wanted must not be negative")
        for name in ("owner", "present"):
            found = getattr(self, name)
            if found.size and not (found.min() >= (0 if name == "owner" else UNPLACED) and found.max() < workers):
                raise ValueError(f"{name} must name workers")
        if (self.follow > self.load).any():
            raise ValueError("following a key group must not cost more than its load")

    def _depth(self) -> Ints:
        """(N,) the widest row outside whose domain an able worker is; -1 if no other worker is able."""
        able = ~self.removing
        depth = np.full(len(self.capacity), -1, np.int64)
        for row, names in enumerate(self.levels):
            inside = np.bincount(names[able], minlength=int(names.max(initial=0)) + 1)
            depth[able.sum() > inside[names]] = row
        return depth

    def _due(self, depth: Ints, widest: int) -> Ints:
        """For each worker, the number of distinct places of able workers outside its domain, at most `wanted`."""
        due = np.zeros(len(self.capacity), np.int64)
        able = np.flatnonzero(~self.removing)
        for row in range(len(self.levels)):
            names, places = self.levels[row], self.levels[min(row, widest)]
            pairs = np.unique(np.stack((names[able], places[able])), axis=1)
            inside = np.bincount(pairs[0], minlength=int(names.max(initial=0)) + 1)
            at = depth == row
            due[at] = pairs.shape[1] - inside[names[at]]
        return np.minimum(due, self.wanted)

    @property
    def domains(self) -> int:
        """The number of failure domains."""
        return int(self.domain.max(initial=-1)) + 1

    def followed(self, assignment: Ints, weight: Floats) -> Floats:
        """(N,) sum of `weight` (K,) over the key groups that each worker follows."""
        key_group, rank = np.nonzero(assignment != UNPLACED)
        found = np.bincount(assignment[key_group, rank], weight[key_group], len(self.capacity))
        return found.astype(np.float64)

    def loads(self, assignment: Ints) -> Floats:
        """(N,) load of each worker: what it owns, and what following costs it."""
        return self.own + self.followed(assignment, self.follow)


def _set(problem: StandbyProblem, name: str, value: Any) -> None:
    object.__setattr__(problem, name, value)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class DomainLosses:
    """What each failure domain's loss leads to.

    `highest` (D,) = highest load of a survivor, in percent of its capacity; 0 without a survivor.  `worker` (D,) = that
    survivor, or NOBODY.
    """

    highest: Floats
    worker: Ints


@dataclass(frozen=True, slots=True, kw_only=True)
class StandbyScore:
    """The score of an assignment, in the order of the objective.

    `worst` = highest load of a survivor after the loss of any one domain, in percent of its capacity; `total` = sum of
    the highest loads over all domains; `changes` = standbys that are not present; `missing` = key groups with fewer
    standbys than they can have.  A key group without a standby is in nobody's load.
    """

    worst: float
    worst_domain: int
    worst_worker: int
    total: float
    changes: int
    missing: int


def losses(problem: StandbyProblem, assignment: Ints) -> DomainLosses:
    """The highest load after each loss; O(K log K)."""
    loads = problem.loads(assignment)
    relative = loads / problem.capacity
    highest, worker = highest_outside(problem, relative)
    if not assignment.size:
        return DomainLosses(highest=highest, worker=worker)
    heir = assignment[:, 0]
    placed = heir != UNPLACED
    size = len(problem.capacity)
    codes, place = np.unique(problem.domain[problem.owner[placed]] * size + heir[placed], return_inverse=True)
    inherited = np.bincount(place.reshape(-1), (problem.load - problem.follow)[placed], len(codes))
    domain, survivor = codes // size, codes % size
    after = (loads[survivor] + inherited) / problem.capacity[survivor]
    order = np.lexsort((-survivor, after))  # the last one written is the highest, of the first worker among equals
    domain, survivor, after = domain[order], survivor[order], after[order]
    top = np.full(problem.domains, -np.inf)
    first = np.full(problem.domains, NOBODY)
    top[domain], first[domain] = after, survivor
    more = top > highest
    return DomainLosses(highest=np.where(more, top, highest), worker=np.where(more, first, worker))


def highest_outside(problem: StandbyProblem, relative: Floats) -> tuple[Floats, Ints]:
    """For each domain the highest relative load of a worker outside it, and that worker; 0 and NOBODY if none is."""
    highest, worker = np.zeros(problem.domains), np.full(problem.domains, NOBODY)
    order = np.argsort(-relative, kind="stable")
    domains = problem.domain[order]
    other = np.flatnonzero(domains != domains[0]) if len(order) else np.zeros(0, np.int64)
    if len(order):
        highest[:], worker[:] = relative[order[0]], order[0]
        if len(other):
            second = order[other[0]]
            highest[domains[0]], worker[domains[0]] = relative[second], second
        else:
            highest[domains[0]], worker[domains[0]] = 0.0, NOBODY
    return highest, worker


def evaluate(problem: StandbyProblem, assignment: Ints) -> StandbyScore:
    """The score of `assignment`."""
    after = losses(problem, assignment)
    worst = int(after.highest.argmax()) if problem.domains else NOBODY
    new = is_new(problem, assignment)
    return StandbyScore(
        worst=float(after.highest[worst]) if problem.domains else 0.0,
        worst_domain=worst,
        worst_worker=int(after.worker[worst]) if problem.domains else NOBODY,
        total=float(after.highest.sum()),
        changes=int(new.sum()),
        missing=int(((assignment != UNPLACED).sum(axis=1) < problem.due).sum()),
    )


def is_new(problem: StandbyProblem, assignment: Ints) -> Bools:
    """(K, wanted) whether a standby is not present yet."""
    known = np.zeros(assignment.shape, np.bool_)
    for column in problem.present.T:
        known |= assignment == column[:, None]
    new: Bools = (assignment != UNPLACED) & ~known
    return new
