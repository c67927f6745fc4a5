"""The wheel in an environment of its own without any extra: help works, and each command says what it needs."""

import json
import os
import re
import subprocess
import sys
import tomllib
import venv
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from trimtab_controller.cli.shipped import SAMPLES, UNIT_BIN
from trimtab_process.extras import PACKAGES

LIMIT_S = 240
"""How long one program may take, on a machine that is busy with others."""
ROOT = Path(__file__).parents[3]
CALLS = [
    "status --bootstrap 127.0.0.1:1 --cluster c",
    "plan --bootstrap 127.0.0.1:1 --cluster c",
    "size --bootstrap 127.0.0.1:1 --cluster c",
    "snapshot --bootstrap 127.0.0.1:1 --cluster c",
    "drain w0 --bootstrap 127.0.0.1:1 --cluster c",
    "undrain w0 --bootstrap 127.0.0.1:1 --cluster c",
    "approve 3.17 --bootstrap 127.0.0.1:1 --cluster c",
    "reject 3.17 --reason late --bootstrap 127.0.0.1:1 --cluster c",
    "move orders/sums/17 w1 --bootstrap 127.0.0.1:1 --cluster c",
    "undo 3.17 --bootstrap 127.0.0.1:1 --cluster c",
    "scale shop 3 --bootstrap 127.0.0.1:1 --cluster c",
    "forget shop --bootstrap 127.0.0.1:1 --cluster c",
    "stop --bootstrap 127.0.0.1:1 --cluster c",
    "pause --bootstrap 127.0.0.1:1 --cluster c",
    "resume --bootstrap 127.0.0.1:1 --cluster c",
    "events --bootstrap 127.0.0.1:1 --cluster c",
    "why orders/sums/17 --bootstrap 127.0.0.1:1 --cluster c",
    "rolling-restart shop --bootstrap 127.0.0.1:1 --cluster c",
    "maintenance h1 --for 2h --bootstrap 127.0.0.1:1 --cluster c",
    "rule list --bootstrap 127.0.0.1:1 --cluster c",
    "replay --bootstrap 127.0.0.1:1 --cluster c",
    "doctor --config controller.toml",
    "controller run --config controller.toml",
    "solve milp instance.json",
    "simulate milp",
    "keys init --config controller.toml",
    "completion bash",
    "sandbox up",
    "console --config console.toml",
]
NEED_NOTHING = {"acl", "health", "jars", "runbook", "sample"}
COMMANDS = sorted({line.split()[0] for line in CALLS} | NEED_NOTHING)
OURS = ("agent", "models", "controller", "client", "console")
"""The extras whose packages our programs import."""


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the programs `trimtab` and `trimtab-agent`, installed from the wheel without dependencies."""
    folder = tmp_path_factory.mktemp("bare")
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    build = ["wheel", "--no-deps", "--no-build-isolation", "--no-index", "--wheel-dir", str(folder), str(ROOT)]
    subprocess.run([*pip, *build], check=True, timeout=LIMIT_S)
    wheel = next(folder.glob("trimtab-*.whl"))
    venv.create(folder / "venv", with_pip=False)
    python = str(folder / "venv" / "bin" / "python")
    subprocess.run(
        [*pip, "--python", python, "install", "--no-deps", "--no-index", str(wheel)], check=True, timeout=LIMIT_S
    )
    return folder / "venv" / "bin"


def call(bare: Path, program: str, *arguments: str) -> "subprocess.CompletedProcess[str]":
    command = [str(bare / program), *arguments]
    environment = {**os.environ, "COLUMNS": "100", "PYTHONPATH": ""}
    return subprocess.run(
        command, capture_output=True, text=True, timeout=LIMIT_S, cwd=bare, env=environment, check=False
    )


def commands(help_text: str) -> set[str]:
    return set(re.findall(r"^    ([a-z-]+)(?: |$)", help_text, re.MULTILINE)) | {"sandbox"}


ASK = """
import contextlib, io, json, sys
from trimtab_controller.cli import main
for line in json.load(sys.stdin):
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            code = main(line)
        except SystemExit as end:
            code = end.code
    print(json.dumps([code, out.getvalue(), err.getvalue()]))
"""
"""All calls in one process of the bare environment."""


def answers(bare: Path, lines: Iterable[str]) -> Iterator[tuple[str, int, str, str]]:
    """The first word of each line, the exit code of the command, and what it prints."""
    calls = [line.split() for line in lines]
    environment = {**os.environ, "COLUMNS": "100", "PYTHONPATH": ""}
    done = subprocess.run(
        [str(bare / "python"), "-c", ASK], input=json.dumps(calls), env=environment, cwd=bare, capture_output=True,
        text=True, timeout=LIMIT_S, check=True,
    )  # fmt: skip
    for call_, answer in zip(calls, done.stdout.splitlines(), strict=True):
        yield call_[0], *json.loads(answer)


def test_a_command_names_the_package_and_the_extra_to_install(bare: Path) -> None:
    for name, code, out, err in answers(bare, CALLS):
        extra = "console" if name == "console" else "controller"
        expected = rf"trimtab {name}: the package [a-z-]+ is not installed: pip install 'trimtab\[{extra}\]'"
        assert re.fullmatch(expected + "\n", err), err
        assert (code, out) == (2, "")


@pytest.mark.parametrize("command", ["run", "check", "health"])
def test_the_agent_names_the_package_and_the_extra_to_install(bare: Path, command: str) -> None:
    done = call(bare, "trimtab-agent", command, "--config", "agent.toml")
    expected = rf"trimtab-agent {command}: the package [a-z-]+ is not installed: pip install 'trimtab\[agent\]'\n"
    assert re.fullmatch(expected, done.stderr), done.stderr
    assert (done.returncode, done.stdout) == (2, "")


def test_the_client_names_the_package_and_the_extra_to_install(bare: Path) -> None:
    done = call(bare, "python", "-c", "import trimtab_client")
    assert done.returncode == 1
    told = "ModuleNotFoundError: the package httpx2 is not installed: pip install 'trimtab[client]'"
    assert done.stderr.splitlines()[-1] == told


def test_help_lists_all_commands(bare: Path) -> None:
    listed = call(bare, "trimtab", "--help")
    assert listed.returncode == 0, listed.stderr
    assert commands(listed.stdout) == set(COMMANDS)


def test_help_works_for_each_command(bare: Path) -> None:
    for name, code, out, err in answers(bare, [f"{each} --help" for each in COMMANDS]):
        assert (code, err) == (0, "")
        assert out.startswith(f"usage: trimtab {name} ")


@pytest.mark.parametrize("line", ["--help", "run --help", "check --help", "health --help"])
def test_help_of_the_agent_works(bare: Path, line: str) -> None:
    shown = call(bare, "trimtab-agent", *line.split())
    assert (shown.returncode, shown.stderr) == (0, "")
    assert shown.stdout.startswith("usage: trimtab-agent ")


def test_acls_need_no_extra(bare: Path) -> None:
    done = call(bare, "trimtab", "acl", "--cluster", "prod")
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(("name", "path"), [(name, path) for name, (path, _) in SAMPLES.items()])
def test_a_sample_is_in_the_wheel(bare: Path, name: str, path: str) -> None:
    written = (ROOT / path).read_text()
    assert call(bare, "trimtab", "sample", name).stdout == written.replace(UNIT_BIN, str(bare))


def test_samples_and_runbooks_are_listed(bare: Path) -> None:
    listed = call(bare, "trimtab", "sample").stdout.splitlines()
    assert [line.split()[0] for line in listed] == list(SAMPLES)
    listed = call(bare, "trimtab", "runbook").stdout.splitlines()
    runbooks = sorted(path for path in (ROOT / "runbooks").glob("*.md") if path.name != "README.md")
    assert [line.split()[0] for line in listed] == [path.stem for path in runbooks]
    assert call(bare, "trimtab", "runbook", runbooks[0].stem).stdout == runbooks[0].read_text()


@pytest.mark.parametrize(("command", "one"), [("sample", "agent.toml"), ("runbook", "no_leader")])
def test_an_unknown_name_is_answered_with_the_known_ones(bare: Path, command: str, one: str) -> None:
    done = call(bare, "trimtab", command, "no_such")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"trimtab {command}: found 'no_such', expected one of ")
    assert one in done.stderr


def test_the_jars_say_that_ivy_comes_with_an_extra(bare: Path) -> None:
    command = [str(bare / "trimtab"), "jars"]
    environment = {**os.environ, "TRIMTAB_JARS": str(bare / "jars")}
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, env=environment, check=False)
    assert done.returncode == 1
    assert "trimtab[controller]" in done.stderr


def test_every_package_of_the_extras_is_known() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    required = {re.split(r"[^a-z0-9-]", line)[0] for name in OURS for line in extras[name]}
    assert set(PACKAGES.values()) == required - {"trimtab"}
