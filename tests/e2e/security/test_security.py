"""SASL_SSL and Kafka's authorizer on a real broker: everybody connects, with no right too many, and no secret shows."""

import json
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest
from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient

from tests.e2e.played_cluster import PROGRAM
from tests.e2e.security.certificates import make_certificates
from tests.e2e.security.secured_broker import BY_EACH, BY_TOKEN, LIMIT_S, ROLES, Secured
from tests.waiting import wait_for
from trimtab_controller.security.keys import KeyFiles
from trimtab_protocol.messages.codec import decoded, encoded
from trimtab_protocol.messages.commands import Ack, Command, CommandKind, Phase
from trimtab_protocol.messages.names import AppId, Epoch, HostId, WorkerId, topic_settings
from trimtab_protocol.messages.report import Report, WorkerState
from trimtab_protocol.settings.kafka import KafkaSettings, Mechanism, Secret, Tls, for_librdkafka
from trimtab_protocol.signing.envelope import Envelope
from trimtab_sandbox.broker import Topic, free_ports
from trimtab_sandbox.processes import Processes

HERE = Path(__file__).parent
SPARK = "a-password-of-Spark"
REFUSED = {KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.CLUSTER_AUTHORIZATION_FAILED}


def test_nobody_writes_what_is_not_theirs_to_say(secured: Secured) -> None:
    topics = secured.topics
    secured.broker.create_topics([Topic(name=s.name, partitions=1) for s in topic_settings(topics)])
    everything = [settings.name for settings in topic_settings(topics)]
    allowed = {
        "agent": {topics.reports, topics.acks},
        "worker": {topics.handover},
        "reader": set[str](),
        "controller": set(everything) - {topics.reports, topics.acks, topics.handover},
    }

    for user, own in allowed.items():
        answers = {topic: secured.write(user, topic) for topic in everything}
        assert {topic for topic, error in answers.items() if error is None} == own, user
        assert {error.code() for error in answers.values() if error is not None} <= REFUSED

    assert secured.read(topics.commands, "reader") == [b"forged"]  # the controller's
    assert secured.read(topics.placement, "worker") == [b"forged"]
    with pytest.raises(KafkaException):
        secured.read(topics.journal, "agent")


def test_who_has_another_password_or_trusts_another_authority_does_not_get_in(secured: Secured) -> None:
    def connects(kafka: KafkaSettings) -> bool:
        try:
            AdminClient({**for_librdkafka(kafka), "log_level": 0}).list_topics(timeout=3)
        except KafkaException:
            return False
        return True

    good = secured.kafka("agent")
    assert good.sasl is not None
    (secured.folder / "other").mkdir()
    stranger, _ = make_certificates(secured.folder / "other" / "tls")

    assert connects(good)
    assert not connects(replace(good, sasl=replace(good.sasl, password=Secret("guess"))))
    assert not connects(replace(good, tls=Tls(ca=stranger)))
    assert not connects(replace(good, tls=None))


class World:
    """Controller with its stream, one agent, one Faust worker; each with the rights and the password of its role."""

    def __init__(self, secured: Secured, processes: Processes) -> None:
        self.secured = secured
        self.processes = processes
        folder = self.folder = secured.folder
        self.ports = free_ports(2)
        self.keys = KeyFiles(key=folder / "controller.pem", trust=folder / "trusted.keys")
        self.key = self.keys.create()
        self.config = folder / "controller.toml"
        self.config.write_text(
            f'[controller]\ncluster = "{secured.cluster}"\n{secured.section("controller")}'
            f'[signing]\nkey_file = "{self.keys.key}"\ntrust_file = "{self.keys.trust}"\n'
            f'[stream]\nwindow_s = 2.0\nwatermark_s = 2.0\ncheckpoint_dir = "{folder / "checkpoints"}"\n'
            f'expected_hosts = ["h0"]\nspark = {{ "spark.master" = "local[2]", "spark.ssl.keyPassword" = "{SPARK}" }}\n'
            f"[balance]\nmin_windows = 1\n"
            f'[metrics]\nlisten = "127.0.0.1:{self.ports[0]}"\n'
        )
        (folder / "agent.toml").write_text(
            f'[agent]\ncluster = "{secured.cluster}"\nhost = "h0"\ninterval_s = 1.0\nstate_dir = "{folder / "state"}"\n'
            f'socket = "{folder / "a.sock"}"\n{secured.section("agent")}[trust]\nfile = "{self.keys.trust}"\n'
            f'[workers.w0]\ncapacity = 0.5\n[metrics]\nlisten = "127.0.0.1:{self.ports[1]}"\n'
        )
        (folder / "worker.toml").write_text(secured.section("worker"))

    def start(self) -> None:
        folder = self.folder
        self.processes.start("controller", [*PROGRAM, "controller", "run", "--act", "--config", str(self.config)])
        agent = [sys.executable, "-m", "trimtab_agent.cli", "run", "--config", str(folder / "agent.toml")]
        self.processes.start("agent", agent)
        environment = {
            "SHOP_KAFKA": str(folder / "worker.toml"),
            "SHOP_DATA": str(folder / "data"),
            "TRIMTAB_CLUSTER": self.secured.cluster,
            "TRIMTAB_WORKER": "w0",
            "TRIMTAB_SOCKET": str(folder / "a.sock"),
            "TRIMTAB_TRUST": str(self.keys.trust),
        }
        worker = [sys.executable, str(HERE / "secured_app.py"), "worker", "-l", "info", "--without-web"]
        self.processes.start("worker", worker, environment=environment)

    def status(self) -> dict[str, Any]:
        """What `trimtab status` shows to who may only read."""
        config = self.folder / "reader.toml"
        stream = '[stream]\ncheckpoint_dir = "none"\n'
        config.write_text(f'[controller]\ncluster = "{self.secured.cluster}"\n{self.secured.section("reader")}{stream}')
        command = [*PROGRAM, "status", "--json", "--config", str(config)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S)
        assert done.returncode == 0, done.stderr
        return dict(json.loads(done.stdout))

    def log(self) -> str:
        logs = sorted(path for path in self.processes.logs.iterdir() if path.name != "broker.log")
        return "\n".join(f"=== {path.name}\n{path.read_text(errors='replace')[-4000:]}" for path in logs)

    def reports(self) -> list[Report]:
        return [decoded(value, Report) for value in self.secured.read(self.secured.topics.reports)]

    def acks(self) -> list[Ack]:
        return [decoded(value, Ack) for value in self.secured.read(self.secured.topics.acks)]

    def command(self, command: Command) -> None:
        """Send a signed command, as the controller."""
        topic, value = self.secured.topics.commands, encoded(command)
        header = self.key.sign(Envelope(topic=topic, key=b"h0", value=value))
        producer = Producer(for_librdkafka(self.secured.kafka("controller")))
        producer.produce(topic, value, b"h0", headers=[header])
        assert producer.flush(LIMIT_S) == 0

    def shown(self) -> Iterator[tuple[str, bytes]]:
        """What others than the files' owner could see, or where it may be kept: logs, command lines, metrics, topics,
        the status as it is shown, and all that the agent, the worker and Spark keep in their folders.
        """
        for path in self.processes.logs.iterdir():
            yield path.name, path.read_bytes()
        for process in psutil.process_iter():
            try:
                yield f"command line of {process.pid}", " ".join(process.cmdline()).encode()
            except psutil.Error:
                continue
        for port in self.ports:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as page:
                yield f"metrics on {port}", page.read()
        present = self.secured.admin().list_topics(timeout=30).topics
        assert {self.secured.topics.reports, self.secured.topics.status} <= present.keys()
        for settings in topic_settings(self.secured.topics):
            if settings.name not in present:  # that of the hosts' keys is made when signatures are checked
                continue
            yield settings.name, b"\n".join(self.secured.read(settings.name))
        yield "trimtab status", json.dumps(self.status()).encode()
        for kept in ("state", "data", "checkpoints"):
            for path in sorted((self.folder / kept).rglob("*")):
                with suppress(OSError):  # a folder, or gone meanwhile
                    yield f"{kept}: {path.name}", path.read_bytes()


@pytest.mark.timeout(600)
@pytest.mark.parametrize("by", [BY_EACH, pytest.param(BY_TOKEN, marks=pytest.mark.scenario)], ids=["mixed", "tokens"])
def test_all_parts_work_by_sasl_ssl_with_the_rights_of_their_roles_and_no_secret_shows(
    secured: Secured, processes: Processes, by: Mapping[str, Mechanism]
) -> None:
    secured.mechanisms = by
    secured.broker.create_topics([Topic(name="orders", partitions=2)])
    world = World(secured, processes)
    world.start()
    topics = secured.topics

    def steered_by_a_placement() -> bool:
        rows = [row for report in world.reports() for row in report.workers if row.worker == "w0"]
        return any(row.state is WorkerState.RUNNING and row.steering and row.epoch for row in rows)

    def made_the_topics() -> bool:
        return topics.status in secured.admin().list_topics(timeout=30).topics

    # The controller did, with the right to create these.
    wait_for(made_the_topics, "topics", every_s=1.0, log=world.log)
    # Reports went to Spark, a snapshot to the decider, the ownership as it is to the placement, and that to the worker.
    wait_for(steered_by_a_placement, "a placement", every_s=1.0, log=world.log)
    now = time.time()
    rejoin = Command(
        cluster=secured.cluster, kind=CommandKind.REJOIN, epoch=Epoch(99, 1), host=HostId("h0"), worker=WorkerId("w0"),
        app=AppId("shop"), issued_at=now, deadline=now + LIMIT_S,
    )  # fmt: skip
    world.command(rejoin)
    wait_for(lambda: any(ack.phase is Phase.REJOINED for ack in world.acks()), "a rejoin", every_s=1.0, log=world.log)

    assert [row["worker"] for row in world.status()["nodes"]] == ["w0"]

    secrets_ = {user: secret.reveal().encode() for user, secret in secured.passwords.items()}
    secrets_["Spark"] = SPARK.encode()
    for key in (world.keys.key, secured.ca.parent / "client.key"):
        secrets_[key.name] = key.read_bytes().splitlines()[1]
    seen = list(world.shown())
    assert len(seen) > 20
    assert {"state: journal", "checkpoints: metadata"} <= {where for where, _ in seen}
    told = "via OAUTHBEARER" if by is BY_TOKEN else "as worker via SCRAM-SHA-256"
    assert any(f"Authenticated {told}".encode() in content for _, content in seen)
    # Tokens live for some seconds: librdkafka, Java and aiokafka have had more than one.
    assert min(secured.issuer.issued.count(user) for user in ROLES if by[user] is Mechanism.OAUTHBEARER) > 1
    assert [(user, where) for where, content in seen for user, secret in secrets_.items() if secret in content] == []
    private = [world.folder / name for name in ("a.sock", "state/journal", "controller.pem", "state/lock")]
    private.append(world.folder / "broker" / "server.properties")
    assert {str(path): oct(path.stat().st_mode & 0o077) for path in private} == {str(path): "0o0" for path in private}
    assert (world.folder / "state").stat().st_mode & 0o077 == 0
