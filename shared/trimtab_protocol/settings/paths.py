"""Paths in files that people write."""

from pathlib import Path
from typing import Annotated, Any

from trimtab_protocol.messages.codec import WrittenAs
from trimtab_protocol.messages.decode import BadMessage, Fault, check_text

MAX_PATH = 4000
"""Characters of a path in a file."""


def read_path(found: object) -> Path:
    """A path; raises BadMessage, which does not show the text: it may be a password or a key put there by mistake."""
    if isinstance(found, str) and not found.isprintable():
        raise BadMessage(Fault.RANGE, "", "a text of several lines, or unprintable", "a path")
    return Path(check_text(found, "", MAX_PATH))


FilePath = Annotated[Path, WrittenAs(Any, str, read_path)]
