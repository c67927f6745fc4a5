"""What is refused and why; and JSON as it is sent.

Every error is a `BadMessage` with its reason (counted as a metric), the JSON path, what was found and what was
expected.  Messages and files are read by their declarations (`codec.py`).
"""

import json
import math
import re
from collections import Counter
from enum import StrEnum
from typing import Any

MAX_NAME = 200
"""Characters of a name."""
NAME_PATTERN = re.compile(rf"[A-Za-z0-9][A-Za-z0-9._-]{{0,{MAX_NAME - 1}}}")
MAX_MESSAGE_BYTES = 8 * 1024 * 1024
"""Size of a message, unless its kind has a limit of its own."""
MAX_NUMBER = 1e18
"""Largest number in a message, unless its field has a limit of its own."""

UNPRINTABLE = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff]")
"""Characters that move a terminal's cursor, end a line of a log, or turn the direction of the text around them."""

NOTHING = "nothing"
"""What was found where a field is missing."""

SHOWN_CHARACTERS = 60
"""How much of a value in a file an error shows."""
MOST_BITS_SHOWN = 1000
"""Python refuses to write very long numbers."""

_TYPES = {
    type(None): "nothing",
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    str: "a string",
    list: "an array",
    dict: "an object",
}


class Fault(StrEnum):
    """Why a message is refused."""

    MALFORMED = "malformed"
    OVERSIZED = "oversized"
    VERSION = "wrong_version"
    MISSING = "missing_field"
    UNKNOWN = "unknown_field"
    TYPE = "wrong_type"
    RANGE = "out_of_range"
    CLUSTER = "other_cluster"
    FUTURE = "future_dated"
    UNSIGNED = "unsigned"
    UNKNOWN_KEY = "unknown_key"
    WRONG_SIGNATURE = "wrong_signature"
    OLD_EPOCH = "old_epoch"
    REPEATED = "repeated_id"  # a known command id with other content
    UNKNOWN_HOST = "unknown_host"  # not in the configured list of hosts
    FLOODING = "flooding"  # the sender exceeds its rate limit; the message was not read


class ShownText(str):
    """What was found, in the words of an error: of another `BadMessage`, which tells only a part of the path."""

    __slots__ = ()


class BadMessage(ValueError):
    """A message or file cannot be used; nothing of it is.

    For unknown keys and wrong types the text shows only the type of the value: it may be a secret under a misspelt key
    of a configuration.
    """

    def __init__(self, fault: Fault, path: str, found: object, expected: str) -> None:
        self.fault = fault
        self.path = path
        told = type_of if fault in (Fault.UNKNOWN, Fault.TYPE) else shorten
        missing = fault is Fault.MISSING and found == NOTHING
        self.found = found if isinstance(found, ShownText) else ShownText(NOTHING if missing else told(found))
        self.expected = expected
        super().__init__(f"{path or '$'}: {'missing' if missing else f'found {self.found}'}, expected {expected}")


def shorten(value: object, limit: int = 80) -> str:
    """A value for an error text, on one line of at most `limit` characters.  Objects and arrays are not shown."""
    match value:
        case str() | bytes():
            text = repr(value[:limit])
        case dict() if value:
            return "an object"
        case list() if value:
            return "an array"
        case int() if value.bit_length() > MOST_BITS_SHOWN:
            return "a number of many digits"
        case _:
            text = repr(value)
    return text if len(text) <= limit else text[: limit - 3] + "..."


def type_of(value: object) -> str:
    """The type of a value, in the terms of JSON."""
    return _TYPES.get(type(value)) or f"a {type(value).__name__}"


def step(name: str) -> str:
    """One step of a JSON path: a name as it is, anything else shortened."""
    return name if NAME_PATTERN.fullmatch(name) else shorten(name)


def as_json(value: object) -> str:
    """A value of a file that people write, as JSON on one line of limited length."""
    match value:
        case dict():
            return "an object"
        case list():
            return "an array"
        case float() if not math.isfinite(value):
            return "NaN" if math.isnan(value) else "an infinite number"
        case int() if value.bit_length() > MOST_BITS_SHOWN:
            return "a number of many digits"
    text = json.dumps(value, default=repr)
    return text if len(text) <= SHOWN_CHARACTERS else text[:SHOWN_CHARACTERS] + "..."


def as_step(key: str) -> str:
    """One step of the JSON path of a file: `.load`, or `["odd name"]`."""
    return f".{key}" if key.isidentifier() else f"[{as_json(key)}]"


def _refuse_constant(word: str) -> float:
    raise BadMessage(Fault.RANGE, "", word, "a finite number")


def _unique_object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs):
        twice = next(name for name, count in Counter(name for name, _ in pairs).items() if count > 1)
        raise BadMessage(Fault.MALFORMED, step(twice), "the key twice", "each key once")
    return members


def encode(document: object) -> bytes:
    """The document as compact JSON; raises ValueError for NaN and infinity."""
    return json.dumps(document, separators=(",", ":"), allow_nan=False, ensure_ascii=False).encode()


def parsed(payload: bytes | None, limit: int) -> Any:
    """The JSON types in these bytes of UTF-8: no repeated key, no NaN.  Raises BadMessage."""
    if payload is None:
        raise BadMessage(Fault.MALFORMED, "", None, "a JSON object")
    if len(payload) > limit:
        raise BadMessage(Fault.OVERSIZED, "", f"{len(payload)} bytes", f"at most {limit} bytes")
    try:  # `loads` itself would take UTF-16 too, which the stream's parser does not
        return json.loads(payload.decode(), parse_constant=_refuse_constant, object_pairs_hook=_unique_object)
    except BadMessage:
        raise
    except (ValueError, RecursionError) as exc:
        raise BadMessage(Fault.MALFORMED, "", payload[:40], f"JSON ({exc.__class__.__name__})") from exc


def printable(text: str) -> str:
    """The text on one line, as long as before: it may be shown on a terminal and in a log, whoever wrote it."""
    return text if text.isprintable() else UNPRINTABLE.sub(lambda found: " " if found[0].isspace() else "_", text)


def check_text(value: object, path: str, limit: int) -> str:
    """A string of 1 to `limit` characters, made `printable`: older senders and people put line feeds into texts."""
    if not isinstance(value, str):
        raise BadMessage(Fault.TYPE, path, value, "a string")
    if not 1 <= len(value) <= limit:
        raise BadMessage(Fault.RANGE, path, f"{len(value)} characters", f"1 to {limit} characters")
    if not value.isascii() and any("\ud800" <= character <= "\udfff" for character in value):
        raise BadMessage(Fault.RANGE, path, value, "text without lone surrogates")
    return printable(value)


def check_name(value: object, path: str) -> str:
    """A name: letters, digits, dot, underscore, hyphen; at most 200 characters."""
    name = check_text(value, path, MAX_NAME)
    if name != value or not NAME_PATTERN.fullmatch(name):
        raise BadMessage(Fault.RANGE, path, name, "a name of letters, digits, '.', '_', '-'")
    return name


def check_integer(value: object, path: str, low: int, high: int) -> int:
    """A whole number within [low, high]; true and 1.0 are not one."""
    if type(value) is not int:
        raise BadMessage(Fault.TYPE, path, value, "a whole number")
    if not low <= value <= high:
        raise BadMessage(Fault.RANGE, path, value, f"{low} to {high}")
    return value
