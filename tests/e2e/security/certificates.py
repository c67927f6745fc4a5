"""An authority and what it has certified, made for one test."""

import ipaddress
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat


def make_certificates(folder: Path) -> tuple[Path, Path]:
    """An authority, and identities (key and certificate in one PEM): (ca, the broker's); beside them client.*."""
    folder.mkdir()
    now = datetime.now(UTC)

    def name(text: str) -> x509.Name:
        return x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, text)])

    def certificate(subject: str, public: ec.EllipticCurvePublicKey) -> x509.CertificateBuilder:
        builder = x509.CertificateBuilder().subject_name(name(subject)).issuer_name(name("authority"))
        builder = builder.public_key(public).serial_number(x509.random_serial_number())
        return builder.not_valid_before(now - timedelta(hours=2)).not_valid_after(now + timedelta(days=1))

    authority, broker = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    root = certificate("authority", authority.public_key())
    root = root.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
    usage = dict.fromkeys(
        ("digital_signature", "content_commitment", "key_encipherment", "data_encipherment", "key_agreement",
         "encipher_only", "decipher_only"), False,
    )  # fmt: skip
    root = root.add_extension(x509.KeyUsage(**usage, key_cert_sign=True, crl_sign=True), critical=True)
    root = root.add_extension(x509.SubjectKeyIdentifier.from_public_key(authority.public_key()), critical=False)
    issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(authority.public_key())
    address = x509.IPAddress(ipaddress.ip_address("127.0.0.1"))

    def issue(subject: str, key: ec.EllipticCurvePrivateKey) -> tuple[bytes, bytes]:
        own = certificate(subject, key.public_key()).add_extension(issuer, critical=False)
        own = own.add_extension(x509.SubjectAlternativeName([address]), critical=False)
        private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        return private, own.sign(authority, SHA256()).public_bytes(Encoding.PEM)

    ca, identity = folder / "ca.pem", folder / "broker.pem"
    ca.write_bytes(root.sign(authority, SHA256()).public_bytes(Encoding.PEM))
    identity.write_bytes(b"".join(issue("broker", broker)))
    key, chain = issue("client", ec.generate_private_key(ec.SECP256R1()))
    (folder / "client.key").touch(mode=0o600)
    (folder / "client.key").write_bytes(key)
    (folder / "client.pem").write_bytes(chain)
    return ca, identity
