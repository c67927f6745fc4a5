"""The nodes that key groups may be on, and the least load distance that this leaves.

Key groups with the same nodes form a *class*.  A key group may stay where it is, whatever its class says: nobody can
be infeasible because of where it is now.  It does not come back once it has left a node that it may not be on.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from trimtab_models.solving.spared import Places

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class AllowedNodes:
    """C classes of K key groups on N nodes.  Nobody writes to the arrays."""

    class_of: Ints  # (K,)
    nodes: Bools  # (C, N)

    def __post_init__(self) -> None:
        if len(self.class_of) and not 0 <= self.class_of.min() <= self.class_of.max() < len(self.nodes):
            raise ValueError("class_of must name rows of nodes")

    def may(self, key_groups: Places, nodes: Places) -> Bools:
        """Whether these key groups may come to these nodes, for both broadcast together."""
        found: Bools = self.nodes[self.class_of[key_groups], nodes]
        return found

    def part(self, key_groups: Ints, nodes: Ints) -> "AllowedNodes":
        """Of these key groups and nodes alone, numbered by their positions here."""
        return AllowedNodes(class_of=self.class_of[key_groups], nodes=self.nodes[:, nodes])

    def merged(self, of: Ints, count: int) -> "AllowedNodes":
        """For `count` sets of key groups, of which `of` (K,) names the one of each: nodes that all members may be on.

        No set is empty.
        """
        classes = max(1, len(self.nodes))
        which, of_class = np.divmod(np.unique(of * classes + self.class_of), classes)
        class_of = np.zeros(count, np.int64)
        class_of[which] = of_class
        several = np.bincount(which, minlength=count)[which] > 1
        mixed, first = np.unique(which[several], return_index=True)
        if not len(mixed):
            return AllowedNodes(class_of=class_of, nodes=self.nodes)
        class_of[mixed] = len(self.nodes) + np.arange(len(mixed))
        common = np.logical_and.reduceat(self.nodes[of_class[several]], first)
        return AllowedNodes(class_of=class_of, nodes=np.concatenate((self.nodes, common)))
