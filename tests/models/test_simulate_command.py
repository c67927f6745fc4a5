"""`python -m benchmarks.simulation`: tables, JSON, pictures, exit codes."""

import json
import sys

import pytest

from benchmarks.simulation.__main__ import main

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
def simulation(capsys, monkeypatch):
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
def test_rounds_fit_the_terminal(simulation, columns):
    code, out, err = simulation("milp", *SMALL, "--mark", "2:1", "--lose", "3:1", columns=columns)
    assert (code, err) == (0, "")
    assert max(map(len, out.splitlines())) <= columns
    assert "…" not in out
    rows = [line.split() for line in out.splitlines()]
    assert [row[:2] for row in rows if row and row[0].isdigit()] == [["1", "4"], ["2", "4"], ["3", "2"], ["4", "2"]]


def test_policies_stand_side_by_side(simulation):
    policies = ["milp", "flux", "albic", "albic-paper", "cola", "elastic", "stay"]
    code, out, err = simulation(*policies, *SMALL, "--workload", "real-job-2")
    assert (code, err) == (0, "")
    assert max(map(len, out.splitlines())) <= 80
    assert "…" not in out
    assert [
        line.split()[0] for line in out.splitlines() if line.split()[:1] and line.split()[0] in policies
    ] == policies


def test_many_rounds_are_shown_in_part_and_written_in_full(simulation, tmp_path):
    many = [*SMALL[:4], "--rounds", "100"]
    code, out, _ = simulation("stay", *many, "--json", tmp_path / "rounds.json")
    shown = [line.split()[0] for line in out.splitlines() if line.split() and line.split()[0].isdigit()]
    assert (code, len(shown), shown[0], shown[-1]) == (0, 30 + 1, "1", "30")  # and the line that says so
    assert "30 of 100 rounds are shown" in out
    document = json.loads((tmp_path / "rounds.json").read_text())
    assert [each["number"] for each in document["policies"]["stay"]["rounds"]] == list(range(1, 101))


def test_json_on_standard_output_is_alone_there_and_the_same_for_a_seed(simulation):
    arguments = ["flux", "albic", *SMALL, "--workload", "real-job-2", "--churn", "0.5", "--json", "-"]
    runs = [simulation(*arguments) for _ in range(2)]
    assert [(code, err) for code, _, err in runs] == [(0, ""), (0, "")]
    (document, planned), (again, _) = (without_times(out) for _, out, _ in runs)
    assert document == again
    assert planned == {"flux": 4, "albic": 4}
    assert document["seed"] == 7
    assert set(document["policies"]) == {"flux", "albic"}
    (first, *_) = document["policies"]["albic"]["rounds"]
    assert {"load_distance_before", "load_distance", "collocation", "load_index", "migrations"} < set(first)
    assert simulation(*arguments, "--seed", "8")[1] != runs[0][1]


@pytest.mark.parametrize("command", [("flux",), ("flux", "stay")])
def test_a_picture_is_drawn(simulation, tmp_path, command):
    pytest.importorskip("matplotlib")
    picture = tmp_path / "rounds.png"
    assert simulation(*command, *SMALL, "--picture", picture)[0] == 0
    assert picture.read_bytes().startswith(PNG)
    assert picture.stat().st_size > 10_000


def test_without_matplotlib_one_line_says_so_before_anything_is_computed(simulation, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.setattr("benchmarks.simulation.__main__.find_spec", lambda name: None)
    huge = ["--nodes", "10000", "--rounds", "100000"]
    assert simulation("milp", *huge, "--picture", tmp_path / "rounds.png") == (
        2,
        "",
        "simulation: --picture needs matplotlib, which is not installed: pip install matplotlib\n",
    )


def test_a_picture_of_no_known_format_is_refused(simulation):
    code, out, err = simulation("stay", *SMALL, "--picture", "rounds.bmp")
    assert (code, out, err) == (2, "", "simulation: --picture rounds.bmp: one of .png, .svg, .pdf expected\n")


def test_a_directory_of_snapshots_is_replayed_in_its_order(simulation, recording):
    code, out, err = simulation("milp", "--recorded", recording, "--json", "-")
    assert (code, err) == (0, "")
    rounds = json.loads(out)["policies"]["milp"]["rounds"]
    assert [(each["load_distance_before"], each["load_distance"]) for each in rounds] == [(20, 10), (10, 0), (0, 0)]


def test_a_recording_is_cut_and_its_budget_replaced_by_options(simulation, recording):
    files = sorted(recording.iterdir())
    arguments = ["--recorded", *files, "--rounds", "2", "--max-migrations", "2", "--json", "-"]
    code, out, _ = simulation("flux", "stay", *arguments)
    played = {name: each["rounds"] for name, each in json.loads(out)["policies"].items()}
    assert code == 0
    assert [each["migrations"] for each in played["flux"]] == [2, 0]
    assert [each["load_distance"] for each in played["stay"]] == [20, 20]


def test_a_bad_snapshot_is_exit_2_with_its_file_and_path(simulation, recording):
    (recording / "1.json").write_text(json.dumps(SNAPSHOT | {"nodes": [{"id": "n1", "capacity": -1}]}))
    code, out, err = simulation("milp", "flux", "--recorded", recording)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert err.startswith(f"simulation: {recording / '1.json'}: $.nodes[0].capacity: found -1, expected ")


def test_no_node_to_keep_is_exit_3_with_the_round(simulation, recording):
    nodes = [{**node, "removing": True} for node in SNAPSHOT["nodes"]]  # type: ignore[attr-defined]
    (recording / "2.json").write_text(json.dumps(SNAPSHOT | {"nodes": nodes}))
    assert simulation("stay", "--recorded", recording) == (
        3,
        "",
        "simulation: round 3: all nodes are draining\n",
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
def test_what_cannot_be_simulated_is_exit_2_with_one_line(simulation, tmp_path, monkeypatch, arguments, reason):
    monkeypatch.chdir(tmp_path)
    assert simulation("stay", *SMALL, *arguments) == (2, "", f"simulation: {reason}\n")


def test_a_time_limit_stops_every_plan(simulation):
    """Without any time the balance model stays put but for its first construction."""
    code, out, _ = simulation("milp", *SMALL, "--time-limit", "0", "--json", "-")
    rounds = json.loads(out)["policies"]["milp"]["rounds"]
    assert code == 0
    assert all(each["load_distance"] <= each["load_distance_before"] for each in rounds)


def test_an_empty_directory_is_exit_2(simulation, tmp_path):
    code, _, err = simulation("stay", "--recorded", tmp_path)
    assert (code, err) == (2, f"simulation: {tmp_path}: no snapshot (*.json) in this directory\n")


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
def test_wrong_usage_is_exit_2(simulation, arguments):
    with pytest.raises(SystemExit) as end:
        simulation("stay", *arguments)
    assert end.value.code == 2
