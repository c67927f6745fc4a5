"""The topology document and the methods even and lf: what is refused and how, and the result document."""

import json
from functools import partial

import pytest

from tests.models.documents import TOPOLOGY
from trimtab_models.instances.topology import Slot
from trimtab_models.placement import sort_slots

DOCUMENT = {key: value for key, value in TOPOLOGY.items() if key != "slots_wanted"}


@pytest.fixture
def solve(solve):
    return partial(solve, method="lf")


def test_lf_fills_whole_pipelines_into_slots_and_says_what_it_is_worth(solve):
    code, out, err = solve(DOCUMENT)
    plan = json.loads(out)
    assert (code, err) == (0, "")
    n1, n2 = {"node": "n1", "port": 6700}, {"node": "n2", "port": 6700}
    n2_second = {"node": "n2", "port": 6701}
    assert plan == {
        "method": "lf",
        "assignment": {"a#0": n2, "a#1": n1, "b#0": n2, "c#0": n2, "c#1": n2_second},
        "cohesion": 2 + 1 / 40,
        "coupling": 5 / 40,
        "remote_senders": 1,
        "slots_used": 3,
        "pipelines": [["a#0", "b#0", "c#0"], ["a#1"], ["c#1"]],
    }


def test_even_deals_the_instances_out_one_by_one(solve):
    code, out, _ = solve(DOCUMENT | {"slots_wanted": 2}, method="even")
    plan = json.loads(out)
    n1, n2 = {"node": "n1", "port": 6700}, {"node": "n2", "port": 6700}
    assert (code, plan["slots_used"]) == (0, 2)
    assert plan["assignment"] == {"a#0": n2, "a#1": n1, "b#0": n2, "c#0": n1, "c#1": n2}
    assert plan["pipelines"] == [["a#0"], ["a#1"], ["b#0"], ["c#0"], ["c#1"]]


@pytest.mark.parametrize("method", ["even", "lf"])
def test_more_slots_wanted_than_there_are_takes_all(solve, method):
    code, out, _ = solve(DOCUMENT | {"slots_wanted": 99}, method=method)
    assert (code, json.loads(out)["slots_used"]) == (0, 3)


@pytest.mark.parametrize("method", ["even", "lf"])
def test_a_job_without_operators_is_an_empty_plan(solve, method):
    code, out, _ = solve(DOCUMENT | {"operators": [], "edges": []}, method=method)
    plan = json.loads(out)
    assert (code, plan["assignment"], plan["cohesion"], plan["coupling"], plan["slots_used"]) == (0, {}, 0, 0, 0)


def test_slots_are_sorted_one_per_node_and_round_nodes_with_most_slots_first():
    slots = [("n9", 2), ("n1", 5), ("n9", 1), ("n2", 7), ("n2", 3), ("n9", 4)]
    ordered = sort_slots([Slot(node=node, port=port) for node, port in slots])
    assert [(slot.node, slot.port) for slot in ordered] == [
        ("n9", 1), ("n2", 3), ("n1", 5), ("n9", 2), ("n2", 7), ("n9", 4)
    ]  # fmt: skip
