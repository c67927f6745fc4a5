"""The agent's reader of commands, on a real broker whose topics come and go."""

import asyncio
import queue
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

from trimtab_agent import kafka_link
from trimtab_agent.commands.events import Position
from trimtab_agent.kafka_link import KafkaLink, LinkSettings
from trimtab_controller.sandbox.broker import Broker, Topic
from trimtab_controller.sandbox.processes import Processes
from trimtab_models.signing.envelope import Envelope

TOPIC = Topic(name="trimtab.t.commands", partitions=1)
LIMIT_S = 60.0


class Heard:
    """What the link hands over."""

    def __init__(self) -> None:
        self.values: queue.Queue[bytes] = queue.Queue()

    def command_read(self, record: Envelope, position: Position) -> None:
        self.values.put(record.value)

    def broker_changed(self, *, there: bool, detail: str) -> None:
        pass


def write(broker: Broker, *values: bytes) -> None:
    producer = Producer({"bootstrap.servers": broker.address})
    for value in values:
        producer.produce(TOPIC.name, value, "h0")
    assert producer.flush(LIMIT_S) == 0


async def next_of(heard: Heard) -> bytes:
    return await asyncio.to_thread(heard.values.get, timeout=LIMIT_S)


async def scenario(broker: Broker) -> None:
    heard = Heard()
    link = KafkaLink(
        LinkSettings(kafka=broker.kafka, commands_topic=TOPIC.name), heard, asyncio.get_running_loop(), start=[]
    )
    link.start()
    try:
        await asyncio.to_thread(write, broker, b"1", b"2")
        assert [await next_of(heard) for _ in range(2)] == [b"1", b"2"]
        # A restart raises the count of the topic's leaders; the new topic's begins at 0 again.
        await asyncio.to_thread(broker.restart)
        await asyncio.to_thread(write, broker, b"3")
        assert await next_of(heard) == b"3"
        admin = AdminClient({"bootstrap.servers": broker.address})
        admin.delete_topics([TOPIC.name])[TOPIC.name].result(LIMIT_S)
        await asyncio.to_thread(broker.create_topics, [TOPIC])
        await asyncio.to_thread(write, broker, *(b"new %d" % number for number in range(5)))
        assert [await next_of(heard) for _ in range(5)] == [b"new %d" % number for number in range(5)]
    finally:
        await asyncio.to_thread(link.stop, 5.0)


@pytest.mark.e2e
@pytest.mark.timeout(240)
def test_a_topic_made_anew_after_the_broker_s_restart_is_heard(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kafka_link, "WATCH_S", 1.0)
    with Processes(tmp_path / "logs") as processes, Broker(tmp_path / "broker", processes) as broker:
        broker.create_topics([TOPIC])
        asyncio.run(scenario(broker))
