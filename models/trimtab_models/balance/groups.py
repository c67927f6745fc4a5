"""A large problem dealt into independent ones: groups of nodes of like means, with a share of the budget each.

Nothing moves from group to group, so the groups can be solved anywhere at once, and the joined plan is allowed. What
that costs is the difference between the groups' means, which the deal keeps small: nodes in order of what they have too
much go row by row to the groups that have least so far.

For users of the library: no command of Trimtab divides a problem. `examples/spark_solves.py` shows the use.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from trimtab_models.balance.problem import UNPLACED, Floats, Ints, Problem


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Group:
    """Some `nodes` (n,) with the `key_groups` (k,) that are there, as a `problem` of their own."""

    nodes: Ints
    key_groups: Ints
    problem: Problem


def deal(problem: Problem, groups: int) -> list[Group]:
    """`problem` in at most `groups` parts, each with a node to keep; unplaced key groups are dealt out too."""
    groups = max(1, min(groups, int(problem.kept.sum())))
    surplus = problem.node_loads(problem.home) - np.where(problem.kept, problem.mean * problem.capacity, 0.0)
    total = np.zeros(groups)
    group_of_node = np.empty(len(surplus), np.int64)
    for nodes in (np.flatnonzero(problem.kept), np.flatnonzero(problem.removing)):
        group_of_node[nodes] = _dealt(surplus[nodes], total)
    unplaced = np.flatnonzero(problem.home == UNPLACED)
    group_of = group_of_node[problem.home]
    group_of[unplaced] = _dealt(problem.load[unplaced], total)
    need = np.bincount(group_of_node, np.abs(problem.deviations(problem.home)), groups)
    shares = need / need.sum() if need.sum() else np.full(groups, 1 / groups)
    return [
        _group(problem, np.flatnonzero(group_of_node == group), np.flatnonzero(group_of == group), shares[: group + 1])
        for group in range(groups)
    ]


def join(problem: Problem, groups: Sequence[Group], allocations: Sequence[Ints]) -> Ints:
    """(K,) the plan for `problem` made of the plans of all its groups."""
    allocation = problem.home.copy()
    for group, part in zip(groups, allocations, strict=True):
        allocation[group.key_groups] = np.where(part == UNPLACED, UNPLACED, group.nodes[part])
    return allocation


def _dealt(amounts: Floats, total: Floats) -> Ints:
    """The group of each of `amounts`: largest first, row by row, the largest of a row to the group of least `total`."""
    group_of = np.empty(len(amounts), np.int64)
    order = np.argsort(-amounts, kind="stable")
    for first in range(0, len(order), len(total)):
        row = order[first : first + len(total)]
        group_of[row] = np.argsort(total, kind="stable")[: len(row)]
        total[group_of[row]] += amounts[row]
    return group_of


def _group(problem: Problem, nodes: Ints, key_groups: Ints, shares: Floats) -> Group:
    """The group whose share of the budget is the last of `shares`; whole moves, which add up over all groups."""
    local = np.full(len(problem.capacity) + 1, UNPLACED, np.int64)  # the last entry serves UNPLACED itself
    local[nodes] = np.arange(len(nodes))
    count, cost = problem.max_migrations, problem.max_cost_bytes
    before, until = float(shares[:-1].sum()), float(shares.sum())
    part = Problem(
        load=problem.load[key_groups],
        cost_bytes=problem.cost_bytes[key_groups],
        home=local[problem.home[key_groups]],
        pinned=problem.pinned[key_groups],
        in_flight=problem.in_flight[key_groups],
        capacity=problem.capacity[nodes],
        removing=problem.removing[nodes],
        usage=problem.usage[:, key_groups],
        limit=problem.limit[:, nodes],
        max_migrations=None if count is None else int(count * min(1.0, until)) - int(count * min(1.0, before)),
        max_cost_bytes=None if cost is None else cost * float(shares[-1]),
        max_load_distance=problem.max_load_distance,
    )
    return Group(nodes=nodes, key_groups=key_groups, problem=part)
