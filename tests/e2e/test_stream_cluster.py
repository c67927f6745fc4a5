"""The same module by spark-submit on a standalone Spark cluster, started from the PySpark installation."""

import importlib.util
import json
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer

import trimtab_controller.stream
from trimtab_controller.jars.fetching import spark_jars
from trimtab_controller.kafka.chunks import Reassembler, read_chunk
from trimtab_protocol.messages.codec import encoded
from trimtab_protocol.messages.names import AppId, HostId, KeyGroup, OperatorId, Topics, WorkerId
from trimtab_protocol.messages.report import Basis, HostSample, KeyGroupSample, Report
from trimtab_protocol.messages.snapshot import Snapshot
from trimtab_sandbox.broker import Broker, Topic, free_ports
from trimtab_sandbox.processes import Processes

LIMIT_S = 400.0
"""It takes half a minute on two free cores; on busy ones the five JVMs of this test start slowly."""
WINDOW_S = 300
LOOPBACK = {"SPARK_LOCAL_IP": "127.0.0.1", "SPARK_DAEMON_MEMORY": "256m", "SPARK_NO_DAEMONIZE": "1"}
QUICK_JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""Five JVMs for one window: the optimising compiler would cost more than it saves."""


def spark_home() -> Path:
    spec = importlib.util.find_spec("pyspark")
    assert spec
    assert spec.origin
    return Path(spec.origin).parent


class Cluster:
    """A master and two workers of one core each."""

    def __init__(self, folder: Path, processes: Processes) -> None:
        self._folder = folder
        self._processes = processes
        self.ports = free_ports(4)
        self.master = f"spark://127.0.0.1:{self.ports[0]}"

    def start(self, deadline: float) -> None:
        master = ["--host", "127.0.0.1", "--port", str(self.ports[0]), "--webui-port", str(self.ports[1])]
        self._start("master", "org.apache.spark.deploy.master.Master", *master)
        for index in range(2):
            worker = [
                "--host",
                "127.0.0.1",
                "--cores",
                "1",
                "--memory",
                "512m",
                "--webui-port",
                str(self.ports[2 + index]),
            ]
            folder = str(self._folder / f"work{index}")
            self._start(f"worker{index}", "org.apache.spark.deploy.worker.Worker", *worker, "-d", folder, self.master)
        while len(self.state().get("workers", ())) < 2:
            if time.monotonic() > deadline:
                pytest.fail("the Spark cluster did not come up")
            time.sleep(0.3)

    def state(self) -> dict[str, Any]:
        """What the master says; empty while it does not answer, or has only its page for people yet."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.ports[1]}/json/", timeout=5) as page:
                return dict(json.load(page))
        except (OSError, json.JSONDecodeError):
            return {}

    def _start(self, name: str, main: str, *arguments: str) -> None:
        command = [str(spark_home() / "bin" / "spark-class"), main, *arguments]
        environment = {**LOOPBACK, "SPARK_HOME": str(spark_home()), "SPARK_DAEMON_JAVA_OPTS": QUICK_JAVA}
        self._processes.start(name, command, environment=environment)


@pytest.fixture
def processes(tmp_path: Path) -> Iterator[Processes]:
    with Processes(tmp_path / "logs") as running:
        yield running


def report(cluster: str, at_ms: int) -> Report:
    group = KeyGroup(AppId("app"), OperatorId("count"), 7)
    return Report(
        cluster=cluster,
        host=HostId("h0"),
        at_ms=at_ms,
        interval_s=10.0,
        sequence=at_ms,
        sample=HostSample(cpu_s=5.0, cores=2.0, basis=Basis.HOST),
        workers=(),
        key_groups=(KeyGroupSample(key_group=group, worker=WorkerId("w0"), cpu_s=2.5, tuples_in=40),),
        pairs=(),
    )


def send_window(broker: Broker, topics: Topics) -> int:
    """A window of reports of one host, and its start; Kafka's time runs ahead with them."""
    producer = Producer({"bootstrap.servers": broker.address})
    start_ms = int(time.time()) // WINDOW_S * WINDOW_S * 1000
    for at_ms in range(start_ms + 10_000, start_ms + WINDOW_S * 1000 + 1, 10_000):
        producer.produce(topics.reports, encoded(report(topics.cluster, at_ms)), "h0", timestamp=at_ms)
    assert producer.flush(20) == 0
    return start_ms


def first_snapshot(broker: Broker, topics: Topics, deadline: float) -> Snapshot | None:
    consumer = Consumer(
        {"bootstrap.servers": broker.address, "group.id": topics.cluster, "auto.offset.reset": "earliest"}
    )
    consumer.subscribe([topics.snapshots])
    try:
        while time.monotonic() < deadline:
            message = consumer.poll(0.5)
            if message is not None and not message.error():
                return Reassembler(topics.cluster).add(read_chunk(message.headers(), message.value()))
        return None
    finally:
        consumer.close()


@pytest.mark.scenario  # the stack of `make test-deploy` has such a cluster, too
@pytest.mark.timeout(600)
def test_a_snapshot_from_a_standalone_cluster(
    broker: Broker, unique: str, tmp_path: Path, processes: Processes
) -> None:
    topics = Topics(unique)
    broker.create_topics([Topic(name=topics.reports, partitions=4), Topic(name=topics.snapshots, partitions=1)])
    deadline = time.monotonic() + LIMIT_S
    cluster = Cluster(tmp_path, processes)
    cluster.start(deadline)
    start_ms = send_window(broker, topics)
    file = tmp_path / "controller.toml"
    file.write_text(
        f'[controller]\ncluster = "{unique}"\n[kafka]\nbootstrap_servers = "{broker.address}"\n'
        f'[stream]\nwindow_s = {WINDOW_S}\nexpected_hosts = ["h0"]\ncheckpoint_dir = "{tmp_path / "checkpoints"}"\n',
        encoding="utf-8",
    )
    driver = [str(Path(trimtab_controller.stream.__file__).with_name("__main__.py")), "--config", str(file)]
    limits = {
        "spark.executor.memory": "512m",
        "spark.driver.memory": "512m",
        "spark.driver.extraJavaOptions": f"-Xss16m {QUICK_JAVA}",
        "spark.executor.extraJavaOptions": QUICK_JAVA,
    }
    command = [str(spark_home() / "bin" / "spark-submit"), "--master", cluster.master, "--deploy-mode", "client"]
    command += ["--jars", ",".join(map(str, spark_jars()))]
    command += [word for key, value in limits.items() for word in ("--conf", f"{key}={value}")]
    environment = {**LOOPBACK, "SPARK_HOME": str(spark_home()), "PYSPARK_PYTHON": sys.executable}
    submitted = processes.start("submit", [*command, *driver], environment=environment)
    snapshot = first_snapshot(broker, topics, deadline)
    assert snapshot is not None, submitted.log.read_text()[-4000:]
    assert (snapshot.start_ms, snapshot.coverage) == (start_ms, 1.0)
    assert [(group.cpu, group.tuples_in_s) for group in snapshot.key_groups] == [(0.25, 4.0)]
    assert [len(app["name"]) > 0 and app["cores"] for app in cluster.state()["activeapps"]] == [2]
