"""Who takes an operator's intent back, and why: a header of the tombstone that revokes it.

The controller revokes what it has answered without this header.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

from trimtab_protocol.messages.codec import Wire, decoded, encoded
from trimtab_protocol.messages.intents import Said

HEADER = "trimtab-taken-back"
VERSION = 1
MAX_BYTES = 20_000
"""Size of the header's value."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TakenBack(Said):
    """An intent is not wanted any longer: the header `trimtab-taken-back` of a record without a value."""

    WIRE: ClassVar = Wire(version=VERSION, most_bytes=MAX_BYTES)


def encode_taken_back(word: TakenBack) -> tuple[str, bytes]:
    """The header."""
    return HEADER, encoded(word)


def taken_back_in(headers: Iterable[tuple[str, bytes | None]]) -> TakenBack | None:
    """Who has taken it back; None: nobody says.  Raises BadMessage."""
    value = next((value for name, value in headers if name == HEADER), None)
    return None if value is None else decoded(value, TakenBack)
