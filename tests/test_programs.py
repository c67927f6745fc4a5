"""What `make test` says about tests that it leaves out."""

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.paths import ROOT
from tests.programs import PROGRAMS, find, left_out, program


@pytest.fixture
def bare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder for programs, on a machine that has none."""
    monkeypatch.setenv("PATH", str(tmp_path))
    return tmp_path


def put(folder: Path, name: str) -> None:
    folder.mkdir(exist_ok=True)
    (folder / name).write_text("#!/bin/sh\n")
    (folder / name).chmod(0o755)


def test_what_is_left_out_is_named_with_what_it_needs(bare: Path) -> None:
    assert left_out() == [
        "left out: what needs promtool in tests/deploy/test_dashboards.py",
        "left out: what needs promtool in tests/deploy/test_promtool.py",
        "left out: what needs systemd-analyze in tests/deploy/test_units.py",
        "left out: what needs chromium in tests/e2e/test_doctor.py",
        "to run it: apt-get install chromium prometheus systemd",
    ]
    put(bare, "promtool")
    put(bare, "systemd-analyze")
    assert left_out() == [
        "left out: what needs chromium in tests/e2e/test_doctor.py",
        "to run it: apt-get install chromium",
    ]
    with pytest.raises(pytest.skip.Exception, match="apt-get install chromium"):
        program("chromium")


def test_with_all_programs_nothing_is_left_out(bare: Path) -> None:
    for each in PROGRAMS:
        put(bare, each.name)
    assert find("promtool") == bare / "promtool"
    assert left_out() == []


MACHINES = {
    "no apt-get": (
        "",
        "not installed, as this needs root and apt-get: prometheus systemd chromium",
    ),
    "no packages": (
        "exit 100",
        "apt-get cannot fetch: prometheus systemd\napt-get cannot fetch: chromium",
    ),
    "broken dpkg": (
        'case "$*" in *--no-download*) exit 100;; esac',
        "apt-get cannot install: prometheus systemd",
    ),
    "all is well": ('[ -x "$POLICY" ] || exit 1', ""),
}
"""What apt-get does on a machine without these programs, and what is said."""


@pytest.mark.parametrize("machine", MACHINES)
def test_where_programs_cannot_be_installed_the_run_goes_on(machine: str, tmp_path: Path) -> None:
    apt_get, said = MACHINES[machine]
    policy = tmp_path / "policy-rc.d"
    for name in ("sh", "chmod", "rm", "timeout"):
        (tmp_path / name).symlink_to(str(shutil.which(name)))
    put(tmp_path, "id")
    (tmp_path / "id").write_text("#!/bin/sh\necho 0\n")
    if apt_get:
        put(tmp_path, "apt-get")
        (tmp_path / "apt-get").write_text(f"#!/bin/sh\n{apt_get}\n")
    place = {"PATH": str(tmp_path), "POLICY": str(policy)}
    done = subprocess.run([ROOT / "bin" / "install-tools"], env=place, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0
    assert said in done.stderr if said else done.stderr == ""
    assert not policy.exists(), "services may start again"


def test_the_tests_that_are_named_exist() -> None:
    assert [path for each in PROGRAMS for path in each.tests if not (ROOT / path).is_file()] == []
