"""Moves key groups off nodes that they may not be on, before anything else, and balances with the rest of the budget.

A key group that has to leave is not left to the search: it counts as unplaced, its move as paid.  So the search puts it
where the balance of the whole plan is best, and the bound counts it too.  Where its class has one node, it is put there
and stays; what must make room for it there is moved by the search.

That must not cost more balance than emptying draining nodes may (`drain.py`): a plan lifts no node above the larger of
the present load distance and the problem's `max_load_distance`, and exceeds no limit.  Where it would, key groups that
came to such a node stay for a later round, and the rest is solved again.
"""

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from trimtab_models.balance.bound import lower_bound
from trimtab_models.balance.construct import affordable, place_unplaced
from trimtab_models.balance.drain import alerts
from trimtab_models.balance.evaluate import evaluate, slack
from trimtab_models.balance.problem import UNPLACED, BalanceProblem, Bools, Ints
from trimtab_models.balance.result import BalanceResult
from trimtab_models.solving import StopRule, part_of

ATTEMPTS = 6
ATTEMPT_SHARE = 0.6
"""Of the time that is left, for an attempt that may leave too many key groups in one place."""
ROUNDING_PP = 1e-9

Search = Callable[[BalanceProblem, StopRule], BalanceResult]


def mended(problem: BalanceProblem, search: Search, stop: StopRule) -> BalanceResult | None:
    """A plan of `search` in which as many key groups leave as the budget allows; None if there is none of this kind."""
    if problem.evicted is None:
        return None
    start, due = place_unplaced(problem), problem.evicted & problem.movable
    problem = problem.tolerating(start)
    ceiling = max(evaluate(problem, start).load_distance, problem.max_load_distance)
    leaving = np.flatnonzero(due)
    heaviest_first = leaving[np.argsort(-problem.load[leaving], kind="stable")]
    leaving = affordable(problem, heaviest_first, problem.allowances, stop)
    for attempt in range(ATTEMPTS):
        if not len(leaving) or (attempt and stop()):
            break
        result = search(_left(problem, due, leaving), part_of(stop, ATTEMPT_SHARE))
        staying = _too_many(problem, leaving, result.allocation, ceiling)
        if not staying.any() and evaluate(problem, result.allocation).allowed:
            return _judged(problem, result, stop, complete=len(leaving) == len(heaviest_first))
        leaving = leaving[~staying]
    return None


def _left(problem: BalanceProblem, due: Bools, leaving: Ints) -> BalanceProblem:
    """The problem in which these of `due` (K,) have left their nodes, and are paid for; the others of them stay."""
    assert problem.allowed is not None
    home, pinned = problem.home.copy(), problem.pinned | due
    rows = problem.allowed.nodes & problem.kept
    only = np.where(rows.sum(axis=1) == 1, rows.argmax(axis=1), UNPLACED)
    home[leaving] = only[problem.allowed.class_of[leaving]]
    pinned[leaving] = home[leaving] != UNPLACED
    count, cost = problem.max_migrations, problem.max_cost_bytes
    return replace(
        problem,
        home=home,
        pinned=pinned,
        evicted=None,
        max_migrations=None if count is None else max(0, count - len(leaving)),
        max_cost_bytes=None if cost is None else max(0.0, cost - float(problem.cost_bytes[leaving].sum())),
    )


def _too_many(problem: BalanceProblem, leaving: Ints, allocation: Ints, ceiling: float) -> Bools:
    """Which of those that leave must not, so that no node is above `ceiling` (pp) or a limit: the heaviest there."""
    deviations, used = problem.deviations(allocation), problem.usages(allocation)
    limit = problem.limit + slack(problem)
    target, staying = allocation[leaving], np.zeros(len(leaving), np.bool_)
    full: Bools = (deviations > ceiling + ROUNDING_PP) | (used > limit).any(axis=0)
    for node in np.flatnonzero(full).tolist():
        arrived = np.flatnonzero(target == node)
        for place in arrived[np.argsort(-problem.load[leaving[arrived]], kind="stable")].tolist():
            key_group = int(leaving[place])
            deviations[node] -= problem.load[key_group] / problem.capacity[node]
            used[:, node] -= problem.usage_on(key_group, node)
            staying[place] = True
            if deviations[node] <= ceiling + ROUNDING_PP and (used[:, node] <= limit[:, node]).all():
                break
    if full.any() and not staying.any():
        staying[:] = True  # the search has failed to bring others down again
    return staying


def _judged(problem: BalanceProblem, result: BalanceResult, stop: StopRule, *, complete: bool) -> BalanceResult:
    """`result` as a plan of `problem`.  Without those that stay for a later round, its bound is that of all plans."""
    score = evaluate(problem, result.allocation)
    bound = result.lower_bound if complete else lower_bound(problem, score.load_distance, stop)
    return BalanceResult.of(
        problem,
        result.allocation,
        score,
        bound,
        alerts=alerts(problem, result.allocation, max(score.load_distance, problem.max_load_distance)),
    )
