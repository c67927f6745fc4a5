"""What key groups use less on certain nodes than elsewhere, because something of theirs is there already.

A node that has a copy of a key group's state on its disk writes less of it, or nothing, when the key group arrives.
There are few such pairs of key group and node: most key groups have no copy, or one.  So they are kept sorted, and in a
table only where the problem is small.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]
Places = Ints | Sequence[int] | int

MOST_CELLS = 2_000_000
"""Resources times key groups times nodes up to which lookups use a table (16 MB)."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Spared:
    """P pairs of a key group and a node, and how much less of R resources the key group uses there.

    Pairs are distinct and sorted; `Spared.of` makes them so.  `size` = the number of key groups and of nodes.
    """

    key_group: Ints  # (P,)
    node: Ints  # (P,)
    amount: Floats  # (R, P)
    size: tuple[int, int]
    _codes: Ints = field(init=False)
    _column: dict[int, int] = field(init=False)
    _table: Floats | None = field(init=False)  # (R, K, N)

    def __post_init__(self) -> None:
        key_groups, nodes = self.size
        codes = self.key_group * nodes + self.node
        if self.node.shape != self.key_group.shape or self.amount.shape[1:] != self.key_group.shape:
            raise ValueError("every pair needs a key group, a node, and an amount of each resource")
        if len(codes) and not (self.node.min() >= 0 and self.node.max() < nodes and self.key_group.max() < key_groups):
            raise ValueError("pairs must name key groups and nodes")
        if (np.diff(codes) <= 0).any():
            raise ValueError("pairs must be distinct and sorted")
        object.__setattr__(self, "_codes", codes)
        table = None
        if len(self.amount) * key_groups * nodes <= MOST_CELLS:
            table = np.zeros((len(self.amount), key_groups, nodes))
            table[:, self.key_group, self.node] = self.amount
        object.__setattr__(self, "_table", table)
        columns = {} if table is not None else dict(zip(codes.tolist(), range(len(codes)), strict=True))
        object.__setattr__(self, "_column", columns)

    @classmethod
    def of(cls, key_group: Ints, node: Ints, amount: Floats, size: tuple[int, int]) -> "Spared | None":
        """Any pairs, of which equal ones are added up; None if nothing is spared."""
        chosen = np.flatnonzero((amount > 0).any(axis=0))
        if not len(chosen):
            return None
        codes, at = np.unique(key_group[chosen] * size[1] + node[chosen], return_inverse=True)
        amounts = [np.bincount(at, row[chosen], len(codes)) for row in amount]
        return cls(key_group=codes // size[1], node=codes % size[1], amount=np.array(amounts, np.float64), size=size)

    def on(self, key_groups: Places, nodes: Places) -> Floats:
        """(R, ...) what these key groups use less on these nodes, for both broadcast together."""
        if self._table is not None:
            return np.asarray(self._table[:, key_groups, nodes])
        if isinstance(key_groups, int | np.integer) and isinstance(nodes, int | np.integer):  # much faster one by one
            column = self._column.get(int(key_groups) * self.size[1] + int(nodes))
            return np.zeros(len(self.amount)) if column is None else self.amount[:, column]
        wanted = np.asarray(key_groups) * self.size[1] + np.asarray(nodes)
        at = np.minimum(np.searchsorted(self._codes, wanted), len(self._codes) - 1)
        return np.where(self._codes[at] == wanted, self.amount[:, at], 0.0)

    def of_key_group(self, key_group: int) -> tuple[Ints, Floats]:
        """(p,) the nodes on which a key group uses less, and (R, p) how much less."""
        chosen = slice(*np.searchsorted(self.key_group, (key_group, key_group + 1)).tolist())
        return self.node[chosen], self.amount[:, chosen]

    def part(self, key_groups: Ints, nodes: Ints) -> "Spared | None":
        """Of these key groups and nodes alone, numbered by their positions here; None if nothing is spared."""
        there = np.full(self.size[1], -1)
        there[nodes] = np.arange(len(nodes))
        place = np.full(self.size[0], -1)
        place[key_groups] = np.arange(len(key_groups))
        chosen = np.flatnonzero((place[self.key_group] >= 0) & (there[self.node] >= 0))
        size = (len(key_groups), len(nodes))
        return Spared.of(place[self.key_group[chosen]], there[self.node[chosen]], self.amount[:, chosen], size)

    def after(self, rows: int) -> "Spared":
        """The same of resources that come after `rows` others, of which nothing is spared."""
        return replace(self, amount=np.concatenate((np.zeros((rows, len(self.node))), self.amount)))

    def merged(self, of: Ints, count: int) -> "Spared | None":
        """For `count` sets of key groups, of which `of` (K,) names the one of each."""
        return Spared.of(of[self.key_group], self.node, self.amount, (count, self.size[1]))


def usage_on(usage: Floats, spared: Spared | None, key_groups: Places, nodes: Places) -> Floats:
    """(R, ...) what these key groups use on these nodes, for both broadcast together; `usage` (R, K) on all others.

    Where nothing is spared at all, the axes of `nodes` may be of length 1 or left out: every node costs the same.
    """
    full: Floats = usage[:, key_groups]
    return full if spared is None else full - spared.on(key_groups, nodes)
