"""Programs that some tests need, and that the machine may or may not have."""

import shutil
from dataclasses import dataclass
from pathlib import Path

import pytest


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """A program, the package of Debian that has it, and the tests that are left out without it."""

    name: str
    package: str
    tests: tuple[str, ...]


PROGRAMS = (
    Program(
        name="promtool",
        package="prometheus",
        tests=("tests/deploy/test_promtool.py", "tests/deploy/test_dashboards.py"),
    ),
    Program(name="systemd-analyze", package="systemd", tests=("tests/deploy/test_units.py",)),
    Program(name="chromium", package="chromium", tests=("tests/e2e/test_doctor.py",)),
)


def find(name: str) -> Path | None:
    """The program, if PATH has it."""
    found = shutil.which(name)
    return Path(found) if found else None


def program(name: str) -> str:
    """The program; the test is skipped without it."""
    found = find(name)
    if found is None:
        package = next(each.package for each in PROGRAMS if each.name == name)
        pytest.skip(f"needs {name}: apt-get install {package}")
    return str(found)


def left_out() -> list[str]:
    """A line for each test file that is left out on this machine, and one about how to get what it needs."""
    missing = [each for each in PROGRAMS if find(each.name) is None]
    files = {path: [each.name for each in missing if path in each.tests] for each in missing for path in each.tests}
    lines = [f"left out: what needs {' and '.join(names)} in {path}" for path, names in sorted(files.items())]
    packages = sorted({each.package for each in missing})
    return [*lines, f"to run it: apt-get install {' '.join(packages)}"] if lines else []
