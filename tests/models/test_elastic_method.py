"""`trimtab solve elastic`: the snapshot family's documents, budgets, pins, limits, refusals."""

import json
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trimtab_controller.cli import main
from trimtab_models.balance.problem import problem_of
from trimtab_models.elastic.matching import NodeLevel
from trimtab_models.elastic.solve import node_levels, solve
from trimtab_models.instances.snapshot import decode_snapshot
from trimtab_models.solving import Infeasible, Never, method_named


def cluster(loads, *, removing=(), nodes=3, **changes):
    """Nodes n0, n1, ... of capacity 1; `loads`: [(node or None, load)]; 100 bytes of state each."""
    return {
        "version": 1,
        "nodes": [{"id": f"n{at}", "capacity": 1, "removing": at in removing} for at in range(nodes)],
        "key_groups": [
            {"id": f"k{at}", "operator": "o", "node": None if node is None else f"n{node}", "load": load,
             "state_bytes": 100}
            for at, (node, load) in enumerate(loads)
        ],
    } | changes  # fmt: skip


@pytest.fixture
def run(tmp_path, capsys):
    def solved(document, *arguments):
        path = tmp_path / "instance.json"
        path.write_text(json.dumps(document))
        code = main(["solve", "elastic", str(path), *arguments])
        out, err = capsys.readouterr()
        return code, json.loads(out) if out else None, err

    return solved


def moves(plan):
    return {(move["key_group"], move["from"], move["to"]) for move in plan["moves"]}


def test_a_marked_node_is_emptied_onto_the_others_and_nothing_else_moves(run):
    code, plan, err = run(cluster([(0, 20), (0, 20), (1, 30), (2, 15), (2, 15)], removing=[0]))
    assert (code, err, plan["method"], plan["status"]) == (0, "", "elastic", "optimal")
    assert moves(plan) == {("k0", "n0", "n1"), ("k1", "n0", "n2")}
    assert (plan["migrations"], plan["cost_bytes"], plan["load_distance"], plan["lower_bound"]) == (2, 200, 0, 0)


def test_a_lost_key_group_is_placed_at_no_cost(run):
    code, plan, _ = run(cluster([(None, 20), (0, 30), (1, 30)], budget={"max_migrations": 0}))
    assert (code, moves(plan)) == (0, {("k0", None, "n2")})
    assert (plan["migrations"], plan["cost_bytes"]) == (0, 0)


def test_a_cluster_without_marked_nodes_is_left_alone_however_uneven(run):
    code, plan, err = run(cluster([(0, 90), (0, 5), (1, 1)]))
    assert (code, err, plan["status"], plan["moves"]) == (0, "", "unchanged", [])


def test_the_budget_goes_to_the_heaviest_key_groups(run):
    loads = [(0, 5), (0, 25), (0, 15), (1, 10), (2, 10)]
    _, plan, err = run(cluster(loads, removing=[0], budget={"max_migrations": 2}))
    assert ({move[0] for move in moves(plan)}, err) == ({"k1", "k2"}, "")
    _, plan, _ = run(cluster(loads, removing=[0], budget={"max_cost_bytes": 150}))
    assert {move[0] for move in moves(plan)} == {"k1"}


def test_a_pinned_key_group_stays_on_its_marked_node_and_is_named(run):
    document = cluster([(0, 20), (0, 10)], removing=[0])
    document["key_groups"][0]["pinned"] = True
    code, plan, err = run(document)
    assert (code, {move[0] for move in moves(plan)}) == (0, {"k1"})
    assert err == "warning: key group 'k0' cannot leave node 'n0', which is draining: it is pinned\n"


@pytest.mark.parametrize("load", [60, 120])
def test_what_fits_under_80_percent_nowhere_goes_to_a_light_node_whatever_its_load(run, load):
    code, plan, err = run(cluster([(0, load), (1, 50), (2, 30)], removing=[0]))
    assert (code, moves(plan), err) == (0, {("k0", "n0", "n2")}, "")


def test_without_a_light_node_it_is_refused_and_said(run):
    code, plan, err = run(cluster([(0, 60), (1, 50), (2, 45)], removing=[0]))
    assert (code, plan["moves"], plan["status"]) == (0, [], "unchanged")
    assert err == (
        "warning: key group 'k0' stays on node 'n0', which is draining: "
        "no other node has room for it under 80 %, and no light one takes it\n"
    )


def test_a_lost_key_group_cannot_be_refused(run):
    code, plan, err = run(cluster([(None, 60), (0, 90), (1, 85), (2, 88)]))
    assert (code, moves(plan)) == (0, {("k0", None, "n1")})
    assert err.startswith("warning: key group 'k0' is put on node 'n1' although it is full: no other node has room")


def with_memory(document, limits, usages):
    for node, limit in zip(document["nodes"], limits, strict=True):
        if limit is not None:
            node["limits"] = {"memory_bytes": limit}
    for key_group, usage in zip(document["key_groups"], usages, strict=True):
        key_group["usage"] = {"memory_bytes": usage}
    return document


def test_a_limited_resource_has_the_same_threshold_as_load(run):
    document = with_memory(cluster([(0, 10), (1, 20), (2, 5)], removing=[0]), [100, 100, 100], [30, 30, 55])
    _, plan, _ = run(document)
    assert moves(plan) == {("k0", "n0", "n1")}  # by load alone it would be n2, with 85 % of its memory then


def test_no_limit_is_passed_not_even_on_a_light_node(run):
    document = with_memory(cluster([(0, 10), (1, 20), (2, 5)], removing=[0]), [100, 100, 100], [70, 35, 35])
    _, plan, err = run(document)
    assert (plan["moves"], err.count("k0")) == ([], 1)


def test_a_node_without_a_limit_takes_what_others_cannot(run):
    document = with_memory(cluster([(0, 10), (1, 5), (2, 20)], removing=[0]), [100, 100, None], [90, 10, 10])
    _, plan, _ = run(document)
    assert moves(plan) == {("k0", "n0", "n2")}


@pytest.mark.parametrize(
    ("document", "reason"),
    [
        (cluster([], nodes=0), "there is no node"),
        (cluster([(0, 1)], removing=[0, 1, 2]), "all nodes are draining"),
    ],
)
def test_no_node_to_keep_is_exit_3(run, document, reason):
    assert run(document) == (3, None, f"trimtab solve: {reason}\n")
    assert isinstance(solve(problem_of(decode_snapshot(document)), stop=Never(), seed=0), Infeasible)


def test_bad_input_is_exit_2(run, tmp_path):
    code, _, err = run(cluster([("x", 1)]))
    message = '$.key_groups[0].node: found "nx", expected the id of a node, or null'
    assert (code, err) == (2, f"trimtab solve: {tmp_path}/instance.json: {message}\n")


def test_a_time_limit_of_nothing_still_gives_a_plan(run):
    code, plan, _ = run(cluster([(0, 20), (None, 10), (1, 10)], removing=[0]), "--time-limit", "0")
    assert (code, {move[0] for move in moves(plan)}) == (0, {"k0", "k1"})


def test_huge_loads_are_placed_all_the_same(run):
    code, plan, _ = run(cluster([(0, 1e200), (None, 1e-3), (1, 1e199)]))
    assert (code, moves(plan)) == (0, {("k1", None, "n2")})


def test_levels_are_those_of_the_busier_resource():
    document = with_memory(cluster([(0, 10), (1, 50), (2, 5)]), [100, 100, 0], [85, 10, 0])
    problem = problem_of(decode_snapshot(document))
    assert node_levels(problem, problem.home) == (NodeLevel.HEAVY, NodeLevel.MODERATE, NodeLevel.LIGHT)


@st.composite
def documents(draw):
    nodes = draw(st.integers(1, 4))
    kept = draw(st.integers(0, nodes - 1))
    names = [f"n{at}" for at in range(nodes)]
    return {
        "version": 1,
        "nodes": [
            {
                "id": name,
                "capacity": draw(st.sampled_from([0.5, 1, 2])),
                "removing": at != kept and draw(st.booleans()),
                "limits": draw(st.sampled_from([{}, {"m": 5}, {"m": 0}, {"m": 9, "d": 3}])),
            }
            for at, name in enumerate(names)
        ],
        "key_groups": [
            {
                "id": f"k{at}",
                "operator": "o",
                "node": draw(st.sampled_from([None, *names])),
                "load": draw(st.sampled_from([0, 5, 10.5, 30, 70])),
                "state_bytes": draw(st.integers(0, 9)),
                "usage": draw(st.sampled_from([{}, {"m": 2}, {"m": 1, "d": 1}])),
                "pinned": draw(st.booleans()),
            }
            for at in range(draw(st.integers(0, 7)))
        ],
        "budget": draw(st.sampled_from([{}, {"max_migrations": 2}, {"max_cost_bytes": 9}])),
    }


def check(document, plan):
    """The contract's rules, from the two documents alone."""
    nodes = {node["id"]: node for node in document["nodes"]}
    groups = {group["id"]: group for group in document["key_groups"]}
    to = {move["key_group"]: move["to"] for move in plan["moves"]}
    paid = []
    for move in plan["moves"]:
        group = groups[move["key_group"]]
        assert move["from"] == group["node"] != move["to"]
        assert not nodes[move["to"]].get("removing")
        if group["node"] is not None:
            assert not group["pinned"]
            assert nodes[group["node"]]["removing"]  # GMA moves nothing else
            paid.append(max(1, group["state_bytes"]))
    assert (plan["migrations"], plan["cost_bytes"]) == (len(paid), sum(paid))
    assert len(paid) <= document["budget"].get("max_migrations", 99)
    assert sum(paid) <= document["budget"].get("max_cost_bytes", 99)
    loads, before, after = Counter(), Counter(), Counter()
    for id_, group in groups.items():
        node = to.get(id_, group["node"])
        assert node is not None
        loads[node] += group["load"] / nodes[node]["capacity"]
        for resource, amount in group["usage"].items():
            after[node, resource] += amount
            before[group["node"], resource] += amount
    assert plan["node_loads"] == pytest.approx({node: loads[node] for node in nodes})
    if all(group["node"] is not None for group in groups.values()):
        for (node, resource), amount in after.items():
            assert amount <= max(nodes[node]["limits"].get(resource, 99), before[node, resource])
    mean = plan["mean_load"]
    distances = [loads[id_] - mean if node["removing"] else abs(loads[id_] - mean) for id_, node in nodes.items()]
    assert plan["load_distance"] == pytest.approx(max(0, *distances))
    assert plan["lower_bound"] <= plan["load_distance"]
    near = plan["load_distance"] <= plan["lower_bound"] + 0.01
    assert plan["status"] == ("optimal" if near else "feasible") if plan["moves"] else "unchanged"


@settings(max_examples=150)
@given(documents())
def test_every_plan_keeps_the_contract(document):
    method = method_named("elastic")
    instance = method.read(json.dumps(document).encode())
    plan = method.solve(instance, Never(), 0)
    check(document, plan.document)
    assert method.solve(instance, Never(), 7) == plan
