"""Secrets in files of their own, which only the agent's or the worker's user may read."""

import os
from pathlib import Path

from trimtab_models.settings.private import check_private


def read_private(path: Path) -> str:
    """The text of the file; raises OSError, also when others can use it, and UnicodeDecodeError."""
    with path.open(encoding="utf-8") as file:
        check_private(os.fstat(file.fileno()).st_mode)
        return file.read()
