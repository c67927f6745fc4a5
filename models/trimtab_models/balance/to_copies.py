"""A first plan that moves key groups to nodes where they use less than elsewhere: copies of their state are there.

Where limits leave little room, hardly any other move is possible, and trades between pairs of nodes rarely hit one of
them.  So all these moves are looked at in rounds.  In each, every node gives at most one key group and takes at most
one, the moves first that lower the sum of squared deviations most.
"""

import numpy as np

from trimtab_models.balance.evaluate import slack
from trimtab_models.balance.problem import UNPLACED, BalanceProblem, Ints
from trimtab_models.solving.stop import StopRule

ROUNDS = 300
LEAST_GAIN = 1e-9
"""Of the sum of squares at first: smaller gains are rounding errors."""


def to_copies(problem: BalanceProblem, start: Ints, stop: StopRule) -> Ints:
    """(K,) a plan within budgets and limits, from `start`, in which every key group is placed."""
    allocation = start.copy()
    spared = problem.spared
    if spared is None:
        return allocation
    kept = problem.movable[spared.key_group] & ~problem.removing[spared.node] & (problem.load[spared.key_group] > 0)
    pairs = np.flatnonzero(kept & (spared.node != problem.home[spared.key_group]))
    key_group, node = spared.key_group[pairs], spared.node[pairs]
    usage = problem.usage_on(key_group, node)
    load, capacity = problem.load[key_group], problem.capacity
    loads, used, limit = problem.node_loads(start), problem.usages(start), problem.limit + slack(problem)
    left = problem.allowances - problem.prices[:, start != problem.home].sum(axis=1)
    least = LEAST_GAIN * (1.0 + float((capacity * problem.deviations(start) ** 2).sum()))
    for _ in range(ROUNDS):
        source = allocation[key_group]
        above = loads / capacity - problem.mean
        gain = load * (2.0 * (above[source] - above[node]) - load * (1.0 / capacity[source] + 1.0 / capacity[node]))
        fits = (used[:, node] + usage <= limit[:, node]).all(axis=0) & problem.may(key_group, node)
        fits &= (problem.prices[:, key_group] <= left[:, None]).all(axis=0)
        at_home = (allocation[key_group] == problem.home[key_group]) | (problem.home[key_group] == UNPLACED)
        tried = np.flatnonzero((gain > least) & fits & at_home)
        chosen = _one_each(tried[np.argsort(-gain[tried], kind="stable")], source, node)
        prices = problem.prices[:, key_group[chosen]]
        chosen = chosen[(np.cumsum(prices, axis=1) <= left[:, None]).all(axis=0)]
        if not len(chosen) or stop():
            break
        left = left - problem.prices[:, key_group[chosen]].sum(axis=1)
        for place in chosen.tolist():
            which, target, giver = int(key_group[place]), int(node[place]), int(source[place])
            used[:, giver] -= problem.usage_on(which, giver)
            used[:, target] += usage[:, place]
            loads[giver] -= load[place]
            loads[target] += load[place]
            allocation[which] = target
    return allocation


def _one_each(ordered: Ints, source: Ints, node: Ints) -> Ints:
    """Those of `ordered` that come first of all from their source, and of these those first to their node."""
    first = np.sort(np.unique(source[ordered], return_index=True)[1])
    ordered = ordered[first]
    chosen: Ints = ordered[np.sort(np.unique(node[ordered], return_index=True)[1])]
    return chosen
