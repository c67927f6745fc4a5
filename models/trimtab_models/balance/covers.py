"""First plans for budgets of bytes: what leaves each node, at the least price.

What nodes lose is a knapsack each, coupled by a price of load (`losses.py`).  At the least price of load that covers
the deficits, nodes change over to their larger set one by one, the cheapest first.  The chosen key groups then go,
heaviest first, to the least loaded nodes.

The least d that the budgets can pay for is found by bisection.  There the packing may fail, so plans for somewhat
larger d are made as well, which need fewer moves.

Then the nodes that key groups have come to are levelled, by distributing these key groups again between two nodes at a
time.  A budget that is just enough for the deficits leaves no load over: then the nodes below the band must share what
arrives almost evenly.  Placing the heaviest first on the least loaded node is off by half a key group.  Here the least
loaded of these nodes and another one put together what has come to them, and take the division that is closest to equal
deviations, out of all.  What has moved already costs nothing more wherever it goes.
"""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from trimtab_models.balance.bound import Conditions, relative_prices
from trimtab_models.balance.construct import packed
from trimtab_models.balance.evaluate import slack
from trimtab_models.balance.losses import LARGEST, Excesses, LeavingSets, is_affordable
from trimtab_models.balance.problem import BalanceProblem, Bools, Floats, Ints
from trimtab_models.solving import StopRule

POOL = 12  # most key groups that two nodes distribute anew: 2^POOL divisions
PARTNERS = 16  # most loaded ones that are tried
ROUNDS = 64
GAIN_PP = 0.005
MARGINS_PP = (0.0, 0.1, 0.25, 0.5, 1.0, 2.0)
MIXTURES = (0.5, 0.2, 0.8)  # shares of the budget of migrations
PACKING = 0.5  # of the largest key group
AMPLE = 2.5  # times the load that must move: so much may be chosen from
AMPLE_PP, NEAR_PP = 0.05, 0.02
BISECTIONS = 14


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


def plans_by_price(
    problem: BalanceProblem, start: Ints, least: float, reached: float, stop: StopRule, conditions: Conditions
) -> Iterator[Ints]:
    """(K,) plans for load distances from `least` on, below `reached`; budgets are kept, limits may not be.

    None where there is no budget of bytes, or where a plan that reaches `reached` is near enough to `least`: for an
    ample budget that is off by no more than packing is.
    """
    packing = PACKING * float(problem.load.max(initial=0.0)) / float(problem.capacity[problem.kept].min())
    near = reached - least <= (packing if least < AMPLE_PP else NEAR_PP)
    if conditions.cost is None or near:
        return
    considered: Bools | None = None
    if len(problem.prices) == 1:  # with both budgets the cheapest by load need not be the best
        considered = np.zeros(len(problem.load), np.bool_)
        considered[conditions.cost.candidates(least, AMPLE)] = True
    elif len(problem.load) > LARGEST:
        return
    for price in relative_prices(problem, MIXTURES):
        if stop():
            return
        covers = Covers(problem, price, least, considered)
        low, high = least, reached
        for _ in range(BISECTIONS):
            if stop():
                return
            middle = 0.5 * (low + high)
            low, high = (low, middle) if covers.are_affordable(middle) else (middle, high)
        for margin in MARGINS_PP:
            if stop() or high + margin >= reached:
                break
            chosen = covers.chosen(high + margin)
            if is_affordable(problem, chosen):
                plan = packed(problem, start, chosen)
                yield plan
                yield levelled(problem, plan, stop)


class Covers:
    """The cheapest key groups that leave their nodes, by the `price` (K,) of a move."""

    def __init__(self, problem: BalanceProblem, price: Floats, hot: float, considered: Bools | None = None) -> None:
        """Nodes outside the band of a load distance of `hot` get the finer grid; only `considered` (K,) may leave."""
        fine: Bools = Excesses(problem).above(hot) > 0
        self._problem = problem
        if considered is not None:
            problem = replace(problem, pinned=problem.pinned | ~considered)
        self._losses = LeavingSets(problem, price, fine=fine, listed=True)

    def chosen(self, d: float) -> Ints:
        """The key groups that leave their nodes for a load distance of `d`."""
        return self._losses.key_groups(self._sets(d))

    def are_affordable(self, d: float) -> bool:
        """Whether the budgets pay for those chosen for `d`."""
        if len(self._problem.prices) == 1:  # then the price is in budgets
            return float(self._losses.price[self._sets(d)].sum()) <= 1
        return is_affordable(self._problem, self.chosen(d))

    def _sets(self, d: float) -> Ints:
        """(N,) the set that each node loses."""
        losses, cover = self._losses, self._losses.cover(d)
        carried = losses.carried(d)
        more = carried[cover.many] - carried[cover.few]
        dearer = (losses.price[cover.many] - losses.price[cover.few]) / np.maximum(more, 1e-300)
        order = np.argsort(np.where(more > 0, dearer, np.inf), kind="stable")
        changed = order[: int(np.searchsorted(np.cumsum(more[order]), cover.short)) + int(cover.short > 0)]
        sets = cover.few.copy()
        sets[changed] = cover.many[changed]
        return sets
