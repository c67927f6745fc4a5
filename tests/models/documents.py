"""A document of every kind of instance, which shows all its keys; and changed ones."""

import copy
from typing import Any

Place = tuple[str | int, ...]

SCHEDULING: dict[str, Any] = {
    "version": 1,
    "servers": [
        {"id": "s1", "cores": [0.75, "inf", 2.0], "g": {"kind": "affine", "a": 1.0, "b": 0.5, "cap": None}},
        {"id": "s2", "cores": [], "g": {"kind": "table", "values": [1.5, 1.5, 4.0, "inf"]}},
    ],
    "tasks": [{"id": "t1", "replicas": ["s1", "s2"]}, {"id": "t2", "replicas": []}],
    "wait": 0.25,
}
SNAPSHOT: dict[str, Any] = {
    "version": 1,
    "nodes": [
        {"id": "n1", "capacity": 1.0, "limits": {"memory_bytes": 8e9}},
        {"id": "n2", "capacity": 0.5, "removing": True},
    ],
    "key_groups": [
        {
            "id": "k1", "operator": "count", "node": "n1", "load": 2.5, "state_bytes": 1048576,
            "usage": {"memory_bytes": 2e7},
        },
        {"id": "k2", "operator": "sum", "node": None, "load": 0, "state_bytes": 0, "pinned": True},
    ],
    "flows": [{"from": "k1", "to": "k2", "rate": 120.0}],
    "budget": {"max_migrations": 13, "max_cost_bytes": 1e6},
    "options": {"max_load_distance": 12.0},
}  # fmt: skip
SPOUT: dict[str, Any] = {
    "id": "spout", "source": True, "alpha": 1.0, "instances": 1,
    "cost": {"slow": 0.2, "fast": 0.1}, "fixed": {"slow": 1, "fast": 0.5},
}  # fmt: skip
BOLT: dict[str, Any] = {
    "id": "bolt", "alpha": 0.5, "instances": 2, "cost": {"slow": 1, "fast": 0.5}, "fixed": {"slow": 2, "fast": 1},
}  # fmt: skip
SIZING: dict[str, Any] = {
    "version": 1,
    "machines": [{"id": "m1", "type": "slow"}, {"id": "m2", "type": "fast"}],
    "source_rate": 8.0,
    "max_instances": 6,
    "operators": [SPOUT, BOLT],
    "edges": [{"from": "spout", "to": "bolt"}],
}
TOPOLOGY: dict[str, Any] = {
    "version": 1,
    "operators": [{"id": "a", "instances": 2}, {"id": "b", "instances": 1}, {"id": "c", "instances": 2}],
    "edges": [{"from": "a", "to": "b"}, {"from": "b", "to": "c", "keyed": True}],
    "slots": [{"node": "n1", "port": 6700}, {"node": "n2", "port": 6700}, {"node": "n2", "port": 6701}],
    "slots_wanted": 2,
}


def changed(document: dict[str, Any], place: Place, value: Any) -> dict[str, Any]:
    """The document with another `value` at `place`; ... is none at all."""
    found = holder = copy.deepcopy(document)
    for step in place[:-1]:
        holder = holder[step]  # type: ignore[index]
    if value is ...:
        del holder[place[-1]]  # type: ignore[arg-type]
    else:
        holder[place[-1]] = value  # type: ignore[index]
    return found


def cluster(**changes: Any) -> dict[str, Any]:
    """Four key groups of load 10 on the first of two nodes."""
    return {
        "version": 1,
        "nodes": [{"id": "n1", "capacity": 1}, {"id": "n2", "capacity": 1}],
        "key_groups": [
            {"id": f"k{at}", "operator": "o", "node": "n1", "load": 10, "state_bytes": 100} for at in range(4)
        ],
    } | changes


def each_key_group(**changes: Any) -> dict[str, Any]:
    """The same with other values in every key group."""
    return cluster(key_groups=[each | changes for each in cluster()["key_groups"]])
