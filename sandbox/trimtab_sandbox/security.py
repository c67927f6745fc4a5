"""Settings of a broker with TLS, SASL and Kafka's own authorizer."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from trimtab_protocol.settings.kafka import JAVA_OAUTH, KafkaSettings, Mechanism, Sasl, Secret, Tls

LISTENER = "SASL_SSL"
PLAIN_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
AUDIENCE = "kafka"
"""For whom the tokens of OAUTHBEARER are."""
SCRAM_MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule"


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerSecurity:
    """Identity and users of a secured broker.

    `identity` = PEM file with its private key (PKCS #8) and certificate chain, `ca` = certificate of the issuer;
    `users` = name -> password for SASL PLAIN; `admin` = the user that the broker itself is, who may do everything.
    All others may do only what an ACL allows.  SCRAM users are added to the running broker.
    """

    identity: Path
    ca: Path
    admin: str
    users: Mapping[str, Secret] = field(repr=False)
    issuer: str | None = None
    """The address of the public keys (JWKS) of a service whose tokens count, for OAUTHBEARER; None: none do."""

    def __post_init__(self) -> None:
        if self.admin not in self.users:
            raise ValueError(f"users: found no {self.admin}, expected the admin's password")

    def kafka(self, bootstrap_servers: str) -> KafkaSettings:
        """Connection settings of the admin user."""
        sasl = Sasl(mechanism=Mechanism.PLAIN, username=self.admin, password=self.users[self.admin])
        return KafkaSettings(bootstrap_servers=bootstrap_servers, tls=Tls(ca=self.ca), sasl=sasl)

    def broker_settings(self) -> dict[str, str]:
        """Additional lines of server.properties; they contain passwords."""
        own = {"username": self.admin, "password": self.users[self.admin].reveal()}
        known = {f"user_{name}": secret.reveal() for name, secret in self.users.items()}
        mechanisms = [each for each in Mechanism if each is not Mechanism.OAUTHBEARER or self.issuer is not None]
        plain = f"{PLAIN_MODULE} required {_options({**own, **known})};"
        return {
            "inter.broker.listener.name": LISTENER,
            "listener.security.protocol.map": f"CONTROLLER:{LISTENER},{LISTENER}:{LISTENER}",
            "sasl.enabled.mechanisms": ",".join(mechanisms),
            "sasl.mechanism.inter.broker.protocol": Mechanism.PLAIN,
            "sasl.mechanism.controller.protocol": Mechanism.PLAIN,
            "listener.name.controller.sasl.enabled.mechanisms": Mechanism.PLAIN,
            "listener.name.controller.plain.sasl.jaas.config": plain,
            "listener.name.sasl_ssl.plain.sasl.jaas.config": plain,
            "listener.name.sasl_ssl.scram-sha-256.sasl.jaas.config": f"{SCRAM_MODULE} required;",
            "listener.name.sasl_ssl.scram-sha-512.sasl.jaas.config": f"{SCRAM_MODULE} required;",
            **({} if self.issuer is None else _tokens_of(self.issuer)),
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(self.identity),
            "ssl.client.auth": "requested",
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self.ca),
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": f"User:{self.admin}",
            "allow.everyone.if.no.acl.found": "false",
        }


def _tokens_of(issuer: str) -> dict[str, str]:
    place = "listener.name.sasl_ssl.oauthbearer.sasl"
    return {
        f"{place}.jaas.config": f"{JAVA_OAUTH}.OAuthBearerLoginModule required;",
        f"{place}.server.callback.handler.class": f"{JAVA_OAUTH}.OAuthBearerValidatorCallbackHandler",
        "sasl.oauthbearer.jwks.endpoint.url": issuer,
        "sasl.oauthbearer.expected.audience": AUDIENCE,
    }


def _options(values: Mapping[str, str]) -> str:
    return " ".join(f'{name}="{value}"' for name, value in values.items())
