"""The [kafka] section: read strictly, rendered for three clients, and silent about its password."""

import tomllib
from pathlib import Path
from typing import Any

import pytest

from trimtab_protocol.messages.decode import BadMessage
from trimtab_protocol.settings.kafka import KafkaSettings, for_faust, for_java, for_librdkafka, read_kafka
from trimtab_protocol.settings.listen import Listen, read_listen

SERVERS = 'bootstrap_servers = "k1:9093,k2:9093"\n'
TLS = 'tls = { ca = "ca.pem" }\n'
MUTUAL = 'tls = { ca = "ca.pem", certificate = "own.pem", key = "own.key" }\n'
SASL = 'sasl = { mechanism = "SCRAM-SHA-512", username = "agent", password_file = "pw" }\n'
FILES = {"ca.pem": "CA", "own.pem": "OWN", "own.key": "KEY", "pw": 'pa"ss\\word\n', "two": "a\nb\n", "none": "\n"}
PASSWORD = 'pa"ss\\word'


def text_of(path: Path) -> str:
    if path.name not in FILES:
        raise FileNotFoundError(2, "No such file or directory")
    return FILES[path.name]


def read(text: str) -> KafkaSettings:
    return read_kafka(tomllib.loads(text), text_of)


def test_without_security_nothing_is_said_about_it() -> None:
    plain = read(SERVERS + 'client = { "security.protocol" = "ssl", "linger.ms" = 5, "enable.x" = true }\n')

    assert for_librdkafka(plain) == {
        "allow.auto.create.topics": "false",
        "bootstrap.servers": "k1:9093,k2:9093",
        "security.protocol": "ssl",
        "linger.ms": "5",
        "enable.x": "true",
    }
    assert for_librdkafka(read(SERVERS)) == {
        "allow.auto.create.topics": "false",
        "bootstrap.servers": "k1:9093,k2:9093",
    }
    assert for_java(read(SERVERS), text_of) == {
        "allow.auto.create.topics": "false",
        "bootstrap.servers": "k1:9093,k2:9093",
        "security.protocol": "PLAINTEXT",
    }
    assert for_faust(plain) == "kafka://k1:9093;kafka://k2:9093"


def test_tls_and_sasl_for_librdkafka() -> None:
    assert for_librdkafka(read(SERVERS + MUTUAL + SASL)) == {
        "allow.auto.create.topics": "false",
        "bootstrap.servers": "k1:9093,k2:9093",
        "security.protocol": "SASL_SSL",
        "ssl.ca.location": "ca.pem",
        "ssl.certificate.location": "own.pem",
        "ssl.key.location": "own.key",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": "agent",
        "sasl.password": PASSWORD,
    }


def test_tls_and_sasl_for_java_need_no_file_where_it_runs() -> None:
    module = "org.apache.kafka.common.security.scram.ScramLoginModule"
    assert for_java(read(SERVERS + MUTUAL + SASL), text_of) == {
        "allow.auto.create.topics": "false",
        "bootstrap.servers": "k1:9093,k2:9093",
        "security.protocol": "SASL_SSL",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.certificates": "CA",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.key": "KEY",
        "ssl.keystore.certificate.chain": "OWN",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.jaas.config": rf'{module} required username="agent" password="pa\"ss\\word";',
    }


OAUTH = (
    'sasl = { mechanism = "OAUTHBEARER", client_id = "agent", client_secret_file = "pw", scope = "kafka", '
    'token_endpoint = "https://login/token", extensions = { logicalCluster = "lkc-1", poolId = "p" } }\n'
)


def test_tokens_for_librdkafka_and_java() -> None:
    settings = read(SERVERS + TLS + OAUTH)
    told = {key: value for key, value in for_librdkafka(settings).items() if key.startswith("sasl.")}
    assert told == {
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.oauthbearer.method": "oidc",
        "sasl.oauthbearer.token.endpoint.url": "https://login/token",
        "sasl.oauthbearer.client.id": "agent",
        "sasl.oauthbearer.client.secret": PASSWORD,
        "sasl.oauthbearer.scope": "kafka",
        "sasl.oauthbearer.extensions": "logicalCluster=lkc-1,poolId=p",
    }
    java = "org.apache.kafka.common.security.oauthbearer"
    told = {key: value for key, value in for_java(settings, text_of).items() if key.startswith("sasl.")}
    assert told == {
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.oauthbearer.token.endpoint.url": "https://login/token",
        "sasl.login.callback.handler.class": f"{java}.OAuthBearerLoginCallbackHandler",
        "sasl.jaas.config": rf'{java}.OAuthBearerLoginModule required clientId="agent" clientSecret="pa\"ss\\word" '
        'scope="kafka" extension_logicalCluster="lkc-1" extension_poolId="p";',
    }


@pytest.mark.parametrize(
    ("section", "protocol"),
    [("", "PLAINTEXT"), (TLS, "SSL"), ("tls = {}\n", "SSL"), (SASL, "SASL_PLAINTEXT"), (TLS + SASL, "SASL_SSL")],
)
def test_all_clients_speak_the_same_protocol(section: str, protocol: str) -> None:
    settings = read(SERVERS + section)

    assert settings.protocol == protocol
    assert for_java(settings, text_of)["security.protocol"] == protocol
    assert for_librdkafka(settings).get("security.protocol", "PLAINTEXT") == protocol


def test_a_password_shows_itself_nowhere() -> None:
    settings = read(SERVERS + SASL + 'client = { "ssl.key.password" = "hush" }\n')

    for shown in (repr(settings), str(settings.sasl), f"{settings.sasl.password if settings.sasl else ''}"):
        assert "pa" not in shown.replace("password", "")
        assert "hush" not in shown


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "bootstrap_servers: missing, expected"),
        (
            SERVERS + OAUTH.replace("https", "http"),
            "sasl.token_endpoint: found 'another text', expected an address",
        ),
        (
            SERVERS + OAUTH.replace("lkc-1", "a,b"),
            "sasl.extensions.logicalCluster: found 'logicalCluster', expected",
        ),
        (SERVERS + OAUTH.replace("client_id", "username"), "sasl.client_id: missing, expected"),
        (SERVERS + "colour = 1\n", "colour: found a whole number, expected no such field"),
        (SERVERS + 'settings = { "linger.ms" = 5 }\n', "settings: found an object, expected no such"),
        (SERVERS + 'client = { "group.id" = "x" }\n', "client.group.id: found 'group.id', expected a setting"),
        (SERVERS + 'client = { "max.in.flight" = 5 }\n', "client.max.in.flight: found 'max.in.flight', expected"),
        (
            SERVERS + 'client = { "linger.ms" = 0.5 }\n',
            "client.linger.ms: found a number, expected a text, a whole",
        ),
        (SERVERS + TLS + 'client = { "security.protocol" = "ssl" }\n', "client.security.protocol: found"),
        (SERVERS + SASL + 'client = { "sasl.password" = "x" }\n', "client.sasl.password: found 'sasl.password'"),
        (SERVERS + 'tls = { key = "own.key" }\n', "tls: found 'one of certificate and key', expected both"),
        (
            SERVERS + 'tls = {}\nclient = { "enable.ssl.certificate.verification" = false }\n',
            "client.enable.ssl.certificate.verification: found 'false', expected true, or no tls",
        ),
        (SERVERS + 'tls = { cafile = "x" }\n', "tls.cafile: found a string, expected no such field"),
        (SERVERS + SASL.replace("SCRAM-SHA-512", "MD5"), "sasl.mechanism: found 'MD5', expected one of PLAIN"),
        (
            SERVERS + SASL.replace("password_file", "password"),
            "sasl.password: found a string, expected password_file",
        ),
        (
            SERVERS + SASL.replace('"pw"', '"gone"'),
            "sasl.password_file: found 'a path', expected a readable file",
        ),
        (
            SERVERS + SASL.replace('"pw"', '"two"'),
            "sasl.password_file: found 'another file', expected a file of one line",
        ),
        (
            SERVERS + SASL.replace('"pw"', '"none"'),
            "sasl.password_file: found 'another file', expected a file of one",
        ),
    ],
)
def test_a_fault_is_named(text: str, complaint: str) -> None:
    with pytest.raises(BadMessage) as caught:
        read(text)
    assert str(caught.value).startswith(complaint)


@pytest.mark.parametrize(
    "text",
    [
        "9101",
        ":9101",
        "a:",
        "a:0",
        "a:70000",
        "a:-1",
        "a:x",
        "a:²",
        "a..b:1",
        "a:٣",
        "[]:1",
        "a\0b:1",
        "a" * 64 + ":1",
        9101,
    ],
)
def test_a_place_to_listen_that_is_none(text: Any) -> None:
    with pytest.raises(BadMessage, match="found"):
        read_listen(text)


def test_places_to_listen() -> None:
    assert read_listen("[::1]:9101") == Listen(address="::1", port=9101)
    assert read_listen("h0.example.:1") == Listen(address="h0.example.", port=1)
    assert read_listen("127.0.0.1:1") == Listen(address="127.0.0.1", port=1)
