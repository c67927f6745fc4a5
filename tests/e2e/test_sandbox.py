"""A cluster on one machine, part by part, with a Faust app of nobody's."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from trimtab_sandbox.broker import Topic
from trimtab_sandbox.cluster import ClusterError, SandboxCluster
from trimtab_sandbox.configuration import SandboxSettings
from trimtab_sandbox.cpu import Part

APP = """
import os

import faust

app = faust.App(
    "echo",
    broker="kafka://overruled",
    store="rocksdb://",
    broker_session_timeout=6,  # a killed worker is missed after these seconds
    broker_heartbeat_interval=2,
)
words = app.topic("words", value_type=bytes, value_serializer="raw")
echoes = app.topic("echoes", value_type=bytes, value_serializer="raw")


@app.agent(words)
async def echo(stream):
    async for word in stream:
        await echoes.send(value=word + b" from " + os.environ["GREETER"].encode())
"""


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[SandboxCluster]:
    (tmp_path / "shop.py").write_text(APP)
    settings = SandboxSettings(
        app="shop:app", app_folder=tmp_path, workers=2, cluster="sandbox-test", environment={"GREETER": "{worker}"}
    )
    with SandboxCluster(settings, tmp_path / "sandbox") as started:
        yield started
    assert started.left_over().nothing
    assert not started.sockets.exists()


def answers(cluster: SandboxCluster, words: list[str]) -> set[str]:
    """What comes out when the words go in, one to each partition."""
    producer = Producer({"bootstrap.servers": cluster.broker.address})
    for partition, word in enumerate(words):
        producer.produce("words", word.encode(), partition=partition)
    assert producer.flush(20) == 0
    consumer = Consumer({"bootstrap.servers": cluster.broker.address, "group.id": "reader"})
    consumer.assign([TopicPartition("echoes", 0, 0)])
    found: set[str] = set()
    deadline = time.monotonic() + 60
    while sum(any(text.startswith(f"{word} ") for text in found) for word in words) < len(words):
        cluster.check()
        assert time.monotonic() < deadline, f"only {found} within 60 s"
        found |= {message.value().decode() for message in consumer.consume(100, timeout=0.2)}
    consumer.close()
    return found


def test_workers_join_work_and_can_be_killed_and_replaced(cluster: SandboxCluster) -> None:
    cluster.start_broker()
    cluster.broker.create_topics([Topic(name="words", partitions=2), Topic(name="echoes", partitions=1)])
    for index in range(2):
        cluster.start_worker(index)
    assert {text.split()[0] for text in answers(cluster, ["one", "two"])} == {"one", "two"}
    assert set(cluster.pids) == {"broker", "w0", "w1"}

    assert cluster.stop("w1") == 0
    assert answers(cluster, ["three", "four"]) >= {"three from w0", "four from w0"}

    cluster.kill("w0")
    assert set(cluster.pids) == {"broker"}
    cluster.check()  # killed on purpose: no fault
    cluster.start_worker(0)
    assert answers(cluster, ["five", "six"]) >= {"five from w0", "six from w0"}

    used = cluster.cpu_seconds()
    assert used[Part.WORKERS] > 0.5
    assert used[Part.BROKER] > 0.5
    assert used[Part.AGENTS] == used[Part.DECIDER] == used[Part.SPARK] == 0.0
    assert (cluster.logs / "w0.log").stat().st_size > 0
    topics = AdminClient({"bootstrap.servers": cluster.broker.address}).list_topics(timeout=5).topics
    assert {cluster.topics.reports, cluster.topics.handover, cluster.topics.journal} <= set(topics)


def test_a_worker_that_fails_by_itself_is_reported_with_its_log(cluster: SandboxCluster, tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text("raise RuntimeError('no such shop')")
    cluster.start_broker()
    worker = cluster.start_worker(1)
    assert worker.wait(30) != 0
    with pytest.raises(ClusterError, match=r"(?s)w1 ended with exit code 1:.*no such shop"):
        cluster.check()
