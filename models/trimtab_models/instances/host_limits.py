"""Limits of hosts in a snapshot, whose form knows limits of nodes only: by the names of resources, which are free.

A node's limit `host:HOST:RESOURCE` holds for all nodes with a limit of that name together.  What key groups use of
RESOURCE follows from their `usage` of that name, or from their load if it is `load`; on the node NODE it is their usage
of `node:NODE:RESOURCE`, if they have one.  Of a resource whose name begins with `kept_` a key group that moves goes on
using as much where it was.

A reader that does not know these names finds limits of resources that no key group uses, and so ignores them.  Where
key groups do use a resource of such a name, it is one like any other.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from trimtab_models.instances.reading import BadInstance, shown, step

LOAD = "load"
KEPT = "kept_"
"""How the names of resources begin that a key group goes on using where it was."""
_HOST, _NODE = "host", "node"


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
