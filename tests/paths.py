"""Where things lie in the repository, and PYTHONPATH for the processes that tests start."""

import os
from pathlib import Path

ROOT = Path(__file__).parents[1]
EXAMPLES = ROOT / "examples"
END_TO_END = ("tests/faults", "tests/e2e", "tests/fuzz")
"""The folders of the end-to-end tests: importing all the others takes longer than some of these tests."""


def python_path(*folders: Path) -> str:
    """PYTHONPATH with the folders in front of what it already holds; with ROOT a process can import `tests`."""
    return os.pathsep.join([*map(str, folders), *filter(None, [os.environ.get("PYTHONPATH")])])
