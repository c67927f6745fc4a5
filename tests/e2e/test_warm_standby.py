"""Two controllers with their own Spark: the second has snapshots as soon as it leads, and none is lost or doubled."""

import re
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer

from flights.readback import read_topic
from tests.controller.stream.test_chunks import snapshot
from tests.e2e.played_cluster import PROGRAM
from tests.e2e.sent_reports import report
from trimtab_controller.kafka.chunks import Chunk, read_chunk
from trimtab_controller.stream.outlet import Fenced
from trimtab_controller.stream.publisher import SnapshotPublisher
from trimtab_protocol.messages.codec import encoded
from trimtab_protocol.messages.names import Topics, topic_settings
from trimtab_sandbox.broker import Broker, Topic
from trimtab_sandbox.processes import Child, Processes

OLD = r"the (stream has not|last window ended|window that has just come)"
FRESH = re.compile(rf" INFO (?!.*{OLD})(nothing:|plan \S+:|app:)")
"""A line of the log about a decision on fresh measurements."""
INTERVAL_S, WINDOW_S, LEASE_S = 0.5, 4, 3
START_LIMIT_S = 240.0
"""Spark starts slowly on a busy machine."""
TAKEOVER_LIMIT_S = 60.0


class Cluster:
    """Hosts that report, controllers, and what is published."""

    def __init__(self, broker: Broker, name: str, folder: Path, processes: Processes) -> None:
        self.broker = broker
        self.topics = Topics(name)
        self.folder = folder
        self.processes = processes
        broker.create_topics(
            [
                Topic(name=each.name, partitions=each.partitions, settings=each.configuration)
                for each in topic_settings(self.topics)
            ]
        )
        self.done = threading.Event()
        self.hosts = threading.Thread(target=self._report, daemon=True)
        self.hosts.start()

    def _report(self) -> None:
        producer = Producer({"bootstrap.servers": self.broker.address})
        due_s = float(int(time.time()))
        while not self.done.wait(max(0.0, due_s - time.time())):
            for host in ("h0", "h1"):
                one = report(self.topics.cluster, host, round(due_s * 1000), interval_s=INTERVAL_S)
                producer.produce(self.topics.reports, encoded(one), host)
            producer.poll(0)
            due_s += INTERVAL_S
        producer.flush(10)

    def start(self, name: str) -> Child:
        file = self.folder / f"{name}.toml"
        file.write_text(
            f'[controller]\ncluster = "{self.topics.cluster}"\nlease_s = {LEASE_S}\n'
            f'[kafka]\nbootstrap_servers = "{self.broker.address}"\n'
            f'[stream]\nwindow_s = {WINDOW_S}\nwatermark_s = 2\ncheckpoint_dir = "{self.folder / name}"\n'
            'spark = { "spark.master" = "local[2]" }\n'
        )
        return self.processes.start(name, [*PROGRAM, "controller", "run", "--act", "--config", str(file)])

    def published(self) -> list[Chunk]:
        """All that is on the topic of snapshots; each is one chunk."""
        rows = read_topic(self.broker.address, self.topics.snapshots)
        return [read_chunk(row.headers, row.value) for row in rows]

    def close(self) -> None:
        self.done.set()
        self.hosts.join()


@pytest.fixture
def cluster(broker: Broker, unique: str, tmp_path: Path) -> Iterator[Cluster]:
    with Processes(tmp_path / "logs") as processes:
        made = Cluster(broker, unique, tmp_path, processes)
        yield made
        made.close()


def wait(child: Child, what: str, condition: Callable[[str], object], limit_s: float = START_LIMIT_S) -> float:
    """How long it takes until the log is as wanted, in seconds."""
    began = time.monotonic()
    while not condition(child.log.read_text()):
        assert child.alive, child.log.read_text()
        assert time.monotonic() - began < limit_s, f"no {what} within {limit_s:g} s\n{child.log.read_text()}"
        time.sleep(0.05)
    return time.monotonic() - began


def test_the_broker_refuses_the_snapshots_of_a_stream_that_another_one_has_taken_over_from(
    broker: Broker, unique: str
) -> None:
    broker.create_topics([Topic(name=Topics(unique).snapshots, partitions=1)])
    first, second = SnapshotPublisher(broker.kafka, unique), SnapshotPublisher(broker.kafka, unique)
    assert first.newest_ms() == 0
    first.take_over()
    first.publish(snapshot(10_000, cluster=unique))
    first.publish(snapshot(20_000, cluster=unique))
    second.take_over()
    assert second.newest_ms() == 20_000
    with pytest.raises(Fenced):
        first.publish(snapshot(30_000, cluster=unique))
    assert second.newest_ms() == 20_000, "only marks of transactions and refused records come after it"
    second.publish(snapshot(30_000, cluster=unique))
    assert first.newest_ms() == 30_000
    first.take_over()
    first.publish(snapshot(40_000, cluster=unique))
    assert second.newest_ms() == 40_000


@pytest.mark.timeout(600)
def test_a_standby_decides_on_fresh_measurements_soon_after_it_leads(
    cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    leader = cluster.start("a")
    start_s = wait(leader, "first decision", FRESH.search)
    standby = cluster.start("b")
    wait(standby, "warm stream", lambda log: "the stream is warm" in log)
    assert " published " not in standby.log.read_text(), "only the leader's stream publishes"

    before = cluster.published()
    leader.kill()
    takeover_s = wait(standby, "first decision", FRESH.search, TAKEOVER_LIMIT_S)
    snapshot_s = takeover_s + wait(standby, "window", lambda log: log.count(" published ") >= 2, TAKEOVER_LIMIT_S)
    with capsys.disabled():
        print(
            f"\nfirst decision {start_s:.1f} s after a cold start, {takeover_s:.1f} s after kill -9 of the leader "
            f"(lease {LEASE_S} s); two windows by the standby after {snapshot_s:.1f} s"
        )
    ends = [chunk.end_ms for chunk in cluster.published()]
    assert len(ends) >= len(before) + 2
    assert ends == list(range(ends[0], ends[-1] + 1, WINDOW_S * 1000)), "none is missing, none comes twice"
