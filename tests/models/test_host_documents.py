"""Limits of hosts in instance files: which plans they forbid, and what is refused."""

from typing import Any

import pytest

from trimtab_models.albic.methods import METHODS as COLLOCATION
from trimtab_models.balance.hosts import limits_in
from trimtab_models.balance.methods import METHODS as BALANCE
from trimtab_models.balance.problem import problem_of
from trimtab_models.instances.reading import BadInstance
from trimtab_models.instances.snapshot import decode_snapshot
from trimtab_models.solving import Never, PlanDocument

METHODS = {**BALANCE, "albic": COLLOCATION["albic"]}


def document(host_limits: dict[str, float], usage: dict[str, float] | None = None) -> dict[str, Any]:
    """Six key groups of load 20 on n0; n1 and n2 are empty, and on the same host."""
    nodes = [{"id": "n0", "capacity": 1.0}] + [
        {"id": name, "capacity": 1.0, "limits": {f"host:h1:{key}": value for key, value in host_limits.items()}}
        for name in ("n1", "n2")
    ]
    key_groups = [
        {"id": f"k{number}", "operator": "o", "node": "n0", "load": 20, "state_bytes": 5, "usage": dict(usage or {})}
        for number in range(6)
    ]
    return {"version": 1, "nodes": nodes, "key_groups": key_groups, "options": {"max_load_distance": 5.0}}


def moved(document: dict[str, Any], method: str = "milp") -> dict[str, str]:
    plan = METHODS[method].solve(decode_snapshot(document), Never(), 0)
    assert isinstance(plan, PlanDocument)
    return {each["key_group"]: each["to"] for each in plan.document["moves"]}


@pytest.mark.parametrize("method", ["milp", "flux", "albic"])
def test_what_the_nodes_of_a_host_carry_together_is_limited(method: str) -> None:
    assert len(moved(document({}), method)) == 4
    assert 0 < len(moved(document({"load": 59.0}), method)) <= 2
    assert 0 < len(moved(document({"memory": 15.0}, {"memory": 5.0}), method)) <= 3


@pytest.mark.parametrize("method", ["milp", "flux", "albic"])
def test_a_key_group_uses_less_on_the_node_that_has_its_state(method: str) -> None:
    full = document({"kept_disk": 4.0}, {"kept_disk": 5.0})
    assert moved(full, method) == {}
    full["key_groups"][0]["usage"]["node:n2:kept_disk"] = 0.0
    assert moved(full, method) == {"k0": "n2"}


def test_what_is_kept_stays_in_use_where_it_was() -> None:
    """n0 has its own host with room for its six states; k5 is on n1 and lighter than what n0 could give for it."""
    for name, exchanged in (("disk", True), ("kept_disk", False)):
        given = document({name: 5.0}, {name: 5.0})
        given["key_groups"][5] |= {"node": "n1", "load": 1}
        assert ("k5" in moved(given)) is exchanged


def test_limits_of_hosts_are_none_of_their_nodes() -> None:
    instance = decode_snapshot(document({"load": 50.0}))
    assert problem_of(instance).limit.size == 0
    assert limits_in(decode_snapshot(document({}))) is None


def test_a_resource_of_such_a_name_that_key_groups_use_is_one_like_any_other() -> None:
    given = document({"disk": 5.0}, {"host:h1:disk": 5.0})
    assert limits_in(decode_snapshot(given)) is None
    assert problem_of(decode_snapshot(given)).limit.shape == (1, 3)
    assert len(moved(given)) == 2, "one on each node"


@pytest.mark.parametrize(
    ("name", "found", "expected"),
    [
        ("host:h2:load", 'a limit of host "h2"', 'limits of one host, "h1"'),
        ("host:h1:load", "9.0", "50.0, as for the other nodes of the host"),
    ],
)
def test_hosts_that_contradict_each_other_are_refused(name: str, found: str, expected: str) -> None:
    given = document({"load": 50.0})
    given["nodes"][2]["limits"] = {"host:h1:memory": 1.0, name: 9.0}
    with pytest.raises(BadInstance) as refusal:
        decode_snapshot(given)
    path = f'$.nodes[2].limits["{name}"]'
    assert (refusal.value.path, refusal.value.found, refusal.value.expected) == (path, found, expected)
