"""Recorded workloads: replays snapshots of a live cluster, one per round, under another policy.

The first snapshot gives the placement; from then on the policy decides it.  Each snapshot gives the loads, rates,
nodes, limits and pins of its round, and in its options the cost of remote tuples.
"""

from collections.abc import Iterable, Iterator
from dataclasses import replace

from trimtab_models.albic.problem import problem_of
from trimtab_models.instances import BalanceInstance, Budget
from trimtab_models.simulation.moment import Moment


def recorded(snapshots: Iterable[BalanceInstance], *, budget: Budget | None = None) -> Iterator[Moment]:
    """One moment per snapshot, in order; `budget` overrides the budgets of the snapshots."""
    for snapshot in snapshots:
        instance = snapshot if budget is None else replace(snapshot, budget=budget)
        yield Moment(
            nodes=tuple(node.id for node in instance.nodes),
            key_groups=tuple(key_group.id for key_group in instance.key_groups),
            problem=problem_of(instance),
        )
