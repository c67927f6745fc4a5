"""The systemd units, by systemd's own tools: they are right, and confine what they start."""

import configparser
import os
import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.paths import ROOT
from tests.programs import program
from trimtab_agent.cli import agent_parser
from trimtab_controller.cli import parser_for
from trimtab_controller.cli.shipped import UNIT_BIN
from trimtab_controller.loop.health import STUCK_S
from trimtab_process.exit_codes import BAD_USAGE, FENCED

UNITS = sorted((ROOT / "deploy" / "systemd").glob("*.service"))
MOST_EXPOSED = 2.0


def settings(unit: Path) -> dict[str, str]:
    """The section [Service]; of a setting that is repeated, the last value."""
    parser = configparser.RawConfigParser(strict=False)
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    parser.read(unit)
    return dict(parser["Service"])


def analyze(*words: object) -> "subprocess.CompletedProcess[str]":
    command = [program("systemd-analyze"), "--no-pager", *map(str, words)]
    environment = {**os.environ, "SYSTEMD_COLORS": "0"}
    return subprocess.run(command, capture_output=True, text=True, timeout=60, env=environment, check=False)


@pytest.fixture
def installed(tmp_path: Path) -> Callable[[Path], Path]:
    """A unit with programs that exist."""

    def made(unit: Path) -> Path:
        text = unit.read_text()
        for name in re.findall(rf"{UNIT_BIN}/([a-z-]+)", text):
            (tmp_path / name).write_text("#!/bin/sh\n")
            (tmp_path / name).chmod(0o755)
        copy = tmp_path / unit.name
        copy.write_text(text.replace(UNIT_BIN, str(tmp_path)))
        return copy

    return made


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.stem)
def test_systemd_finds_no_fault_in_a_unit(unit: Path, installed: Callable[[Path], Path]) -> None:
    done = analyze("verify", installed(unit))
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


def test_systemd_would_find_a_fault(tmp_path: Path) -> None:
    unit = tmp_path / "broken.service"
    unit.write_text("[Service]\nExecStart=/bin/true\nProtectEverything=yes\n")
    assert "'ProtectEverything'" in analyze("verify", unit).stderr


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.stem)
def test_a_unit_exposes_little(unit: Path) -> None:
    done = analyze("security", "--offline=true", unit)
    found = re.search(r"Overall exposure level for \S+: ([\d.]+)", done.stdout)
    assert found, done.stdout + done.stderr
    assert float(found[1]) <= MOST_EXPOSED


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.stem)
def test_what_a_unit_starts_exists(unit: Path) -> None:
    path, *arguments = settings(unit)["ExecStart"].split()
    parser = agent_parser() if Path(path).name == "trimtab-agent" else parser_for(arguments[0])
    options = parser.parse_args([each for each in arguments if not each.startswith("$")])
    assert f"ConditionPathExists={options.config}\n" in unit.read_text()
    assert str(options.config).startswith("/etc/trimtab/")


def test_a_daemon_that_cannot_run_is_not_started_again_and_again() -> None:
    agent, controller, console = (
        settings(ROOT / f"deploy/systemd/trimtab-{name}.service") for name in ("agent", "controller", "console")
    )
    assert {each["Restart"] for each in (agent, controller, console)} == {"always"}
    assert console["RestartPreventExitStatus"] == f"{BAD_USAGE}"
    assert agent["RestartPreventExitStatus"] == f"{BAD_USAGE}"
    assert controller["RestartPreventExitStatus"] == f"{BAD_USAGE} {FENCED}"
    assert float(controller["WatchdogSec"]) >= STUCK_S


def test_nothing_that_a_worker_uses_ends_with_its_agent() -> None:
    """A private /tmp is deleted when the unit ends; after the OOM kill of a worker, systemd would end the agent too."""
    agent = settings(ROOT / "deploy/systemd/trimtab-agent.service")
    kept = {name: agent[name] for name in ("KillMode", "OOMPolicy", "RuntimeDirectoryPreserve")}
    assert kept == {"KillMode": "process", "OOMPolicy": "continue", "RuntimeDirectoryPreserve": "yes"}
    assert not {"PrivateTmp", "RemoveIPC", "CPUQuota", "MemoryMax", "DynamicUser"} & agent.keys()
