"""Evaluates an allocation from scratch, independently of the search that found it."""

from dataclasses import dataclass

import numpy as np

from trimtab_models.balance.problem import UNPLACED, BalanceProblem, Floats, Ints


@dataclass(frozen=True, slots=True, kw_only=True)
class BalanceScore:
    """The score of an allocation.

    `over` = largest deviation above the mean, `under` = largest below it (pp); `load_distance` = the larger of both;
    `allowed` = whether it keeps all budgets, pins and limits.
    """

    load_distance: float
    over: float
    under: float
    migrations: int
    cost_bytes: float
    allowed: bool


def evaluate(problem: BalanceProblem, allocation: Ints) -> BalanceScore:
    """The score of `allocation`; O(K)."""
    deviations = problem.deviations(allocation)
    over = max(0.0, float(deviations.max(initial=0.0)))
    under = max(0.0, float((-deviations[problem.kept]).max(initial=0.0)))
    moved = (allocation != problem.home) & (problem.home != UNPLACED)
    return BalanceScore(
        load_distance=max(over, under),
        over=over,
        under=under,
        migrations=int(moved.sum()),
        cost_bytes=float(problem.cost_bytes[moved].sum()),
        allowed=is_allowed(problem, allocation),
    )


def is_allowed(problem: BalanceProblem, allocation: Ints) -> bool:
    """Whether `allocation` keeps every budget, pin and limit, and moves nothing to where it may not be."""
    changed = allocation != problem.home
    if (allocation == UNPLACED).any() or changed[~problem.movable].any() or problem.removing[allocation[changed]].any():
        return False
    moved = np.flatnonzero(changed)
    if problem.allowed is not None and not problem.allowed.may(moved, allocation[moved]).all():
        return False
    spent = np.array([row[changed].sum() for row in problem.prices])
    if (spent > problem.allowances).any():
        return False
    usages = problem.usages(allocation)
    return bool((usages <= problem.limit + slack(problem)).all())


def slack(problem: BalanceProblem) -> Floats:
    """(R, 1) tolerance for sums of floats in different order."""
    total: Floats = problem.usage.sum(axis=1, keepdims=True)
    return 1e-12 * total
