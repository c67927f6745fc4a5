"""The sandbox's broker: a real one that survives what it is there to suffer."""

import re
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from trimtab_controller.jars.fetching import cache_folder, jars_of
from trimtab_sandbox.broker import BOOTSTRAP, Broker, BrokerError, Topic, broker_archive, free_ports
from trimtab_sandbox.marks import bound
from trimtab_sandbox.processes import Processes


def produce(broker: Broker, topic: str, values: list[str]) -> None:
    producer = Producer({"bootstrap.servers": broker.address, "acks": "all"})
    for value in values:
        producer.produce(topic, value.encode(), partition=0)
    assert producer.flush(20) == 0


def read(broker: Broker, topic: str, count: int) -> list[str]:
    consumer = Consumer({"bootstrap.servers": broker.address, "group.id": "reader", "enable.auto.commit": False})
    try:
        consumer.assign([TopicPartition(topic, 0, 0)])
        return [message.value().decode() for message in consumer.consume(count, timeout=60)]
    finally:
        consumer.close()


def test_data_survive_kill_and_stop_on_the_same_port(private_broker: Callable[[], Broker], unique: str) -> None:
    broker = private_broker()
    address, before = broker.address, broker.process.pid
    broker.create_topics([Topic(name=unique, partitions=2)])
    produce(broker, unique, ["a", "b"])

    broker.kill()
    assert bound(broker.ports) == []
    broker.start()
    produce(broker, unique, ["c"])
    broker.restart()

    assert (broker.address, broker.process.alive) == (address, True)
    assert broker.process.pid != before
    assert read(broker, unique, 3) == ["a", "b", "c"]
    broker.stop()
    assert bound(broker.ports) == []
    assert broker.process.exit_code == 143  # a Java process ended in order by SIGTERM


def test_a_topic_that_exists_is_refused(broker: Broker, unique: str) -> None:
    broker.create_topics([Topic(name=unique, partitions=1)])

    with pytest.raises(BrokerError, match=f"{unique} was not created.*already exists"):
        broker.create_topics([Topic(name=unique, partitions=1)])


def test_a_start_goes_to_other_ports_when_its_own_are_taken_meanwhile(
    private_broker: Callable[[], Broker], broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    others = free_ports(2)
    free = iter([broker.ports, others])
    monkeypatch.setattr("trimtab_sandbox.broker.free_ports", lambda count: next(free))

    second = private_broker()

    assert second.ports == others
    second.stop()


def feature_levels(data: Path) -> list[tuple[bytes, bytes]]:
    """Name of each feature of a new cluster -> its level, from its bootstrap record."""
    record = (data / f"bootstrap{BOOTSTRAP}").read_bytes()
    return re.findall(rb"([a-z]+(?:\.[a-z]+)*\.version)\x00(.)", record, re.DOTALL)


def test_it_starts_from_what_make_jars_has_prepared_and_without_it_too(
    broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, unique: str
) -> None:
    prepared, jars = cache_folder(), tmp_path / "jars"
    jars.mkdir()
    (jars / "broker").symlink_to(prepared / "broker")

    archive = str(broker_archive(jars_of("broker")))
    assert archive in {each.path for each in psutil.Process(broker.process.pid).memory_maps()}
    assert not (broker.data.parent.parent / "logs" / "format.log").exists()

    monkeypatch.setenv("TRIMTAB_JARS", str(jars))
    with Processes(tmp_path / "logs") as processes, Broker(tmp_path / "broker", processes) as plain:
        assert feature_levels(plain.data) == feature_levels(broker.data) != []
        plain.create_topics([Topic(name=unique, partitions=1)])
        produce(plain, unique, ["a"])
        assert read(plain, unique, 1) == ["a"]
    assert list(tmp_path.glob("logs/format.log"))
