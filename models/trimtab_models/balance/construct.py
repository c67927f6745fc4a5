"""First plans: places unplaced key groups, and builds a plan from the pieces that the bound counts.

Another first plan moves key groups to nodes where they use less than elsewhere: copies of their state are there.  Where
limits leave little room, hardly any other move is possible, and trades between pairs of nodes rarely hit one of them.
So all these moves are looked at in rounds.  In each, every node gives at most one key group and takes at most one, the
moves first that lower the sum of squared deviations most.
"""

import heapq
from collections.abc import Iterable

import numpy as np

from trimtab_models.balance.bound import Conditions, CostConditions, CountConditions
from trimtab_models.balance.evaluate import slack
from trimtab_models.balance.losses import is_affordable
from trimtab_models.balance.problem import UNPLACED, BalanceProblem, Bools, Floats, Ints
from trimtab_models.solving import StopRule

BISECTIONS = 8
WHOLE = 0.999  # pieces of which the deficits take a smaller share are left out
ROUNDS = 300
LEAST_GAIN = 1e-9
"""Of the sum of squares at first: smaller gains are rounding errors."""


def place_unplaced(problem: BalanceProblem) -> Ints:
    """(K,) the present allocation, with every unplaced key group on a node that is not draining.

    It keeps all limits if it finds a way.  Otherwise it exceeds them as little as it can, because a lost host must not
    make the problem infeasible.
    """
    unplaced = np.flatnonzero(problem.home == UNPLACED)
    heaviest_first = unplaced[np.argsort(-problem.load[unplaced], kind="stable")]
    if not len(problem.limit) or not len(unplaced):
        return _placed(problem, heaviest_first)
    largest = (problem.usage / np.maximum(problem.usage.sum(axis=1, keepdims=True), 1e-300)).max(axis=0)
    largest_first = unplaced[np.argsort(-largest[unplaced], kind="stable")]
    plans = [_placed(problem, heaviest_first), _placed(problem, largest_first)]
    plans.append(_placed(problem, largest_first, fullest=True))
    return min(plans, key=lambda plan: _overshoot(problem, plan))  # the first of equals


def _placed(problem: BalanceProblem, key_groups: Ints, *, fullest: bool = False) -> Ints:
    allocation = problem.home.copy()
    for key_group in place_on_least_loaded(problem, allocation, key_groups, fullest=fullest):
        used = problem.usages(allocation) + problem.usage_on([key_group], np.arange(len(problem.capacity)))
        over = np.maximum(0.0, used - problem.limit) / np.maximum(problem.limit, 1e-300)
        over = np.where(problem.removing | ~_may(problem, key_group), np.inf, over.sum(axis=0))
        allocation[key_group] = int(np.lexsort((problem.deviations(allocation), over))[0])
    return allocation


def _overshoot(problem: BalanceProblem, allocation: Ints) -> float:
    over = np.maximum(0.0, problem.usages(allocation) - problem.limit - slack(problem))
    return float((over / np.maximum(problem.limit, 1e-300)).sum())


def place_on_least_loaded(
    problem: BalanceProblem, allocation: Ints, key_groups: Iterable[int], *, fullest: bool = False
) -> list[int]:
    """Places each unplaced key group of `key_groups` on the least loaded node, in `allocation` itself.

    Draining nodes receive nothing.  With `fullest` the node with the least sufficient room is taken instead.  Returns
    the key groups that no node has room for.
    """
    if problem.allowed is None and not len(problem.limit) and len(set(problem.capacity[problem.kept].tolist())) <= 1:
        return _place_by_heap(problem, allocation, key_groups)
    deviations, used, limit = problem.deviations(allocation), problem.usages(allocation), problem.limit + slack(problem)
    refused, nodes = [], np.arange(len(problem.capacity))
    for key_group in key_groups:
        after = used + problem.usage_on([key_group], nodes)
        barred: Bools = problem.removing | (after > limit).any(axis=0) | ~_may(problem, key_group)
        if barred.all():
            refused.append(int(key_group))
            continue
        wish: Floats = deviations + problem.load[key_group] / problem.capacity
        if fullest:
            wish = (np.where(np.isfinite(limit), limit, 1e300) - after).min(axis=0)
        node = int(np.where(barred, np.inf, wish).argmin())
        allocation[key_group] = node
        deviations[node] += problem.load[key_group] / problem.capacity[node]
        used[:, node] = after[:, node]
    return refused


def _may(problem: BalanceProblem, key_group: int) -> Bools:
    """(N,) the nodes that a key group may be on."""
    everywhere = np.ones(len(problem.capacity), np.bool_)
    return everywhere if problem.allowed is None else everywhere & problem.may(key_group, np.arange(len(everywhere)))


def _place_by_heap(problem: BalanceProblem, allocation: Ints, key_groups: Iterable[int]) -> list[int]:
    """`place_on_least_loaded` for equal capacities without limits, with a heap."""
    deviations = problem.deviations(allocation).tolist()
    heap = [(deviations[node], node) for node in np.flatnonzero(problem.kept).tolist()]
    heapq.heapify(heap)
    capacity = float(problem.capacity[heap[0][1]])
    for key_group in key_groups:
        deviation, node = heap[0]
        allocation[key_group] = node
        heapq.heapreplace(heap, (deviation + float(problem.load[key_group]) / capacity, node))
    return []


def construct(
    problem: BalanceProblem, start: Ints, d: float, reached: float, stop: StopRule, conditions: Conditions
) -> Ints:
    """(K,) a plan within the budget, from the pieces that the bound needs by `conditions` at load distance `d`.

    When the budget is tight it is often optimal.  With a budget of bytes the bound counts parts of key groups; if whole
    ones cost too much, the load distance is the least one up to `reached` at which they do not.
    """
    count, cost = conditions.count, conditions.cost
    pieces = _by_count(count, d) if cost is None else _by_cost(problem, cost, d, reached, stop)
    return packed(problem, start, affordable(problem, pieces, problem.allowances, stop))


def packed(problem: BalanceProblem, start: Ints, chosen: Ints) -> Ints:
    """(K,) `start` with the chosen and the unplaced key groups on the least loaded nodes, the heaviest first."""
    moved = np.concatenate((chosen, np.flatnonzero(problem.home == UNPLACED)))
    moved = moved[np.argsort(-problem.load[moved], kind="stable")]
    allocation = start.copy()
    allocation[moved] = UNPLACED
    for key_group in place_on_least_loaded(problem, allocation, moved.tolist()):
        allocation[key_group] = start[key_group]
    return allocation


def affordable(problem: BalanceProblem, key_groups: Ints, allowances: Floats, stop: StopRule) -> Ints:
    """Those of `key_groups`, in order, that fit into `allowances`; skips any that costs more than is left."""
    if not len(problem.prices):
        return key_groups
    if len(problem.prices) == 1 and problem.max_cost_bytes is None:
        return key_groups[: int(allowances[0])]
    prices = problem.prices[:, key_groups]
    if (prices.sum(axis=1) <= allowances).all():
        return key_groups
    left = allowances.tolist()
    chosen = []
    for key_group, price in zip(key_groups.tolist(), prices.T.tolist(), strict=True):
        if all(one <= rest for one, rest in zip(price, left, strict=True)):
            left = [rest - one for one, rest in zip(price, left, strict=True)]
            chosen.append(key_group)
        if stop():
            break
    return np.array(chosen, np.int64)


def _by_count(conditions: CountConditions, d: float) -> Ints:
    """The mandatory pieces, then the largest complete offers until they cover the deficits."""
    pieces = conditions.pieces
    fewest = conditions.mandatory(d)
    if fewest is None:  # pinned key groups alone exceed the band: all others leave
        fewest = np.diff(pieces.first)
    rank = np.arange(len(pieces.load)) - pieces.first[pieces.node]
    mandatory = rank < fewest[pieces.node]
    offers = conditions.offers(d)
    missing = conditions.deficit(d) - float(offers[mandatory].sum())
    further = np.flatnonzero(~mandatory & (offers > 0) & (offers >= WHOLE * pieces.load))
    further = further[np.argsort(-offers[further], kind="stable")]
    return pieces.key_groups[np.concatenate((np.flatnonzero(mandatory), _until(further, offers, missing)))]


def _by_cost(problem: BalanceProblem, conditions: CostConditions, d: float, reached: float, stop: StopRule) -> Ints:
    """The same for a budget of bytes, with the fewest bytes per load first, for the least affordable load distance."""
    (pieces, _), low, high = conditions.needed(d, WHOLE), d, reached
    for _ in range(0 if is_affordable(problem, pieces) else BISECTIONS):
        if stop():
            break
        middle = 0.5 * (low + high)
        trial, _ = conditions.needed(middle, WHOLE)
        if is_affordable(problem, trial):
            pieces, high = trial, middle
        else:
            low = middle
    return pieces


def _until(ordered: Ints, offers: Floats, missing: float) -> Ints:
    """The first of `ordered` whose offers add up to `missing`."""
    if missing <= 0:
        return ordered[:0]
    return ordered[: int(np.searchsorted(np.cumsum(offers[ordered]), missing)) + 1]


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
