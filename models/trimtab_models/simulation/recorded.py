"""Recorded workloads: snapshots of a live cluster, one round each, replayed under another policy.

The first snapshot says where everything is; from then on the policy does. Loads, rates, nodes, limits and pins are
those of each snapshot; what remote tuples cost is in its options.
"""

from collections.abc import Iterable, Iterator
from dataclasses import replace

from trimtab_models.albic.problem import problem_of
from trimtab_models.instances import BalanceInstance, Budget
from trimtab_models.simulation.moment import Moment


def recorded(snapshots: Iterable[BalanceInstance], *, budget: Budget | None = None) -> Iterator[Moment]:
    """A moment per snapshot, in their order; `budget` replaces those of the snapshots."""
    for snapshot in snapshots:
        instance = snapshot if budget is None else replace(snapshot, budget=budget)
        yield Moment(
            nodes=tuple(node.id for node in instance.nodes),
            key_groups=tuple(key_group.id for key_group in instance.key_groups),
            problem=problem_of(instance),
        )
