"""Ed25519 keys (RFC 8032).  One private key signs; during a key rotation two public keys are trusted.

The id of a key is the beginning of the SHA-256 of its public half.  A signature names it, so that a verifier knows
which key to try.  A trust file has one line per key, `ed25519 BASE64 [remark]`; `#` begins a comment.
"""

import base64
import binascii
import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import NewType, Self

from cryptography.exceptions import InternalError, InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)

from trimtab_protocol.messages.decode import BadMessage, Fault
from trimtab_protocol.signing.envelope import HEADER, Envelope

KeyId = NewType("KeyId", str)

ID_DIGITS = 16
KEY_BYTES = 32
PRIME = 2**255 - 19
"""Of the field of both curves."""
ALGORITHM = "ed25519"
MAX_TRUSTED = 2
"""Keys in a trust file: the present one and, while it is being changed, the next one."""
MAX_TRUST_FILE = 10_000
"""Characters of a trust file. A longer one is refused, never cut: a key behind the cut would be missed."""


class BadKey(ValueError):
    """A key or a trust file cannot be used.  The message never shows private key material."""


@dataclass(frozen=True, slots=True)
class PublicKey:
    """A public key; `raw` has 32 bytes."""

    raw: bytes

    def __post_init__(self) -> None:
        if len(self.raw) != KEY_BYTES:
            raise BadKey(f"found {len(self.raw)} bytes, expected an Ed25519 public key of {KEY_BYTES}")

    @property
    def id(self) -> KeyId:
        """The id of the key in signatures and logs: 16 hex digits."""
        return KeyId(hashlib.sha256(self.raw).hexdigest()[:ID_DIGITS])

    @property
    def fingerprint(self) -> str:
        """The SHA-256 of the key, by which people compare keys: eight groups of eight hex digits."""
        digits = hashlib.sha256(self.raw).hexdigest()
        return " ".join(digits[at : at + 8] for at in range(0, len(digits), 8))

    def signed(self, signature: bytes, message: bytes) -> bool:
        """Whether this is a signature of the message by the private half."""
        try:
            Ed25519PublicKey.from_public_bytes(self.raw).verify(signature, message)
        except InvalidSignature:
            return False
        return True


class SigningKey:
    """A private key.  No repr and no error shows it."""

    __slots__ = ("_key", "public")

    def __init__(self, key: Ed25519PrivateKey) -> None:
        self._key = key
        self.public = PublicKey(key.public_key().public_bytes_raw())

    @classmethod
    def generate(cls) -> Self:
        """A new key, from the system's randomness."""
        return cls(Ed25519PrivateKey.generate())

    @classmethod
    def from_pem(cls, pem: bytes) -> Self:
        """The key in an unencrypted PEM; raises BadKey."""
        try:
            key = load_pem_private_key(pem, password=None)
        except (ValueError, TypeError, UnsupportedAlgorithm, InternalError) as error:
            raise BadKey("found no private key in PEM without a password, expected one of Ed25519") from error
        if not isinstance(key, Ed25519PrivateKey):
            raise BadKey(f"found a private key of another kind ({type(key).__name__}), expected one of Ed25519")
        return cls(key)

    def pem(self) -> bytes:
        """The key as PEM (PKCS #8), not encrypted."""
        return self._key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())

    def sign(self, envelope: Envelope) -> tuple[str, bytes]:
        """The signature header of the record.  The same record always has the same signature."""
        signature = base64.b64encode(self.signature(envelope.covered))
        return HEADER, self.public.id.encode() + b":" + signature

    def signature(self, message: bytes) -> bytes:
        """The signature of a message, which begins with the domain of its purpose."""
        return self._key.sign(message)

    def agreed(self, other: PublicKey) -> bytes:
        """The secret that only this key and the private half of the other one yield: X25519, 32 bytes.

        Raises BadKey if the other key yields none, which no key that somebody has generated does.
        """
        # An Ed25519 private key is hashed to the scalar of its public half (RFC 8032, 5.1.5).
        scalar = hashlib.sha512(self._key.private_bytes_raw()).digest()[:KEY_BYTES]
        try:
            return X25519PrivateKey.from_private_bytes(scalar).exchange(_on_montgomery_curve(other))
        except ValueError as error:
            raise BadKey(f"found the key {other.id}, which yields no shared secret, expected one of Ed25519") from error


@dataclass(frozen=True, slots=True)
class TrustedKeys:
    """The public keys whose signatures are accepted."""

    keys: tuple[PublicKey, ...]

    def __post_init__(self) -> None:
        if not 1 <= len(self.keys) <= MAX_TRUSTED or len({key.id for key in self.keys}) != len(self.keys):
            raise BadKey(f"found {len(self.keys)} keys, expected 1 to {MAX_TRUSTED}, each once")

    @property
    def by_id(self) -> Mapping[KeyId, PublicKey]:
        """The keys by their ids, oldest first."""
        return MappingProxyType({key.id: key for key in self.keys})

    def check(self, envelope: Envelope) -> None:
        """Raises BadMessage (unsigned, unknown_key, wrong_signature) unless a trusted key signed the record."""
        if not envelope.signatures:
            raise BadMessage(Fault.UNSIGNED, "headers", "no signature", f"header {HEADER}")
        if len(envelope.signatures) > 1:
            raise BadMessage(Fault.WRONG_SIGNATURE, "headers", f"{len(envelope.signatures)} signatures", "one")
        name, _, encoded = envelope.signatures[0].partition(b":")
        key = self.by_id.get(KeyId(name.decode("latin-1")))
        if key is None:
            trusted = ", ".join(self.by_id)
            raise BadMessage(Fault.UNKNOWN_KEY, "headers", name, f"a signature of a trusted key ({trusted})")
        try:
            signature = base64.b64decode(encoded, validate=True)
        except binascii.Error:
            signature = b""
        if not key.signed(signature, envelope.covered):
            expected = f"one by key {key.id} of this topic, key and value"
            raise BadMessage(Fault.WRONG_SIGNATURE, "headers", "another signature", expected)


def _on_montgomery_curve(key: PublicKey) -> X25519PublicKey:
    """The key as X25519 has it: u = (1 + y) / (1 - y) (RFC 7748, 4.1).  Raises ValueError if y is 1."""
    y = int.from_bytes(key.raw, "little") & ((1 << 255) - 1)  # the highest bit is the sign of x
    u = (1 + y) * pow(1 - y, -1, PRIME) % PRIME
    return X25519PublicKey.from_public_bytes(u.to_bytes(KEY_BYTES, "little"))


def read_key(text: str) -> PublicKey:
    """The key in `ed25519:BASE64`; raises BadKey."""
    algorithm, _, encoded = text.strip().partition(":")
    try:
        if algorithm != ALGORITHM:
            raise BadKey(f"found something else, expected `{ALGORITHM}:BASE64`")
        return PublicKey(base64.b64decode(encoded, validate=True))
    except binascii.Error as error:
        raise BadKey(f"found no base64 after `{ALGORITHM}:`") from error


def write_key(key: PublicKey) -> str:
    """The key as one word."""
    return f"{ALGORITHM}:{base64.b64encode(key.raw).decode()}"


def read_trust(text: str) -> TrustedKeys:
    """The keys in the text of a trust file; raises BadKey, which names the line."""
    if len(text) > MAX_TRUST_FILE:
        raise BadKey(f"found more than {MAX_TRUST_FILE} characters, expected at most that many")
    keys = []
    for number, line in enumerate(text.splitlines(), start=1):
        words = line.partition("#")[0].split()
        if not words:
            continue
        try:
            if words[0] != ALGORITHM or len(words) < 2:
                raise BadKey(f"found something else, expected `{ALGORITHM} BASE64`")  # not shown: it may be secret
            keys.append(PublicKey(base64.b64decode(words[1], validate=True)))
            SigningKey.generate().agreed(keys[-1])  # refuses points for which anybody can make signatures
        except ValueError as error:
            raise BadKey(f"line {number}: {error}") from error
    return TrustedKeys(tuple(keys))


def write_trust(keys: Iterable[PublicKey]) -> str:
    """The text of a trust file."""
    lines = [f"{ALGORITHM} {base64.b64encode(key.raw).decode()} # key {key.id}\n" for key in keys]
    return "# Public keys of the controller: whose commands and placements are obeyed.\n" + "".join(lines)
