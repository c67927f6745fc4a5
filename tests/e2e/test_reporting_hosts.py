"""How many hosts report, asked of a real broker before Spark starts."""

import time

import pytest
from confluent_kafka import KafkaError, Producer

from trimtab_controller.kafka.connection import Connection
from trimtab_controller.stream import reporting
from trimtab_controller.stream.reporting import reporting_hosts
from trimtab_protocol.settings.kafka import KafkaSettings
from trimtab_sandbox.broker import Broker, Topic, free_ports

SINCE_S = int(time.time()) - 60
MOST = 21


def connection(address: str) -> Connection:
    return Connection(kafka=KafkaSettings(bootstrap_servers=address))


def send(broker: Broker, topic: str, *reports: tuple[bytes | None, int]) -> None:
    """Create the topic, and send a report by each (name, seconds after SINCE_S)."""
    broker.create_topics([Topic(name=topic, partitions=4)])
    errors: list[KafkaError | None] = []
    producer = Producer({"bootstrap.servers": broker.address})
    for name, at_s in reports:
        producer.produce(
            topic,
            b"anything",
            name,
            timestamp=(SINCE_S + at_s) * 1000,
            on_delivery=lambda error, _: errors.append(error),
        )
    producer.flush(30)
    assert errors == [None] * len(reports)


def test_hosts_count_once_from_the_given_time_on(broker: Broker, unique: str) -> None:
    send(broker, unique, (b"h0", -1), (b"h1", -1), (b"h1", 0), (b"h2", 3), (b"h2", 4), (b"\xff", 4), (None, 4))
    found = reporting_hosts(connection(broker.address), unique, SINCE_S, most=MOST)
    assert found == {"h1", "h2", "\ufffd", ""}


def test_no_more_are_read_than_are_asked_for(broker: Broker, unique: str) -> None:
    send(broker, unique, *((f"h{number}".encode(), 0) for number in range(50)))
    found = reporting_hosts(connection(broker.address), unique, SINCE_S, most=MOST)
    assert found is not None
    assert len(found) == MOST


def test_where_nobody_has_reported_no_host_reports(broker: Broker, unique: str) -> None:
    asked = connection(broker.address)
    assert reporting_hosts(asked, unique, SINCE_S, most=MOST) == set(), "there is no such topic"
    send(broker, unique, (b"h0", -1))
    assert reporting_hosts(asked, unique, SINCE_S, most=MOST) == set()


def test_under_a_flood_it_is_not_known(broker: Broker, unique: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reporting, "MOST_REPORTS", 100)
    send(broker, unique, *((b"h0", 0) for _ in range(101)))
    assert reporting_hosts(connection(broker.address), unique, SINCE_S, most=MOST) is None


def test_without_kafka_it_is_not_known_and_spark_need_not_wait() -> None:
    assert reporting_hosts(connection(f"127.0.0.1:{free_ports(1)[0]}"), "t", SINCE_S, most=MOST) is None
