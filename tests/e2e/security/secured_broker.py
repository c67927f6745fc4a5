"""A broker on which every role has its own password and rights."""

import json
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from tests.e2e.security.issuer import Issuer
from trimtab_controller.cli import main
from trimtab_protocol.messages.names import Topics
from trimtab_protocol.settings.kafka import KafkaSettings, Mechanism, Sasl, Secret, Tls, for_librdkafka
from trimtab_sandbox.broker import Broker

LIMIT_S = 200.0
"""Many times what it takes: other tests may have the machine."""
ROLES = ("agent", "worker", "controller", "reader")
BY_EACH = {
    "agent": Mechanism.SCRAM_SHA_512,
    "worker": Mechanism.SCRAM_SHA_256,
    "controller": Mechanism.OAUTHBEARER,  # librdkafka and Java
    "reader": Mechanism.PLAIN,
}
BY_TOKEN = dict.fromkeys(ROLES, Mechanism.OAUTHBEARER)


@dataclass
class Secured:
    """A broker that asks for passwords, with the rules of `trimtab acl` for one cluster."""

    broker: Broker
    cluster: str
    ca: Path
    folder: Path
    passwords: Mapping[str, Secret]
    issuer: Issuer
    mechanisms: Mapping[str, Mechanism] = field(default_factory=lambda: BY_EACH)
    """How each role logs in."""

    @property
    def topics(self) -> Topics:
        return Topics(self.cluster)

    def kafka(self, user: str) -> KafkaSettings:
        sasl = Sasl(mechanism=self.mechanisms[user], username=user, password=self.passwords[user])
        if sasl.mechanism is Mechanism.OAUTHBEARER:
            sasl = replace(sasl, token_endpoint=self.issuer.address)
        return KafkaSettings(bootstrap_servers=self.broker.address, tls=Tls(ca=self.ca), sasl=sasl)

    def section(self, user: str) -> str:
        """[kafka] of a configuration file; the password is in a file beside it."""
        path = self.folder / f"{user}.password"
        path.touch(mode=0o600)
        path.write_text(self.passwords[user].reveal() + "\n")
        sasl = f'mechanism = "{self.mechanisms[user]}", username = "{user}", password_file = "{path}"'
        if self.mechanisms[user] is Mechanism.OAUTHBEARER:
            sasl = sasl.replace("username", "client_id").replace("password_file", "client_secret_file")
            sasl += f', token_endpoint = "{self.issuer.address}", scope = "kafka"'
        tls = self.ca.parent
        own = f'ca = "{self.ca}", certificate = "{tls / "client.pem"}", key = "{tls / "client.key"}"'
        return f'[kafka]\nbootstrap_servers = "{self.broker.address}"\ntls = {{ {own} }}\nsasl = {{ {sasl} }}\n'

    def admin(self) -> AdminClient:
        return AdminClient(for_librdkafka(self.broker.kafka))

    def allow(self, capsys: pytest.CaptureFixture[str]) -> None:
        """Add what `trimtab acl` says."""
        users = [word for role in ROLES for word in (f"--{role}", f"User:{role}")]
        app = ["--app", "shop", "--reads", "orders"]
        assert main(["acl", "--cluster", self.cluster, *users, *app, "--json"]) == 0
        self.add(json.loads(capsys.readouterr().out))

    def add(self, rules: list[dict[str, Any]]) -> None:
        """Add rules of `trimtab acl --json`."""
        bindings = [
            AclBinding(
                ResourceType[row["resource"].upper().replace("-", "_")],
                row["name"],
                ResourcePatternType.PREFIXED if row["prefixed"] else ResourcePatternType.LITERAL,
                row["principal"],
                "*",
                AclOperation[re.sub(r"(?<=[a-z])(?=[A-Z])", "_", row["operation"]).upper()],
                AclPermissionType.ALLOW,
            )
            for row in rules
        ]
        admin = self.admin()
        for made in admin.create_acls(bindings).values():
            made.result(LIMIT_S)

    def write(self, user: str, topic: str) -> KafkaError | None:
        """What the broker says to a record of a user; None = it has stored it."""
        told: list[KafkaError | None] = []
        producer = Producer({**for_librdkafka(self.kafka(user)), "message.timeout.ms": 30_000, "log_level": 0})
        producer.produce(topic, b"forged", b"k", on_delivery=lambda error, _: told.append(error))
        assert producer.flush(LIMIT_S) == 0
        return told[0]

    def read(self, topic: str, user: str | None = None) -> list[bytes]:
        """All that is on a topic, as a user (or the admin) sees it."""
        kafka = self.kafka(user) if user else self.broker.kafka
        group = {"agent": "trimtab-agent", "worker": "shop"}.get(user or "", "trimtab-reading")
        own = {"group.id": group, "enable.auto.commit": False, "log_level": 0, "enable.partition.eof": True}
        consumer = Consumer({**for_librdkafka(kafka), **own})
        try:
            told = consumer.list_topics(topic, timeout=30).topics[topic]
            if told.error is not None:
                raise KafkaException(told.error)
            partitions = told.partitions
            consumer.assign([TopicPartition(topic, partition, 0) for partition in partitions])
            found, ends, deadline = [], 0, time.monotonic() + LIMIT_S
            while ends < len(partitions):
                assert time.monotonic() < deadline
                for message in consumer.consume(500, timeout=0.5):
                    if (error := message.error()) is None:
                        found.append(message.value() or b"")
                    elif error.code() == KafkaError._PARTITION_EOF:
                        ends += 1
                    else:
                        raise KafkaException(error)
            return found
        finally:
            consumer.close()
