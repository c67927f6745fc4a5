"""A console for tests: tokens, a topic of intents, a certificate, and a server for it."""

import datetime
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import uvicorn
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from fastapi.testclient import TestClient
from starlette.types import ASGIApp

from tests.console.fleet import NOW, TOPICS, Fleet, source_of, watching
from tests.console.told import explainer_of
from tests.kafka_record import Record
from tests.waiting import wait_for
from trimtab_console.access.entrance import Entrance
from trimtab_console.access.tokens import Token, TokenFile, TokenRole, digest_of, new_secret, to_table
from trimtab_console.configuration import ConsoleTls
from trimtab_console.desk import Desk
from trimtab_console.server import application
from trimtab_console.watch import Watch
from trimtab_console.why import Explainer
from trimtab_controller.intents.change import Record as Written
from trimtab_controller.kafka.intents import NotWrittenError
from trimtab_protocol.messages.codec import encoded
from trimtab_protocol.messages.intents import TakenBack
from trimtab_sandbox.broker import free_ports

FLEET = Fleet(workers=4, key_groups=64)
BASE = "http://localhost:8750"
SECRETS = {name: new_secret() for name in ("ann", "vera")}
ROLES = {"ann": TokenRole.OPERATOR, "vera": TokenRole.VIEWER}


def client_of(watch: Watch, *hosts: str, explainer: Explainer | None = None) -> TestClient:
    """A browser of the console that shows what this watch has read, by these names besides its own."""
    app = application(source_of(watch, explainer=explainer), hosts)
    return TestClient(app, base_url=BASE, raise_server_exceptions=False)


def get(client: TestClient, path: str, code: int = 200, **options: Any) -> Any:
    """The answer of the API."""
    response = client.get(f"/api/v1/{path}", **options)
    assert response.status_code == code, response.text
    return response.json()


PROBLEM = "application/problem+json"


def told(response: Any, code: int) -> str:
    """The detail of a refusal."""
    assert (response.status_code, response.headers["content-type"]) == (code, PROBLEM), response.text
    return str(response.json()["detail"])


def bearer(who: str) -> dict[str, str]:
    return {"authorization": f"Bearer {SECRETS[who]}"}


class Topic:
    """The topic of intents: what is written to it is what the watch reads."""

    def __init__(self, watch: Watch) -> None:
        self.watch = watch
        self.written: list[Written] = []
        self.fault: str | None = None

    def write(self, records: Sequence[Written]) -> int:
        if self.fault is not None:
            raise NotWrittenError(self.fault)
        for key, intent in records:
            self.written.append((key, intent))
            value = None if intent is None or isinstance(intent, TakenBack) else encoded(intent)
            self.watch.take(Record(TOPICS.intents, value, key.encode(), offset=len(self.written)))
        return len(self.written)


class Setup:
    """A console with tokens beside that topic."""

    def __init__(self, folder: Path, fleet: Fleet = FLEET) -> None:
        path = folder / "tokens.toml"
        rows = [Token(name=name, role=ROLES[name], digest=digest_of(secret)) for name, secret in SECRETS.items()]
        path.write_text("\n".join(map(to_table, rows)))
        path.chmod(0o600)
        self.watch = watching(fleet)
        self.topic = Topic(self.watch)
        clock = lambda: NOW  # noqa: E731
        source = source_of(
            self.watch,
            Entrance(TokenFile(path, clock), clock),
            Desk(self.watch, self.topic.write, clock),
            explainer_of(self.watch, fleet),
        )
        self.client = TestClient(application(source), base_url=BASE, raise_server_exceptions=False)

    def ask(self, what: str, body: dict[str, object], key: str | None = None, who: str | None = "ann") -> Any:
        headers = {"authorization": f"Bearer {SECRETS[who]}"} if who else {}
        headers |= {"idempotency-key": key} if key else {}
        return self.client.post(f"/api/v1/intents/{what}", json={"reason": "test", **body}, headers=headers)


def certificate(folder: Path, name: str, *, password: bytes | None = None) -> ConsoleTls:
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
    files = ConsoleTls(certificate=folder / f"{name}.pem", key=folder / f"{name}.key")
    files.certificate.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    sealed = serialization.BestAvailableEncryption(password) if password else serialization.NoEncryption()
    form = serialization.PrivateFormat.PKCS8
    files.key.write_bytes(key.private_bytes(serialization.Encoding.PEM, form, sealed))
    files.key.chmod(0o600)
    return files


@contextmanager
def running(server: uvicorn.Server) -> Iterator[None]:
    """The server, in a thread."""
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        wait_for(lambda: server.started, "the server listens", every_s=0.02)
        yield
    finally:
        server.should_exit = True
        thread.join(30)


@contextmanager
def serving(app: ASGIApp, tls: ConsoleTls | None = None) -> Iterator[str]:
    """The address of a server for this application."""
    (port,) = free_ports(1)
    files = {"ssl_certfile": str(tls.certificate), "ssl_keyfile": str(tls.key)} if tls else {}
    config = uvicorn.Config(
        app,
        host="127.0.0.1",
        port=port,
        log_config=None,
        timeout_graceful_shutdown=1,
        **files,  # type: ignore[arg-type]
    )
    with running(uvicorn.Server(config)):
        yield f"{'https' if tls else 'http'}://localhost:{port}"
