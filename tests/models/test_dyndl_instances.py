"""The scheduling document: what is read comes back, what breaks the contract is refused by path, found and expected."""

import copy
import json
import math
from typing import Any

import numpy as np
import pytest

from benchmarks.dyndl.generate import Experiment, encode_scheduling, generate
from trimtab_models.dyndl.problem import RemoteTaskCosts
from trimtab_models.instances.reading import BadInstance
from trimtab_models.instances.scheduling import AffineCost, TableCost, decode_scheduling, parse_scheduling

DOCUMENT: dict[str, Any] = {
    "version": 1,
    "servers": [
        {"id": "s1", "cores": [0.75, "inf", 2.0], "g": {"kind": "affine", "a": 1.0, "b": 0.5, "cap": None}},
        {"id": "s2", "cores": [], "g": {"kind": "table", "values": [1.5, 1.5, 4.0, "inf"]}},
    ],
    "tasks": [{"id": "t1", "replicas": ["s1", "s2"]}, {"id": "t2", "replicas": []}],
    "wait": 0.25,
}


def test_a_document_comes_back_as_it_was_written():
    assert encode_scheduling(decode_scheduling(DOCUMENT)) == DOCUMENT


def test_an_instance_comes_back_from_its_text():
    instance = generate(Experiment(tasks=7, servers=4, core_num=3), seed=1)
    assert parse_scheduling(json.dumps(encode_scheduling(instance)).encode()) == instance


def test_only_wait_is_optional():
    document = copy.deepcopy(DOCUMENT)
    del document["wait"]
    assert decode_scheduling(document).wait == 3.0


def test_the_word_inf_is_a_number_in_values():
    server, table = decode_scheduling(DOCUMENT).servers
    assert server.cores == (0.75, math.inf, 2.0)
    assert table.g == TableCost(values=(1.5, 1.5, 4.0, math.inf))


@pytest.mark.parametrize(
    ("cost", "expected"),
    [
        (AffineCost(a=1, b=0.5), [1.5, 2.0, 2.5, 3.0]),
        (AffineCost(a=1, b=0.5, cap=2), [1.5, 2.0, 2.0, 2.0]),
        (AffineCost(a=1, b=0), [1, 1, 1, 1]),
        (TableCost(values=(1.5, 4.0)), [1.5, 4.0, 4.0, 4.0]),
        (TableCost(values=(2.0, math.inf)), [2.0, math.inf, math.inf, math.inf]),
    ],
)
def test_costs_are_the_same_one_by_one_and_all_at_once(cost, expected):
    assert [cost.at(n) for n in (1, 2, 3, 4)] == expected
    others = [AffineCost(a=3, b=3), cost, TableCost(values=(7.0, 8.0, 9.0))]
    costs = RemoteTaskCosts(others)
    assert [costs.at(np.full(3, n))[1] for n in (1, 2, 3, 4)] == expected
    assert costs.limit[1] == (1 if math.inf in expected else math.inf)


G = ["servers", 0, "g"]
TABLE = ["servers", 1, "g", "values"]
AMOUNT = 'a finite number >= 0, or "inf"'


@pytest.mark.parametrize(
    ("place", "value", "path", "found", "expected"),
    [
        (["version"], 2, "$.version", "2", "1"),
        (["version"], ..., "$.version", "nothing", "this key"),
        (["servers"], ..., "$.servers", "nothing", "this key"),
        (["tasks"], {}, "$.tasks", "an object", "a list"),
        (["extra"], 1, "$.extra", "an unknown key", "one of version, servers, tasks, wait"),
        (["wait"], -1, "$.wait", "-1", "a finite number >= 0"),
        (["wait"], "inf", "$.wait", '"inf"', "a finite number >= 0"),
        (["servers", 1], "s2", "$.servers[1]", '"s2"', "an object"),
        (["servers", 1, "id"], 7, "$.servers[1].id", "7", "a string"),
        (["servers", 1, "id"], "s1", "$.servers[1].id", '"s1"', "an id used once in this list"),
        (["servers", 0, "cores"], 4, "$.servers[0].cores", "4", "a list"),
        (["servers", 0, "cores", 1], -0.5, "$.servers[0].cores[1]", "-0.5", AMOUNT),
        (["servers", 0, "cores", 1], "infinite", "$.servers[0].cores[1]", '"infinite"', AMOUNT),
        (["servers", 0, "cores", 1], math.inf, "$.servers[0].cores[1]", "an infinite number", AMOUNT),
        (["servers", 0, "cores", 1], math.nan, "$.servers[0].cores[1]", "NaN", AMOUNT),
        (["servers", 0, "cores", 1], True, "$.servers[0].cores[1]", "true", AMOUNT),
        (["servers", 0, "cores", 1], None, "$.servers[0].cores[1]", "null", AMOUNT),
        (["servers", 0, "cores"], [1e308] * 2, "$.servers", "a sum of loads beyond every number", "a finite sum"),
        (["servers", 0, "rack"], "r", "$.servers[0].rack", "an unknown key", "one of id, cores, g"),
        (G, 1.5, "$.servers[0].g", "1.5", "an object"),
        ([*G, "kind"], ..., "$.servers[0].g.kind", "nothing", "this key"),
        ([*G, "kind"], "cubic", "$.servers[0].g.kind", '"cubic"', '"affine" or "table"'),
        ([*G, "kind"], "table", "$.servers[0].g.values", "nothing", "this key"),
        ([*G, "values"], [2], "$.servers[0].g.values", "an unknown key", "one of kind, a, b, cap"),
        ([*G, "c"], 1, "$.servers[0].g.c", "an unknown key", "one of kind, a, b, cap, values"),
        ([*G, "cap"], ..., "$.servers[0].g.cap", "nothing", "this key"),
        ([*G, "cap"], -1, "$.servers[0].g.cap", "-1", "a finite number >= 0"),
        ([*G, "a"], "inf", "$.servers[0].g.a", '"inf"', "a finite number"),
        ([*G, "b"], -0.5, "$.servers[0].g.b", "-0.5", "a finite number >= 0"),
        (
            [*G, "a"],
            0.25,
            "$.servers[0].g",
            "a cost of 0.75 for one remote task",
            "at least 1, what a local task costs",
        ),
        ([*G, "b"], 1e308, "$.servers[0].g", "a sum of costs beyond every number", "a finite sum"),
        (TABLE, [1e308], "$.servers[1].g", "a sum of costs beyond every number", "a finite sum"),
        (TABLE, [], "$.servers[1].g.values", "an empty list", "at least g(1)"),
        (TABLE, 2, "$.servers[1].g.values", "2", "a list"),
        (TABLE, [0.5], "$.servers[1].g.values[0]", "0.5", "at least 1.0: what a local task costs"),
        (TABLE, [3, 2], "$.servers[1].g.values[1]", "2.0", "at least 3.0: g never decreases"),
        (TABLE, ["inf", 2], "$.servers[1].g.values[1]", "2.0", "at least inf: g never decreases"),
        (TABLE, ["Infinity"], "$.servers[1].g.values[0]", '"Infinity"', AMOUNT),
        (["tasks", 1, "id"], "t1", "$.tasks[1].id", '"t1"', "an id used once in this list"),
        (["tasks", 0, "id"], None, "$.tasks[0].id", "null", "a string"),
        (["tasks", 0, "replicas"], "s1", "$.tasks[0].replicas", '"s1"', "a list"),
        (["tasks", 0, "replicas", 1], "s9", "$.tasks[0].replicas[1]", '"s9"', "the id of a server"),
        (["tasks", 0, "replicas", 1], 1, "$.tasks[0].replicas[1]", "1", "a string"),
        (["tasks", 0, "replicas", 1], "s1", "$.tasks[0].replicas[1]", '"s1"', "a server named once in this list"),
        (["tasks", 0, "size"], 1, "$.tasks[0].size", "an unknown key", "one of id, replicas"),
    ],
)
def test_a_broken_document_is_refused_by_path_found_and_expected(broken, place, value, path, found, expected):
    with pytest.raises(BadInstance) as refusal:
        decode_scheduling(broken(DOCUMENT, place, value))
    assert (refusal.value.path, refusal.value.found, refusal.value.expected) == (path, found, expected)


def test_settlement_9_the_generator_of_the_papers_experiments():
    instance = generate(Experiment(tasks=200, servers=10, core_num=4, alpha=5, beta=3, theta=2.0), seed=1)
    for number, server in enumerate(instance.servers):
        assert len(server.cores) == 4
        assert all(load == int(load) and 0 <= load < 5 * number + 3 for load in server.cores)
        assert [server.g.at(n) for n in (1, 4, 5)] == [3.0, 9.0, 9.0]
    assert {len(set(task.replicas)) for task in instance.tasks} == {3}
    assert {len(task.replicas) for task in generate(Experiment(servers=2), seed=1).tasks} == {2}
    assert instance == generate(Experiment(tasks=200, servers=10, core_num=4, alpha=5, beta=3, theta=2.0), seed=1)
