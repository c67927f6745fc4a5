"""`trimtab doctor` where there is no Kafka: what it prints, and that it ends in time."""

import json
import time
from pathlib import Path

import pytest

from trimtab_controller.cli import main
from trimtab_controller.cli.doctor import command
from trimtab_controller.cli.doctor.findings import Check, Level

CHECKS = [str(check) for check in Check]


@pytest.fixture(autouse=True)
def bare_host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    monkeypatch.setenv("TRIMTAB_JARS", str(tmp_path))


def test_without_a_configuration_only_the_host_is_checked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "controller.toml"
    assert main(["doctor", "--config", str(path), "--json"]) == 1
    document = json.loads(capsys.readouterr().out)
    levels = {row["check"]: row["level"] for row in document["findings"]}
    assert list(levels) == CHECKS
    assert [check for check, level in levels.items() if level == Level.FAULT] == ["configuration", "java", "jars"]
    assert {level for check, level in levels.items() if check not in ("configuration", "java", "jars")} == {
        Level.NOT_CHECKED
    }
    assert (document["faults"], document["warnings"]) == (3, 0)


def test_a_fault_stands_in_one_line_and_its_remedy_in_the_next(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "controller.toml"
    path.write_text('[controller]\ncluster = "c"\n')
    assert main(["doctor", "--config", str(path)]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == f"fault        configuration: {path}: kafka: missing, expected an object"
    assert lines[1].startswith("             -> ")
    assert lines[-1] == "3 faults, 0 warnings, 10 not checked"


def test_a_check_that_hangs_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "CHECK_LIMIT_S", 0.1)
    [finding] = command._bounded(Check.JAVA, lambda: time.sleep(30) or [])  # type: ignore[func-returns-value]
    assert (finding.level, finding.text) == (Level.NOT_CHECKED, "it took longer than 0.1 s")


@pytest.mark.parametrize("command", ["doctor", "health"])
def test_the_environment_names_the_configuration_where_no_option_does(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    file, other = tmp_path / "controller.toml", tmp_path / "other.toml"
    for path in (file, other):
        path.write_text('[controller]\ncluster = "c"\n', encoding="utf-8")
    monkeypatch.setenv("TRIMTAB_CONFIG", str(file))
    assert main([command]) > 0
    assert str(file) in "".join(capsys.readouterr())
    assert main([command, "--config", str(other)]) > 0
    assert str(file) not in "".join(capsys.readouterr())

    monkeypatch.delenv("TRIMTAB_CONFIG")
    with pytest.raises(SystemExit) as ended:
        main([command])
    assert ended.value.code == 2
    assert capsys.readouterr().err == "trimtab: name the configuration: --config FILE, or TRIMTAB_CONFIG\n"
