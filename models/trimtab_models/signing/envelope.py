"""A record as it travels, and the bytes that its signature covers.  Standard library only."""

from collections.abc import Iterable
from dataclasses import dataclass

HEADER = "trimtab-signature"
DOMAIN = b"trimtab-signature-v1"
"""Signatures of the same key for any other purpose are none of a record."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Envelope:
    """One record of a topic; `signatures` are the values of its signature headers, of which there must be one."""

    topic: str
    key: bytes
    value: bytes
    signatures: tuple[bytes, ...] = ()

    @property
    def covered(self) -> bytes:
        """What is signed: each part with its length, so that no two records have the same bytes."""
        parts = (self.topic.encode(), self.key, self.value)
        return DOMAIN + b"".join(len(part).to_bytes(8, "big") + part for part in parts)


def signatures_in(headers: Iterable[tuple[str, bytes | None]] | None) -> tuple[bytes, ...]:
    """The values of the signature headers among a record's headers."""
    return tuple(value or b"" for name, value in headers or () if name == HEADER)
