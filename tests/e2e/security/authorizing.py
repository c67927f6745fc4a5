"""A broker with TLS, SASL and Kafka's own authorizer."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from trimtab_protocol.settings.kafka import JAVA_OAUTH, KafkaSettings, Mechanism, Sasl, Secret, Tls
from trimtab_sandbox.broker import CLIENTS, Broker
from trimtab_sandbox.processes import Processes

LISTENER = "SASL_SSL"
PLAIN_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM_MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule"
AUDIENCE = "kafka"
"""For whom the tokens of OAUTHBEARER are."""
OWN = "listener.name.sasl_ssl"


@dataclass(frozen=True, slots=True, kw_only=True)
class Security:
    """Identity and users of the broker.

    `identity` = PEM file with its private key (PKCS #8) and certificate chain, `ca` = certificate of the issuer;
    `users` = name -> password for SASL PLAIN; `admin` = the user that the broker itself is, who may do everything.
    All others may do only what an ACL allows.  SCRAM users are added to the running broker.
    """

    identity: Path
    ca: Path
    admin: str
    users: Mapping[str, Secret] = field(repr=False)
    issuer: str
    """The address of the public keys (JWKS) of a service whose tokens count."""

    def broker_settings(self) -> dict[str, str]:
        """Lines of server.properties; they contain passwords."""
        own = {"username": self.admin, "password": self.users[self.admin].reveal()}
        known = {f"user_{name}": secret.reveal() for name, secret in self.users.items()}
        options = " ".join(f'{name}="{value}"' for name, value in {**own, **known}.items())
        plain = f"{PLAIN_MODULE} required {options};"
        return {
            CLIENTS: LISTENER,
            "listener.security.protocol.map": f"CONTROLLER:{LISTENER},{LISTENER}:{LISTENER}",
            "sasl.enabled.mechanisms": ",".join(Mechanism),
            "sasl.mechanism.inter.broker.protocol": Mechanism.PLAIN,
            "sasl.mechanism.controller.protocol": Mechanism.PLAIN,
            "listener.name.controller.sasl.enabled.mechanisms": Mechanism.PLAIN,
            "listener.name.controller.plain.sasl.jaas.config": plain,
            f"{OWN}.plain.sasl.jaas.config": plain,
            f"{OWN}.scram-sha-256.sasl.jaas.config": f"{SCRAM_MODULE} required;",
            f"{OWN}.scram-sha-512.sasl.jaas.config": f"{SCRAM_MODULE} required;",
            f"{OWN}.oauthbearer.sasl.jaas.config": f"{JAVA_OAUTH}.OAuthBearerLoginModule required;",
            f"{OWN}.oauthbearer.sasl.server.callback.handler.class": (
                f"{JAVA_OAUTH}.OAuthBearerValidatorCallbackHandler"
            ),
            "sasl.oauthbearer.jwks.endpoint.url": self.issuer,
            "sasl.oauthbearer.expected.audience": AUDIENCE,
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(self.identity),
            "ssl.client.auth": "requested",
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self.ca),
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": f"User:{self.admin}",
            "allow.everyone.if.no.acl.found": "false",
        }


class AuthorizingBroker(Broker):
    """Asks every client who it is, and allows what its ACLs say."""

    def __init__(self, folder: Path, processes: Processes, security: Security) -> None:
        super().__init__(folder, processes, settings=security.broker_settings())
        self._security = security

    @property
    def kafka(self) -> KafkaSettings:
        """Connection settings of the admin user."""
        admin, users = self._security.admin, self._security.users
        sasl = Sasl(mechanism=Mechanism.PLAIN, username=admin, password=users[admin])
        return KafkaSettings(bootstrap_servers=self.address, tls=Tls(ca=self._security.ca), sasl=sasl)

    def java_options(self) -> Sequence[str]:
        """It may fetch the keys of the service."""
        allowed = f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={self._security.issuer}"
        return [*super().java_options(), allowed]
