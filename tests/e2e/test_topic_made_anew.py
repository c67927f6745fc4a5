"""The readers of agent and controller on a real broker that is restarted, and whose topics come and go."""

import asyncio
import queue
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from trimtab_agent import kafka_link
from trimtab_agent.commands.events import Position
from trimtab_agent.kafka_link import KafkaLink, LinkSettings
from trimtab_controller.kafka import follower
from trimtab_controller.kafka.connection import Connection
from trimtab_controller.kafka.follower import Follower
from trimtab_protocol.signing.envelope import Envelope
from trimtab_sandbox.broker import Broker, Topic
from trimtab_sandbox.processes import Processes

ANEW, KEPT = Topic(name="trimtab.t.commands", partitions=1), Topic(name="trimtab.t.acks", partitions=1)
LIMIT_S = 60.0


class Handler:
    """What the agent's link hands over."""

    def __init__(self) -> None:
        self.commands: queue.Queue[tuple[bytes, Position]] = queue.Queue()

    def command_read(self, record: Envelope, position: Position) -> None:
        self.commands.put((record.value, position))

    def broker_changed(self, *, there: bool, detail: str) -> None:
        pass

    def reader_failed(self, fault: Exception) -> None:
        raise fault


@contextmanager
def linked(broker: Broker, *start: Position) -> Iterator[queue.Queue[tuple[bytes, Position]]]:
    """What an agent hears on the topic, each with where to read after it."""
    handler, loop = Handler(), asyncio.new_event_loop()
    turning = threading.Thread(target=loop.run_forever)
    turning.start()
    link = KafkaLink(LinkSettings(kafka=broker.kafka, commands_topic=ANEW.name), handler, loop, start=list(start))
    link.start()
    try:
        yield handler.commands
    finally:
        link.stop(5.0)
        loop.call_soon_threadsafe(loop.stop)
        turning.join()
        loop.close()


def write(broker: Broker, topic: Topic, *values: bytes) -> None:
    producer = Producer({"bootstrap.servers": broker.address})
    for value in values:
        producer.produce(topic.name, value, "h0")
    assert producer.flush(LIMIT_S) == 0


def heard(commands: queue.Queue[tuple[bytes, Position]], *expected: bytes) -> Position:
    """Where to read after these, which are heard now and in this order."""
    found = [commands.get(timeout=LIMIT_S) for _ in expected]
    assert [value for value, _ in found] == list(expected)
    return found[-1][1]


def read(following: Follower, number: int) -> list[bytes]:
    """So many messages, in whatever order the topics have."""
    values: list[bytes] = []
    end = time.monotonic() + LIMIT_S
    while len(values) < number and time.monotonic() < end:
        values += [message.value() for message in following.consume(100, 0.2) if message.error() is None]
    return sorted(values)


@pytest.mark.e2e
@pytest.mark.timeout(240)
def test_a_topic_made_anew_after_the_broker_s_restart_is_heard(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kafka_link, "COMPARE_EVERY_S", 1.0)
    monkeypatch.setattr(follower, "COMPARE_EVERY_S", 1.0)
    with Processes(tmp_path / "logs") as processes, Broker(tmp_path / "broker", processes) as broker:
        broker.create_topics([ANEW, KEPT])
        following = Follower(
            Connection(kafka=broker.kafka), "test", [TopicPartition(topic.name, 0, 0) for topic in (ANEW, KEPT)]
        )
        with linked(broker) as commands:
            write(broker, ANEW, b"1", b"2")
            write(broker, KEPT, b"kept 1")
            heard(commands, b"1", b"2")
            assert read(following, 3) == [b"1", b"2", b"kept 1"]
            # A restart raises the count of the topic's leaders; the new topic's begins at 0 again.
            broker.restart()
            write(broker, ANEW, b"3")
            before = heard(commands, b"3")
            assert read(following, 1) == [b"3"]
            admin = AdminClient({"bootstrap.servers": broker.address})
            admin.delete_topics([ANEW.name])[ANEW.name].result(LIMIT_S)
            broker.create_topics([ANEW])
            new = [b"new %d" % number for number in range(5)]
            write(broker, ANEW, *new)
            write(broker, KEPT, b"kept 2")
            heard(commands, *new)
            # what was read of the other topic is not read again
            assert read(following, 6) == [b"kept 2", *new]
            assert following.consume(100, 1.0) == []
        following.close()
        # An agent that was away meanwhile: its place in the old topic is none in the new one.
        with linked(broker, before) as commands:
            third = heard(commands, *new[:3])
        with linked(broker, third) as commands:
            heard(commands, *new[3:])
