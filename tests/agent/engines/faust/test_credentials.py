"""What a Faust app is given so that it reaches the brokers as agent and controller do."""

import asyncio
from pathlib import Path

import faust
import pytest
from faust.types.auth import AuthProtocol

from tests.e2e.security.issuer import Issuer
from trimtab_agent.engines.faust import BadKafkaFile, broker_options
from trimtab_protocol.settings.kafka import Secret

SERVERS = '[kafka]\nbootstrap_servers = "k1:9093, k2:9093"\n'


def written(folder: Path, more: str = "", before: str = "") -> Path:
    (folder / "pw").touch(mode=0o600)
    (folder / "pw").write_text("hush\n")
    (folder / "kafka.toml").write_text(before + SERVERS + more)
    return folder / "kafka.toml"


def test_the_section_becomes_options_of_the_app(tmp_path: Path) -> None:
    sasl = f'sasl = {{ mechanism = "SCRAM-SHA-256", username = "w", password_file = "{tmp_path / "pw"}" }}\n'
    app = faust.App("x", **broker_options(written(tmp_path, sasl + "tls = {}\n", before="[agent]\nx = 1\n")))

    credentials = app.conf.broker_credentials
    assert [str(url) for url in app.conf.broker] == ["kafka://k1:9093", "kafka://k2:9093"]
    assert (credentials.protocol, credentials.mechanism.value) == (AuthProtocol.SASL_SSL, "SCRAM-SHA-256")
    assert (credentials.username, credentials.password) == ("w", "hush")
    assert credentials.ssl_context.check_hostname
    assert "hush" not in repr(credentials)


def test_tls_alone_and_neither(tmp_path: Path) -> None:
    assert broker_options(written(tmp_path, "tls = {}\n"))["broker_credentials"].protocol is AuthProtocol.SSL
    assert broker_options(written(tmp_path))["broker_credentials"] is None


@pytest.mark.parametrize(
    ("more", "complaint"),
    [
        ("colour = 1\n", "kafka.toml: kafka.colour: found a whole number, expected no such field"),
        ('tls = { ca = "/none/ca.pem" }\n', "No such file or directory"),
        ("[", "kafka.toml: "),
    ],
)
def test_a_file_that_cannot_be_used_is_one_line(tmp_path: Path, more: str, complaint: str) -> None:
    with pytest.raises(BadKafkaFile) as caught:
        broker_options(written(tmp_path, more))
    assert complaint in str(caught.value)
    with pytest.raises(BadKafkaFile, match="No such file"):
        broker_options(tmp_path / "none.toml")


def test_a_token_is_kept_and_renewed_and_a_wrong_secret_is_no_token(tmp_path: Path) -> None:
    with Issuer({"w": Secret("hush")}) as issuer:
        secret = tmp_path / "secret"
        secret.touch(mode=0o600)
        secret.write_text("hush\n")
        oauth = f'mechanism = "OAUTHBEARER", client_id = "w", client_secret_file = "{secret}"'
        oauth = f'sasl = {{ {oauth}, token_endpoint = "{issuer.address}", extensions = {{ pool = "p" }} }}\n'
        options = broker_options(written(tmp_path, oauth + "tls = {}\n"))
        credentials = options["broker_credentials"]
        assert (credentials.mechanism.value, credentials.protocol) == ("OAUTHBEARER", AuthProtocol.SASL_SSL)
        provider = credentials.oauth_cb
        assert provider.extensions() == {"pool": "p"}
        first = asyncio.run(provider.token())
        assert asyncio.run(provider.token()) == first
        assert issuer.issued == ["w"]
        provider._renew_at = 0.0
        asyncio.run(provider.token())
        assert issuer.issued == ["w", "w"]
        secret.write_text("guessed\n")
        wrong = broker_options(written(tmp_path, oauth))["broker_credentials"].oauth_cb
        with pytest.raises(OSError, match="401"):
            asyncio.run(wrong.token())
