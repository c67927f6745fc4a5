import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "bin" / "require-tools"


def fake(folder: Path, name: str, body: str) -> Path:
    path = folder / "bin" / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)
    return path


def java(folder: Path, first_lines: str) -> Path:
    return fake(folder, "java", f"cat >&2 <<'END'\n{first_lines}\nEND")


def require_tools(**environment: str) -> tuple[int, list[str]]:
    ended = subprocess.run(
        ["sh", SCRIPT], env={"PATH": os.environ["PATH"], **environment}, capture_output=True, text=True, timeout=60
    )
    assert ended.stdout == ""
    return ended.returncode, ended.stderr.splitlines()


@pytest.mark.parametrize(
    "version",
    [
        'openjdk version "17.0.15" 2025-04-15',
        'Picked up JAVA_TOOL_OPTIONS: -Dversion="3"\nopenjdk version "21" 2023-09-19\nOpenJDK Runtime Environment',
    ],
)
def test_suitable_tools_pass_in_silence(tmp_path: Path, version: str) -> None:
    java(tmp_path, version)
    assert require_tools(PYTHON=sys.executable, JAVA_HOME=str(tmp_path)) == (0, [])


@pytest.mark.parametrize("version", ["1.8.0_292", "11.0.2", "25.0.1", "170.1"])
def test_another_java_gets_one_line_with_the_remedy(tmp_path: Path, version: str) -> None:
    path = java(tmp_path, f'openjdk version "{version}"\nOpenJDK Runtime Environment')
    code, lines = require_tools(PYTHON=sys.executable, JAVA_HOME=str(tmp_path))
    assert code == 1
    assert len(lines) == 1
    assert lines[0].startswith(f"Java: '{path}' is version {version}, 17 or 21 is needed; install a Java 17 runtime")


@pytest.mark.parametrize("version", ["3.10", "3.14", "2.7", "3.110"])
def test_another_python_gets_one_line_with_the_remedy(tmp_path: Path, version: str) -> None:
    java(tmp_path, 'openjdk version "17"')
    path = fake(tmp_path, "python3", f"echo {version}")
    code, lines = require_tools(PYTHON=str(path), JAVA_HOME=str(tmp_path))
    assert (code, len(lines)) == (1, 1)
    assert lines[0].startswith(f"Python: '{path}' is version {version}, 3.11 to 3.13 is needed; install Python 3.11")


def test_a_python_without_venv_is_named(tmp_path: Path) -> None:
    java(tmp_path, 'openjdk version "17"')
    path = fake(tmp_path, "python3", "case $2 in *ensurepip*) exit 1 ;; esac; echo 3.11")
    code, lines = require_tools(PYTHON=str(path), JAVA_HOME=str(tmp_path))
    assert (code, len(lines)) == (1, 1)
    assert lines[0].endswith("cannot make virtual environments; Debian, Ubuntu: apt install python3.11-venv")


def test_both_missing_are_told_at_once(tmp_path: Path) -> None:
    code, lines = require_tools(PYTHON="no-such-python", JAVA_HOME=str(tmp_path))
    assert code == 1
    assert [line.split(";")[0] for line in lines] == [
        "Python: 'no-such-python' does not run",
        f"Java: '{tmp_path}/bin/java' does not run",
    ]
