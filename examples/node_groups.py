"""Splits a large problem into independent groups of nodes with similar mean loads, each with a share of the budget.

Nothing moves between groups, so they can be solved in parallel, and the joined plan is allowed.  The price is the
difference between the groups' means.  To keep it small, nodes are distributed in order of their surplus load, one row
of nodes after the other, the largest of a row to the group with the least total so far.

No command of Trimtab divides a problem.  `spark_solves.py` shows the use.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from trimtab_models.balance.problem import UNPLACED, BalanceProblem, Floats, Ints


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Group:
    """Some `nodes` (n,) with the `key_groups` (k,) on them, as a `problem` of their own."""

    nodes: Ints
    key_groups: Ints
    problem: BalanceProblem


def deal(problem: BalanceProblem, groups: int) -> list[Group]:
    """At most `groups` groups, each with a node that is not draining; includes the unplaced key groups."""
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


def join(problem: BalanceProblem, groups: Sequence[Group], allocations: Sequence[Ints]) -> Ints:
    """(K,) the plan for `problem` from the plans of all its groups."""
    allocation = problem.home.copy()
    for group, part in zip(groups, allocations, strict=True):
        allocation[group.key_groups] = np.where(part == UNPLACED, UNPLACED, group.nodes[part])
    return allocation


def _dealt(amounts: Floats, total: Floats) -> Ints:
    """The group of each amount, as described above; adds to `total`."""
    group_of = np.empty(len(amounts), np.int64)
    order = np.argsort(-amounts, kind="stable")
    for first in range(0, len(order), len(total)):
        row = order[first : first + len(total)]
        group_of[row] = np.argsort(total, kind="stable")[: len(row)]
        total[group_of[row]] += amounts[row]
    return group_of


def _group(problem: BalanceProblem, nodes: Ints, key_groups: Ints, shares: Floats) -> Group:
    """One group; its share of the budget is the last of `shares`, rounded so that the groups' moves add up."""
    local = np.full(len(problem.capacity) + 1, UNPLACED, np.int64)  # the last entry is for UNPLACED (-1)
    local[nodes] = np.arange(len(nodes))
    count, cost = problem.max_migrations, problem.max_cost_bytes
    before, until = float(shares[:-1].sum()), float(shares.sum())
    part = BalanceProblem(
        load=problem.load[key_groups],
        cost_bytes=problem.cost_bytes[key_groups],
        home=local[problem.home[key_groups]],
        pinned=problem.pinned[key_groups],
        capacity=problem.capacity[nodes],
        removing=problem.removing[nodes],
        usage=problem.usage[:, key_groups],
        limit=problem.limit[:, nodes],
        spared=None if problem.spared is None else problem.spared.part(key_groups, nodes),
        allowed=None if problem.allowed is None else problem.allowed.part(key_groups, nodes),
        evicted=None if problem.evicted is None else problem.evicted[key_groups],
        max_migrations=None if count is None else int(count * min(1.0, until)) - int(count * min(1.0, before)),
        max_cost_bytes=None if cost is None else cost * float(shares[-1]),
        max_load_distance=problem.max_load_distance,
    )
    return Group(nodes=nodes, key_groups=key_groups, problem=part)
