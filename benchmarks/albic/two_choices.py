"""The power of two choices (Nasir et al., ICDE 2015; partial key grouping), the published baseline for balance.

Every key has two candidate instances, and each tuple goes to the one with less load.  A stateful key group is thus
split over two nodes, and its partial states are merged again and again.  The load of merging falls on one of the two,
in proportion to the state, regardless of the balance.  The result is therefore a figure, not a plan: nothing moves, and
no key group has a single owner.  Draining nodes, pins and limits are ignored.
"""

from dataclasses import dataclass

import numpy as np

from trimtab_models.balance.problem import BalanceProblem, Floats

TUPLES = 50  # units of a key group's load, each sent to the less loaded candidate


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TwoChoices:
    """Node loads in percent of each node's capacity, load distance in pp; `merging` = load added by merging."""

    node_loads: Floats
    load_distance: float
    merging: float


def two_choices(problem: BalanceProblem, *, merge_share: float, seed: int) -> TwoChoices:
    """The figures of two choices; merging adds `merge_share` of all load, in proportion to state sizes."""
    random = np.random.default_rng(seed)
    nodes, key_groups = len(problem.capacity), len(problem.load)
    first, second = random.integers(nodes, size=key_groups), random.integers(nodes, size=key_groups)
    loads = np.zeros(nodes)
    for key_group in np.tile(random.permutation(key_groups), TUPLES).tolist():
        one, other = int(first[key_group]), int(second[key_group])
        node = one if loads[one] / problem.capacity[one] <= loads[other] / problem.capacity[other] else other
        loads[node] += problem.load[key_group] / TUPLES
    merging = merge_share * float(problem.load.sum())
    state = float(problem.cost_bytes.sum())
    if state:
        loads += np.bincount(first, merging * problem.cost_bytes / state, nodes)
    mean = float(loads.sum() / problem.capacity.sum())
    node_loads = loads / problem.capacity
    return TwoChoices(
        node_loads=node_loads, load_distance=float(np.abs(node_loads - mean).max(initial=0.0)), merging=merging
    )
