"""Who signed a record, by the format alone that the documentation states; nothing here is the product's.

A signature is the header `trimtab-signature` with `KEY-ID:BASE64`: Ed25519 over the domain, then topic, key and value,
each behind its length in 8 bytes.  A key's id is the beginning of the SHA-256 of its public half.
"""

import base64
import binascii
import hashlib

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from tests.faults.recorded.history import Row

HEADER = "trimtab-signature"
DOMAIN = b"trimtab-signature-v1"
ID_DIGITS = 16
ALGORITHM = "ed25519"

Keys = dict[bytes, Ed25519PublicKey]
"""By their ids."""


def read_keys(text: str) -> Keys:
    """The public keys in a trust file: lines of `ed25519 BASE64`.  Raises ValueError."""
    lines = (line.partition("#")[0].split() for line in text.splitlines())
    raws = [base64.b64decode(words[1], validate=True) for words in lines if words and words[0] == ALGORITHM]
    return {
        hashlib.sha256(raw).hexdigest()[:ID_DIGITS].encode(): Ed25519PublicKey.from_public_bytes(raw) for raw in raws
    }


def is_signed(topic: str, row: Row, keys: Keys) -> bool:
    """Whether one of the keys vouches for this record, on this topic and under this key."""
    name, _, signature = (row.headers.get(HEADER) or b"").partition(b":")
    if name not in keys:
        return False
    parts = (topic.encode(), row.key or b"", row.value or b"")
    try:
        covered = DOMAIN + b"".join(len(part).to_bytes(8, "big") + part for part in parts)
        keys[name].verify(base64.b64decode(signature, validate=True), covered)
    except (InvalidSignature, binascii.Error):
        return False
    return True
