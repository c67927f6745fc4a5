#!/usr/bin/env python3
"""`make test-python PYTHON=python3.13`: the fast tests under the Python that runs this; E2E=1: the end-to-end ones.

In an environment of its own, .venv-3.13, from requirements.lock with all hashes checked.  The tests of documents and
deployment are left out: they are about files, not about Python.
"""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
VERSION = f"{sys.version_info.major}.{sys.version_info.minor}"
TESTS = ("agent", "shared", "models", "controller", "console", "sandbox", "conformance", "sim", "previous", "fuzz")
"""Folders of tests/ whose code runs in production."""
END_TO_END = "e2e and not scenario"


def main() -> int:
    """Install, check and test; the exit code."""
    folder = ROOT / f".venv-{VERSION}"
    python, installed = folder / "bin" / "python", folder / ".installed"
    if not installed.exists() or installed.stat().st_mtime < (ROOT / "requirements.lock").stat().st_mtime:
        if code := subprocess.call([sys.executable, str(ROOT / "bin" / "install.py"), str(folder)]):
            return code
        installed.touch()
    print(f"Python {sys.version.split()[0]}", flush=True)
    if code := subprocess.call([python, "-m", "pip", "check"]):
        return code
    if sys.argv[1:] == ["--e2e"]:
        if code := subprocess.call([folder / "bin" / "trimtab", "jars"]):
            return code
        return subprocess.call([python, "-m", "pytest", "-v", "-m", END_TO_END, "tests/e2e", "tests/faults"], cwd=ROOT)
    paths = [f"tests/{name}" for name in TESTS]
    return subprocess.call(["nice", python, "-m", "pytest", "-q", "-m", "not e2e", "-n", "2", *paths], cwd=ROOT)


if __name__ == "__main__":
    sys.exit(main())
