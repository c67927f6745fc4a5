"""An installation with the extra `controller` alone, made of what is installed here: a worker needs `faust` besides."""

import os
import subprocess
import sys
import uuid
import venv
from collections.abc import Callable, Collection, Iterator
from importlib.metadata import Distribution, distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from trimtab_sandbox.marks import end_marked, marked, with_mark

IMPORT_ALL = """
import importlib, pkgutil, trimtab_controller
for module in pkgutil.walk_packages(trimtab_controller.__path__, "trimtab_controller."):
    if not module.name.endswith("__main__"):
        importlib.import_module(module.name)
"""
UP = "from trimtab_controller.cli import main; raise SystemExit(main())"


def required(name: str, extras: Collection[str]) -> dict[str, Distribution]:
    """A distribution with these extras, and all that it requires, as installed here."""
    found: dict[str, Distribution] = {}
    done: set[tuple[str, str]] = set()
    waiting = [(name, extra) for extra in ("", *extras)]
    while waiting:
        wanted = waiting.pop()
        if wanted in done:
            continue
        done.add(wanted)
        name, extra = wanted
        installed = found[name.lower()] = distribution(name)
        for line in installed.requires or ():
            requirement = Requirement(line)
            if requirement.marker is None or requirement.marker.evaluate({"extra": extra}):
                waiting += [(requirement.name, more) for more in ("", *requirement.extras)]
    return found


def link(installed: Distribution, site: Path) -> None:
    """Make a distribution importable from there, too."""
    for top in {file.parts[0] for file in installed.files or () if file.parts[0] not in ("..", "__pycache__")}:
        if not (site / top).exists():
            (site / top).symlink_to(Path(str(installed.locate_file(top))))


@pytest.fixture
def install(tmp_path: Path) -> Callable[[Collection[Distribution]], Path]:
    """An environment with these distributions and nothing else; returns its interpreter."""

    def made(distributions: Collection[Distribution]) -> Path:
        folder = tmp_path / "environment"
        venv.create(folder, symlinks=True)
        site = folder / "lib" / f"python{sys.version_info.major}.{sys.version_info.minor}" / "site-packages"
        for each in distributions:
            link(each, site)
        return folder / "bin" / "python"

    return made


@pytest.fixture
def mark() -> Iterator[str]:
    """Inherited by all that the commands of a test start."""
    mark = f"extras-{uuid.uuid4().hex}"
    yield mark
    end_marked(mark)


def run(python: Path, code: str, *arguments: str, mark: str, folder: Path) -> "subprocess.CompletedProcess[str]":
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    return subprocess.run(
        [str(python), "-c", code, *arguments],
        cwd=folder, env=with_mark(mark, environment), capture_output=True, text=True, timeout=120,
    )  # fmt: skip


def test_up_without_what_workers_need_starts_nothing_and_names_the_extra(
    install: Callable[[Collection[Distribution]], Path], mark: str, tmp_path: Path
) -> None:
    controller = required("trimtab", ["controller"])
    missing = {"faust-streaming", "mode-streaming", "aiokafka", "rocksdict"}
    assert not missing & controller.keys(), "the extra controller brings what it is said not to"
    python = install(controller.values())
    imported = run(python, IMPORT_ALL, mark=mark, folder=tmp_path)
    assert imported.stderr == "", "the controller itself needs no more"

    up = run(python, UP, "sandbox", "up", "--workers", "1", mark=mark, folder=tmp_path)

    assert (up.returncode, up.stdout) == (1, "")
    assert up.stderr == (
        "trimtab sandbox: workers cannot start: faust, mode, aiokafka, rocksdict not installed; add the extra `faust`: "
        "pip install '.[controller,faust]'\n"
    )
    assert marked(mark) == []
    assert not (tmp_path / "out").exists()
