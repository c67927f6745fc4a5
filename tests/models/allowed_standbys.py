"""Whether an assignment of standbys keeps all rules, judged independently of the search that found it."""

import numpy as np

from trimtab_models.standbys.problem import UNPLACED, Ints, StandbyProblem, is_new


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
