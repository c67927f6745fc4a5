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
