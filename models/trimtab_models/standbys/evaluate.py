"""Evaluates an assignment from scratch, independently of the search that found it."""

from dataclasses import dataclass

import numpy as np

from trimtab_models.standbys.problem import UNPLACED, Bools, Floats, Ints, StandbyProblem

NOBODY = -1


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
    the highest loads over all domains; `changes` = standbys that are not present; `unevenness` = followed bytes of the
    worker that follows most / the mean over able workers; 1 is even.  `missing` = key groups with fewer standbys than
    they can have.  A key group without a standby is in nobody's load.
    """

    worst: float
    worst_domain: int
    worst_worker: int
    total: float
    changes: int
    unevenness: float
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
    followed = problem.followed(assignment, problem.state_bytes)[~problem.removing]
    mean = float(followed.mean()) if len(followed) else 0.0
    return StandbyScore(
        worst=float(after.highest[worst]) if problem.domains else 0.0,
        worst_domain=worst,
        worst_worker=int(after.worker[worst]) if problem.domains else NOBODY,
        total=float(after.highest.sum()),
        changes=int(new.sum()),
        unevenness=float(followed.max()) / mean if mean else 1.0,
        missing=int(((assignment != UNPLACED).sum(axis=1) < problem.due).sum()),
    )


def is_new(problem: StandbyProblem, assignment: Ints) -> Bools:
    """(K, wanted) whether a standby is not present yet."""
    known = np.zeros(assignment.shape, np.bool_)
    for column in problem.present.T:
        known |= assignment == column[:, None]
    new: Bools = (assignment != UNPLACED) & ~known
    return new


def is_allowed(problem: StandbyProblem, assignment: Ints) -> bool:
    """Whether standbys are able, apart from each other and outside the owner's domain, within limits and budgets.

    Nor may a frozen key group have a new one.
    Limits that the present standbys already exceed may be kept exceeded, but not be exceeded further.
    """
    key_group, rank = np.nonzero(assignment != UNPLACED)
    standby = assignment[key_group, rank]
    owner, row = problem.owner[key_group], problem.outside[key_group]
    if problem.frozen[is_new(problem, assignment).any(axis=1)].any():
        return False
    if problem.removing[standby].any() or (problem.levels[row, standby] == problem.levels[row, owner]).any():
        return False
    apart = problem.apart[owner]
    places = np.stack((key_group, problem.levels[apart, standby]))
    if np.unique(places, axis=1).shape[1] != len(key_group):
        return False
    for usage, limit in zip(problem.usage, problem.limit, strict=True):
        before = problem.followed(problem.present, usage)
        if (problem.followed(assignment, usage) > np.maximum(limit, before) + 1e-9 * usage.sum()).any():
            return False
    return _within_budget(problem, assignment)


def _within_budget(problem: StandbyProblem, assignment: Ints) -> bool:
    key_group, rank = np.nonzero(is_new(problem, assignment))
    budget, size = problem.budget, len(problem.capacity)
    target = assignment[key_group, rank]
    count = np.bincount(target, minlength=size)
    state = np.bincount(target, problem.state_bytes[key_group], size)
    at_workers = (count <= 1) | ((count <= budget.worker_changes) & (state <= budget.worker_bytes))
    in_all = len(target) <= 1 or (len(target) <= budget.changes and state.sum() <= budget.state_bytes)
    return bool(at_workers.all()) and in_all
