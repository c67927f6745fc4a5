"""`trimtab solve`: exit codes, one line on standard error, the same file format in and out."""

import json
from functools import partial

import pytest

from trimtab_controller.cli import main

CLUSTER = {
    "version": 1,
    "nodes": [{"id": "n1", "capacity": 1}, {"id": "n2", "capacity": 1}],
    "key_groups": [
        {"id": f"k{at}", "operator": "count", "node": "n1", "load": 10, "state_bytes": 100} for at in range(4)
    ],
}


@pytest.fixture
def solve(solve):
    return partial(solve, method="milp")


@pytest.mark.parametrize("method", ["milp", "flux"])
def test_a_plan_is_one_json_object_on_standard_output(solve, method):
    code, out, err = solve(CLUSTER, method=method)
    plan = json.loads(out)
    assert (code, err) == (0, "")
    assert (plan["method"], plan["status"], plan["migrations"], plan["cost_bytes"]) == (method, "optimal", 2, 200)
    assert plan["node_loads"] == {"n1": 20.0, "n2": 20.0}


def test_out_writes_the_plan_to_a_file(solve, tmp_path):
    code, out, err = solve(CLUSTER, "--out", str(tmp_path / "plan.json"), "--time-limit", "5", "--seed", "3")
    assert (code, out, err) == (0, "", "")
    assert json.loads((tmp_path / "plan.json").read_text())["load_distance"] == 0


def test_bad_input_is_exit_2_and_one_line_with_file_path_found_and_expected(solve, tmp_path):
    document = json.loads(json.dumps(CLUSTER))
    document["key_groups"][2]["load"] = -1
    code, out, err = solve(document)
    assert (code, out) == (2, "")
    message = "$.key_groups[2].load: found -1, expected a finite number >= 0"
    assert err == f"trimtab solve: {tmp_path}/instance.json: {message}\n"


@pytest.mark.parametrize("text", ["", "{", '{"version": 1, "version": 1}', "[NaN]"])
def test_what_is_no_instance_is_exit_2(solve, text):
    code, out, err = solve(text)
    assert (code, out, err.count("\n")) == (2, "", 1)


def test_huge_loads_are_solved_all_the_same(solve):
    huge = [{**key_group, "load": 1e290} for key_group in CLUSTER["key_groups"]]  # type: ignore[attr-defined]
    code, out, _ = solve(CLUSTER | {"key_groups": huge})
    assert (code, json.loads(out)["load_distance"]) == (0, 0)


def test_a_budget_beyond_every_float_is_no_limit(solve):
    code, out, _ = solve(CLUSTER | {"budget": {"max_migrations": 10**400}})
    assert (code, json.loads(out)["migrations"]) == (0, 2)


def test_a_missing_file_is_exit_2(tmp_path, capsys):
    assert main(["solve", "milp", str(tmp_path / "none.json")]) == 2
    assert capsys.readouterr().err.endswith("none.json: No such file or directory\n")


@pytest.mark.parametrize(
    ("nodes", "reason"),
    [([], "there is no node"), ([{"id": "n1", "capacity": 1, "removing": True}], "all nodes are draining")],
)
def test_no_node_to_keep_is_exit_3_with_the_reason(solve, nodes, reason):
    code, out, err = solve({"version": 1, "nodes": nodes, "key_groups": []})
    assert (code, out, err) == (3, "", f"trimtab solve: {reason}\n")


def test_a_key_group_that_cannot_leave_is_named_beside_the_plan(solve):
    document = json.loads(json.dumps(CLUSTER))
    document["nodes"][0]["removing"] = True
    document["key_groups"][1]["pinned"] = True
    code, out, err = solve(document)
    assert (code, json.loads(out)["migrations"]) == (0, 3)
    assert err == "warning: key group 'k1' cannot leave node 'n1', which is draining: it is pinned\n"


@pytest.mark.parametrize("arguments", [["--seed", "-1"], ["--time-limit", "-1"], ["--time-limit", "nan"]])
def test_wrong_usage_is_exit_2(solve, arguments):
    with pytest.raises(SystemExit) as end:
        solve(CLUSTER, *arguments)
    assert end.value.code == 2


def test_seconds_are_reported_where_the_contract_has_them(solve):
    topology = {
        "version": 1,
        "operators": [{"id": "read", "instances": 2}],
        "edges": [],
        "slots": [{"node": "n1", "port": 6700}],
    }
    assert "solve_seconds" in json.loads(solve(CLUSTER)[1])
    assert solve(topology, method="even") == solve(topology, method="even")
