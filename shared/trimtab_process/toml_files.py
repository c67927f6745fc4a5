"""Reads the files that are configured in TOML.  Needs the standard library alone."""

import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from trimtab_process.private_files import read_private
from trimtab_protocol.messages.decode import BadMessage

T = TypeVar("T")


class BadConfiguration(Exception):
    """A configuration cannot be used; the message is one line: file, key, what was found and what was expected."""


def parse_toml(path: Path, *, private: bool = False) -> dict[str, Any]:
    """The document in a file, not yet checked; `private`: only its owner may read it.  Raises BadConfiguration."""
    try:
        return tomllib.loads(read_private(path) if private else path.read_text(encoding="utf-8"))
    except OSError as error:
        raise BadConfiguration(f"{path}: {error.strerror or error}") from error
    except (ValueError, RecursionError) as error:
        raise BadConfiguration(f"{path}: not TOML: {error}") from error


def read_toml(path: Path, decode: Callable[[dict[str, Any]], T], *, private: bool = False) -> T:
    """What `decode` makes of the document, which raises BadMessage.  Raises BadConfiguration."""
    document = parse_toml(path, private=private)
    try:
        return decode(document)
    except BadMessage as error:
        raise BadConfiguration(f"{path}: {error}") from error
