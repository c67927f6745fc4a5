"""Make what the console of this cluster needs besides its configuration: `console_files.py FOLDER`.

A certificate for localhost that signs itself, its key, and a file without tokens: `trimtab console token` adds them.
What is there already stays as it is.
"""

import datetime
import ipaddress
import os
import sys
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

NAMES = ("localhost", "console")
DAYS = 397
"""How long the certificate is valid; browsers refuse longer ones."""


def main() -> int:
    """Make the files; the exit code."""
    folder = Path(sys.argv[1])
    key_file, certificate_file, tokens = folder / "console.key", folder / "console.pem", folder / "tokens.toml"
    if not certificate_file.exists():
        key = ec.generate_private_key(ec.SECP256R1())
        form, sealed = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        write_private(key_file, key.private_bytes(serialization.Encoding.PEM, form, sealed))
        certificate_file.write_bytes(certificate(key).public_bytes(serialization.Encoding.PEM))
        print(f"made {certificate_file}, valid for {DAYS} days")
    if not tokens.exists():
        write_private(tokens, b"# Tokens of the console, made by `trimtab console token`.\n")
        print(f"made {tokens}")
    return 0


def certificate(key: ec.EllipticCurvePrivateKey) -> x509.Certificate:
    """A certificate of this key for the machine itself and for other containers of the cluster."""
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "Trimtab console, for a try")])
    hosts = [*map(x509.DNSName, NAMES), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(days=DAYS))
        .add_extension(x509.SubjectAlternativeName(hosts), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .sign(key, hashes.SHA256())
    )


def write_private(path: Path, content: bytes) -> None:
    """Write a file that only its owner can use; a part that an earlier run left is replaced."""
    path.unlink(missing_ok=True)
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(content)


if __name__ == "__main__":
    sys.exit(main())
