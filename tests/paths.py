"""Where things lie in the repository, and PYTHONPATH for the processes that tests start."""

import os
from pathlib import Path

ROOT = Path(__file__).parents[1]
EXAMPLES = ROOT / "examples"


def python_path(*folders: Path) -> str:
    """PYTHONPATH with the folders in front of what it already holds; with ROOT a process can import `tests`."""
    return os.pathsep.join([*map(str, folders), *filter(None, [os.environ.get("PYTHONPATH")])])
