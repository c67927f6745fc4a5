"""A signed record, and the bytes that its signature covers.  Uses only the standard library."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

from trimtab_protocol.messages.decode import BadMessage, Fault

HEADER = "trimtab-signature"
DOMAIN = b"trimtab-signature-v1"
"""Prefix of the signed bytes, so that a signature made for another purpose is not valid for a record."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Envelope:
    """One record of a topic; `signatures` = the values of its signature headers.  Exactly one is valid."""

    topic: str
    key: bytes
    value: bytes
    signatures: tuple[bytes, ...] = ()

    @property
    def covered(self) -> bytes:
        """The signed bytes.  Each part is preceded by its length, so that no two records have the same bytes."""
        parts = (self.topic.encode(), self.key, self.value)
        return DOMAIN + b"".join(len(part).to_bytes(8, "big") + part for part in parts)


class SignatureTrust(Protocol):
    """Checks signatures against the trusted keys, which may be followed while they change."""

    def check(self, envelope: Envelope) -> None:
        """Raises BadMessage unless a trusted key has signed the record."""


Headers = Iterable[tuple[str, bytes | None]]


class Message(Protocol):
    """A record of confluent-kafka."""

    def headers(self) -> Headers | None:
        """The headers; None when there are none."""


def headers_in(message: Message) -> list[tuple[str, bytes | None]]:
    """The headers of a record.  Raises BadMessage for names that are not UTF-8: confluent-kafka 2.16 fails on them."""
    try:
        return list(message.headers() or ())
    except (SystemError, UnicodeDecodeError) as error:
        raise BadMessage(Fault.MALFORMED, "headers", "a name that is no text", "names in UTF-8") from error


def signatures_in(headers: Headers | None) -> tuple[bytes, ...]:
    """The values of the signature headers among a record's headers."""
    return tuple(value or b"" for name, value in headers or () if name == HEADER)
