"""Texts that go to the operating system: paths, words of a command line, environment variables."""

from pathlib import Path

from trimtab_models.messages.decode import BadMessage, Fault, Fields

MAX_PATH = 4000


def read_path(fields: Fields, name: str) -> Path:
    """A path; raises BadMessage."""
    return Path(checked(fields.text(name, limit=MAX_PATH), fields.at(name)))


def checked(text: str, path: str) -> str:
    """The text, if it can be handed over: C ends a text at a zero character.  Raises BadMessage."""
    if "\0" in text:
        raise BadMessage(Fault.RANGE, path, text, "no zero character")
    return text
