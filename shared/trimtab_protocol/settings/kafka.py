"""`[kafka]`: how to reach the brokers, and the same settings for librdkafka, Java and Faust's aiokafka.

    bootstrap_servers = "kafka-1:9093,kafka-2:9093"
    tls = { ca = "ca.pem", certificate = "host.pem", key = "host.key" }      # all optional: tls = { }
    sasl = { mechanism = "SCRAM-SHA-512", username = "agent", password_file = "password" }
    client = { "socket.timeout.ms" = 30000 }                                 # further keys of librdkafka

or, where a service issues tokens (OpenID Connect, client credentials):

    sasl = { mechanism = "OAUTHBEARER", client_id = "agent", client_secret_file = "secret",
             token_endpoint = "https://login.example.com/oauth2/token", scope = "kafka",        # scope: optional
             extensions = { logicalCluster = "lkc-1" } }                                        # optional

A password is read from a file of its own and shown nowhere.  Paths name PEM files; the key is not encrypted.  Files
with a password or a key are refused when anybody but their owner can read them.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any

from trimtab_protocol.messages.codec import CONFIGURATION, Most, NotSent, Text, WrittenAs, converted, copied
from trimtab_protocol.messages.decode import BadMessage, Fault
from trimtab_protocol.settings.paths import FilePath

MAX_PASSWORD = 1000
"""Characters of a password."""
VERIFICATION = "enable.ssl.certificate.verification"
OWN_KEYS = frozenset(
    {
        "acks",
        "auto.offset.reset",
        "bootstrap.servers",
        "client.id",
        "enable.auto.commit",
        "enable.auto.offset.store",
        "enable.idempotence",
        "group.id",
        "isolation.level",
        "max.in.flight",
        "max.in.flight.requests.per.connection",
        "message.timeout.ms",
        "transactional.id",
    }
)
"""Client settings that the guarantees of agent and controller rest on; a configuration file cannot change them."""

ONE_AT_A_TIME: Mapping[str, int] = MappingProxyType({"max.in.flight.requests.per.connection": 1})
"""For each producer of librdkafka that writes more than one record.

Otherwise the first record of a partition can be lost, and count as written, also in a transaction.  A broker that has
just become a leader names itself as one before it takes records.  It refuses the first request and takes the second,
because it knows no sequence number of this producer yet; librdkafka then takes the first as confirmed by the second.
"""

NO_AUTO_CREATION = "allow.auto.create.topics"
"""Off in every client: the broker would make a topic that is looked for too early, with defaults of its own."""

JAVA_SECURITY = "org.apache.kafka.common.security"
JAVA_OAUTH = f"{JAVA_SECURITY}.oauthbearer"
SAFE_ENDPOINT = re.compile(r"https://[^/]|http://(127\.0\.0\.1|localhost)[:/]")
EXTENSION = re.compile(r"[A-Za-z]+")
"""The name of an extension beside a token, by RFC 7628; its value has no comma, which librdkafka would split at."""

ReadText = Callable[[Path], str]
"""Returns the text of a file; raises OSError, UnicodeDecodeError."""
ReadPrivate = ReadText
"""The same, but raises OSError also for a file that others can read."""


class Secret:
    """A text that no repr shows."""

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def __repr__(self) -> str:
        return "***"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and other._text == self._text

    def __hash__(self) -> int:
        return hash(self._text)

    def reveal(self) -> str:
        """The text."""
        return self._text


class Mechanism(StrEnum):
    """SASL mechanisms."""

    PLAIN = "PLAIN"
    SCRAM_SHA_256 = "SCRAM-SHA-256"
    SCRAM_SHA_512 = "SCRAM-SHA-512"
    OAUTHBEARER = "OAUTHBEARER"


@dataclass(frozen=True, slots=True, kw_only=True)
class Tls:
    """`ca` None = the system's authorities; `certificate` and `key` = the client's own, if the brokers require one."""

    ca: FilePath | None = None
    certificate: FilePath | None = None
    key: FilePath | None = None

    def __post_init__(self) -> None:
        if (self.certificate is None) != (self.key is None):
            raise BadMessage(Fault.MISSING, "", "one of certificate and key", "both or neither")


@dataclass(frozen=True, slots=True, kw_only=True)
class Sasl:
    """SASL name and password; with OAUTHBEARER id and secret of a client, for which `token_endpoint` issues tokens."""

    mechanism: Mechanism
    username: str
    password: Secret
    token_endpoint: str | None = None
    scope: str | None = None
    extensions: Mapping[str, str] = field(default_factory=dict, hash=False)
    """What some brokers ask for beside the token."""


def _read_client(found: Mapping[str, Any]) -> dict[str, str]:
    """Keys and values of librdkafka, as text."""
    for key, value in found.items():
        if key in OWN_KEYS:
            raise BadMessage(Fault.RANGE, key, key, "a setting that is not fixed by Trimtab itself")
        if not isinstance(value, str | int):
            raise BadMessage(Fault.TYPE, key, value, "a text, a whole number, true or false")
    return {key: str(value).lower() if isinstance(value, bool) else str(value) for key, value in found.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaSettings:
    """The section `[kafka]`; `client` = further keys of librdkafka, not shown because they may hold secrets."""

    bootstrap_servers: Annotated[str, Text(4000)]
    tls: Tls | None = None
    sasl: Annotated[Sasl | None, NotSent()] = None
    client: Annotated[Mapping[str, str], WrittenAs(Annotated[Mapping[str, Any], Most(200)], dict, _read_client)] = (
        field(default_factory=dict, repr=False)
    )

    @property
    def protocol(self) -> str:
        """Kafka's `security.protocol` for this TLS and SASL."""
        words = ["SASL"] * (self.sasl is not None) + ["SSL" if self.tls is not None else "PLAINTEXT"]
        return "_".join(words)


def read_kafka(found: Any, read_private: ReadPrivate) -> KafkaSettings:
    """The section; raises BadMessage."""
    sasl = None
    if isinstance(found, dict) and "sasl" in found:
        sasl = _read_sasl(found["sasl"], read_private)
        found = {key: value for key, value in found.items() if key != "sasl"}
    settings = replace(converted(found, KafkaSettings, defaults=CONFIGURATION), sasl=sasl)
    if settings.tls is not None and settings.tls.key is not None:
        _text_of(settings.tls.key, "tls.key", read_private)  # a check only: the clients read the file themselves
    secured = settings.tls is not None or settings.sasl is not None
    for key in _security(settings).keys() & settings.client.keys() if secured else ():
        raise BadMessage(Fault.RANGE, f"client.{key}", key, "no key that tls and sasl stand for")
    if settings.tls is not None and settings.client.get(VERIFICATION, "true") != "true":
        raise BadMessage(Fault.RANGE, f"client.{VERIFICATION}", "false", "true, or no tls")
    return settings


def for_librdkafka(settings: KafkaSettings) -> dict[str, str]:
    """Configuration for a client of librdkafka."""
    security = _security(settings) if settings.tls is not None or settings.sasl is not None else {}
    return {NO_AUTO_CREATION: "false", **settings.client, **security, "bootstrap.servers": settings.bootstrap_servers}


def for_java(settings: KafkaSettings, read_text: ReadText) -> dict[str, str]:
    """Configuration for a Java client.  Raises OSError, UnicodeDecodeError.

    Certificates are included as text, because a Spark executor on another host does not have the files.  `client` is
    left out: its keys are librdkafka's.
    """
    keys = {"bootstrap.servers": settings.bootstrap_servers, "security.protocol": settings.protocol}
    keys[NO_AUTO_CREATION] = "false"
    if settings.tls is not None and settings.tls.ca is not None:
        keys |= {"ssl.truststore.type": "PEM", "ssl.truststore.certificates": read_text(settings.tls.ca)}
    if settings.tls is not None and settings.tls.certificate is not None and settings.tls.key is not None:
        keys |= {"ssl.keystore.type": "PEM", "ssl.keystore.key": read_text(settings.tls.key)}
        keys |= {"ssl.keystore.certificate.chain": read_text(settings.tls.certificate)}
    if settings.sasl is not None:
        keys |= {"sasl.mechanism": settings.sasl.mechanism, "sasl.jaas.config": _jaas(settings.sasl)}
        if settings.sasl.token_endpoint is not None:
            keys["sasl.oauthbearer.token.endpoint.url"] = settings.sasl.token_endpoint
            keys["sasl.login.callback.handler.class"] = f"{JAVA_OAUTH}.OAuthBearerLoginCallbackHandler"
    return keys


def for_faust(settings: KafkaSettings) -> str:
    """The `broker` of a Faust app, without credentials; the plug-in derives these from `tls` and `sasl`."""
    return ";".join(f"kafka://{server.strip()}" for server in settings.bootstrap_servers.split(","))


def _security(settings: KafkaSettings) -> dict[str, str]:
    keys = {"security.protocol": settings.protocol}
    if settings.tls is not None:
        files = {
            "ssl.ca.location": settings.tls.ca,
            "ssl.certificate.location": settings.tls.certificate,
            "ssl.key.location": settings.tls.key,
        }
        keys |= {key: str(path) for key, path in files.items() if path is not None}
    if (sasl := settings.sasl) is not None:
        keys["sasl.mechanism"] = sasl.mechanism
        if sasl.token_endpoint is None:
            keys |= {"sasl.username": sasl.username, "sasl.password": sasl.password.reveal()}
        else:
            own = {"method": "oidc", "token.endpoint.url": sasl.token_endpoint, "client.id": sasl.username}
            own |= {"client.secret": sasl.password.reveal()}
            own |= {} if sasl.scope is None else {"scope": sasl.scope}
            extensions = ",".join(f"{name}={value}" for name, value in sasl.extensions.items())
            own |= {"extensions": extensions} if extensions else {}
            keys |= {f"sasl.oauthbearer.{name}": value for name, value in own.items()}
    return keys


def _jaas(sasl: Sasl) -> str:
    values = {"username": sasl.username, "password": sasl.password.reveal()}
    match sasl.mechanism:
        case Mechanism.OAUTHBEARER:
            module = f"{JAVA_OAUTH}.OAuthBearerLoginModule"
            values = {"clientId": sasl.username, "clientSecret": sasl.password.reveal()}
            values |= {} if sasl.scope is None else {"scope": sasl.scope}
            values |= {f"extension_{name}": value for name, value in sasl.extensions.items()}
        case Mechanism.PLAIN:
            module = f"{JAVA_SECURITY}.plain.PlainLoginModule"
        case Mechanism.SCRAM_SHA_256 | Mechanism.SCRAM_SHA_512:
            module = f"{JAVA_SECURITY}.scram.ScramLoginModule"
    told = " ".join(f'{name}="{_escaped(value)}"' for name, value in values.items())
    return f"{module} required {told};"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"')


def _read_extensions(found: Mapping[str, Any]) -> dict[str, str]:
    for name, value in found.items():
        if not EXTENSION.fullmatch(name) or not isinstance(value, str) or not value.isprintable() or "," in value:
            raise BadMessage(Fault.RANGE, name, name, "a name of letters alone, and a text without a comma")
    return dict(found)


@dataclass(frozen=True, slots=True, kw_only=True)
class SaslUser:
    """The keys of `sasl`."""

    mechanism: Mechanism
    username: str
    password_file: FilePath


@dataclass(frozen=True, slots=True, kw_only=True)
class SaslClient:
    """The keys of `sasl` with OAUTHBEARER."""

    mechanism: Mechanism
    client_id: str
    client_secret_file: FilePath
    token_endpoint: Annotated[str, Text(2000)]
    scope: str | None = None
    extensions: Annotated[
        Mapping[str, str], WrittenAs(Annotated[Mapping[str, Any], Most(20)], dict, _read_extensions)
    ] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not SAFE_ENDPOINT.match(self.token_endpoint):
            expected = "an address that begins with https://, or with http:// and the loopback: a secret is sent there"
            raise BadMessage(Fault.RANGE, "token_endpoint", "another text", expected)


def _read_sasl(found: Any, read_private: ReadPrivate) -> Sasl:
    if isinstance(found, dict) and "password" in found:
        expected = "password_file, which names its file"
        raise BadMessage(Fault.UNKNOWN, "sasl.password", found["password"], expected)
    if isinstance(found, dict) and found.get("mechanism") == Mechanism.OAUTHBEARER:
        client = converted(found, SaslClient, "sasl", CONFIGURATION)
        secret = _read_password(client.client_secret_file, "sasl.client_secret_file", read_private)
        return copied(Sasl, client, username=client.client_id, password=secret)
    user = converted(found, SaslUser, "sasl", CONFIGURATION)
    return copied(Sasl, user, password=_read_password(user.password_file, "sasl.password_file", read_private))


def _read_password(path: Path, at: str, read_private: ReadPrivate) -> Secret:
    text = _text_of(path, at, read_private).rstrip("\r\n")
    if not 1 <= len(text) <= MAX_PASSWORD or not text.isprintable():
        raise BadMessage(Fault.RANGE, at, "another file", f"a file of one line of 1 to {MAX_PASSWORD} characters")
    return Secret(text)


def _text_of(path: Path, at: str, read_private: ReadPrivate) -> str:
    """The text of a secret file.  Errors do not show the path: somebody may have put the secret itself there."""
    try:
        return read_private(path)
    except OSError as error:
        raise BadMessage(Fault.RANGE, at, "a path", f"a readable file ({error.strerror})") from error
    except UnicodeDecodeError:
        raise BadMessage(Fault.RANGE, at, "another file", "a file of text") from None
