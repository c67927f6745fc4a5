"""Signatures of hosts: a report or an ack counts only if a key of the host that it names has signed it.

A host signs the SHA-256 of the value, with the topic (and with it the cluster) and the key (the host).  So a reader
checks a record by its digest, before it parses the value.  The value has the time and the sequence number.

Checking an Ed25519 signature takes much longer than computing a digest.  So a signature also covers the digests of the
host's last records.  A reader that reads many records at once checks the newest one of each host; its signature vouches
for the others.  A host that trusts keys of the controller adds a code (`codes`) of the same bytes for each of them: a
reader with the private half of one checks the code instead of the signature.

The header is `KEY_ID:BASE64`, then `:BASE64` of the earlier digests, then `:CONTROLLER_KEY_ID=BASE64` of the codes with
a comma between them.  What is missing at the end is left out with its colon.

This module is what hosts need; `known_hosts` checks the signatures.
"""

import base64
import hashlib
from collections import defaultdict, deque
from collections.abc import Callable, Collection
from dataclasses import dataclass
from enum import StrEnum

from trimtab_protocol.messages.names import HostId
from trimtab_protocol.signing.codes import code, key_of_host
from trimtab_protocol.signing.envelope import HEADER
from trimtab_protocol.signing.keys import BadKey, PublicKey, SigningKey

DOMAIN = b"trimtab-host-signature-v1"
"""Prefix of the signed bytes, so that a host's signature is not valid as one of the controller, and the reverse."""
DIGEST_BYTES = 32
MAX_EARLIER = 12
"""Number of earlier digests that a signature covers."""
MAX_HEADER_BYTES = 1024
"""Longest signature header; a longer one is refused unread."""


class HostChecking(StrEnum):
    """What becomes of reports and acks that no key of their host has signed."""

    OFF = "off"  # signatures are not looked at
    WARN = "warn"  # counted, and used
    ENFORCE = "enforce"  # counted, and dropped


def digest_of(value: bytes) -> bytes:
    """What a host signs of a record's value: its SHA-256."""
    return hashlib.sha256(value).digest()


@dataclass(frozen=True, slots=True, kw_only=True)
class Signed:
    """A record as far as its signature is concerned; `signatures` = its signature headers.  Exactly one is valid."""

    key: bytes
    digest: bytes
    signatures: tuple[bytes, ...] = ()


def covered(topic: str, record: Signed, earlier: bytes) -> bytes:
    """The signed bytes; `earlier` = the digests of the host's last records.  Each part is preceded by its length."""
    parts = [DOMAIN]
    for part in (topic.encode(), record.key, record.digest, earlier):
        parts += (len(part).to_bytes(8, "big"), part)
    return b"".join(parts)


class HostSigner:
    """Signs the records of one host.  Remembers the digests of the last records of each topic.

    `trusted`: returns the keys of the controller that the host trusts now.  None: it trusts none.
    """

    def __init__(
        self, key: SigningKey, host: HostId, trusted: Callable[[], Collection[PublicKey]] | None = None
    ) -> None:
        self._key = key
        self._trusted = trusted
        self._shared: dict[PublicKey, bytes] = {}
        self._host = host.encode()
        self._earlier: defaultdict[str, deque[bytes]] = defaultdict(lambda: deque(maxlen=MAX_EARLIER))

    def sign(self, topic: str, value: bytes) -> tuple[str, bytes]:
        """The signature header of the next record of a topic, with the host as its key."""
        digest, earlier = digest_of(value), b"".join(self._earlier[topic])
        self._earlier[topic].append(digest)
        content = covered(topic, Signed(key=self._host, digest=digest), earlier)
        signature = base64.b64encode(self._key.signature(content))
        parts = [self._key.public.id.encode(), signature, base64.b64encode(earlier), self._codes(content)]
        return HEADER, b":".join(parts).rstrip(b":")

    def _codes(self, content: bytes) -> bytes:
        keys = () if self._trusted is None else self._trusted()
        self._shared = {key: self._shared.get(key) or _shared(self._key, key) for key in keys}
        return b",".join(
            key.id.encode() + b"=" + base64.b64encode(code(shared, content))
            for key, shared in self._shared.items()
            if shared
        )


def _shared(own: SigningKey, controller: PublicKey) -> bytes:
    """The key that both share; empty if there is none, and then the signature is checked."""
    try:
        return key_of_host(own, controller)
    except BadKey:
        return b""
