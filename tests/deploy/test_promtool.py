"""Prometheus' own tool checks the rules and plays their tests, and finds the defects that the first alerts had."""

import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.programs import program
from trimtab_reference.rules import RULES

TESTS = sorted((RULES.parent / "tests").glob("*.test.yml"))


def promtool(*words: object) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [program("promtool"), *map(str, words)], capture_output=True, text=True, timeout=120, check=False
    )


def test_rules_and_the_sample_configuration_are_valid() -> None:
    for words in (
        ("check", "rules", "--lint=all", "--lint-fatal", RULES),
        ("check", "config", RULES.parent / "prometheus.example.yml"),
    ):
        done = promtool(*words)
        assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("path", TESTS, ids=lambda path: path.name.partition(".")[0])
def test_each_alert_fires_when_it_should_and_only_then(path: Path) -> None:
    done = promtool("test", "rules", path)
    assert done.returncode == 0, done.stdout + done.stderr


def for_longer_than_the_burst(rule: dict[str, Any]) -> None:
    rule["for"] = "15m"


def without_first_event(rule: dict[str, Any]) -> None:
    rule["expr"] = rule["expr"].partition("\nor\n")[0]


def for_all_clusters(rule: dict[str, Any]) -> None:
    rule["expr"] = 'absent(trimtab_controller_role{role="leading"} == 1)'


DEFECTS = {
    "a burst is over before the alert may fire": ("TrimtabBadCommands", for_longer_than_the_burst, "agent"),
    "a counter appears with its first event": ("TrimtabStateBreach", without_first_event, "state_breach"),
    "another cluster has a leader": ("TrimtabNoLeader", for_all_clusters, "no_leader"),
}
"""What can keep alerts from firing: the alert, what is changed in it, and the tests that must fail then."""


@pytest.mark.parametrize("defect", DEFECTS)
def test_the_tests_find_what_kept_alerts_from_firing(defect: str, tmp_path: Path) -> None:
    name, spoil, tests = DEFECTS[defect]
    document = yaml.safe_load(RULES.read_text())
    [rule] = [rule for group in document["groups"] for rule in group["rules"] if rule.get("alert") == name]
    before = dict(rule)
    spoil(rule)
    assert rule != before
    (tmp_path / RULES.name).write_text(yaml.safe_dump(document))
    (tmp_path / "tests").mkdir()
    copied = shutil.copy(RULES.parent / "tests" / f"{tests}.test.yml", tmp_path / "tests")
    done = promtool("test", "rules", copied)
    assert done.returncode == 1
    assert f"alertname: {name}" in done.stdout + done.stderr
