"""The snapshot document: what is read comes back, what breaks the contract is refused by path, found and expected."""

import json
from typing import Any

import pytest

from trimtab_models.instances.reading import BadInstance
from trimtab_models.instances.snapshot import SnapshotKeyGroup, decode_snapshot, encode_snapshot, parse_snapshot

DOCUMENT: dict[str, Any] = {
    "version": 1,
    "nodes": [
        {"id": "n1", "capacity": 1.0, "limits": {"memory_bytes": 8e9}},
        {"id": "n2", "capacity": 0.5, "removing": True},
    ],
    "key_groups": [
        {
            "id": "k1",
            "operator": "count",
            "node": "n1",
            "load": 2.5,
            "state_bytes": 1048576,
            "usage": {"memory_bytes": 2e7},
        },
        {"id": "k2", "operator": "sum", "node": None, "load": 0, "state_bytes": 0, "pinned": True},
    ],
    "flows": [{"from": "k1", "to": "k2", "rate": 120.0}],
    "budget": {"max_migrations": 13},
    "options": {"max_load_distance": 12.0},
}


def test_a_document_comes_back_as_it_was_written():
    assert encode_snapshot(decode_snapshot(DOCUMENT)) == DOCUMENT


def test_an_instance_comes_back_from_its_text():
    instance = decode_snapshot(DOCUMENT)
    assert parse_snapshot(json.dumps(encode_snapshot(instance)).encode()) == instance


def test_only_the_required_keys_are_required():
    instance = decode_snapshot({"version": 1, "nodes": [{"id": "n", "capacity": 1}], "key_groups": []})
    assert (instance.budget.max_migrations, instance.options.max_load_distance) == (None, 10.0)


def test_moving_an_empty_state_costs_one_byte():
    assert SnapshotKeyGroup(id="k", operator="o", node=None, load=1, state_bytes=0).cost_bytes == 1


@pytest.mark.parametrize(
    ("place", "value", "path", "found", "expected"),
    [
        (["version"], 2, "$.version", "2", "1"),
        (["version"], True, "$.version", "true", "1"),
        (["version"], ..., "$.version", "nothing", "this key"),
        (["nodes"], ..., "$.nodes", "nothing", "this key"),
        (["nodes"], {}, "$.nodes", "an object", "a list"),
        (["extra"], 1, "$.extra", "an unknown key", "one of version, nodes, key_groups, flows, budget, options"),
        (["odd key"], 1, '$["odd key"]', "an unknown key", "one of version, nodes, key_groups, flows, budget, options"),
        (["nodes", 1], "n2", "$.nodes[1]", '"n2"', "an object"),
        (["nodes", 1, "id"], 7, "$.nodes[1].id", "7", "a string"),
        (["nodes", 1, "id"], "n1", "$.nodes[1].id", '"n1"', "an id used once in this list"),
        (["nodes", 0, "capacity"], 0, "$.nodes[0].capacity", "0", "a finite number > 0"),
        (["nodes", 0, "capacity"], None, "$.nodes[0].capacity", "null", "a finite number > 0"),
        (["nodes", 0, "removing"], 1, "$.nodes[0].removing", "1", "true or false"),
        (["nodes", 0, "limits"], [], "$.nodes[0].limits", "a list", "an object of names and numbers"),
        (["nodes", 0, "limits", "cpu"], -1, "$.nodes[0].limits.cpu", "-1", "a finite number >= 0"),
        (["nodes", 0, "capasity"], 1, "$.nodes[0].capasity", "an unknown key", "one of id, capacity, removing, limits"),
        (["key_groups", 0, "load"], -0.5, "$.key_groups[0].load", "-0.5", "a finite number >= 0"),
        (["key_groups", 0, "load"], float("nan"), "$.key_groups[0].load", "NaN", "a finite number >= 0"),
        (["key_groups", 0, "load"], float("inf"), "$.key_groups[0].load", "an infinite number", "a finite number >= 0"),
        (["key_groups", 0, "load"], "2", "$.key_groups[0].load", '"2"', "a finite number >= 0"),
        (["key_groups", 0, "load"], True, "$.key_groups[0].load", "true", "a finite number >= 0"),
        (["key_groups", 0, "load"], 10**400, "$.key_groups[0].load", "a number of many digits", "a finite number >= 0"),
        (["key_groups", 0, "node"], "n9", "$.key_groups[0].node", '"n9"', "the id of a node, or null"),
        (["key_groups", 0, "node"], 1, "$.key_groups[0].node", "1", "a node's id, or null"),
        (["key_groups", 0, "node"], ..., "$.key_groups[0].node", "nothing", "this key"),
        (["key_groups", 0, "usage"], [], "$.key_groups[0].usage", "a list", "an object of names and numbers"),
        (["key_groups", 0, "usage", "cpu"], None, "$.key_groups[0].usage.cpu", "null", "a finite number >= 0"),
        (["key_groups", 1, "id"], "k1", "$.key_groups[1].id", '"k1"', "an id used once in this list"),
        (["key_groups", 1, "pinned"], 0, "$.key_groups[1].pinned", "0", "true or false"),
        (["key_groups", 1, "state_bytes"], -1, "$.key_groups[1].state_bytes", "-1", "a finite number >= 0"),
        (["flows", 0, "to"], "k9", "$.flows[0].to", '"k9"', "the id of a key group"),
        (["flows", 0, "rate"], -1, "$.flows[0].rate", "-1", "a finite number >= 0"),
        (["flows", 0, "from"], ..., "$.flows[0].from", "nothing", "this key"),
        (["budget"], [], "$.budget", "a list", "an object"),
        (["budget", "max_migrations"], 1.5, "$.budget.max_migrations", "1.5", "a whole number >= 0"),
        (["budget", "max_migrations"], -1, "$.budget.max_migrations", "-1", "a whole number >= 0"),
        (["budget", "max_migrations"], None, "$.budget.max_migrations", "null", "a number"),
        (["budget", "max_cost_bytes"], "1", "$.budget.max_cost_bytes", '"1"', "a finite number >= 0"),
        (["options", "max_load_distance"], -1, "$.options.max_load_distance", "-1", "a finite number >= 0"),
        (["options", "partition_step"], 0, "$.options.partition_step", "0", "a finite number > 0"),
    ],
)
def test_a_broken_document_is_refused_by_path_found_and_expected(broken, place, value, path, found, expected):
    with pytest.raises(BadInstance) as refusal:
        decode_snapshot(broken(DOCUMENT, place, value))
    assert (refusal.value.path, refusal.value.found, refusal.value.expected) == (path, found, expected)


@pytest.mark.parametrize(
    ("place", "value", "path", "name"),
    [
        (["nodes"], [{"id": id_, "capacity": 1e308} for id_ in ("n1", "n2")], "$.nodes", "capacity"),
        (["key_groups", 0, "load"], 1e308, "$.key_groups", "load"),  # percent of a node of 0.5
        (["key_groups", 0, "usage"], {"memory_bytes": 1e308, "disk_bytes": 1e308}, "$.key_groups", "usage"),
        (["flows"], [{"from": "k1", "to": "k2", "rate": 1e308}] * 2, "$.flows", "rate"),
        (["options"], {"serialise_cost": 1e308, "deserialise_cost": 1e308}, "$.flows", "rate"),
    ],
)
def test_sums_beyond_every_number_are_refused(broken, place, value, path, name):
    with pytest.raises(BadInstance) as refusal:
        decode_snapshot(broken(DOCUMENT, place, value))
    assert (refusal.value.path, refusal.value.found) == (path, f"a sum of {name} beyond every number")


@pytest.mark.parametrize(
    ("text", "path", "found"),
    [
        ('{"version": 1, "version": 1}', "$.version", "the key a second time"),
        ('{"version": 1, "nodes": [{"id": "a", "id": "b"}]}', "$.nodes[0].id", "the key a second time"),
        ('{"version": 1, "nodes": [], "key_groups": NaN}', "$.key_groups", "NaN"),
        ('{"version": Infinity, "nodes": [], "key_groups": []}', "$.version", "an infinite number"),
        ("[1, 2", "$", "no JSON (Expecting ',' delimiter: line 1 column 6 (char 5))"),
        ("", "$", "no JSON (Expecting value: line 1 column 1 (char 0))"),
        ("[]", "$", "a list"),
        ("[" * 100_000, "$", "lists or objects nested too deeply"),
    ],
)
def test_a_broken_text_is_refused_by_path_and_found(text, path, found):
    with pytest.raises(BadInstance) as refusal:
        parse_snapshot(text)
    assert (refusal.value.path, refusal.value.found) == (path, found)


def test_text_that_is_not_utf_8_is_refused():
    with pytest.raises(BadInstance, match=r"^\$: found no JSON"):
        parse_snapshot(b'{"version": "\xff"}')


def test_a_refusal_is_one_line():
    with pytest.raises(BadInstance) as refusal:
        decode_snapshot({"version": 1, "nodes": [], "key_groups": [], "two\nlines": 1})
    assert "\n" not in str(refusal.value)
