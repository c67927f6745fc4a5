"""Signatures of hosts: a report or an ack counts only if a key of the host that it names has signed it.

A host signs the SHA-256 of the value, with the topic (and with it the cluster) and the key (the host).  So a reader
checks a record by its digest, before it parses the value.  The value has the time and the sequence number.

Checking an Ed25519 signature costs 0.1 ms, which is much for a fleet.  So a signature also covers the digests of the
host's last records.  A reader that reads many records at once checks the newest one of each host; its signature vouches
for the others.  The header is `KEY_ID:BASE64`, and `:BASE64` of the earlier digests where there are any.
"""

import base64
import binascii
import hashlib
from collections import defaultdict, deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from trimtab_protocol.messages.decode import BadMessage, Fault
from trimtab_protocol.messages.host_keys import HostKeys
from trimtab_protocol.messages.names import HostId
from trimtab_protocol.signing.envelope import HEADER
from trimtab_protocol.signing.keys import PublicKey, SigningKey

DOMAIN = b"trimtab-host-signature-v1"
"""Prefix of the signed bytes, so that a host's signature is not valid as one of the controller, and the reverse."""
DIGEST_BYTES = 32
MAX_EARLIER = 12
"""Number of earlier digests that a signature covers."""
MAX_HEADER_BYTES = 1024
"""Longest signature header; a longer one is refused unread."""
MAX_HOSTS = 100_000
"""Number of hosts whose keys are held."""


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
    parts = (topic.encode(), record.key, record.digest, earlier)
    return DOMAIN + b"".join(len(part).to_bytes(8, "big") + part for part in parts)


class HostSigner:
    """Signs the records of one host.  Remembers the digests of the last records of each topic."""

    def __init__(self, key: SigningKey, host: HostId) -> None:
        self._key = key
        self._host = host.encode()
        self._earlier: defaultdict[str, deque[bytes]] = defaultdict(lambda: deque(maxlen=MAX_EARLIER))

    def sign(self, topic: str, value: bytes) -> tuple[str, bytes]:
        """The signature header of the next record of a topic, with the host as its key."""
        digest, earlier = digest_of(value), b"".join(self._earlier[topic])
        self._earlier[topic].append(digest)
        signature = self._key.signature(covered(topic, Signed(key=self._host, digest=digest), earlier))
        parts = [self._key.public.id.encode(), base64.b64encode(signature)]
        return HEADER, b":".join([*parts, base64.b64encode(earlier)] if earlier else parts)


class KnownHosts:
    """The keys of all hosts of a cluster, as the controller has signed them."""

    def __init__(self, cluster: str) -> None:
        self._cluster = cluster
        self._records: dict[HostId, HostKeys] = {}
        self._keys: dict[tuple[bytes, bytes], Ed25519PublicKey] = {}

    @property
    def records(self) -> Mapping[HostId, HostKeys]:
        """What is known of each host, revoked ones included."""
        return MappingProxyType(self._records)

    @property
    def enrolled(self) -> frozenset[HostId]:
        """The hosts that have a key."""
        return frozenset(host for host, record in self._records.items() if record.keys)

    def take(self, record: HostKeys) -> bool:
        """Note the keys of a host, whose signature the caller has checked; returns whether that changes something.

        An older record than the known one changes nothing: it may be a replay.  Raises BadMessage.
        """
        if record.cluster != self._cluster:
            raise BadMessage(Fault.CLUSTER, "cluster", record.cluster, self._cluster)
        known = self._records.get(record.host)
        if known is not None and record.at < known.at:
            return False
        if known is None and len(self._records) >= MAX_HOSTS:
            raise BadMessage(Fault.OVERSIZED, "key", record.host, f"at most {MAX_HOSTS} hosts")
        host = record.host.encode()
        loaded = {(host, PublicKey(raw).id.encode()): Ed25519PublicKey.from_public_bytes(raw) for raw in record.keys}
        for raw in known.keys if known is not None else ():
            self._keys.pop((host, PublicKey(raw).id.encode()), None)
        self._keys |= loaded
        self._records[record.host] = record
        return known != record

    def check(self, topic: str, record: Signed) -> None:
        """Raises BadMessage (unsigned, unknown_key, wrong_signature) unless a key of the host has signed the record."""
        fault = self.fault(topic, record)
        if fault is not None:
            raise BadMessage(fault, "headers", record.key, f"header {HEADER} by a key of this host")

    def fault(self, topic: str, record: Signed) -> Fault | None:
        """Why the signature of a record does not count; None if it does."""
        found = self._verify(topic, record)
        return found if isinstance(found, Fault) else None

    def faults(self, topic: str, records: Sequence[Signed]) -> list[Fault | None]:
        """The same for many records of one topic, oldest first: one check of a signature vouches for earlier ones."""
        vouched: defaultdict[bytes, set[bytes]] = defaultdict(set)
        faults: list[Fault | None] = [None] * len(records)
        for index in range(len(records) - 1, -1, -1):
            record = records[index]
            if record.key in vouched and record.digest in vouched[record.key]:
                continue
            found = self._verify(topic, record)
            if isinstance(found, Fault):
                faults[index] = found
            else:
                vouched[record.key].update((record.digest, *_split(found)))
        return faults

    def _verify(self, topic: str, record: Signed) -> Fault | bytes:
        """The fault of a record, or the earlier digests that its signature covers too."""
        if not record.signatures:
            return Fault.UNSIGNED
        if len(record.signatures) > 1 or len(record.signatures[0]) > MAX_HEADER_BYTES:
            return Fault.WRONG_SIGNATURE
        name, _, rest = record.signatures[0].partition(b":")
        key = self._keys.get((record.key, name))
        if key is None:
            return Fault.UNKNOWN_KEY
        encoded, _, listed = rest.partition(b":")
        try:
            signature, earlier = base64.b64decode(encoded, validate=True), base64.b64decode(listed, validate=True)
            key.verify(signature, covered(topic, record, earlier))
        except (binascii.Error, InvalidSignature):
            return Fault.WRONG_SIGNATURE
        return earlier


def _split(earlier: bytes) -> Iterable[bytes]:
    return (earlier[at : at + DIGEST_BYTES] for at in range(0, len(earlier), DIGEST_BYTES))
