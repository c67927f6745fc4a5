"""A snapshot of a cluster: the instance of the balance methods (milp, albic, flux, cola, elastic).

`trimtab snapshot` writes the same document from a live cluster, so that it can be replayed offline.  Loads are in
percent of a node of capacity 1, rates in tuples per second, sizes and budgets in bytes.

The form knows limits of nodes only; those of hosts are in the names of resources, which are free.  A node's limit
`host:HOST:RESOURCE` holds for all nodes with a limit of that name together.  What key groups use of RESOURCE follows
from their `usage` of that name, or from their load if it is `load`; on the node NODE it is their usage of
`node:NODE:RESOURCE`, if they have one.  Of a resource whose name begins with `kept_` a key group that moves goes on
using as much where it was.

A reader that does not know these names finds limits of resources that no key group uses, and so ignores them.  Where
key groups do use a resource of such a name, it is one like any other.
"""

import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, ClassVar

from trimtab_models.instances.reading import BadInstance, Positive, check_distinct, is_finite
from trimtab_protocol.messages.codec import Key, Needed, Text, Wire
from trimtab_protocol.messages.decode import as_json, as_step

LOAD = "load"
KEPT = "kept_"
"""How the names of resources begin that a key group goes on using where it was."""
_HOST, _NODE = "host", "node"
VERSION = 1


def of_host(host: str, resource: str) -> str:
    """The name of a limit that all nodes of a host share."""
    return f"{_HOST}:{host}:{resource}"


def of_node(node: str, resource: str) -> str:
    """The name of what a key group uses on one node instead of its usual usage."""
    return f"{_NODE}:{node}:{resource}"


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedHosts:
    """`host` = by position, the host of each node that has one; `room` = by resource, what each host has.

    `names` = the names of limits that say so: no resources of single nodes.
    """

    host: Mapping[int, str] = field(default_factory=dict)
    room: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    names: frozenset[str] = frozenset()


def hosts_in(limits: Sequence[Mapping[str, float]], usages: Iterable[Mapping[str, float]]) -> NamedHosts:
    """The hosts that the `limits` of nodes name, given the `usages` of key groups.

    Raises BadInstance for a node on two hosts, and for two limits of one host.
    """
    prefix = _HOST + ":"
    if not any(name.startswith(prefix) for each in limits for name in each):
        return NamedHosts()
    used = {name for usage in usages for name in usage if name.startswith(prefix)}
    host: dict[int, str] = {}
    room: dict[str, dict[str, float]] = {}
    names = set[str]()
    for position, each in enumerate(limits):
        for name, limit in each.items():
            its, _, resource = name.removeprefix(prefix).rpartition(":")
            if not name.startswith(prefix) or name in used or not its or not resource:
                continue
            path = f"nodes[{position}].limits{as_step(name)}"
            if (first := host.setdefault(position, its)) != its:
                raise BadInstance(path, f"a limit of host {as_json(its)}", f"limits of one host, {as_json(first)}")
            if (known := room.setdefault(resource, {}).setdefault(its, limit)) != limit:
                raise BadInstance(path, as_json(limit), f"{as_json(known)}, as for the other nodes of the host")
            names.add(name)
    return NamedHosts(host=host, room=room, names=frozenset(names))


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A worker process.  `capacity` is relative; `limits` = resource -> limit of its key groups' total `usage`.

    `removing` = the node is draining.
    """

    id: str
    """Name of the node."""
    capacity: Positive
    """Relative to a node of capacity 1."""
    removing: bool = False
    """The node is draining: its key groups leave, and nothing moves to it."""
    limits: Mapping[str, float] = field(default_factory=dict)
    """Resource to the most of it that the node's key groups may use together; without one there is no limit.  A name
    `host:HOST:RESOURCE` limits what those on all nodes with it use of RESOURCE together (or of their `load`); of a
    RESOURCE that begins with `kept_`, a key group that moves goes on using as much where it was."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotKeyGroup:
    """The unit of migration.  `node` None = its host was lost; it must be placed, at no cost."""

    id: str
    """Name of the key group."""
    operator: str
    """The operator that it is a part of."""
    node: Annotated[str | None, Needed(), Text(sys.maxsize, what="a node's id, or null", least=0)]
    """Where it is; null: nowhere."""
    load: float
    """Percent of a node of capacity 1."""
    state_bytes: float
    """Size of its state; moving it costs as much, at least 1."""
    usage: Mapping[str, float] = field(default_factory=dict)
    """Resource to what the key group uses of it, whichever node it is on.  With the name `node:NODE:RESOURCE`, what it
    uses on that node instead, of a limit of its host."""
    pinned: bool = False
    """It must stay where it is."""

    @property
    def cost_bytes(self) -> float:
        """The cost of moving it: the size of its state, at least 1."""
        return max(1, self.state_bytes)


@dataclass(frozen=True, slots=True, kw_only=True)
class TupleFlow:
    """Tuples per second from one key group to another."""

    source: Annotated[str, Key("from")]
    """Key group that sends."""
    target: Annotated[str, Key("to")]
    """Key group that receives."""
    rate: float
    """Tuples per second."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MigrationBudget:
    """What one round may spend; None = no limit."""

    max_migrations: int | None = None
    """Key groups that may move."""
    max_cost_bytes: float | None = None
    """State that may move."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotOptions:
    """Loads in percent of a node of capacity 1, costs in percent per remote tuple/s; names of the paper in brackets.

    The costs count in every method: loads change as key groups that exchange tuples are brought together or parted.
    The other options are of `albic`.
    """

    max_load_distance: float = 10.0
    """Within it collocation may make the balance worse (maxLD)."""
    max_partition_load: float = 25.0
    """The largest load of key groups that are moved together, at first (maxPL)."""
    partition_step: Positive = 5.0
    """How much that load is lowered after an attempt that failed (stepPL)."""
    score_factor: float = 1.5
    """A flow is heavy when its rate is at least this many times the average of its sender's flows (sF)."""
    serialise_cost: float = 0.0
    """Load at the sending end of a flow between two nodes."""
    deserialise_cost: float = 0.0
    """Load at the receiving end of a flow between two nodes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BalanceInstance:
    """A cluster, its flows, and the budget of the next round.  Ids are unique, and every reference is known."""

    WIRE: ClassVar = Wire(version=VERSION, version_key="version")

    nodes: tuple[Node, ...]
    """The worker processes."""
    key_groups: tuple[SnapshotKeyGroup, ...]
    """What they carry."""
    flows: tuple[TupleFlow, ...] = ()
    """Tuples between key groups."""
    budget: MigrationBudget = MigrationBudget()
    """Without it there is no limit."""
    options: SnapshotOptions = SnapshotOptions()
    """Parameters of the methods."""

    def __post_init__(self) -> None:
        check_distinct("nodes", (node.id for node in self.nodes))
        check_distinct("key_groups", (key_group.id for key_group in self.key_groups))
        nodes = {node.id for node in self.nodes}
        for position, key_group in enumerate(self.key_groups):
            if key_group.node is not None and key_group.node not in nodes:
                raise BadInstance(f"key_groups[{position}].node", as_json(key_group.node), "the id of a node, or null")
        self._check_sums()
        self.named_hosts()
        if not self.flows:
            return
        known = {key_group.id for key_group in self.key_groups}
        for position, flow in enumerate(self.flows):
            for end, id_ in (("from", flow.source), ("to", flow.target)):
                if id_ not in known:
                    raise BadInstance(f"flows[{position}].{end}", as_json(id_), "the id of a key group")

    def named_hosts(self) -> NamedHosts:
        """The hosts that limits of nodes name.  Raises BadInstance."""
        return hosts_in([node.limits for node in self.nodes], (key_group.usage for key_group in self.key_groups))

    def _check_sums(self) -> None:
        """Raises BadInstance if a sum of finite numbers overflows."""
        least = min((node.capacity for node in self.nodes), default=1.0)
        options = self.options
        costs = (options.serialise_cost, options.deserialise_cost, options.score_factor)
        factors = len(self.key_groups) + sum(map(float, costs))
        for path, name, total in (
            ("nodes", "capacity", sum(float(node.capacity) for node in self.nodes)),
            ("key_groups", "load", sum(float(key_group.load) for key_group in self.key_groups) / least),
            ("key_groups", "state_bytes", sum(float(key_group.state_bytes) for key_group in self.key_groups)),
            ("key_groups", "usage", sum(float(each) for group in self.key_groups for each in group.usage.values())),
            ("flows", "rate", sum(float(flow.rate) for flow in self.flows) * factors / min(1.0, least)),
        ):
            if not is_finite(total):
                raise BadInstance(path, f"a sum of {name} beyond every number", "a finite sum")
