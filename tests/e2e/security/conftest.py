"""A broker with passwords and ACLs, for each test its own."""

import secrets
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from confluent_kafka.admin import ScramCredentialInfo, ScramMechanism, UserScramCredentialUpsertion

from tests.e2e.security.authorizing import AuthorizingBroker, Security
from tests.e2e.security.certificates import make_certificates
from tests.e2e.security.issuer import Issuer
from tests.e2e.security.secured_broker import BY_EACH, LIMIT_S, ROLES, Secured
from trimtab_protocol.settings.kafka import Secret
from trimtab_sandbox.processes import Processes


@pytest.fixture
def processes(tmp_path: Path) -> Iterator[Processes]:
    with Processes(tmp_path / "logs") as made:
        yield made


@pytest.fixture
def secured(tmp_path: Path, processes: Processes, unique: str, capsys: pytest.CaptureFixture[str]) -> Iterator[Secured]:
    ca, identity = make_certificates(tmp_path / "tls")
    passwords = {user: Secret(secrets.token_urlsafe(18)) for user in (*ROLES, "boss")}
    plain = {user: passwords[user] for user in ("boss", "reader")}
    with Issuer(passwords) as issuer:
        keys = f"{issuer.address}/keys"
        security = Security(identity=identity, ca=ca, admin="boss", users=plain, issuer=keys)
        yield _started(tmp_path, processes, unique, capsys, security, issuer, passwords)


def _started(
    tmp_path: Path,
    processes: Processes,
    unique: str,
    capsys: pytest.CaptureFixture[str],
    security: Security,
    issuer: Issuer,
    passwords: Mapping[str, Secret],
) -> Secured:
    broker = AuthorizingBroker(tmp_path / "broker", processes, security)
    broker.start()
    made = Secured(broker, unique, security.ca, tmp_path, passwords, issuer)
    upsertions = [
        UserScramCredentialUpsertion(
            user,
            ScramCredentialInfo(ScramMechanism[BY_EACH[user].replace("-", "_")], 4096),
            passwords[user].reveal().encode(),
        )
        for user in ROLES
        if BY_EACH[user].startswith("SCRAM")
    ]
    admin = made.admin()  # the answers come as long as it lives
    for stored in admin.alter_user_scram_credentials(upsertions).values():
        stored.result(LIMIT_S)
    made.allow(capsys)
    return made
