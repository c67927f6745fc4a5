"""The completion scripts, asked by the shells themselves."""

import shutil
import subprocess
from pathlib import Path

import pytest

from trimtab_controller.cli import all_commands, main
from trimtab_controller.cli.completion import SHELLS

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
