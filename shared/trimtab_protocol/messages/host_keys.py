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

from trimtab_protocol.messages.decode import BadMessage, Fault, Fields, check_text, encode, parse
from trimtab_protocol.messages.names import HostId

VERSION = 1
KEY_BYTES = 32
PROOF_BYTES = 32
MAX_KEYS = 2
"""Keys of a host: the present one and, while it is being changed, the one before."""
MAX_RECORD_BYTES = 10_000
"""Size of a record with the keys of a host, and of a request."""
REQUEST_HEADER = "trimtab-enrollment"
"""The header that marks a request among the acks.  An ack has no such header."""
REQUEST_DOMAIN = b"trimtab-enrollment-v1"


@dataclass(frozen=True, slots=True, kw_only=True)
class HostKeys:
    """The public Ed25519 keys of a host, 32 bytes each, newest first; none: the host is revoked.

    `at` = when this was decided (epoch seconds), `by` = who did.
    """

    cluster: str
    host: HostId
    keys: tuple[bytes, ...]
    at: float
    by: str

    def __post_init__(self) -> None:
        if len(self.keys) > MAX_KEYS or len(set(self.keys)) != len(self.keys):
            raise BadMessage(Fault.RANGE, "keys", f"{len(self.keys)} keys", f"at most {MAX_KEYS}, each once")
        for key in self.keys:
            if len(key) != KEY_BYTES:
                raise BadMessage(Fault.RANGE, "keys", f"{len(key)} bytes", f"{KEY_BYTES} bytes")


@dataclass(frozen=True, slots=True, kw_only=True)
class EnrollmentRequest:
    """A host asks that `key` (32 bytes) become its public key; `proof` = that it knows the token."""

    cluster: str
    host: HostId
    key: bytes
    proof: bytes

    def is_proven_by(self, token: str) -> bool:
        """Whether the sender knew this token."""
        return hmac.compare_digest(self.proof, proof_of(token, self.cluster, self.host, self.key))


def proof_of(token: str, cluster: str, host: HostId, key: bytes) -> bytes:
    """What only those can compute who know the token: HMAC-SHA256 of cluster, host and key."""
    parts = (cluster.encode(), host.encode(), key)
    covered = REQUEST_DOMAIN + b"".join(len(part).to_bytes(8, "big") + part for part in parts)
    return hmac.new(token.encode(), covered, hashlib.sha256).digest()


def encode_host_keys(record: HostKeys) -> bytes:
    """The message as bytes."""
    keys = [_text_of(key) for key in record.keys]
    document = {"v": VERSION, "cluster": record.cluster, "host": record.host, "keys": keys}
    return encode(document | {"at": record.at, "by": record.by})


def decode_host_keys(key: bytes | None, payload: bytes | None) -> HostKeys:
    """The keys in a record with this key; raises BadMessage."""
    fields = parse(payload, version=VERSION, limit=MAX_RECORD_BYTES)
    return HostKeys(
        cluster=fields.name("cluster"),
        host=_read_host(fields, key),
        keys=tuple(_read_bytes(value, path, KEY_BYTES) for path, value in fields.items("keys", limit=MAX_KEYS)),
        at=fields.number("at"),
        by=fields.text("by", limit=200),
    )


def encode_request(request: EnrollmentRequest) -> bytes:
    """The message as bytes."""
    document = {"v": VERSION, "cluster": request.cluster, "host": request.host}
    return encode(document | {"key": _text_of(request.key), "proof": _text_of(request.proof)})


def decode_request(key: bytes | None, payload: bytes | None) -> EnrollmentRequest:
    """The request in a record with this key; raises BadMessage."""
    fields = parse(payload, version=VERSION, limit=MAX_RECORD_BYTES)
    return EnrollmentRequest(
        cluster=fields.name("cluster"),
        host=_read_host(fields, key),
        key=_read_bytes(fields.text("key"), "key", KEY_BYTES),
        proof=_read_bytes(fields.text("proof"), "proof", PROOF_BYTES),
    )


def _read_host(fields: Fields, key: bytes | None) -> HostId:
    host = fields.name("host")
    if key != host.encode():
        raise BadMessage(Fault.RANGE, "host", host, "the record's key")
    return HostId(host)


def _text_of(value: bytes) -> str:
    return base64.b64encode(value).decode()


def _read_bytes(value: object, path: str, size: int) -> bytes:
    text = check_text(value, path, 100)
    try:
        found = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        found = b""
    if len(found) != size or _text_of(found) != text:
        raise BadMessage(Fault.RANGE, path, text, f"{size} bytes in base64")
    return found
