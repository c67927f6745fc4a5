"""Checks the signatures of hosts (`hosts`), with the keys that the controller has signed.

A reader with a private key of the controller checks the code that a host adds for it (`codes`), and the signature only
where there is no such code.  libsodium (PyNaCl) checks an Ed25519 signature in half the time of OpenSSL (cryptography).
"""

import base64
import binascii
from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from types import MappingProxyType

from nacl.exceptions import BadSignatureError
from nacl.signing import VerifyKey

from trimtab_protocol.messages.decode import BadMessage, Fault
from trimtab_protocol.messages.host_keys import HostKeys
from trimtab_protocol.messages.names import HostId
from trimtab_protocol.signing.codes import is_code, key_of_controller
from trimtab_protocol.signing.envelope import HEADER
from trimtab_protocol.signing.hosts import DIGEST_BYTES, MAX_HEADER_BYTES, Signed, covered
from trimtab_protocol.signing.keys import BadKey, PublicKey, SigningKey

SIGNATURE_BYTES = 64
MAX_HOSTS = 100_000
"""Number of hosts whose keys are held."""


@dataclass(slots=True)
class _HostKey:
    """A key of a host.  `shared`: what it shares with the reader's own key; None: not derived yet, or there is none."""

    public: PublicKey
    verify: VerifyKey
    shared: bytes | None = None


class KnownHosts:
    """The keys of all hosts of a cluster, as the controller has signed them.

    `own`: the private key of the controller, if the reader has it.
    """

    def __init__(self, cluster: str, own: SigningKey | None = None) -> None:
        self._cluster = cluster
        self._own = own
        self._own_name = b"" if own is None else own.public.id.encode()
        self._records: dict[HostId, HostKeys] = {}
        self._keys: dict[tuple[bytes, bytes], _HostKey] = {}

    @property
    def records(self) -> Mapping[HostId, HostKeys]:
        """What is known of each host, revoked ones included."""
        return MappingProxyType(self._records)

    @property
    def enrolled(self) -> frozenset[HostId]:
        """The hosts that have a key."""
        return frozenset(host for host, record in self._records.items() if record.keys)

    @property
    def revoked(self) -> tuple[HostId, ...]:
        """The hosts that had a key and have none any more, the last ones first."""
        gone = [record for record in self._records.values() if not record.keys]
        return tuple(record.host for record in sorted(gone, key=lambda each: (-each.at, each.host)))

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
        keys = [PublicKey(raw) for raw in record.keys]
        loaded = {(host, key.id.encode()): _HostKey(key, VerifyKey(key.raw)) for key in keys}
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
        # Digests by host: those that were checked, each followed by the earlier ones that its signature covers.
        vouched: defaultdict[bytes, list[bytes]] = defaultdict(list)
        faults: list[Fault | None] = [None] * len(records)
        for index in range(len(records) - 1, -1, -1):
            record = records[index]
            # Most batches have one record of a host, so the digests are not looked at before the next one comes.
            if any(_lists(digests, record.digest) for digests in vouched[record.key]):
                continue
            found = self._verify(topic, record)
            if isinstance(found, Fault):
                faults[index] = found
            else:
                vouched[record.key].append(record.digest + found)
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
        encoded, _, rest = rest.partition(b":")
        listed, _, codes = rest.partition(b":")
        try:
            earlier = base64.b64decode(listed, validate=True)
            content = covered(topic, record, earlier)
            if self._has_code(key, codes, content):
                return earlier
            signature = base64.b64decode(encoded, validate=True)
            if len(signature) != SIGNATURE_BYTES:
                return Fault.WRONG_SIGNATURE
            key.verify.verify(content, signature)
        except (binascii.Error, BadSignatureError):
            return Fault.WRONG_SIGNATURE
        return earlier

    def _has_code(self, key: _HostKey, codes: bytes, content: bytes) -> bool:
        """Whether a right code for the reader's own key is among the codes.  Raises binascii.Error."""
        if self._own is None or not codes:
            return False
        for text in codes.split(b","):
            named, _, encoded = text.partition(b"=")
            if named == self._own_name:
                shared = self._shared(self._own, key)
                return shared is not None and is_code(base64.b64decode(encoded, validate=True), shared, content)
        return False

    def _shared(self, own: SigningKey, key: _HostKey) -> bytes | None:
        if key.shared is None:
            with suppress(BadKey):
                key.shared = key_of_controller(own, key.public)
        return key.shared


def _lists(digests: bytes, digest: bytes) -> bool:
    return any(digests[at : at + DIGEST_BYTES] == digest for at in range(0, len(digests), DIGEST_BYTES))
