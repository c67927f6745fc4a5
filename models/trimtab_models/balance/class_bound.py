"""A lower bound on the load distance from the nodes that key groups may be on: any budget, divisible key groups.

Theory.  Take a set of nodes.  What may be on these nodes alone is there: their mean load is at least its load by their
capacity.  And only what may be on one of them is there: their mean load is at most its load by their capacity.  Some
node of the set is at least as far from the mean of all nodes.  The sets tried are those that a class may be on, and
what is left of the others.

A key group on a draining node, or on one that it may not be on, need not leave within the budget: it counts as one that
may be anywhere.
"""

import numpy as np

from trimtab_models.balance.problem import UNPLACED, BalanceProblem


def class_bound(problem: BalanceProblem) -> float:
    """A bound (pp) on the load distance of all plans; 0 where all key groups may be anywhere."""
    allowed = problem.allowed
    if allowed is None or not len(allowed.nodes) or not len(problem.load):
        return 0.0
    placed = problem.home != UNPLACED
    free = placed & problem.removing[problem.home]
    free[placed] |= ~allowed.may(np.flatnonzero(placed), problem.home[placed])
    loads = np.bincount(allowed.class_of[~free], problem.load[~free], len(allowed.nodes))
    anywhere = float(problem.load[free].sum())
    found = 0.0
    rows = allowed.nodes & problem.kept
    for inside in np.unique(np.concatenate((rows, problem.kept & ~rows)), axis=0):
        capacity = float(problem.capacity[inside].sum())
        if not capacity:
            continue
        only_here = float(loads[~(rows & ~inside).any(axis=1)].sum())
        at_most = anywhere + float(loads[(rows & inside).any(axis=1)].sum())
        found = max(found, only_here / capacity - problem.mean, problem.mean - at_most / capacity)
    return found * (1 - 1e-12)
