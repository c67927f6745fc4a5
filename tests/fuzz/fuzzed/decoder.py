"""What is fuzzed: a way to read bytes, true samples to begin from, and how a refusal shows."""

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any

from trimtab_protocol.messages.decode import BadMessage

SEPARATOR = b"\x00\xff\x00"
"""Between the parts of a record that has several: key, headers, value."""


class Form(Enum):
    """What the mutator may know of the samples."""

    JSON = auto()
    TOML = auto()
    OTHER = auto()


class Refused(Exception):
    """A component has counted a record as refused; its port itself raises nothing."""

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(reason)


def reason_of(refusal: Exception) -> str:
    """The word under which a refusal is counted."""
    match refusal.__cause__ if isinstance(refusal.__cause__, BadMessage) else refusal:
        case BadMessage() as refusal:
            return str(refusal.fault)
        case Refused():
            return refusal.reason  # type: ignore[attr-defined]
        case _:
            return type(refusal).__name__


@dataclass(frozen=True, slots=True, kw_only=True)
class Decoder:
    """`decode` returns a value or raises one of `refusals`, and nothing else.

    `encode`: what was accepted, encoded and decoded again, is equal.  `seal` gives a changed record the checksum that
    fits it: without it a decoder behind a checksum would never be reached.
    """

    name: str
    samples: tuple[bytes, ...]
    decode: Callable[[bytes], Any]
    form: Form = Form.JSON
    refusals: tuple[type[Exception], ...] = (BadMessage,)
    encode: Callable[[Any], bytes] | None = None
    seal: Callable[[bytes], bytes] | None = None


def joined(*parts: bytes) -> bytes:
    """A record of several parts as one text."""
    return SEPARATOR.join(parts)


def parted(data: bytes, count: int) -> list[bytes]:
    """Its parts again; those that are missing are empty."""
    parts = data.split(SEPARATOR, count - 1)
    return parts + [b""] * (count - len(parts))
