"""`trimtab simulate`: tables, JSON, pictures, exit codes."""

import json
import sys

import pytest

from trimtab_controller.cli import main, parsers
from trimtab_models.simulation.rounds import POLICIES
from trimtab_models.simulation.workloads import WORKLOADS

SMALL = ["--nodes", "4", "--key-groups", "36", "--rounds", "4", "--seed", "7"]
SNAPSHOT = {
    "version": 1,
    "nodes": [{"id": "n1", "capacity": 1}, {"id": "n2", "capacity": 1}],
    "key_groups": [
        {"id": f"k{at}", "operator": "count", "node": "n1", "load": 10, "state_bytes": 100} for at in range(4)
    ],
    "budget": {"max_migrations": 1},
}
PNG = b"\x89PNG"


@pytest.fixture
def trimtab(capsys, monkeypatch):
    def run(*arguments, columns=80):
        monkeypatch.setenv("COLUMNS", str(columns))
        code = main([str(each) for each in arguments])
        return code, *capsys.readouterr()

    return run


@pytest.fixture
def recording(tmp_path):
    folder = tmp_path / "recorded"
    folder.mkdir()
    for number in range(3):
        (folder / f"{number}.json").write_text(json.dumps(SNAPSHOT))
    return folder


def without_times(text):
    document = json.loads(text)
    seconds = document.pop("planning_seconds")
    return document, {policy: len(each) for policy, each in seconds.items()}


@pytest.mark.parametrize("columns", [80, 120])
def test_rounds_fit_the_terminal(trimtab, columns):
    code, out, err = trimtab("simulate", "milp", *SMALL, "--mark", "2:1", "--lose", "3:1", columns=columns)
    assert (code, err) == (0, "")
    assert max(map(len, out.splitlines())) <= columns
    assert "…" not in out
    rows = [line.split() for line in out.splitlines()]
    assert [row[:2] for row in rows if row and row[0].isdigit()] == [["1", "4"], ["2", "4"], ["3", "2"], ["4", "2"]]


def test_policies_stand_side_by_side(trimtab):
    policies = ["milp", "flux", "albic", "albic-paper", "cola", "elastic", "stay"]
    code, out, err = trimtab("simulate", *policies, *SMALL, "--workload", "real-job-2")
    assert (code, err) == (0, "")
    assert max(map(len, out.splitlines())) <= 80
    assert "…" not in out
    assert [
        line.split()[0] for line in out.splitlines() if line.split()[:1] and line.split()[0] in policies
    ] == policies


def test_many_rounds_are_shown_in_part_and_written_in_full(trimtab, tmp_path):
    many = [*SMALL[:4], "--rounds", "100"]
    code, out, _ = trimtab("simulate", "stay", *many, "--json", tmp_path / "rounds.json")
    shown = [line.split()[0] for line in out.splitlines() if line.split() and line.split()[0].isdigit()]
    assert (code, len(shown), shown[0], shown[-1]) == (0, 30 + 1, "1", "30")  # and the line that says so
    assert "30 of 100 rounds are shown" in out
    document = json.loads((tmp_path / "rounds.json").read_text())
    assert [each["number"] for each in document["policies"]["stay"]["rounds"]] == list(range(1, 101))


def test_json_on_standard_output_is_alone_there_and_the_same_for_a_seed(trimtab):
    arguments = ["simulate", "flux", "albic", *SMALL, "--workload", "real-job-2", "--churn", "0.5", "--json", "-"]
    runs = [trimtab(*arguments) for _ in range(2)]
    assert [(code, err) for code, _, err in runs] == [(0, ""), (0, "")]
    (document, planned), (again, _) = (without_times(out) for _, out, _ in runs)
    assert document == again
    assert planned == {"flux": 4, "albic": 4}
    assert document["seed"] == 7
    assert set(document["policies"]) == {"flux", "albic"}
    (first, *_) = document["policies"]["albic"]["rounds"]
    assert {"load_distance_before", "load_distance", "collocation", "load_index", "migrations"} < set(first)
    assert trimtab(*arguments, "--seed", "8")[1] != runs[0][1]


@pytest.mark.parametrize("command", [("simulate", "flux"), ("simulate", "flux", "stay")])
def test_a_picture_is_drawn(trimtab, tmp_path, command):
    pytest.importorskip("matplotlib")
    picture = tmp_path / "rounds.png"
    assert trimtab(*command, *SMALL, "--picture", picture)[0] == 0
    assert picture.read_bytes().startswith(PNG)
    assert picture.stat().st_size > 10_000


def test_without_matplotlib_one_line_says_so_before_anything_is_computed(trimtab, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.setattr("trimtab_controller.cli.simulate.find_spec", lambda name: None)
    huge = ["--nodes", "10000", "--rounds", "100000"]
    assert trimtab("simulate", "milp", *huge, "--picture", tmp_path / "rounds.png") == (
        2,
        "",
        "trimtab simulate: --picture needs matplotlib, which is not installed: pip install matplotlib\n",
    )


def test_a_picture_of_no_known_format_is_refused(trimtab):
    code, out, err = trimtab("simulate", "stay", *SMALL, "--picture", "rounds.bmp")
    assert (code, out, err) == (2, "", "trimtab simulate: --picture rounds.bmp: one of .png, .svg, .pdf expected\n")


def test_a_directory_of_snapshots_is_replayed_in_its_order(trimtab, recording):
    code, out, err = trimtab("simulate", "milp", "--recorded", recording, "--json", "-")
    assert (code, err) == (0, "")
    rounds = json.loads(out)["policies"]["milp"]["rounds"]
    assert [(each["load_distance_before"], each["load_distance"]) for each in rounds] == [(20, 10), (10, 0), (0, 0)]


def test_a_recording_is_cut_and_its_budget_replaced_by_options(trimtab, recording):
    files = sorted(recording.iterdir())
    arguments = ["--recorded", *files, "--rounds", "2", "--max-migrations", "2", "--json", "-"]
    code, out, _ = trimtab("simulate", "flux", "stay", *arguments)
    played = {name: each["rounds"] for name, each in json.loads(out)["policies"].items()}
    assert code == 0
    assert [each["migrations"] for each in played["flux"]] == [2, 0]
    assert [each["load_distance"] for each in played["stay"]] == [20, 20]


def test_a_bad_snapshot_is_exit_2_with_its_file_and_path(trimtab, recording):
    (recording / "1.json").write_text(json.dumps(SNAPSHOT | {"nodes": [{"id": "n1", "capacity": -1}]}))
    code, out, err = trimtab("simulate", "milp", "flux", "--recorded", recording)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert err.startswith(f"trimtab simulate: {recording / '1.json'}: $.nodes[0].capacity: found -1, expected ")


def test_no_node_to_keep_is_exit_3_with_the_round(trimtab, recording):
    nodes = [{**node, "removing": True} for node in SNAPSHOT["nodes"]]  # type: ignore[attr-defined]
    (recording / "2.json").write_text(json.dumps(SNAPSHOT | {"nodes": nodes}))
    assert trimtab("simulate", "stay", "--recorded", recording) == (
        3,
        "",
        "trimtab simulate: round 3: all nodes are draining\n",
    )


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["--recorded", "none.json"], "none.json: No such file or directory"),
        (["--nodes", "10", "--key-groups", "9"], "a cluster needs a node, and a key group for each node"),
        (["--smoothing", "0"], "--smoothing must be above 0: otherwise no measurement would ever count"),
        (["--json", "none/rounds.json"], "none/rounds.json: No such file or directory"),
    ],
)
def test_what_cannot_be_simulated_is_exit_2_with_one_line(trimtab, tmp_path, monkeypatch, arguments, reason):
    monkeypatch.chdir(tmp_path)
    assert trimtab("simulate", "stay", *SMALL, *arguments) == (2, "", f"trimtab simulate: {reason}\n")


def test_a_time_limit_stops_every_plan(trimtab):
    """Without any time the balance model stays put but for its first construction."""
    code, out, _ = trimtab("simulate", "milp", *SMALL, "--time-limit", "0", "--json", "-")
    rounds = json.loads(out)["policies"]["milp"]["rounds"]
    assert code == 0
    assert all(each["load_distance"] <= each["load_distance_before"] for each in rounds)


def test_an_empty_directory_is_exit_2(trimtab, tmp_path):
    code, _, err = trimtab("simulate", "stay", "--recorded", tmp_path)
    assert (code, err) == (2, f"trimtab simulate: {tmp_path}: no snapshot (*.json) in this directory\n")


@pytest.mark.parametrize(
    "arguments",
    [
        ["--workload", "drift", "--recorded", "x"],
        ["--seed", "-1"],
        ["--nodes", "10001"],
        ["--join", "0:1"],
        ["--mark", "3"],
        ["--churn", "2"],
        ["--noise", "nan"],
    ],
)
def test_wrong_usage_is_exit_2(trimtab, arguments):
    with pytest.raises(SystemExit) as end:
        trimtab("simulate", "stay", *arguments)
    assert end.value.code == 2


def test_the_options_name_all_policies_and_workloads_of_the_models() -> None:
    assert tuple(POLICIES) == parsers.POLICIES
    assert {name: each.text for name, each in WORKLOADS.items()} == parsers.WORKLOADS
