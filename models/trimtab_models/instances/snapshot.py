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

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

from trimtab_models.instances.reading import (
    BadInstance,
    check_amounts,
    check_count,
    check_distinct,
    check_flag,
    check_number,
    check_text,
    check_version,
    is_finite,
    located,
    parse_document,
    read_each,
    read_object,
    shown,
    step,
)

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
            path = f".nodes[{position}].limits{step(name)}"
            if (first := host.setdefault(position, its)) != its:
                raise BadInstance(path, f"a limit of host {shown(its)}", f"limits of one host, {shown(first)}")
            if (known := room.setdefault(resource, {}).setdefault(its, limit)) != limit:
                raise BadInstance(path, shown(limit), f"{shown(known)}, as for the other nodes of the host")
            names.add(name)
    return NamedHosts(host=host, room=room, names=frozenset(names))


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A worker process.  `capacity` is relative; `limits` = resource -> limit of its key groups' total `usage`.

    `removing` = the node is draining.
    """

    id: str
    """Name of the node."""
    capacity: float
    """Relative to a node of capacity 1."""
    removing: bool = False
    """The node is draining: its key groups leave, and nothing moves to it."""
    limits: Mapping[str, float] = field(default_factory=dict)
    """Resource to the most of it that the node's key groups may use together; without one there is no limit.  A name
    `host:HOST:RESOURCE` limits what those on all nodes with it use of RESOURCE together (or of their `load`); of a
    RESOURCE that begins with `kept_`, a key group that moves goes on using as much where it was."""

    def __post_init__(self) -> None:
        check_text(".id", self.id)
        check_number(".capacity", self.capacity, positive=True)
        check_flag(".removing", self.removing)
        check_amounts(".limits", self.limits)


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotKeyGroup:
    """The unit of migration.  `node` None = its host was lost; it must be placed, at no cost."""

    id: str
    """Name of the key group."""
    operator: str
    """The operator that it is a part of."""
    node: str | None
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

    def __post_init__(self) -> None:
        check_text(".id", self.id)
        check_text(".operator", self.operator)
        if self.node is not None and type(self.node) is not str:
            raise BadInstance(".node", shown(self.node), "a node's id, or null")
        check_number(".load", self.load)
        check_number(".state_bytes", self.state_bytes)
        if self.usage:
            check_amounts(".usage", self.usage)
        elif not isinstance(self.usage, dict):
            raise BadInstance(".usage", shown(self.usage), "an object of names and numbers")
        check_flag(".pinned", self.pinned)

    @property
    def cost_bytes(self) -> float:
        """The cost of moving it: the size of its state, at least 1."""
        return max(1, self.state_bytes)


@dataclass(frozen=True, slots=True, kw_only=True)
class TupleFlow:
    """Tuples per second from one key group to another."""

    source: str
    """Key group that sends."""
    target: str
    """Key group that receives."""
    rate: float
    """Tuples per second."""

    def __post_init__(self) -> None:
        check_text(".from", self.source)
        check_text(".to", self.target)
        check_number(".rate", self.rate)


@dataclass(frozen=True, slots=True, kw_only=True)
class MigrationBudget:
    """What one round may spend; None = no limit."""

    max_migrations: int | None = None
    """Key groups that may move."""
    max_cost_bytes: float | None = None
    """State that may move."""

    def __post_init__(self) -> None:
        if self.max_migrations is not None:
            check_count(".max_migrations", self.max_migrations)
        if self.max_cost_bytes is not None:
            check_number(".max_cost_bytes", self.max_cost_bytes)


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
    partition_step: float = 5.0
    """How much that load is lowered after an attempt that failed (stepPL)."""
    score_factor: float = 1.5
    """A flow is heavy when its rate is at least this many times the average of its sender's flows (sF)."""
    serialise_cost: float = 0.0
    """Load at the sending end of a flow between two nodes."""
    deserialise_cost: float = 0.0
    """Load at the receiving end of a flow between two nodes."""

    def __post_init__(self) -> None:
        for each in fields(self):
            check_number(f".{each.name}", getattr(self, each.name), positive=each.name == "partition_step")


@dataclass(frozen=True, slots=True, kw_only=True)
class BalanceInstance:
    """A cluster, its flows, and the budget of the next round.  Ids are unique, and every reference is known."""

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
        check_distinct(".nodes", (node.id for node in self.nodes))
        check_distinct(".key_groups", (key_group.id for key_group in self.key_groups))
        nodes = {node.id for node in self.nodes}
        for position, key_group in enumerate(self.key_groups):
            if key_group.node is not None and key_group.node not in nodes:
                raise BadInstance(f".key_groups[{position}].node", shown(key_group.node), "the id of a node, or null")
        self._check_sums()
        self.named_hosts()
        if not self.flows:
            return
        known = {key_group.id for key_group in self.key_groups}
        for position, flow in enumerate(self.flows):
            for end, id_ in (("from", flow.source), ("to", flow.target)):
                if id_ not in known:
                    raise BadInstance(f".flows[{position}].{end}", shown(id_), "the id of a key group")

    def named_hosts(self) -> NamedHosts:
        """The hosts that limits of nodes name.  Raises BadInstance."""
        return hosts_in([node.limits for node in self.nodes], (key_group.usage for key_group in self.key_groups))

    def _check_sums(self) -> None:
        """Raises BadInstance if a sum of finite numbers overflows."""
        least = min((node.capacity for node in self.nodes), default=1.0)
        options = self.options
        factors = len(self.key_groups) + options.serialise_cost + options.deserialise_cost + options.score_factor
        for path, name, total in (
            (".nodes", "capacity", sum(float(node.capacity) for node in self.nodes)),
            (".key_groups", "load", sum(float(key_group.load) for key_group in self.key_groups) / least),
            (".key_groups", "state_bytes", sum(float(key_group.state_bytes) for key_group in self.key_groups)),
            (".key_groups", "usage", sum(float(each) for group in self.key_groups for each in group.usage.values())),
            (".flows", "rate", sum(float(flow.rate) for flow in self.flows) * factors / min(1.0, least)),
        ):
            if not is_finite(total):
                raise BadInstance(path, f"a sum of {name} beyond every number", "a finite sum")


def parse_snapshot(text: str | bytes) -> BalanceInstance:
    """The instance in a JSON text. Raises `BadInstance`."""
    return decode_snapshot(parse_document(text))


def decode_snapshot(document: object) -> BalanceInstance:
    """The instance in a decoded JSON document. Raises `BadInstance`."""
    with located("$"):
        entry = read_object(document, ("version", "nodes", "key_groups"), ("flows", "budget", "options"))
        check_version(".version", entry["version"], VERSION)
        nodes = read_each(entry["nodes"], ".nodes", _read_node)
        key_groups = read_each(entry["key_groups"], ".key_groups", _read_key_group)
        flows = read_each(entry.get("flows", []), ".flows", _read_flow)
        with located(".budget"):
            budget = _read_budget(entry.get("budget", {}))
        with located(".options"):
            options = SnapshotOptions(**read_object(entry.get("options", {}), (), OPTIONS))
        return BalanceInstance(nodes=nodes, key_groups=key_groups, flows=flows, budget=budget, options=options)


OPTIONS = tuple(each.name for each in fields(SnapshotOptions))


def _read_node(value: object) -> Node:
    return Node(**read_object(value, ("id", "capacity"), ("removing", "limits")))


def _read_key_group(value: object) -> SnapshotKeyGroup:
    return SnapshotKeyGroup(
        **read_object(value, ("id", "operator", "node", "load", "state_bytes"), ("usage", "pinned"))
    )


def _read_flow(value: object) -> TupleFlow:
    entry = read_object(value, ("from", "to", "rate"), ())
    return TupleFlow(source=entry["from"], target=entry["to"], rate=entry["rate"])


def _read_budget(value: object) -> MigrationBudget:
    entry = read_object(value, (), ("max_migrations", "max_cost_bytes"))
    for key, limit in entry.items():
        if limit is None:  # in a document, an absent key means no limit
            raise BadInstance(f".{key}", "null", "a number")
    return MigrationBudget(**entry)


def encode_snapshot(instance: BalanceInstance) -> dict[str, Any]:
    """The document of `instance` without defaults, the inverse of `decode_snapshot`."""
    document: dict[str, Any] = {
        "version": VERSION,
        "nodes": [_without_defaults(node) for node in instance.nodes],
        "key_groups": [_without_defaults(key_group) for key_group in instance.key_groups],
    }
    if instance.flows:
        document["flows"] = [{"from": flow.source, "to": flow.target, "rate": flow.rate} for flow in instance.flows]
    for name, value in (("budget", instance.budget), ("options", instance.options)):
        if entries := _without_defaults(value):
            document[name] = entries
    return document


def _without_defaults(value: Node | SnapshotKeyGroup | MigrationBudget | SnapshotOptions) -> dict[str, Any]:
    entries = {}
    for each in fields(value):
        content = getattr(value, each.name)
        default = {} if each.default_factory is dict else each.default
        if content != default:
            entries[each.name] = dict(content) if isinstance(content, Mapping) else content
    return entries
