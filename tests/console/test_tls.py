"""The certificate of the console: what is refused before it listens, and that browsers reach it."""

import datetime
import ssl
import threading
import time
import urllib.request
from pathlib import Path

import pytest
import uvicorn
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from tests.console.fleet import Fleet, source_of, watching
from trimtab_console.command import check_tls, settings_of
from trimtab_console.configuration import BadConfiguration, Tls, load
from trimtab_sandbox.broker import free_ports


def make(folder: Path, name: str, *, password: bytes | None = None) -> Tls:
    """A certificate for localhost that signs itself, and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .sign(key, hashes.SHA256())
    )
    files = Tls(certificate=folder / f"{name}.pem", key=folder / f"{name}.key")
    files.certificate.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    sealed = serialization.BestAvailableEncryption(password) if password else serialization.NoEncryption()
    form = serialization.PrivateFormat.PKCS8
    files.key.write_bytes(key.private_bytes(serialization.Encoding.PEM, form, sealed))
    files.key.chmod(0o600)
    return files


def told(files: Tls) -> str:
    with pytest.raises(BadConfiguration) as refused:
        check_tls(files)
    return str(refused.value)


def test_files_that_cannot_be_used_are_refused_before_it_listens(tmp_path: Path) -> None:
    one, other = make(tmp_path, "one"), make(tmp_path, "other")
    check_tls(one)
    assert "expected a certificate and its key" in told(Tls(certificate=one.certificate, key=other.key))
    assert "expected a certificate and its key" in told(Tls(certificate=one.key, key=one.key))
    assert "not encrypted" in told(make(tmp_path, "sealed", password=b"secret"))
    assert told(Tls(certificate=tmp_path / "none", key=one.key)) == f"{tmp_path / 'none'}: No such file or directory"
    one.key.chmod(0o640)
    assert told(one) == f"{one.key}: found mode 0640, expected 0600: others can use it"


def test_browsers_reach_it_by_tls(tmp_path: Path) -> None:
    files, (port,) = make(tmp_path, "one"), free_ports(1)
    path = tmp_path / "console.toml"
    path.write_text(
        f'[console]\ncluster = "prod"\naddress = "0.0.0.0"\nport = {port}\nhosts = ["localhost"]\n'
        f'[access]\ntokens = "{tmp_path}/tokens.toml"\n'
        f'[tls]\ncertificate = "{files.certificate}"\nkey = "{files.key}"\n'
        '[kafka]\nbootstrap_servers = "127.0.0.1:1"\n'
    )
    configuration = load(path)
    assert configuration.address == f"https://0.0.0.0:{port}/"
    server = uvicorn.Server(settings_of(configuration, source_of(watching(Fleet()))))
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        deadline = time.monotonic() + 30
        while not server.started:
            assert time.monotonic() < deadline
            time.sleep(0.02)
        context = ssl.create_default_context(cafile=str(files.certificate))
        with urllib.request.urlopen(f"https://localhost:{port}/api/v1/cluster", context=context, timeout=10) as answer:
            assert answer.status == 200
    finally:
        server.should_exit = True
        thread.join(30)
