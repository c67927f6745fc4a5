"""The first record of a partition is not lost while its leader is only just becoming one."""

import asyncio
import os
import time
from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import KafkaError, Message, Producer

from flights.readback import read_topic
from tests.e2e.late_leader import HOLD_S, LateLeader
from trimtab_agent.commands.events import Position
from trimtab_agent.kafka_link import KafkaLink, LinkSettings
from trimtab_controller.kafka.connection import Connection
from trimtab_controller.kafka.publisher import Publisher, Record
from trimtab_protocol.settings.kafka import ONE_AT_A_TIME, KafkaSettings
from trimtab_protocol.signing.envelope import Envelope
from trimtab_sandbox.broker import Broker, Detour, Topic, free_ports
from trimtab_sandbox.processes import Processes

pytestmark = pytest.mark.light

LIMIT_S = 60.0
LONG_S = 20.0
"""A second request comes within it, if one is sent at all, on however busy a machine."""


def until(holds: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + LIMIT_S
    while not holds():
        assert time.monotonic() < deadline, what
        time.sleep(0.01)


class Way:
    """A broker, and the way to it by a leader that is late once for each partition of a topic `written-*`."""

    def __init__(self, broker: Broker, leader: LateLeader) -> None:
        self.broker, self.leader = broker, leader
        self.bootstrap = f"127.0.0.1:{leader.port}"
        self.kafka = KafkaSettings(bootstrap_servers=self.bootstrap)

    def topic(self, unique: str) -> str:
        name = f"written-{unique}"
        self.broker.create_topics([Topic(name=name, partitions=1)])
        return name

    def warm(self, unique: str) -> str:
        """A topic whose leader is not late.  Who has written to it has a producer id, and need not wait for one."""
        name = f"warm-{unique}"
        self.broker.create_topics([Topic(name=name, partitions=1)])
        return name

    def values(self, topic: str) -> list[bytes | None]:
        """What is on the topic, as soon as there is something: the end of a transaction shows a little later."""
        assert self.leader.met(topic)
        until(lambda: next(read_topic(self.broker.address, topic), None) is not None, "nothing was written")
        return [row.value for row in read_topic(self.broker.address, topic)]


@pytest.fixture(scope="module")
def way(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Way]:
    folder = tmp_path_factory.mktemp("late")
    [behind] = free_ports(1)
    with LateLeader(behind, "written-") as leader, Processes(folder / "logs") as processes:
        detour = Detour(proxy=leader.port, behind=behind)
        with Broker(folder / "broker", processes, detours=[detour]) as broker:
            yield Way(broker, leader)


@pytest.mark.parametrize(
    ("settings", "hold_s", "found"),
    [({}, LONG_S, [b"second"]), (dict(ONE_AT_A_TIME), HOLD_S, [b"first", b"second"])],
    ids=["several requests at once", "one at a time"],
)
def test_with_several_requests_on_their_way_the_first_is_lost_and_confirmed(
    way: Way, unique: str, monkeypatch: pytest.MonkeyPatch, settings: dict[str, int], hold_s: float, found: list[bytes]
) -> None:
    """If the first case fails, librdkafka has been mended, and `ONE_AT_A_TIME` can go."""
    monkeypatch.setattr(way.leader, "hold_s", hold_s)
    topic, told = way.topic(unique), list[tuple[bytes | None, KafkaError | None]]()

    def delivered(error: KafkaError | None, message: Message) -> None:
        told.append((message.value(), error))

    producer = Producer({"bootstrap.servers": way.bootstrap, "enable.idempotence": True, **settings})
    producer.produce(way.warm(unique), b"warm")
    assert producer.flush(LIMIT_S) == 0
    producer.produce(topic, b"first", partition=0, on_delivery=delivered)
    until(lambda: way.leader.met(topic), "the first was not sent")
    producer.produce(topic, b"second", partition=0, on_delivery=delivered)
    assert producer.flush(LIMIT_S) == 0

    assert sorted(told) == [(b"first", None), (b"second", None)]
    assert way.values(topic) == found


def test_the_controller_publishes_all_or_nothing(way: Way, unique: str) -> None:
    topic = way.topic(unique)
    parts = [os.urandom(700_000) for _ in range(3)]  # random, so that no two fit into one request when compressed
    publisher = Publisher(Connection(kafka=way.kafka), unique, lambda: False)

    publisher.publish([Record(topic=topic, key=b"k", value=part) for part in parts])

    assert way.values(topic) == parts


class Deaf:
    """Hears nothing of the link."""

    def command_read(self, record: Envelope, position: Position) -> None: ...

    def broker_changed(self, *, there: bool, detail: str) -> None: ...

    def reader_failed(self, fault: Exception) -> None: ...


def test_the_agent_loses_no_ack(way: Way, unique: str) -> None:
    topic = way.topic(unique)
    told: list[str | None] = []

    async def send() -> None:
        loop = asyncio.get_running_loop()
        link = KafkaLink(LinkSettings(kafka=way.kafka, commands_topic=topic), Deaf(), loop, start=[])
        link.start()
        link.produce(way.warm(unique), "h0", b"warm", told.append)
        async with asyncio.timeout(LIMIT_S):
            while not told:
                await asyncio.sleep(0.01)
            link.produce(topic, "h0", b"first", told.append)
            while not way.leader.met(topic):
                await asyncio.sleep(0.01)
            link.produce(topic, "h0", b"second", told.append)
            while len(told) < 3:
                await asyncio.sleep(0.01)
        await asyncio.to_thread(link.stop, LIMIT_S)

    asyncio.run(send())

    assert told == [None, None, None]
    assert way.values(topic) == [b"first", b"second"]
