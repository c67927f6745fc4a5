"""A broker with passwords and ACLs, for each test its own."""

import secrets
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import ScramCredentialInfo, ScramMechanism, UserScramCredentialUpsertion

from tests.e2e.security.certificates import make_certificates
from tests.e2e.security.secured_broker import LIMIT_S, MECHANISMS, ROLES, Secured
from trimtab_protocol.settings.kafka import Mechanism, Secret
from trimtab_sandbox.broker import Broker
from trimtab_sandbox.processes import Processes
from trimtab_sandbox.security import BrokerSecurity


@pytest.fixture
def processes(tmp_path: Path) -> Iterator[Processes]:
    with Processes(tmp_path / "logs") as made:
        yield made


@pytest.fixture
def secured(tmp_path: Path, processes: Processes, unique: str, capsys: pytest.CaptureFixture[str]) -> Secured:
    ca, identity = make_certificates(tmp_path / "tls")
    passwords = {user: Secret(secrets.token_urlsafe(18)) for user in (*ROLES, "boss")}
    plain = {user: passwords[user] for user in ("boss", "reader")}
    security = BrokerSecurity(identity=identity, ca=ca, admin="boss", users=plain)
    broker = Broker(tmp_path / "broker", processes, security=security)
    broker.start()
    made = Secured(broker, unique, ca, tmp_path, passwords)
    upsertions = [
        UserScramCredentialUpsertion(
            user,
            ScramCredentialInfo(ScramMechanism[MECHANISMS[user].replace("-", "_")], 4096),
            passwords[user].reveal().encode(),
        )
        for user in ROLES
        if MECHANISMS[user] is not Mechanism.PLAIN
    ]
    admin = made.admin()  # the answers come as long as it lives
    for stored in admin.alter_user_scram_credentials(upsertions).values():
        stored.result(LIMIT_S)
    made.allow(capsys)
    return made
