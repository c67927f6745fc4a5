"""The first record of a partition is not lost while its leader is only just becoming one."""

import asyncio
import os
from collections.abc import Iterator

import pytest
from confluent_kafka import KafkaError, Message, Producer

from flights.readback import read_topic
from tests.e2e.late_leader import LateLeader
from trimtab_agent.commands.events import Position
from trimtab_agent.kafka_link import KafkaLink, LinkSettings
from trimtab_controller.kafka.connection import Connection
from trimtab_controller.kafka.publisher import Publisher, Record
from trimtab_protocol.settings.kafka import ONE_AT_A_TIME, KafkaSettings
from trimtab_protocol.signing.envelope import Envelope
from trimtab_sandbox.broker import Broker, Detour, Topic, free_ports
from trimtab_sandbox.processes import Processes

pytestmark = pytest.mark.light

LIMIT_S = 30.0
PAUSE_S = 0.3
"""Between two records: so long that they are not in one request."""


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

    def values(self, topic: str) -> list[bytes | None]:
        """What is on the topic; its first request was refused."""
        assert self.leader.refused(topic)
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
    ("settings", "found"),
    [({}, [b"second"]), (dict(ONE_AT_A_TIME), [b"first", b"second"])],
    ids=["several requests at once", "one at a time"],
)
def test_with_several_requests_on_their_way_the_first_is_lost_and_confirmed(
    way: Way, unique: str, settings: dict[str, int], found: list[bytes]
) -> None:
    """If the first case fails, librdkafka has been mended, and `ONE_AT_A_TIME` can go."""
    topic = way.topic(unique)
    told: list[tuple[bytes | None, KafkaError | None]] = []

    def delivered(error: KafkaError | None, message: Message) -> None:
        told.append((message.value(), error))

    producer = Producer({"bootstrap.servers": way.bootstrap, "enable.idempotence": True, **settings})
    for value in (b"first", b"second"):
        producer.produce(topic, value, partition=0, on_delivery=delivered)
        producer.poll(PAUSE_S)
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
        for value in (b"first", b"second"):
            link.produce(topic, "h0", value, told.append)
            await asyncio.sleep(PAUSE_S)
        await asyncio.to_thread(link.stop, LIMIT_S)
        await asyncio.sleep(0)  # for the last callback

    asyncio.run(send())

    assert told == [None, None]
    assert way.values(topic) == [b"first", b"second"]
