"""The documents of all instances: what is read comes back, what breaks the contract is refused by its path."""

import json
import math
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest

from benchmarks.dyndl.generate import encode_scheduling
from tests.models.documents import SCHEDULING, SIZING, SNAPSHOT, TOPOLOGY, Place, changed
from trimtab_models.instances.reading import BadInstance, instance_in, parsed_instance
from trimtab_models.instances.scheduling import SchedulingInstance
from trimtab_models.instances.sizing import SizingInstance
from trimtab_models.instances.snapshot import BalanceInstance, SnapshotKeyGroup
from trimtab_models.instances.topology import Topology
from trimtab_models.sizing.problem import problem_of
from trimtab_protocol.messages.codec import document as written

DOCUMENTS: dict[str, tuple[Any, Callable[[Any], Any]]] = {
    "scheduling": (SCHEDULING, partial(instance_in, kind=SchedulingInstance)),
    "snapshot": (SNAPSHOT, partial(instance_in, kind=BalanceInstance)),
    "sizing": (SIZING, lambda document: problem_of(instance_in(document, SizingInstance))),
    "topology": (TOPOLOGY, partial(instance_in, kind=Topology)),
}
AMOUNTS = ("limits", "usage", "cost", "fixed")
"""Objects of names and numbers: any name may be added or missing."""
OPTIONAL = {
    "scheduling": {"wait"},
    "snapshot": {"limits", "removing", "usage", "pinned", "flows", "budget", "options", "max_migrations",
                 "max_cost_bytes", "max_load_distance"},
    "sizing": {"max_instances", "instances"},
    "topology": {"keyed", "slots_wanted"},
}  # fmt: skip


def places(value: Any, place: Place = ()) -> Iterator[tuple[Place, Any]]:
    """All values of a document, with where they are."""
    yield place, value
    if isinstance(value, dict):
        for key, each in value.items():
            yield from places(each, (*place, key))
    elif isinstance(value, list):
        for at, each in enumerate(value):
            yield from places(each, (*place, at))


def path_of(place: Place) -> str:
    return "$" + "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in place)


def refusal(kind: str, document: Any) -> tuple[str, str, str]:
    with pytest.raises(BadInstance) as refused:
        DOCUMENTS[kind][1](document)
    assert "\n" not in str(refused.value)
    return refused.value.path, refused.value.found, refused.value.expected


@pytest.mark.parametrize("kind", DOCUMENTS)
def test_no_value_may_have_another_type_and_no_number_be_negative(kind):
    document = DOCUMENTS[kind][0]
    for place, value in places(document):
        wrong: list[Any] = [[{}], {"surprise": []}] if place else [[], 7]
        if isinstance(value, bool):
            wrong += [1, "yes"]
        elif isinstance(value, int | float):
            wrong += [True, "7", None, math.nan, math.inf, 10**400 if place[0] == "version" else -math.inf]
            wrong += [-1, -0.5] if place[-1] != "a" else []  # a cost may fall if it stays at least 1
        elif isinstance(value, str) and value != "inf":
            wrong += [7, True]
        elif isinstance(value, list):
            wrong += ["", 7, {}]
        elif isinstance(value, dict):
            wrong += [[], "", None]
        for each in wrong:
            path, _, expected = refusal(kind, changed(document, place, each) if place else each)
            assert path.startswith(path_of(place)), (place, each, expected)


@pytest.mark.parametrize("kind", DOCUMENTS)
def test_every_key_is_known_and_all_but_the_optional_ones_are_there(kind):
    document, decode = DOCUMENTS[kind]
    for place, value in places(document):
        if not isinstance(value, dict) or (place[-1:] and place[-1] in AMOUNTS):
            continue
        path, found, expected = refusal(kind, changed(document, (*place, "odd\nkey"), 1))
        assert (path, found) == (path_of(place) + r'["odd\nkey"]', "an unknown key")
        assert expected.startswith("one of ")
        for key in value:
            without = changed(document, (*place, key), ...)
            if key in OPTIONAL[kind]:
                decode(without)
            elif key != "source":  # the only one: without it no operator emits anything
                assert refusal(kind, without) == (path_of((*place, key)), "nothing", "this key")


NUMBER, POSITIVE, COUNT = "a finite number >= 0", "a finite number > 0", "a whole number >= "
ONCE, SUM = "an id used once in this list", "a finite sum"
CORE, G, TABLE = ("servers", 0, "cores"), ("servers", 0, "g"), ("servers", 1, "g", "values")
SPOUT = ("operators", 0)


@pytest.mark.parametrize(
    ("kind", "place", "value", "path", "found", "expected"),
    [
        ("scheduling", ("version",), 2, "$.version", "2", "1"),
        ("scheduling", ("servers", 1, "id"), "s1", "$.servers[1].id", '"s1"', ONCE),
        ("scheduling", (*CORE, 1), "endless", "$.servers[0].cores[1]", '"endless"', f'{NUMBER}, or "inf"'),
        ("scheduling", CORE, [1e308] * 2, "$.servers", "a sum of loads beyond every number", SUM),
        ("scheduling", (*G, "kind"), "cubic", "$.servers[0].g.kind", '"cubic"', '"affine" or "table"'),
        ("scheduling", (*G, "values"), [2], "$.servers[0].g.values", "an unknown key", "one of kind, a, b, cap"),
        ("scheduling", (*G, "cap"), -1, "$.servers[0].g.cap", "-1", NUMBER),
        (
            "scheduling", (*G, "a"), 0.25, "$.servers[0].g",
            "a cost of 0.75 for one remote task", "at least 1, what a local task costs",
        ),
        ("scheduling", (*G, "b"), 1e308, "$.servers[0].g", "a sum of costs beyond every number", SUM),
        ("scheduling", TABLE, [1e308], "$.servers[1].g", "a sum of costs beyond every number", SUM),
        ("scheduling", TABLE, [], "$.servers[1].g.values", "an empty list", "at least g(1)"),
        ("scheduling", TABLE, [0.5], "$.servers[1].g.values[0]", "0.5", "at least 1.0: what a local task costs"),
        ("scheduling", TABLE, [3, 2], "$.servers[1].g.values[1]", "2.0", "at least 3.0: g never decreases"),
        ("scheduling", ("tasks", 1, "id"), "t1", "$.tasks[1].id", '"t1"', ONCE),
        ("scheduling", ("tasks", 0, "replicas", 1), "s9", "$.tasks[0].replicas[1]", '"s9"', "the id of a server"),
        (
            "scheduling", ("tasks", 0, "replicas", 1), "s1",
            "$.tasks[0].replicas[1]", '"s1"', "a server named once in this list",
        ),
        ("snapshot", ("version",), 2, "$.version", "2", "1"),
        ("snapshot", ("nodes", 1, "id"), "n1", "$.nodes[1].id", '"n1"', ONCE),
        ("snapshot", ("nodes", 0, "capacity"), 0, "$.nodes[0].capacity", "0", POSITIVE),
        ("snapshot", ("key_groups", 0, "load"), 10**400, "$.key_groups[0].load", "a number of many digits", NUMBER),
        ("snapshot", ("key_groups", 0, "node"), "n9", "$.key_groups[0].node", '"n9"', "the id of a node, or null"),
        ("snapshot", ("key_groups", 1, "node"), 1, "$.key_groups[1].node", "1", "a node's id, or null"),
        ("snapshot", ("key_groups", 1, "id"), "k1", "$.key_groups[1].id", '"k1"', ONCE),
        ("snapshot", ("flows", 0, "to"), "k9", "$.flows[0].to", '"k9"', "the id of a key group"),
        ("snapshot", ("budget", "max_migrations"), 1.5, "$.budget.max_migrations", "1.5", f"{COUNT}0"),
        ("snapshot", ("options", "partition_step"), 0, "$.options.partition_step", "0", POSITIVE),
        ("sizing", ("version",), "1", "$.version", '"1"', "1"),
        ("sizing", ("machines", 1, "id"), "m1", "$.machines[1].id", '"m1"', ONCE),
        (
            "sizing", ("machines", 0, "type"), "new",
            "$.operators[0].cost.new", "nothing", "a number for this type of machine",
        ),
        ("sizing", ("source_rate",), 0, "$.source_rate", "0", POSITIVE),
        ("sizing", ("max_instances",), 0, "$.max_instances", "0", f"{COUNT}1"),
        ("sizing", ("operators", 1, "id"), "spout", "$.operators[1].id", '"spout"', ONCE),
        ("sizing", (*SPOUT, "source"), False, "$.operators", "no source", "at least one operator that is a source"),
        ("sizing", (*SPOUT, "instances"), 0, "$.operators[0].instances", "0", f"{COUNT}1"),
        ("sizing", (*SPOUT, "instances"), 10**7, "$.operators", f"{10**7 + 2} instances", "at most 1000000 in all"),
        ("sizing", ("edges", 0, "to"), "x", "$.edges[0].to", '"x"', "the id of an operator"),
        ("sizing", ("edges", 0, "to"), "spout", "$.edges[0]", "an edge that closes a cycle",
         "a graph of operators without cycles"),
        ("sizing", ("edges", 0), {"from": "bolt", "to": "spout"}, "$.edges[0].to", '"spout"',
         "an operator that is no source"),
        ("sizing", (*SPOUT, "alpha"), 1e308, "$.operators[1]", "an input rate beyond every number", "a finite rate"),
        ("sizing", (*SPOUT, "cost", "slow"), 1e303, "$.operators[0]", "an input rate beyond every number",
         "a finite rate"),
        ("topology", ("version",), 2, "$.version", "2", "1"),
        ("topology", ("operators", 0, "instances"), 0, "$.operators[0].instances", "0", f"{COUNT}1"),
        ("topology", ("operators", 1, "id"), "a", "$.operators[1].id", '"a"', ONCE),
        ("topology", ("operators", 0, "instances"), 10**12, "$.operators", f"{10**12 + 3} instances",
         "at most 1000000 in all"),
        ("topology", ("edges", 0, "to"), "x", "$.edges[0].to", '"x"', "the id of an operator"),
        ("topology", ("slots", 2, "port"), 6700, "$.slots[2]", "port 6700 of this node a second time",
         "each slot once"),
        ("topology", ("slots_wanted",), -1, "$.slots_wanted", "-1", f"{COUNT}0"),
    ],
)  # fmt: skip
def test_what_breaks_a_rule_is_refused_by_path_found_and_expected(kind, place, value, path, found, expected):
    document = changed(DOCUMENTS[kind][0], place, value)
    if kind == "sizing" and value == 1e308:
        document["edges"] *= 2
    assert refusal(kind, document) == (path, found, expected)


@pytest.mark.parametrize(
    ("place", "value", "path", "name"),
    [
        (["nodes"], [{"id": id_, "capacity": 1e308} for id_ in ("n1", "n2")], "$.nodes", "capacity"),
        (["key_groups", 0, "load"], 1e308, "$.key_groups", "load"),  # percent of a node of 0.5
        (["key_groups", 0, "usage"], {"memory_bytes": 1e308, "disk_bytes": 1e308}, "$.key_groups", "usage"),
        (["flows"], [{"from": "k1", "to": "k2", "rate": 1e308}] * 2, "$.flows", "rate"),
        (["options"], {"serialise_cost": 1e308, "deserialise_cost": 1e308}, "$.flows", "rate"),
        (["options"], {"serialise_cost": 10**308, "deserialise_cost": 10**308}, "$.flows", "rate"),
    ],
)
def test_sums_beyond_every_number_are_refused(place, value, path, name):
    found = f"a sum of {name} beyond every number"
    assert refusal("snapshot", changed(SNAPSHOT, place, value)) == (path, found, SUM)


@pytest.mark.parametrize(
    ("pairs", "position"),
    [(["aa"], 0), (["ab", "ba"], 1), (["ab", "bc", "ca", "ab"], 2), (["ca", "bc", "ab", "cc"], 2)],
)
def test_an_edge_that_closes_a_cycle_is_named(pairs, position):
    edges = [{"from": source, "to": target} for source, target in pairs]
    path, found, _ = refusal("topology", TOPOLOGY | {"edges": edges})
    assert (path, found) == (f"$.edges[{position}]", "an edge that closes a cycle")


def test_a_document_comes_back_as_it_was_written():
    assert encode_scheduling(parsed_instance(json.dumps(SCHEDULING).encode(), SchedulingInstance)) == SCHEDULING
    assert written(parsed_instance(json.dumps(SNAPSHOT).encode(), BalanceInstance)) == SNAPSHOT


def test_what_may_be_left_out_has_a_default():
    assert instance_in(changed(SCHEDULING, ["wait"], ...), SchedulingInstance).wait == 3.0
    instance = instance_in({"version": 1, "nodes": [{"id": "n", "capacity": 1}], "key_groups": []}, BalanceInstance)
    assert (instance.budget.max_migrations, instance.options.max_load_distance) == (None, 10.0)


@pytest.mark.parametrize(
    ("text", "path", "found"),
    [
        ('{"version": 1, "version": 1}', "$.version", "the key a second time"),
        ('{"version": 1, "nodes": [{"id": "a", "id": "b"}]}', "$.nodes[0].id", "the key a second time"),
        ('{"version": 1, "nodes": [], "key_groups": NaN}', "$.key_groups", "NaN"),
        ('{"version": Infinity, "nodes": [], "key_groups": []}', "$.version", "an infinite number"),
        ("[1, 2", "$", "no JSON (Expecting ',' delimiter: line 1 column 6 (char 5))"),
        ("", "$", "no JSON (Expecting value: line 1 column 1 (char 0))"),
        ("[]", "$", "an array"),
        ("[" * 100_000, "$", "lists or objects nested too deeply"),
        (
            b'{"version": "\xff"}',
            "$",
            "no JSON ('utf-8' codec can't decode byte 0xff in position 13: invalid start byte)",
        ),
    ],
)
def test_a_broken_text_is_refused_by_path_and_found(text, path, found):
    with pytest.raises(BadInstance) as refused:
        parsed_instance(text, BalanceInstance)
    assert (refused.value.path, refused.value.found) == (path, found)


def test_moving_an_empty_state_costs_one_byte():
    assert SnapshotKeyGroup(id="k", operator="o", node=None, load=1, state_bytes=0).cost_bytes == 1


def test_texts_and_numbers_stay_as_they_are_written():
    nodes = [*SNAPSHOT["nodes"], {"id": "n\n9", "capacity": 1}]
    node = instance_in(changed(SNAPSHOT, ["nodes"], nodes), BalanceInstance).nodes[-1]
    assert (node.id, type(node.capacity)) == ("n\n9", int)
