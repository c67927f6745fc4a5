"""What `trimtab` says of itself: help, wrong usage, exit codes, completion."""

import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from tests.controller.loop.inbox_records import NOWHERE
from trimtab_controller.cli import acl as command
from trimtab_controller.cli import all_commands, main, operator
from trimtab_controller.cli.completion import SHELLS
from trimtab_controller.cli.status import restart_line
from trimtab_controller.kafka import reader as reader_module
from trimtab_process.exit_codes import CUT_OFF, INTERRUPTED
from trimtab_protocol.messages.names import AppId, HostId, WorkerId
from trimtab_protocol.messages.status import AppStatus, RestartStatus


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (
            ["status"],
            "name the cluster: --config FILE, or TRIMTAB_CONFIG in the environment, "
            "or --bootstrap HOST:PORT and --cluster NAME",
        ),
        (["status", "--config", "absent.toml"], "absent.toml: No such file or directory"),
        (["drain", "w0", "--bootstrap", "x", "--cluster", "a b"], "controller.cluster: found 'a b', expected a name"),
        (["controller", "run", "--config", "absent.toml"], "absent.toml: No such file or directory"),
        (["move", "nonsense", "w1", *NOWHERE], "APP/OPERATOR/N: found 'nonsense', expected app/operator/partition"),
        (["move", "shop/sums/1", "w 1", *NOWHERE], "found 'w 1', expected a worker's name"),
        (["drain", "w 1", *NOWHERE], "found 'w 1', expected a worker's name"),
        (["drain", "zone:a b", *NOWHERE], "found 'a b', expected the name of a zone"),
        (["undrain", "w 1", *NOWHERE], "found 'w 1', expected a worker's name"),
        (["forget", "a b", *NOWHERE], "found 'a b', expected an app's id"),
        (["forget", "--worker", "w 1", *NOWHERE], "found 'w 1', expected a worker's name"),
        (["stop", "a b", *NOWHERE], "found 'a b', expected an app's id"),
        (["scale", "a b", "3", *NOWHERE], "found 'a b', expected an app's id"),
        (["rolling-restart", "a b", *NOWHERE], "found 'a b', expected an app's id"),
        (["rolling-restart", "a b", "--cancel", *NOWHERE], "found 'a b', expected an app's id"),
        (["maintenance", "h 1", "--for", "1h", *NOWHERE], "found 'h 1', expected a host's name"),
        (["maintenance", "h1", "--for", "90d", *NOWHERE], "expected more than 0 s, and at most 2.592e+06 s"),
        (["drain", "w1", "--config", "FILE"], "controller: missing, expected an object"),
        (["replay", "--set", "nonsense", *NOWHERE], "--set nonsense: found no SECTION.KEY=VALUE"),
        (
            ["replay", "--set", "balance.no_such_key=3", *NOWHERE],
            "--set balance.no_such_key=3: balance.no_such_key: found a whole number",
        ),
        (["solve", "milp", __file__], f"{__file__}: $: found no JSON"),
        (
            ["rule", "add", "r", "--kind", "pin", "--reason", "it waits for the broker last", *NOWHERE],
            "kind: found 'pin', expected workers beside the kind pin",
        ),
        (
            ["rule", "add", "r", "--kind", "freeze", "--reason", "y", "--key-groups", "9-3", *NOWHERE],
            "key_groups: found '9-3', expected ranges whose first key group is not above their last",
        ),
        (["pause", "--reason", "", *NOWHERE], "reason: found '0 characters', expected 1 to 2000 characters"),
    ],
)
def test_wrong_usage_is_exit_code_2(
    arguments: list[str], told: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    empty = tmp_path / "controller.toml"
    empty.write_text("")
    assert main([str(empty) if each == "FILE" else each for each in arguments]) == 2
    assert told in capsys.readouterr().err


@pytest.mark.parametrize("number", ["six", "0", "10001", "-1"])
def test_a_wrong_number_of_workers_is_exit_code_2(number: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["scale", "shop", number, *NOWHERE])
    assert ended.value.code == 2
    assert f"found '{number}', expected a number of workers from 1 to 10000, or 'auto'" in capsys.readouterr().err


@pytest.mark.parametrize("until", ["yesterday", "2026-13-01", "2 h"])
def test_a_wrong_end_of_a_rule_is_exit_code_2(until: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["rule", "add", "r", "--kind", "freeze", "--reason", "y", "--until", until, *NOWHERE])
    assert ended.value.code == 2
    told = capsys.readouterr().err
    assert f"found '{until}', expected a number with s, m, h or d behind it, or a time with its zone" in told


def test_an_unreachable_broker_is_said(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader_module, "REQUEST_LIMIT_S", 0.3)
    assert main(["status", *NOWHERE]) == 1
    assert "Kafka at 127.0.0.1:1" in capsys.readouterr().err


def test_an_operator_without_a_name_is_a_number(monkeypatch: pytest.MonkeyPatch) -> None:
    def nameless() -> str:
        raise KeyError("getpwuid(): uid not found: 1000730000")

    monkeypatch.setattr("getpass.getuser", nameless)
    assert operator.who().startswith(f"{os.getuid()}@")


# --- entry ------------------------------------------------------------------------------------------------------------


ACL = ["acl", "--cluster", "prod"]


def test_a_command_that_is_interrupted_says_so_in_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupt(_: object) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr(command, "run", interrupt)
    assert main(ACL) == INTERRUPTED
    assert capsys.readouterr().err == "interrupted\n"


def test_a_command_whose_output_nobody_reads_to_the_end_is_silent() -> None:
    ours, theirs = os.pipe()
    os.close(ours)
    program = f"import sys; from trimtab_controller.cli import main; sys.exit(main({ACL}))"
    done = subprocess.run([sys.executable, "-c", program], stdout=theirs, stderr=subprocess.PIPE, timeout=240)
    os.close(theirs)
    assert (done.returncode, done.stderr) == (CUT_OFF, b"")


@pytest.mark.skipif((os.cpu_count() or 1) < 2, reason="needs two cores: with one, numpy never has a second thread")
@pytest.mark.parametrize(("given", "alone"), [({}, True), ({"OMP_NUM_THREADS": "2"}, False)])
def test_the_controller_has_one_thread_of_numpy_unless_the_operator_says_otherwise(
    given: dict[str, str], alone: bool
) -> None:
    program = (
        "import os, sys; from trimtab_controller.cli import main; code = main(sys.argv[1:]); "
        "import trimtab_controller.cli.controlling; "
        "print(code, 'numpy' in sys.modules, len(os.listdir('/proc/self/task')), os.environ['OMP_NUM_THREADS'])"
    )
    command = [sys.executable, "-c", program, "controller", "run", "--config", "/no/such/file"]
    environment = {name: value for name, value in os.environ.items() if not name.endswith("_NUM_THREADS")}
    done = subprocess.run(command, env=environment | given, capture_output=True, text=True, timeout=240, check=True)
    code, has_numpy, threads, told = done.stdout.split()
    assert (code, has_numpy, int(threads) == 1, told) == ("2", "True", alone, given.get("OMP_NUM_THREADS", "1"))


def test_commands_that_only_read_topics_start_without_numpy() -> None:
    program = "import sys, trimtab_controller.cli.status, trimtab_controller.cli.actions; print('numpy' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=240, check=True)
    assert done.stdout == "False\n"


# --- completion -------------------------------------------------------------------------------------------------------


ASK = """
source "$1"; shift
COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); COMP_LINE="$*"; COMP_POINT=${#COMP_LINE}
function=$(complete -p trimtab | sed 's/.*-F \\([^ ]*\\).*/\\1/')
"$function" trimtab "${@: -1}" "${@: -2:1}"
printf '%s\\n' "${COMPREPLY[@]}"
"""


@pytest.fixture
def script(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    assert main(["completion", "bash"]) == 0
    path = tmp_path / "trimtab.bash"
    path.write_text(capsys.readouterr().out)
    return path


def completed(script: Path, *words: str) -> set[str]:
    command = ["bash", "--norc", "-c", ASK, "ask", str(script), "trimtab", *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=30, cwd=script.parent, check=True)
    return set(done.stdout.split())


def test_bash_completes_commands_and_options(script: Path) -> None:
    assert set(all_commands()) <= completed(script, "")
    assert completed(script, "do") == {"doctor"}
    assert completed(script, "doctor", "--") == {"--help", "--config", "--json"}
    assert {"up", "status", "down"} <= completed(script, "sandbox", "")
    assert completed(script, "sandbox", "up", "--work") == {"--workers"}
    assert completed(script, "solve", "dyn") == {"dyndl-off", "dyndl-on"}


def test_bash_completes_files_where_a_file_is_expected(script: Path) -> None:
    (script.parent / "controller.toml").touch()
    assert "controller.toml" in completed(script, "doctor", "--config", "contr")


@pytest.mark.parametrize("shell", SHELLS)
def test_every_script_names_all_commands_and_is_one_the_shell_can_read(
    shell: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["completion", shell]) == 0
    path = tmp_path / "script"
    path.write_text(capsys.readouterr().out)
    assert [name for name in all_commands() if name not in path.read_text()] == []
    if shutil.which(shell):
        subprocess.run([shell, "-n", str(path)], check=True, timeout=30)


# ---- what `trimtab status` says of a rolling restart


def line(restart: RestartStatus | None) -> str:
    app = AppStatus(app=AppId("orders"), key_groups=None, load_distance=None, mean_load=None, not_ready=None)
    return restart_line(replace(app, restart=restart))


def test_it_says_how_far_it_is_whom_it_leaves_out_and_what_it_waits_for() -> None:
    assert line(None) == ""
    plain = RestartStatus(workers=3, done=1, host=HostId("h1"), skipped=(WorkerId("w2"),))
    assert line(plain) == "rolling restart: 1 of 3 workers, now those on h1; left out: w2"
    assert line(
        replace(plain, skipped=(), differ="workers differ: w1 against w0", waits="w1 is not back: it is away")
    ) == (
        "rolling restart: 1 of 3 workers, now those on h1; without a drain, since nothing may move: "
        "workers differ: w1 against w0; waits: w1 is not back: it is away"
    )
