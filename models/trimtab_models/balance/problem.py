"""The balance problem as arrays, the input of every algorithm in this package.

Loads are in percent of a node of capacity 1.  Deviations and load distances are in percentage points (pp) of the
node's own capacity: `load_i / c_i - mean`.  An *allocation* is an int array: key group -> node.

Rules say which nodes key groups may be on.  Key groups with the same nodes form a *class*.  A key group may stay where
it is, whatever its class says: nobody can be infeasible because of where it is now.  It does not come back once it has
left a node that it may not be on.
"""

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trimtab_models.instances.snapshot import BalanceInstance
from trimtab_models.spared import Places, Spared, usage_on

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

UNPLACED = -1
FREE = -1
"""The class of key groups that may be on any node."""


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


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class BalanceProblem:
    """K key groups on N nodes with R limited resources.  Nobody writes to the arrays.

    `home` = the node that a key group is on, or UNPLACED.  Moving a key group away from home costs one migration and
    `cost_bytes`; placing an unplaced one costs nothing.  `removing` marks the draining nodes: they may lose key groups
    but not receive any.  `spared` = what key groups use less on certain nodes.
    `allowed` = where key groups may go; None = anywhere.  `evicted` = those that are to leave their home, because they
    may not be there; None = no one is.
    """

    load: Floats  # (K,)
    cost_bytes: Floats  # (K,)
    home: Ints  # (K,)
    pinned: Bools  # (K,)
    capacity: Floats  # (N,)
    removing: Bools  # (N,)
    usage: Floats  # (R, K)
    limit: Floats  # (R, N), infinite = no limit
    spared: Spared | None = None
    allowed: AllowedNodes | None = None
    evicted: Bools | None = None  # (K,)
    max_migrations: int | None = None
    max_cost_bytes: float | None = None
    max_load_distance: float = 10.0
    mean: float = field(init=False)
    movable: Bools = field(init=False)  # (K,); an unplaced key group is movable even if pinned
    prices: Floats = field(init=False)  # (B, K) cost of leaving home, for each of the B budgets that can bind
    allowances: Floats = field(init=False)  # (B,) the size of each budget

    def __post_init__(self) -> None:
        key_groups, nodes, resources = len(self.load), len(self.capacity), len(self.limit)
        for name, length in (("cost_bytes", key_groups), ("home", key_groups), ("pinned", key_groups)):
            if getattr(self, name).shape != (length,):
                raise ValueError(f"{name} must have one entry per key group")
        if self.removing.shape != (nodes,) or not (self.capacity > 0).all():
            raise ValueError("every node needs a capacity above 0 and a removing flag")
        if self.usage.shape != (resources, key_groups) or self.limit.shape != (resources, nodes):
            raise ValueError("usage and limit must have one row per resource")
        if self.spared is not None and (self.spared.size, len(self.spared.amount)) != ((key_groups, nodes), resources):
            raise ValueError("what is spared must be of these key groups, nodes and resources")
        if self.evicted is not None and self.evicted.shape != (key_groups,):
            raise ValueError("evicted must have one entry per key group")
        allowed = self.allowed
        if allowed is not None and (len(allowed.class_of), allowed.nodes.shape[1]) != (key_groups, nodes):
            raise ValueError("allowed must be of these key groups and nodes")
        if key_groups and not (self.home.min() >= UNPLACED and self.home.max() < nodes):
            raise ValueError("home must name nodes")
        kept_capacity = float(self.capacity[~self.removing].sum())
        object.__setattr__(self, "mean", float(self.load.sum()) / kept_capacity if kept_capacity else np.inf)
        object.__setattr__(self, "movable", ~self.pinned | (self.home == UNPLACED))
        self._set_budgets()

    def _set_budgets(self) -> None:
        placed = self.home != UNPLACED
        rows, allowances = [], []
        for price, allowance in (
            (np.ones(len(self.load)), self.max_migrations),
            (self.cost_bytes, self.max_cost_bytes),
        ):
            row = np.where(placed, price, 0.0)
            if allowance is not None and row[self.movable].sum() > allowance:
                rows.append(row)
                allowances.append(float(allowance))
        object.__setattr__(self, "prices", np.array(rows).reshape(len(rows), len(self.load)))
        object.__setattr__(self, "allowances", np.array(allowances))

    @classmethod
    def plain(cls, *, load: Floats, home: Ints, capacity: Floats, **more: Any) -> "BalanceProblem":
        """Without pins, draining nodes and limits, each key group at a cost of one byte; other fields in `more`."""
        key_groups, nodes = len(load), len(capacity)
        fields: dict[str, Any] = {
            "cost_bytes": np.ones(key_groups),
            "pinned": np.zeros(key_groups, np.bool_),
            "removing": np.zeros(nodes, np.bool_),
            "usage": np.zeros((0, key_groups)),
            "limit": np.zeros((0, nodes)),
        }
        return cls(load=load, home=home, capacity=capacity, **fields | more)

    @property
    def kept(self) -> Bools:
        """(N,) the nodes that are not draining."""
        return ~self.removing

    def to_leave(self, allocation: Ints) -> Bools:
        """(K,) the key groups that are to leave where `allocation` has them; none may be unplaced in it."""
        leaving: Bools = self.removing[allocation]
        return leaving if self.evicted is None else leaving | (self.evicted & (allocation == self.home))

    def node_loads(self, allocation: Ints) -> Floats:
        """(N,) load per node, in percent of capacity 1; unplaced key groups count nowhere."""
        placed = allocation != UNPLACED
        return np.bincount(allocation[placed], self.load[placed], len(self.capacity)).astype(np.float64)

    def deviations(self, allocation: Ints) -> Floats:
        """(N,) load of each node above the mean, in pp of its capacity."""
        return self.node_loads(allocation) / self.capacity - self.mean

    def usages(self, allocation: Ints) -> Floats:
        """(R, N) sums of the usage of the key groups on each node."""
        placed = np.flatnonzero(allocation != UNPLACED)
        node = allocation[placed]
        rows = [np.bincount(node, row, len(self.capacity)) for row in self.usage_on(placed, node)]
        return np.array(rows, np.float64).reshape(self.limit.shape)

    def usage_on(self, key_groups: Places, nodes: Places) -> Floats:
        """(R, ...) what these key groups use on these nodes: see `spared.usage_on`."""
        return usage_on(self.usage, self.spared, key_groups, nodes)

    def nodes_with_room(self, key_group: int, used: Floats, limit: Floats) -> Bools:
        """(N,) the nodes that may take a key group, and have room for it.

        Room is besides what is `used` (R, N), all of it within `limit` (R, N).
        """
        rows = np.flatnonzero(self.usage[:, key_group])
        after = used[rows] + self.usage[rows, key_group, None]
        if self.spared is not None:
            nodes, less = self.spared.of_key_group(key_group)
            after[:, nodes] -= less[rows]
        room: Bools = np.logical_and.reduce(after <= limit[rows], axis=0)
        return room if self.allowed is None else room & self.allowed.may(key_group, np.arange(len(self.capacity)))

    def may(self, key_groups: Places, nodes: Places) -> Bools | bool:
        """Whether these key groups may come to these nodes, for both broadcast together."""
        return True if self.allowed is None else self.allowed.may(key_groups, nodes)

    def with_limits(self, usage: Floats, limit: Floats, spared: Spared | None) -> "BalanceProblem":
        """The problem with further resources: `usage` (R, K), `limit` (R, N), and what is `spared` of these R alone.

        Nothing may be spared of the resources that it has.
        """
        assert self.spared is None
        return replace(
            self,
            usage=np.concatenate((self.usage, usage)),
            limit=np.concatenate((self.limit, limit)),
            spared=None if spared is None else spared.after(len(self.limit)),
        )

    def tolerating(self, allocation: Ints) -> "BalanceProblem":
        """The problem with every limit that `allocation` exceeds raised to its usage, so that it cannot get worse."""
        if not len(self.limit):
            return self
        return replace(self, limit=np.maximum(self.limit, self.usages(allocation)))


def infeasible(problem: BalanceProblem) -> str | None:
    """Why there is no plan, or None.  Only a cluster without a remaining node has none."""
    if not len(problem.capacity):
        return "there is no node"
    if problem.removing.all():
        return "all nodes are draining"
    return None


def problem_of(instance: BalanceInstance) -> BalanceProblem:
    """The arrays of `instance`, in its order, without the limits of hosts: those are in `hosts.limits_in`."""
    node_at = {node.id: position for position, node in enumerate(instance.nodes)}
    home = np.array([UNPLACED if k.node is None else node_at[k.node] for k in instance.key_groups], np.int64)
    hosts = instance.named_hosts().names
    resources = sorted({resource for node in instance.nodes for resource in node.limits} - hosts)
    limit = [[node.limits.get(resource, np.inf) for node in instance.nodes] for resource in resources]
    usage = [[key_group.usage.get(resource, 0.0) for key_group in instance.key_groups] for resource in resources]
    return BalanceProblem(
        load=np.array([key_group.load for key_group in instance.key_groups], np.float64),
        cost_bytes=np.array([key_group.cost_bytes for key_group in instance.key_groups], np.float64),
        home=home,
        pinned=np.array([key_group.pinned for key_group in instance.key_groups], np.bool_),
        capacity=np.array([node.capacity for node in instance.nodes], np.float64),
        removing=np.array([node.removing for node in instance.nodes], np.bool_),
        usage=np.array(usage, np.float64).reshape(len(resources), len(home)),
        limit=np.array(limit, np.float64).reshape(len(resources), len(instance.nodes)),
        max_migrations=_at_most(instance.budget.max_migrations, len(home)),
        max_cost_bytes=instance.budget.max_cost_bytes,
        max_load_distance=instance.options.max_load_distance,
    )


def _at_most(budget: int | None, key_groups: int) -> int | None:
    """`budget`, at most the number of key groups: a larger integer might not fit into a float."""
    return None if budget is None else min(budget, key_groups)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PlacingRules:
    """C classes of K key groups, and the nodes that each may be on.  Nobody writes to the arrays.

    `frozen` key groups stay where they are, unless they are unplaced.
    """

    class_of: Ints  # (K,) or FREE
    allowed: Bools  # (C, N)
    frozen: Bools  # (K,)

    def __post_init__(self) -> None:
        if self.frozen.shape != self.class_of.shape:
            raise ValueError("every key group needs a class and a frozen flag")
        if len(self.class_of) and not FREE <= self.class_of.min() <= self.class_of.max() < len(self.allowed):
            raise ValueError("class_of must name classes")

    def keep(self, allocation: Ints) -> Bools:
        """(K,) which key groups are on nodes that they may be on; unplaced ones are."""
        bound = np.flatnonzero((self.class_of != FREE) & (allocation != UNPLACED))
        kept = np.ones(len(self.class_of), np.bool_)
        kept[bound] = self.allowed[self.class_of[bound], allocation[bound]]
        return kept

    def allowed_on(self, key_group: int) -> Bools:
        """(N,) the nodes that a key group may be on."""
        which = int(self.class_of[key_group])
        allowed: Bools = np.ones(self.allowed.shape[1], np.bool_) if which == FREE else self.allowed[which].copy()
        return allowed

    def applied(self, problem: BalanceProblem) -> BalanceProblem:
        """`problem` with these rules.

        What is on a barred node is to leave it, if there is a node for it that is not draining.  What is unplaced, and
        has no such node, may be on any: an outage would be worse.
        """
        with_room = np.append(np.logical_or.reduce(self.allowed & problem.kept, axis=1), True)
        free = (self.class_of == FREE) | ((problem.home == UNPLACED) & ~with_room[self.class_of])
        evicted = ~self.keep(problem.home) & with_room[self.class_of] & ~self.frozen & ~problem.pinned
        anywhere = np.ones((1, len(problem.capacity)), np.bool_)
        return replace(
            problem,
            allowed=AllowedNodes(
                class_of=np.where(free, len(self.allowed), self.class_of),
                nodes=np.concatenate((self.allowed, anywhere)),
            ),
            evicted=evicted if evicted.any() else None,
            pinned=problem.pinned | (self.frozen & (problem.home != UNPLACED)),
        )
