"""Runs Meta's Rebalancer in a child process with its own environment, because its wheels need Python 3.12 or later.

It looks for `python3.12`, `python3.13` and `python3.14` on the path and among pyenv's versions.  If there is none,
install one by `uv python install 3.12` or `pyenv install 3.12`.  The package (about 100 MB, once) comes from the index
that pip uses.
"""

import json
import os
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from trimtab_models.balance.problem import BalanceProblem

REQUIREMENT = "rebalancer==1.0.4"
VERSIONS = ("3.12", "3.13", "3.14")
CHILD = Path(__file__).with_name("meta_rebalancer_child.py")
INSTALL_LIMIT_S = 900.0
GRACE_S = 60.0  # time for start and end, in addition to the search


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """The answer of the child, or why there is none."""

    allocation: np.ndarray | None
    seconds: float
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Peer:
    """`python` = interpreter that can import the package; None if there is none, for the reason in `version`."""

    python: Path | None
    version: str

    def solve(self, problem: BalanceProblem, seconds: float, *, formula: str, exact: bool) -> Reply:
        """Solve by Rebalancer within an integer number of seconds."""
        if self.python is None:
            return Reply(allocation=None, seconds=0.0, note=self.version)
        instance = {
            "nodes": len(problem.capacity),
            "load": problem.load.tolist(),
            "home": problem.home.tolist(),
            "budget": problem.max_migrations,
            "seconds": seconds,
            "formula": formula,
            "exact": exact,
        }
        started = time.monotonic()
        try:
            child = subprocess.run(
                [self.python, CHILD], input=json.dumps(instance), text=True, capture_output=True,
                timeout=seconds + GRACE_S, check=False,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            return Reply(allocation=None, seconds=time.monotonic() - started, note="did not end in time")
        if child.returncode:
            last = child.stderr.strip().splitlines()[-1:] or [f"exit code {child.returncode}"]
            return Reply(allocation=None, seconds=time.monotonic() - started, note=last[0])
        answer = json.loads(child.stdout.splitlines()[-1])
        return Reply(allocation=np.array(answer["allocation"], np.int64), seconds=answer["seconds"])


def find(environment: Path) -> Peer:
    """The environment at `environment`, created if necessary."""
    python = environment / "bin" / "python"
    if not python.exists():
        found = interpreter()
        if found is None:
            return Peer(python=None, version="no Python 3.12 or later found; `uv python install 3.12` provides one")
        print(f"installing {REQUIREMENT} into {environment}", file=sys.stderr)
        try:
            subprocess.run([found, "-m", "venv", environment], check=True, timeout=INSTALL_LIMIT_S)
            command = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", REQUIREMENT]
            subprocess.run(command, check=True, timeout=INSTALL_LIMIT_S)
        except (subprocess.SubprocessError, OSError) as error:
            shutil.rmtree(environment, ignore_errors=True)
            return Peer(python=None, version=f"could not be installed: {error}")
    return Peer(python=python, version=REQUIREMENT)


def interpreter() -> str | None:
    """A working Python of one of `VERSIONS`, or None."""
    candidates = [path for version in VERSIONS if (path := shutil.which(f"python{version}"))]
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    for version in VERSIONS:
        candidates += map(str, sorted(pyenv.glob(f"{version}.*/bin/python"), reverse=True))
    for candidate in candidates:
        # pyenv has a shim on the path for every version, which fails for inactive versions.
        if subprocess.run([candidate, "-c", "pass"], capture_output=True, check=False).returncode == 0:
            return candidate
    return None
