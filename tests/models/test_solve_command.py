"""`trimtab solve`: exit codes, one line on standard error, the same file format in and out, for every method."""

import json
from functools import partial

import pytest

from tests.models.documents import BOLT, SCHEDULING, SIZING, SPOUT, TOPOLOGY, changed, cluster, each_key_group
from trimtab_controller.cli import main
from trimtab_models.solving import FAMILIES

SNAPSHOTS = ("milp", "flux", "albic", "cola", "elastic")
SCHEDULES = ("dyndl-off", "dyndl-on", "hadoop", "delay", "list")
FLOWS = [{"from": "k0", "to": "k1", "rate": 10.0}, {"from": "k2", "to": "k3", "rate": 1.0}]
DOCUMENTS = {
    **dict.fromkeys(SNAPSHOTS, cluster(flows=FLOWS)),
    **dict.fromkeys(SCHEDULES, changed(SCHEDULING, ("servers", 1, "cores"), [0.5])),
    **dict.fromkeys(("even", "lf"), TOPOLOGY),
    **dict.fromkeys(("hetero", "round-robin"), SIZING),
}
UNTIMED = ("even", "lf", "hetero", "round-robin")
every_method = pytest.mark.parametrize("method", FAMILIES)


@pytest.fixture
def milp(solve):
    return partial(solve, method="milp")


@every_method
def test_a_plan_is_one_json_object_on_standard_output(solve, method):
    code, out, err = solve(DOCUMENTS[method], method=method)
    plan = json.loads(out)
    assert (code, err, plan["method"]) == (0, "", method)
    assert ("solve_seconds" in plan) == (method not in UNTIMED)


@every_method
def test_the_same_instance_and_seed_give_the_same_plan_and_there_is_one_without_any_time(solve, method):
    plans = [json.loads(solve(DOCUMENTS[method], "--seed", "3", method=method)[1]) for _ in range(2)]
    assert plans[0] | {"solve_seconds": 0} == plans[1] | {"solve_seconds": 0}
    code, out, _ = solve(DOCUMENTS[method], "--time-limit", "0", method=method)
    assert (code, json.loads(out).keys()) == (0, plans[0].keys())


def test_out_writes_the_plan_to_a_file(milp, tmp_path):
    code, out, err = milp(cluster(), "--out", str(tmp_path / "plan.json"), "--time-limit", "5", "--seed", "3")
    assert (code, out, err) == (0, "", "")
    assert json.loads((tmp_path / "plan.json").read_text())["load_distance"] == 0


def test_bad_input_is_exit_2_and_one_line_with_file_path_found_and_expected(milp, tmp_path):
    message = "$.key_groups[2].load: found -1, expected a finite number >= 0"
    error = f"trimtab solve: {tmp_path}/instance.json: {message}\n"
    assert milp(changed(cluster(), ("key_groups", 2, "load"), -1)) == (2, "", error)


@pytest.mark.parametrize("text", ["", "{", '{"version": 1, "version": 1}', "[NaN]"])
def test_what_is_no_instance_is_exit_2(milp, text):
    code, out, err = milp(text)
    assert (code, out, err.count("\n")) == (2, "", 1)


def test_a_missing_file_is_exit_2(tmp_path, capsys):
    assert main(["solve", "milp", str(tmp_path / "none.json")]) == 2
    assert capsys.readouterr().err.endswith("none.json: No such file or directory\n")


@pytest.mark.parametrize("arguments", [["--seed", "-1"], ["--time-limit", "-1"], ["--time-limit", "nan"]])
def test_wrong_usage_is_exit_2(milp, arguments):
    with pytest.raises(SystemExit) as end:
        milp(cluster(), *arguments)
    assert end.value.code == 2


def heavy(fixed):
    return SIZING | {"source_rate": 0.5, "operators": [SPOUT, BOLT | {"fixed": {"slow": fixed, "fast": fixed}}]}


LOW = "no machines have room for one instance of each operator, however low the source rate"
UNWANTED = "$.slots_wanted is 0, expected at least 1: no slot may be used, 3 are free"
NO_PLAN = [
    (SNAPSHOTS, cluster(nodes=[], key_groups=[]), "there is no node"),
    (SNAPSHOTS, cluster(nodes=[{"id": "n1", "capacity": 1, "removing": True}]), "all nodes are draining"),
    (SCHEDULES, SCHEDULING | {"servers": []}, "no usable core"),
    (SCHEDULES, changed(SCHEDULING, ("servers", 0, "cores"), ["inf"]), "no usable core"),
    (("even", "lf"), TOPOLOGY | {"slots": []}, "there is no slot"),
    (("even", "lf"), TOPOLOGY | {"slots_wanted": 0, "slots": []}, "there is no slot"),
    (("even", "lf"), TOPOLOGY | {"slots_wanted": 0}, UNWANTED),
    (("hetero", "round-robin"), SIZING | {"machines": []}, "there is no machine"),
    (("hetero",), SIZING | {"max_instances": 1}, "max_instances 1 is less than one for each of 2 operators"),
    (("round-robin",), SIZING | {"max_instances": 2}, "3 instances are more than max_instances, 2"),
    (("hetero",), heavy(101), LOW),
    (("round-robin",), heavy(99.5), "round robin puts more on a machine than it can carry without a single tuple"),
]


@pytest.mark.parametrize(
    ("method", "document", "reason"),
    [(method, document, reason) for methods, document, reason in NO_PLAN for method in methods],
)
def test_where_there_is_no_plan_exit_3_says_why(solve, method, document, reason):
    if method in SCHEDULES:
        document = document | {"tasks": [{"id": "t", "replicas": []}]}
    assert solve(document, method=method) == (3, "", f"trimtab solve: {reason}\n")


def test_a_key_group_that_cannot_leave_is_named_beside_the_plan(milp):
    document = changed(changed(cluster(), ("nodes", 0, "removing"), True), ("key_groups", 1, "pinned"), True)
    code, out, err = milp(document)
    assert (code, json.loads(out)["migrations"]) == (0, 3)
    assert err == "warning: key group 'k1' cannot leave node 'n1', which is draining: it is pinned\n"


@pytest.mark.parametrize("method", SNAPSHOTS)
@pytest.mark.parametrize(
    "document", [each_key_group(load=1e290), each_key_group(load=5e-324), cluster(budget={"max_migrations": 10**400})]
)
def test_there_is_a_plan_however_small_or_large_numbers_are(solve, method, document):
    code, out, _ = solve(document, method=method)
    assert (code, json.loads(out)["load_distance"] >= 0) == (0, True)
