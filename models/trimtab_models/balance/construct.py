"""First plans: places unplaced key groups, and builds a plan from the pieces that the bound counts."""

import heapq
from collections.abc import Iterable

import numpy as np

from trimtab_models.balance.bound import Conditions, CostConditions, CountConditions
from trimtab_models.balance.evaluate import slack
from trimtab_models.balance.pieces import is_affordable
from trimtab_models.balance.problem import UNPLACED, BalanceProblem, Bools, Floats, Ints
from trimtab_models.solving.stop import StopRule

BISECTIONS = 8
WHOLE = 0.999  # pieces of which the deficits take a smaller share are left out


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
