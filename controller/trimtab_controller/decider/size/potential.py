"""The potential plan: what collocation would save with unlimited moves, and whether its parts can be balanced.  Pure.

Source: Madsen et al. (2017), Algorithm 1, step (b).  Pairs that stand out are put together, those first that are
together now, then the others by what they save, as long as their part stays small enough for a worker (step 2 and 3 of
ALBIC, with whole parts instead of cuts).  A plan counts only if its parts can be spread over the workers; else smaller
parts are tried, as ALBIC lowers maxPL.  Which worker a part goes to does not matter for the size of the app.

It takes one pass over the pairs.  An exact plan takes seconds for a large app, and the loop waits for neither.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from trimtab_controller.decider.collocation.worth import MAX_FLOWS, SCORE_FACTOR, costs_of_flows, flows_of
from trimtab_controller.decider.observing.owned import PERCENT_PER_CORE, Floats, Integers
from trimtab_controller.decider.observing.view import SmoothedView
from trimtab_controller.decider.size.smaller import can_be_spread
from trimtab_models.albic.scores import scored_among

PARTS = (1.0, 0.5, 0.25, 0.125)
"""The largest part, as a share of what the smallest worker may carry; tried in this order."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PotentialPlan:
    """A potential plan: `saving` = cores less than now, `loads` = of its parts, in cores."""

    saving: float
    loads: Floats


def potential_of(view: SmoothedView, room: Sequence[float]) -> PotentialPlan | None:
    """The potential plan of an app on workers that may each carry so many cores; None if there is none that saves."""
    if not view.remote_costs or not room or not 0 < len(view.flows) <= MAX_FLOWS:
        return None
    flows, table = flows_of(view), view.owned
    sending, receiving = (flows.rate * costs for costs in costs_of_flows(view, flows))
    pairs = scored_among(table.operator, flows.source, flows.target, flows.rate, SCORE_FACTOR)
    apart = table.owner[flows.source] != table.owner[flows.target]
    load = table.load / PERCENT_PER_CORE
    here = table.owner[pairs.first] == table.owner[pairs.second]
    worth = _between(pairs.first, pairs.second, flows.source, flows.target, sending + receiving, len(table))
    order, saved = np.lexsort((-worth, ~here)), np.where(here, 0.0, worth)
    for share in PARTS:
        part = _merged(pairs.first[order], pairs.second[order], load, saved[order], share * min(room))
        local = part[flows.source] == part[flows.target]
        change = np.where(local, 0.0, 1.0) - apart  # +1 for a flow that is parted, -1 for one that becomes local
        change[~local & ~apart] = 0.0  # parts that are on one worker now may stay there
        after = load + np.bincount(flows.source, change * sending, len(load))
        after += np.bincount(flows.target, change * receiving, len(load))
        loads = np.bincount(part, np.maximum(0.0, after)).astype(np.float64)
        saving = -float((change * (sending + receiving)).sum())
        if saving > 0.0 and can_be_spread(loads, room):
            return PotentialPlan(saving=saving, loads=loads)
    return None


def _between(
    first: Integers, second: Integers, source: Integers, target: Integers, worth: Floats, count: int
) -> Floats:
    """(P,) the sum of `worth` over the flows of each pair, in both directions."""
    low, high = np.minimum(source, target), np.maximum(source, target)
    keys, at = np.unique(low * count + high, return_inverse=True)
    sums = np.bincount(at, worth, len(keys)).astype(np.float64)
    found: Floats = sums[np.searchsorted(keys, first * count + second)]
    return found


def _merged(first: Integers, second: Integers, load: Floats, saved: Floats, most: float) -> Integers:
    """(K,) the part of each key group, when pairs are merged in this order while no part is above `most` cores.

    `saved` (P,) = cores that go when the pair comes together.
    """
    parent = list(range(len(load)))
    size = load.tolist()

    def root(each: int) -> int:
        while parent[each] != each:
            parent[each] = parent[parent[each]]
            each = parent[each]
        return each

    for one, other, less in zip(first.tolist(), second.tolist(), saved.tolist(), strict=True):
        a, b = root(one), root(other)
        if a != b and size[a] + size[b] - less <= most:
            parent[b] = a
            size[a] += size[b] - less
    roots = np.array([root(each) for each in range(len(load))], np.int64)
    part: Integers = np.unique(roots, return_inverse=True)[1].astype(np.int64)
    return part
