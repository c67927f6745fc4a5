"""The Elastic Allocator: GMA against a dumb twin, and `trimtab solve elastic` with its documents."""

import json
from dataclasses import replace
from statistics import pstdev

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.papers.elastic import QueryOperator, WorkerNode, allocate
from tests.models.test_balance_documents import check, documents
from trimtab_models.balance.problem import Ints
from trimtab_models.elastic.matching import NodeLevel, ResourceDemands, level_of, match
from trimtab_models.solving import Never, method_named


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
def run(solve):
    def solved(document, *arguments):
        code, out, err = solve(document, *arguments, method="elastic")
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


@pytest.mark.parametrize(
    ("loads", "limits", "usages", "target"),
    [
        ([10, 20, 5], [100, 100, 100], [30, 30, 55], "n1"),  # n2 would have 85 % of its memory in use
        ([10, 20, 5], [100, 100, 100], [70, 35, 35], None),
        ([10, 5, 20], [100, 100, None], [90, 10, 10], "n2"),
    ],
    ids=["the same threshold as load", "none is passed, not even on a light node", "a node without a limit"],
)
def test_a_limited_resource_counts_as_load_does(run, loads, limits, usages, target):
    document = with_memory(cluster(list(enumerate(loads)), removing=[0]), limits, usages)
    _, plan, err = run(document)
    assert moves(plan) == ({("k0", "n0", target)} if target else set())
    assert err.count("k0") == (target is None)


@settings(max_examples=150)
@given(documents())
def test_every_plan_keeps_the_contract(document):
    method = method_named("elastic")
    instance = method.read(json.dumps(document).encode())
    plan = method.solve(instance, Never(), 0)
    check(document, plan.document, "elastic")
    marked = {node["id"] for node in document["nodes"] if node["removing"]}
    assert all(
        move["from"] is None or move["from"] in marked for move in plan.document["moves"]
    )  # it moves nothing else
    assert method.solve(instance, Never(), 7) == plan


quick = settings(max_examples=150)
ALL = 10**9


@pytest.mark.parametrize(
    ("utilisation", "level"),
    [
        (0, NodeLevel.LIGHT), (39.9, NodeLevel.LIGHT), (40, NodeLevel.MODERATE),
        (79.9, NodeLevel.MODERATE), (80, NodeLevel.HEAVY), (300, NodeLevel.HEAVY),
    ],
)  # fmt: skip
def test_section_iv_d_levels_are_light_below_40_and_heavy_from_80(utilisation, level):
    assert level_of(utilisation) is level


def demands_of(used, demand):
    """Resources of which a unit is a percent of every node, without ceilings."""
    used = np.array(used, float)
    return ResourceDemands(
        used=used, demand=np.array(demand, float), per_unit=np.ones_like(used), ceiling=np.full_like(used, np.inf)
    )


def twin(used, demand, threshold, operations):
    """The design's sentence on GMA, item by item and node by node; no prices, no ceilings, unit capacities."""
    used = [list(row) for row in used]
    nodes, items = range(len(used[0])), range(len(demand[0]))
    order = sorted(items, key=lambda item: -max(row[item] for row in demand))
    placed, received, left = {}, [0] * len(nodes), []

    def put(item, node):
        placed[item] = node
        received[node] += 1
        for row, amounts in zip(used, demand, strict=True):
            row[node] += amounts[item]

    def deviation(item, node):
        return sum(
            pstdev(percent + amounts[item] * (at == node) for at, percent in enumerate(row))
            for row, amounts in zip(used, demand, strict=True)
        )

    for item in order:
        operations -= len(nodes)
        rows = list(zip(used, demand, strict=True))
        under = [node for node in nodes if all(row[node] + amounts[item] <= threshold for row, amounts in rows)]
        if operations < 0 or not under:
            left.append(item)
            continue
        least = min(deviation(item, node) for node in under)
        put(item, min((n for n in under if deviation(item, n) <= least + 1e-9), key=lambda node: received[node]))
    light = [node for node in nodes if max(row[node] for row in used) < 40]
    for item in left if light else []:
        put(item, min(light, key=lambda node: max(row[node] for row in used)))
    return placed


percents = st.integers(0, 90)


@quick
@given(st.data())
def test_gma_is_its_dumb_twin(data):
    nodes, items, resources = data.draw(st.integers(1, 4)), data.draw(st.integers(0, 5)), data.draw(st.integers(1, 3))

    def rows(width, numbers):
        return data.draw(
            st.lists(st.lists(numbers, min_size=width, max_size=width), min_size=resources, max_size=resources)
        )

    used, demand = rows(nodes, percents), rows(items, st.integers(0, 60))
    operations = data.draw(st.sampled_from([0, 4, 9, ALL]))
    matched = match(demands_of(used, demand), threshold=80, operations=operations, stop=Never())
    expected = twin(used, demand, 80, operations)
    assert {item: node for item, node in enumerate(matched.node.tolist()) if node >= 0} == expected
    assert set(matched.refused) == set(range(items)) - set(expected)
    assert matched.operations <= operations


def test_a_stop_ends_the_matching_and_the_rest_goes_evenly():
    matched = match(demands_of([[0, 0]], [[10, 10]]), threshold=80, operations=ALL, stop=lambda: True)
    assert (sorted(matched.node.tolist()), matched.operations) == ([0, 1], 0)


def test_idle_items_spread_over_the_nodes():
    matched = match(demands_of([[10, 20, 30]], [[0] * 6]), threshold=80, operations=ALL, stop=Never())
    assert sorted(matched.node.tolist()) == [0, 0, 1, 1, 2, 2]


def test_an_item_that_is_too_dear_is_passed_over():
    demands = demands_of([[0, 0]], [[30, 20, 10]])
    priced = ResourceDemands(
        used=demands.used, demand=demands.demand, per_unit=demands.per_unit, ceiling=demands.ceiling,
        prices=np.array([[5.0, 2.0, 3.0]]), allowances=np.array([5.0]),
    )  # fmt: skip
    matched = match(priced, threshold=80, operations=ALL, stop=Never())
    assert (matched.node.tolist(), matched.refused) == ([0, -1, -1], ())


def test_nothing_passes_its_ceiling_even_on_a_light_node():
    demands = demands_of([[10, 30]], [[60]])
    walled = ResourceDemands(
        used=demands.used, demand=demands.demand, per_unit=demands.per_unit, ceiling=np.array([[50.0, 95.0]])
    )
    assert match(walled, threshold=40, operations=ALL, stop=Never()).node.tolist() == [1]


NODES = [
    WorkerNode(id="n1", cpu_pct=60, bandwidth_pct=10),
    WorkerNode(id="n2", cpu_pct=10, bandwidth_pct=70),
    WorkerNode(id="n3", cpu_pct=20, bandwidth_pct=20),
]


def operator(id_, cpu, bandwidth, ratio):
    return QueryOperator(id=id_, cpu_pct=cpu, bandwidth_pct=bandwidth, input_rate=100 * ratio, service_rate=100)


def test_section_iv_a_load_and_bandwidth_are_what_is_in_use_plus_e_and_u_times_r_by_s():
    result = allocate(NODES, [operator("top-k", 20, 30, 0.5)], stop=Never(), operations=ALL)
    assert result.assignment == {"top-k": "n3"}  # 30 % and 35 % there
    assert result.levels == {"n1": NodeLevel.MODERATE, "n2": NodeLevel.MODERATE, "n3": NodeLevel.LIGHT}
    two = [operator("join", 30, 30, 1), operator("small", 1, 1, 1)]
    full = allocate(NODES[:2], two, stop=Never(), operations=ALL)
    assert (full.refused, set(full.assignment)) == (("join",), {"small"})


def test_figure_5_the_deviation_is_less_than_that_of_an_even_deal_and_of_a_random_one():
    """Ten nodes with what word count and join use, top-k to be placed: the ordering of figure 5 (not its values)."""
    random = np.random.default_rng(5)
    used = random.uniform(5, 45, (2, 10))
    demand = random.uniform(2, 12, (2, 30))
    matched = match(demands_of(used, demand), threshold=80, operations=ALL, stop=Never())
    dealt = {"even": np.arange(30) % 10, "random": random.integers(0, 10, 30)}

    def deviation(node):
        after = used.copy()
        for row, amounts in zip(after, demand, strict=True):
            row += np.bincount(node, amounts, 10)
        return after.std(axis=1).sum()

    assert deviation(matched.node) < 0.6 * min(deviation(node) for node in dealt.values())


@given(
    used=st.lists(st.integers(0, 99), min_size=1, max_size=8),
    sizes=st.lists(st.integers(0, 60), max_size=25),
    operations=st.integers(0, 300),
    link=st.booleans(),
)
def test_the_heap_places_like_the_objective(used: list[int], sizes: list[int], operations: int, *, link: bool) -> None:
    """One resource that is equal on all nodes, beside another that is in use but not asked for."""
    nodes, items = len(used), len(sizes)
    busy = [90.0 if link and node == 0 else 0.0 for node in range(nodes)]
    demands = ResourceDemands(
        used=np.array([used, busy], np.float64),
        demand=np.array([sizes, [0] * items], np.float64).reshape(2, items),
        per_unit=np.array([[1.0] * nodes, [0.0] * nodes]),
        ceiling=np.full((2, nodes), np.inf),
    )
    with_budget = replace(demands, prices=np.zeros((1, items)), allowances=np.ones(1))  # not by heap
    fast = match(demands, threshold=80.0, operations=operations, stop=Never())
    slow = match(with_budget, threshold=80.0, operations=operations, stop=Never())

    def loads(node: Ints) -> list[float]:
        placed = [(size, at) for size, at in zip(sizes, node.tolist(), strict=True) if at >= 0]
        return sorted(used[n] + sum(size for size, at in placed if at == n) for n in range(nodes))

    assert fast.refused == slow.refused
    assert fast.rest == slow.rest
    assert loads(fast.node) == loads(slow.node)
