"""Who takes an operator's intent back, and why: a header of the tombstone that revokes it.

The controller revokes what it has answered without this header, and so do commands of before 0.2.0.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from trimtab_protocol.messages.decode import encode, parse
from trimtab_protocol.messages.intents import Said

HEADER = "trimtab-taken-back"
VERSION = 1
MAX_BYTES = 20_000
"""Size of the header's value."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TakenBack(Said):
    """An intent is not wanted any longer: the header `trimtab-taken-back` of a record without a value."""


def encode_taken_back(word: TakenBack) -> tuple[str, bytes]:
    """The header."""
    return HEADER, encode({"v": VERSION, "by": word.by, "at": word.at, "reason": word.reason})


def taken_back_in(headers: Iterable[tuple[str, bytes | None]]) -> TakenBack | None:
    """Who has taken it back; None: nobody says.  Raises BadMessage."""
    value = next((value for name, value in headers if name == HEADER), None)
    if value is None:
        return None
    fields = parse(value, version=VERSION, limit=MAX_BYTES)
    by, at, reason = fields.text("by", limit=200), fields.number("at"), fields.text("reason", limit=2000)
    return TakenBack(by=by, at=at, reason=reason)
