"""Removes unnecessary moves from a plan without making its balance worse."""

import numpy as np

from trimtab_models.balance.evaluate import BalanceScore, slack
from trimtab_models.balance.problem import UNPLACED, BalanceProblem, Ints
from trimtab_models.balance.tabu import Band
from trimtab_models.solving.stop import StopRule


def trim(problem: BalanceProblem, allocation: Ints, band: Band, stop: StopRule, *, returning: bool) -> Ints:
    """(K,) `allocation` with moved key groups sent home, most expensive first, while every node stays inside `band`.

    With `returning` False nothing goes back to a draining node.
    """
    trimmed = allocation.copy()
    away = np.flatnonzero((allocation != problem.home) & (problem.home != UNPLACED))
    if not returning:
        away = away[~problem.to_leave(problem.home)[away]]
    away = away[np.lexsort((problem.load[away], -problem.cost_bytes[away]))]
    deviations = problem.deviations(allocation).tolist()
    used, limit = problem.usages(allocation), problem.limit + slack(problem)
    least, capacity = np.where(problem.removing, -np.inf, -band.under).tolist(), problem.capacity.tolist()
    places = zip(*(row[away].tolist() for row in (allocation, problem.home, problem.load)), strict=True)
    for key_group, (source, home, load) in zip(away.tolist(), places, strict=True):
        if stop():
            break
        left = deviations[source] - load / capacity[source]
        filled = deviations[home] + load / capacity[home]
        if left < least[source] or filled > band.over or not problem.may(key_group, home):
            continue
        if len(limit):
            usage = used[:, home] + problem.usage_on(key_group, home)
            if (usage > limit[:, home]).any():
                continue
            used[:, home] = usage
            used[:, source] -= problem.usage_on(key_group, source)
        trimmed[key_group] = home
        deviations[source], deviations[home] = left, filled
    return trimmed


def held(score: BalanceScore, goal: float, tolerance: float) -> Band:
    """The band that the third objective must keep: load distance up to `goal`, other side up to `tolerance`."""
    tight, loose = max(score.load_distance, goal), max(min(score.over, score.under), min(goal, tolerance))
    return Band(under=loose, over=tight) if score.over >= score.under else Band(under=tight, over=loose)
