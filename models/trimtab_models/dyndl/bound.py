"""A cheap lower bound on the makespan of every assignment.

By time D at most #{t: F_B(t) <= D} tasks can end locally, since B lets as many local tasks end by D as possible.  At
most sum of r_max(s, D), on the initial loads, can end remotely.  So no assignment ends before the smallest D with

    #{F_B <= D} + sum over s of r_max(s, D) >= T.
"""

import math

import numpy as np

from trimtab_models.dyndl.local import LocalPlan
from trimtab_models.dyndl.problem import ScheduleProblem
from trimtab_models.dyndl.room import RemoteRoom


def lower_bound(problem: ScheduleProblem, local: LocalPlan) -> float:
    """The smallest such D; if `local` was stopped early, the earliest end of one task on any core."""
    if not problem.tasks:
        return 0.0
    if not local.balanced:
        return float(problem.core_load.min()) + 1.0
    room = RemoteRoom(problem, problem.core_load)
    finishes = np.sort(local.finish[np.isfinite(local.finish)])
    deadlines = np.unique(finishes)
    ended = np.searchsorted(finishes, deadlines, side="right")
    low, high = -1, len(deadlines)  # the condition fails at low and holds at high
    while high - low > 1:
        middle = (low + high) // 2
        if ended[middle] + int(room.most(float(deadlines[middle])).sum()) >= problem.tasks:
            high = middle
        else:
            low = middle
    at_most = float(deadlines[high]) if high < len(deadlines) else math.inf
    deadline = float(deadlines[low]) if low >= 0 else -math.inf
    remote = room.most(deadline)
    missing = problem.tasks - int(remote.sum()) - (int(ended[low]) if low >= 0 else 0)
    return min(at_most, room.extend(remote, missing, deadline))
