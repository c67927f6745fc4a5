"""Message authentication codes (HMAC-SHA256) of hosts for the controller.  Both share a key without exchanging one.

Checking a code takes a small part of the time that an Ed25519 signature takes, and the stream checks one record of each
host in each window.  A host knows the controller's public key by its trust file, and the controller that of the host by
its enrolment.  So both can compute the same secret by X25519 (RFC 7748), which only their two private keys yield, and
from it a key (HKDF-SHA256, RFC 5869).  An Ed25519 key serves for X25519 by the birational map of RFC 7748, section 4.1.

A code proves to the controller what a signature proves to everybody.  Who has no private key of the controller checks
the signature.
"""

import hmac

from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from trimtab_protocol.signing.keys import PublicKey, SigningKey

DOMAIN = b"trimtab-host-code-v1"
CODE_BYTES = 32


def key_of_host(own: SigningKey, controller: PublicKey) -> bytes:
    """The key that this host (`own`) shares with a controller.  Raises BadKey if the other key yields no secret."""
    return _derived(own.agreed(controller), host=own.public, controller=controller)


def key_of_controller(own: SigningKey, host: PublicKey) -> bytes:
    """The key that this controller (`own`) shares with a host.  Raises BadKey if the other key yields no secret."""
    return _derived(own.agreed(host), host=host, controller=own.public)


def code(key: bytes, covered: bytes) -> bytes:
    """The code of the bytes, of CODE_BYTES."""
    return hmac.digest(key, covered, "sha256")


def is_code(found: bytes, key: bytes, covered: bytes) -> bool:
    """Whether this is the code of the bytes; takes the same time for each wrong one."""
    return hmac.compare_digest(found, code(key, covered))


def _derived(secret: bytes, *, host: PublicKey, controller: PublicKey) -> bytes:
    return HKDF(SHA256(), CODE_BYTES, salt=None, info=DOMAIN + host.raw + controller.raw).derive(secret)
