"""Levels the nodes that key groups have come to, by distributing these key groups anew between two nodes at a time.

A budget that is just enough for the deficits leaves no load over: then the nodes below the band must share what arrives
almost evenly.  Placing the heaviest first on the least loaded node is off by half a key group.  Here the least loaded
of these nodes and another one put together what has come to them, and take the division that is closest to equal
deviations, out of all.  What has moved already costs nothing more wherever it goes.
"""

import numpy as np

from trimtab_models.balance.evaluate import slack
from trimtab_models.balance.problem import BalanceProblem, Floats, Ints
from trimtab_models.solving.stop import StopRule

POOL = 12  # most key groups that two nodes distribute anew: 2^POOL divisions
PARTNERS = 16  # most loaded ones that are tried
ROUNDS = 64
GAIN_PP = 0.005


def levelled(problem: BalanceProblem, allocation: Ints, stop: StopRule) -> Ints:
    """(K,) `allocation` with the key groups that are away from home divided anew between the nodes that they are on.

    It ends when none of these nodes decides the load distance.  Limits are kept where `allocation` keeps them.
    """
    plan, deviations = allocation.copy(), problem.deviations(allocation)
    away = np.flatnonzero((plan != problem.home) & problem.movable)
    receivers = np.flatnonzero(np.bincount(plan[away], minlength=len(deviations)))
    for _ in range(ROUNDS):
        if len(receivers) < 2 or stop():
            break
        lowest = int(receivers[deviations[receivers].argmin()])
        if -deviations[lowest] < max(float(deviations.max()), float(-deviations[problem.kept].min())):
            break  # another node decides the load distance
        for other in receivers[np.argsort(-deviations[receivers], kind="stable")][:PARTNERS].tolist():
            if other != lowest and _divide(problem, plan, deviations, away, lowest, other):
                break
        else:
            break
    return plan


def _divide(problem: BalanceProblem, plan: Ints, deviations: Floats, away: Ints, low: int, high: int) -> bool:
    """Divide what has come to two nodes anew, if that lifts the lower one; changes `plan` and `deviations`."""
    pool = away[(plan[away] == low) | (plan[away] == high)]
    pool = pool[np.argsort(-problem.load[pool], kind="stable")][:POOL]
    sums = np.zeros(1)
    for load in problem.load[pool].tolist():
        sums = np.concatenate((sums, sums + load))
    here, there = problem.capacity[low], problem.capacity[high]
    at_low, total = plan[pool] == low, float(problem.load[pool].sum())
    base = deviations[low] - problem.load[pool[at_low]].sum() / here
    beyond = deviations[high] - problem.load[pool[~at_low]].sum() / there
    lower = np.minimum(base + sums / here, beyond + (total - sums) / there)
    best = int(lower.argmax())
    if lower[best] <= deviations[low] + GAIN_PP:
        return False
    stays = (best >> np.arange(len(pool))) & 1 == 1
    trial = plan.copy()
    trial[pool] = np.where(stays, low, high)
    if problem.allowed is not None and not problem.allowed.may(pool, trial[pool]).all():
        return False
    if len(problem.limit):
        used, limit = problem.usages(trial), problem.limit + slack(problem)
        if (used > np.maximum(limit, problem.usages(plan))).any():
            return False
    plan[:] = trial
    deviations[low] = base + sums[best] / here
    deviations[high] = beyond + (total - sums[best]) / there
    return True
