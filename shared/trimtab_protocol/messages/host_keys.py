"""The public keys of a host, and the request with which a host asks to be enrolled.

The controller's key signs the keys of each host (`trimtab keys approve`), one record per host on the topic of keys.  A
host without keys is revoked.  A request travels on the topic of acks.  It proves that its sender knows the token that
`trimtab keys enroll` has shown for this host, and does not contain it.
"""

import base64
import binascii
import hashlib
import hmac
from dataclasses import dataclass
from typing import Annotated, ClassVar

from trimtab_protocol.messages.codec import Most, Name, Text, Wire, WrittenAs, decoded
from trimtab_protocol.messages.decode import BadMessage, Fault
from trimtab_protocol.messages.names import HostId

VERSION = 1
KEY_BYTES = 32
"""Bytes of a key, and of a proof."""
MAX_KEYS = 2
"""Keys of a host: the present one and, while it is being changed, the one before."""
MAX_RECORD_BYTES = 10_000
"""Size of a record with the keys of a host, and of a request."""
REQUEST_HEADER = "trimtab-enrollment"
"""The header that marks a request among the acks.  An ack has no such header."""
REQUEST_DOMAIN = b"trimtab-enrollment-v1"


def _text_of(value: bytes) -> str:
    return base64.b64encode(value).decode()


def _read_bytes(text: str) -> bytes:
    try:
        found = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        found = b""
    if len(found) != KEY_BYTES or _text_of(found) != text:
        raise BadMessage(Fault.RANGE, "", text, f"{KEY_BYTES} bytes in base64")
    return found


Bytes = Annotated[bytes, WrittenAs(Annotated[str, Text(100)], _text_of, _read_bytes)]
"""32 bytes, in messages in base64."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HostKeys:
    """The public Ed25519 keys of a host, 32 bytes each, newest first; none: the host is revoked.

    `at` = when this was decided (epoch seconds), `by` = who did.
    """

    WIRE: ClassVar = Wire(version=VERSION, most_bytes=MAX_RECORD_BYTES)

    cluster: Name
    host: HostId
    keys: Annotated[tuple[Bytes, ...], Most(MAX_KEYS)]
    at: float
    by: Annotated[str, Text(200)]

    def __post_init__(self) -> None:
        if len(self.keys) > MAX_KEYS or len(set(self.keys)) != len(self.keys):
            raise BadMessage(Fault.RANGE, "keys", f"{len(self.keys)} keys", f"at most {MAX_KEYS}, each once")
        for key in self.keys:
            if len(key) != KEY_BYTES:
                raise BadMessage(Fault.RANGE, "keys", f"{len(key)} bytes", f"{KEY_BYTES} bytes")


@dataclass(frozen=True, slots=True, kw_only=True)
class EnrollmentRequest:
    """A host asks that `key` (32 bytes) become its public key; `proof` = that it knows the token."""

    WIRE: ClassVar = Wire(version=VERSION, most_bytes=MAX_RECORD_BYTES)

    cluster: Name
    host: HostId
    key: Bytes
    proof: Bytes

    def is_proven_by(self, token: str) -> bool:
        """Whether the sender knew this token."""
        return hmac.compare_digest(self.proof, proof_of(token, self.cluster, self.host, self.key))


def proof_of(token: str, cluster: str, host: HostId, key: bytes) -> bytes:
    """What only those can compute who know the token: HMAC-SHA256 of cluster, host and key."""
    parts = (cluster.encode(), host.encode(), key)
    covered = REQUEST_DOMAIN + b"".join(len(part).to_bytes(8, "big") + part for part in parts)
    return hmac.new(token.encode(), covered, hashlib.sha256).digest()


def decode_host_keys(key: bytes | None, payload: bytes | None) -> HostKeys:
    """The keys in a record with this key; raises BadMessage."""
    found = decoded(payload, HostKeys)
    _check_key(key, found.host)
    return found


def decode_request(key: bytes | None, payload: bytes | None) -> EnrollmentRequest:
    """The request in a record with this key; raises BadMessage."""
    found = decoded(payload, EnrollmentRequest)
    _check_key(key, found.host)
    return found


def _check_key(key: bytes | None, host: HostId) -> None:
    if key != host.encode():
        raise BadMessage(Fault.RANGE, "host", host, "the record's key")
