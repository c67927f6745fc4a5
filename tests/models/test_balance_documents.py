"""Result documents of `milp` and `flux`, field by field, by a checker that knows the file contract only."""

import json
import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.models.documents import cluster, each_key_group
from trimtab_models.solving import Infeasible, Never, method_named

quick = settings(max_examples=25)
METHODS = ("milp", "flux")
FIELDS = {
    "method", "status", "moves", "load_distance_before", "load_distance", "lower_bound", "mean_load", "node_loads",
    "migrations", "cost_bytes", "collocation_before", "collocation",
}  # fmt: skip


def planned(document: dict[str, Any], method: str, seed: int = 0) -> dict[str, Any]:
    """The result document, through the same door as the command line."""
    called = method_named(method)
    plan = called.solve(called.read(json.dumps(document).encode()), Never(), seed)
    assert not isinstance(plan, Infeasible)
    return json.loads(json.dumps(plan.document, allow_nan=False))


def check(document: dict[str, Any], result: dict[str, Any], method: str) -> None:
    """Every rule of the contract on the result, recomputed from both documents with plain dictionaries."""
    nodes = {node["id"]: node for node in document["nodes"]}
    key_groups = {each["id"]: each for each in document["key_groups"]}
    before = {id_: each["node"] for id_, each in key_groups.items()}
    assert result.keys() == FIELDS
    assert result["method"] == method
    after = dict(before)
    assert len({move["key_group"] for move in result["moves"]}) == len(result["moves"])
    for move in result["moves"]:
        assert move.keys() == {"key_group", "from", "to"}
        assert move["from"] == before[move["key_group"]] != move["to"]
        assert not nodes[move["to"]].get("removing", False)
        assert move["from"] is None or not key_groups[move["key_group"]].get("pinned", False)
        after[move["key_group"]] = move["to"]
    assert None not in after.values()
    migrated = [move["key_group"] for move in result["moves"] if move["from"] is not None]
    cost = sum(max(1, key_groups[id_]["state_bytes"]) for id_ in migrated)
    budget = document.get("budget", {})
    assert result["migrations"] == len(migrated) <= budget.get("max_migrations", math.inf)
    assert result["cost_bytes"] == pytest.approx(cost)
    assert cost <= budget.get("max_cost_bytes", math.inf)
    kept = [id_ for id_, node in nodes.items() if not node.get("removing", False)]
    mean = sum(each["load"] for each in key_groups.values()) / sum(nodes[id_]["capacity"] for id_ in kept)
    assert result["mean_load"] == pytest.approx(mean)
    loads = node_loads(nodes, key_groups, after)
    assert result["node_loads"] == pytest.approx(loads)
    assert result["load_distance"] == pytest.approx(distance(loads, kept, mean))
    assert result["load_distance_before"] == pytest.approx(distance(node_loads(nodes, key_groups, before), kept, mean))
    check_limits(nodes, key_groups, before, after)
    flows = document.get("flows", [])
    assert result["collocation_before"] == pytest.approx(collocation(flows, before))
    assert result["collocation"] == pytest.approx(collocation(flows, after))
    assert 0 <= result["lower_bound"] <= result["load_distance"]
    near = result["load_distance"] <= result["lower_bound"] + 0.01
    assert result["status"] == ("unchanged" if not result["moves"] else "optimal" if near else "feasible")


def node_loads(nodes: dict[str, Any], key_groups: dict[str, Any], at: dict[str, Any]) -> dict[str, float]:
    """Percent of each node's own capacity."""
    return {
        id_: sum(each["load"] for name, each in key_groups.items() if at[name] == id_) / node["capacity"]
        for id_, node in nodes.items()
    }


def distance(loads: dict[str, float], kept: list[str], mean: float) -> float:
    return max(0.0, *(loads[id_] - mean for id_ in loads), *(mean - loads[id_] for id_ in kept))


def collocation(flows: list[dict[str, Any]], at: dict[str, Any]) -> float:
    total = sum(flow["rate"] for flow in flows)
    together = [flow["rate"] for flow in flows if at[flow["from"]] == at[flow["to"]] is not None]
    return sum(together) / total if total else 0.0


def check_limits(
    nodes: dict[str, Any], key_groups: dict[str, Any], before: dict[str, Any], after: dict[str, Any]
) -> None:
    """Kept, or not made worse; where key groups are unplaced they may have to exceed them."""
    if None in before.values():
        return
    for id_, node in nodes.items():
        for resource, limit in node.get("limits", {}).items():
            now, then = (
                sum(each.get("usage", {}).get(resource, 0) for name, each in key_groups.items() if at[name] == id_)
                for at in (before, after)
            )
            assert then <= max(limit, now) * (1 + 1e-9)


@st.composite
def documents(draw: st.DrawFn) -> dict[str, Any]:
    """Snapshots with whatever the contract allows, at least one node kept."""
    nodes = [
        {
            "id": f"n{at}", "capacity": draw(st.sampled_from([0.25, 1, 2.5])),
            "removing": at > 0 and draw(st.booleans()),
            **({"limits": {"memory_bytes": draw(st.integers(0, 60))}} if draw(st.booleans()) else {}),
        }
        for at in range(draw(st.integers(1, 5)))
    ]  # fmt: skip
    ids = [node["id"] for node in nodes]
    key_groups = [
        {
            "id": f"k{at}", "operator": draw(st.sampled_from(["a", "b"])),
            "node": draw(st.sampled_from([*ids, *ids, None])), "load": draw(st.one_of(st.just(0), st.floats(0, 30))),
            "state_bytes": draw(st.sampled_from([0, 1, 10, 2.5])),
            "usage": {"memory_bytes": draw(st.integers(0, 20))}, "pinned": draw(st.sampled_from([False, False, True])),
        }
        for at in range(draw(st.integers(0, 12)))
    ]  # fmt: skip
    document: dict[str, Any] = {"version": 1, "nodes": nodes, "key_groups": key_groups}
    if key_groups and draw(st.booleans()):
        end = st.sampled_from([each["id"] for each in key_groups])
        document["flows"] = [
            {"from": draw(end), "to": draw(end), "rate": draw(st.sampled_from([0, 5, 7.5]))} for _ in range(4)
        ]
    budget = {"max_migrations": draw(st.integers(0, 8)), "max_cost_bytes": draw(st.integers(0, 40))}
    document["budget"] = {key: budget[key] for key in draw(st.sets(st.sampled_from(sorted(budget))))}
    return document


@quick
@given(documents(), st.sampled_from(METHODS))
def test_a_result_keeps_every_rule_of_the_contract(document, method):
    check(document, planned(document, method), method)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(
    ("document", "status", "load_distance"),
    [
        (cluster(), "optimal", 0),
        (cluster(budget={}), "optimal", 0),
        (cluster(budget={"max_migrations": 0}), "unchanged", 20),
        (cluster(budget={"max_cost_bytes": 99.5}), "unchanged", 20),
        (cluster(budget={"max_cost_bytes": 100}), "optimal", 10),
        (cluster(budget={"max_migrations": 10**30}), "optimal", 0),
        (cluster(key_groups=[]), "unchanged", 0),
        (cluster(nodes=[{"id": "n1", "capacity": 1}]), "unchanged", 0),
        (each_key_group(load=0), "unchanged", 0),
        (each_key_group(node=None), "optimal", 0),
    ],
)
def test_edges_of_the_contract(document, status, load_distance, method):
    result = planned(document, method)
    check(document, result, method)
    assert (result["status"], result["load_distance"]) == (status, load_distance)


@pytest.mark.parametrize("scale", [1e-300, 1e-12, 1e12, 1e300])
def test_tiny_and_huge_numbers_are_numbers_too(scale):
    document = cluster()
    for at, each in enumerate(document["key_groups"]):
        each |= {"load": scale * (at + 1), "state_bytes": 1e15}
    for method in METHODS:
        check(document, planned(document, method), method)
