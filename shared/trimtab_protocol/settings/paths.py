"""Texts for the operating system: paths and words of a command line."""

from pathlib import Path

from trimtab_protocol.messages.decode import BadMessage, Fault, Fields

MAX_PATH = 4000
"""Characters of a path in a configuration file."""


def read_path(fields: Fields, name: str) -> Path:
    """A path; raises BadMessage, which does not show the text: it may be a password or a key put there by mistake."""
    said = fields.peek(name)
    if isinstance(said, str) and not said.isprintable():
        raise BadMessage(Fault.RANGE, fields.at(name), "a text of several lines, or unprintable", "a path")
    return Path(fields.text(name, limit=MAX_PATH))


def checked(text: str, path: str) -> str:
    """The text, if the operating system can take it; raises BadMessage for a zero character, which ends a C string."""
    if "\0" in text:
        raise BadMessage(Fault.RANGE, path, "a zero character", "none: the operating system ends a text there")
    return text
