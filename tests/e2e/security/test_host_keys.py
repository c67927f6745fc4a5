"""Agents, controller and stream with the rights of their roles: who has one agent's password speaks for no other."""

import json
import subprocess
import sys
import time
from urllib.request import urlopen

import pytest
from confluent_kafka import Producer

from tests.e2e.in_process import trimtab
from tests.e2e.played_cluster import PROGRAM
from tests.e2e.security.secured_broker import LIMIT_S, Secured
from tests.waiting import wait_for
from trimtab_controller.security.keys import KeyFiles
from trimtab_process.credential_files import load_signing_key
from trimtab_protocol.messages.codec import encoded
from trimtab_protocol.messages.commands import Ack, CommandKind, Phase
from trimtab_protocol.messages.names import CommandId, Epoch, HostId, WorkerId, topic_settings
from trimtab_protocol.messages.report import Basis, HostSample, Report
from trimtab_protocol.settings.kafka import for_librdkafka
from trimtab_protocol.signing.hosts import HostSigner
from trimtab_sandbox.broker import Topic, free_ports
from trimtab_sandbox.processes import Processes

AGENT = [sys.executable, "-m", "trimtab_agent.cli"]
HOSTS = ("h0", "h1")
FORGED_CPU_S = 1000.0


class Cluster:
    """A controller that enforces, with its stream, and two agents that enroll; all with the rights of their roles."""

    def __init__(self, secured: Secured, processes: Processes) -> None:
        self.secured, self.processes, self.folder = secured, processes, secured.folder
        self.port = free_ports(1)[0]
        files = KeyFiles(key=self.folder / "controller.pem", trust=self.folder / "trusted.keys")
        files.create()
        self.config = self.folder / "controller.toml"
        self.config.write_text(
            f'[controller]\ncluster = "{secured.cluster}"\n{secured.section("controller")}'
            f'[signing]\nkey_file = "{files.key}"\ntrust_file = "{files.trust}"\nhost_signatures = "enforce"\n'
            f'[stream]\nwindow_s = 2.0\nwatermark_s = 2.0\ncheckpoint_dir = "{self.folder / "checkpoints"}"\n'
            'spark = { "spark.master" = "local[2]" }\n'
            f'[metrics]\nlisten = "127.0.0.1:{self.port}"\n'
        )
        for host in HOSTS:
            folder = self.folder / host
            folder.mkdir()
            (folder / "agent.toml").write_text(
                f'[agent]\ncluster = "{secured.cluster}"\nhost = "{host}"\ninterval_s = 1.0\n'
                f'state_dir = "{folder / "state"}"\nsocket = "{folder / "a.sock"}"\n{secured.section("agent")}'
                f'[signing]\nkey_file = "{folder / "host.pem"}"\n'
            )

    def keys(self, *words: str) -> str:
        """What a command about the keys of hosts says."""
        code, output, errors = trimtab("keys", *words, "--config", str(self.config))
        assert code == 0, errors
        return output

    def enroll(self, host: str) -> str:
        """As operators do: a token, the host's request, the fingerprint of both; what the operator sees."""
        token = self.folder / f"{host}.token"
        words = ["keys", "enroll", host, "--yes", "--token-file", str(token), "--config", str(self.config)]
        with subprocess.Popen([*PROGRAM, *words], stdout=subprocess.PIPE, text=True) as operator:
            assert operator.stdout is not None
            seen = operator.stdout.readline() + operator.stdout.readline()
            agent = [*AGENT, "enroll", "--config", str(self.folder / host / "agent.toml")]
            wrong = subprocess.run([*agent, "--token-file", "-"], input="guess", text=True, capture_output=True)
            right = subprocess.run([*agent, "--token-file", str(token)], capture_output=True, text=True)
            assert (wrong.returncode, right.returncode) == (0, 0), right.stderr
            seen += operator.stdout.read()
            assert operator.wait(LIMIT_S) == 0
        fingerprint = load_signing_key(self.folder / host / "host.pem").public.fingerprint
        assert f"fingerprint: {fingerprint}" in seen
        assert fingerprint in right.stdout
        return seen

    def start(self) -> None:
        self.processes.start("controller", [*PROGRAM, "controller", "run", "--act", "--config", str(self.config)])
        for host in HOSTS:
            self.processes.start(host, [*AGENT, "run", "--config", str(self.folder / host / "agent.toml")])

    def log(self) -> str:
        return (self.processes.logs / "controller.log").read_text(errors="replace")[-6000:]

    def metric(self, name: str, *labels: str) -> float:
        """The sum of the samples of this name that have all labels."""
        try:
            with urlopen(f"http://127.0.0.1:{self.port}/metrics", timeout=10) as page:
                lines = page.read().decode().splitlines()
        except OSError:
            return 0.0
        named = [line for line in lines if line.startswith(name + "{") and all(label in line for label in labels)]
        return sum(float(line.rpartition(" ")[2]) for line in named)

    def refused(self, topic: str, fault: str) -> float:
        return self.metric("trimtab_controller_rejected_messages_total", f'topic="{topic}"', f'fault="{fault}"')

    def seen(self) -> dict[str, float | None]:
        """CPU of each host, as the status shows it."""
        code, output, _ = trimtab("status", "--json", "--config", str(self.config))
        return {row["host"]: row["used_pct"] for row in json.loads(output)["hosts"]} if code == 0 else {}


class Intruder:
    """Has the password and the key of h0, and speaks for h1."""

    def __init__(self, cluster: Cluster) -> None:
        self._topics = cluster.secured.topics
        self._cluster = cluster.secured.cluster
        key = load_signing_key(cluster.folder / "h0" / "host.pem")
        self._signer = HostSigner(key, HostId("h1"))
        self._producer = Producer({**for_librdkafka(cluster.secured.kafka("agent")), "log_level": 0})

    def report(self) -> None:
        sample = HostSample(cpu_s=FORGED_CPU_S, cores=1.0, basis=Basis.HOST)
        at_ms = time.time_ns() // 1_000_000
        forged = Report(
            cluster=self._cluster, host=HostId("h1"), at_ms=at_ms, interval_s=1.0, sequence=1, sample=sample,
            workers=(), key_groups=(), pairs=(),
        )  # fmt: skip
        self._say(self._topics.reports, encoded(forged))

    def ack(self) -> None:
        ack = Ack(
            cluster=self._cluster, command_id=CommandId("0" * 32), epoch=Epoch(1, 1), kind=CommandKind.START,
            host=HostId("h1"), worker=WorkerId("w1"), phase=Phase.STARTED, at=time.time(),
        )  # fmt: skip
        self._say(self._topics.acks, encoded(ack))

    def _say(self, topic: str, value: bytes) -> None:
        for headers in ([self._signer.sign(topic, value)], []):
            self._producer.produce(topic, value, "h1", headers=headers)
        assert self._producer.flush(LIMIT_S) == 0


@pytest.mark.timeout(600)
def test_a_stolen_password_and_key_of_one_agent_say_nothing_for_another_host(
    secured: Secured, processes: Processes
) -> None:
    cluster = Cluster(secured, processes)
    topics = secured.topics
    secured.broker.create_topics([Topic(name=each.name, partitions=1) for each in topic_settings(topics)])
    for host in HOSTS:
        assert f"{host}: key " in cluster.enroll(host)
    for step in ("begin", "switch", "finish"):  # the new key of the controller vouches for the keys of the hosts
        cluster.keys("rotate", step)
    assert [line.split(":")[0] for line in cluster.keys("hosts").splitlines()] == list(HOSTS)
    cluster.start()
    wait_for(lambda: cluster.seen().keys() == set(HOSTS), "both hosts", every_s=1.0, log=cluster.log)
    assert cluster.metric("trimtab_controller_hosts_enrolled") == 2

    intruder = Intruder(cluster)
    intruder.ack()

    def is_refused() -> bool:
        intruder.report()
        return all(cluster.refused(topics.reports, fault) for fault in ("unknown_key", "unsigned"))

    wait_for(is_refused, "refusals", every_s=1.0, log=cluster.log)
    assert {fault: cluster.refused(topics.acks, fault) for fault in ("unknown_key", "unsigned")} == {
        "unknown_key": 1.0, "unsigned": 1.0,
    }  # fmt: skip
    used = cluster.seen()
    assert used.keys() == set(HOSTS)
    assert all(value is not None and value <= 100.0 for value in used.values()), used

    assert "h0: revoked" in cluster.keys("revoke", "h0")
    wait_for(lambda: cluster.seen().keys() == {"h1"}, "h1 alone", every_s=1.0, log=cluster.log)
    assert cluster.metric("trimtab_controller_hosts_enrolled") == 1
    assert "h0: revoked" in cluster.keys("hosts")
