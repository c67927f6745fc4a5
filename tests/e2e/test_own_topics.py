"""Trimtab's own topics: somebody adds partitions, packs too much, or writes what Kafka's clients cannot read."""

import asyncio
import time

import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.record.util import calc_crc32c
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from tests.e2e.test_topic_made_anew import LIMIT_S, Handler
from trimtab_agent.engines.faust.group.shared_state import PluginState
from trimtab_agent.engines.faust.handover.channel import Channel
from trimtab_agent.kafka_link import KafkaLink, LinkSettings
from trimtab_controller.kafka.connection import Connection, ensure_topics
from trimtab_controller.kafka.intents import write_intents
from trimtab_controller.kafka.publisher import Publisher, Record
from trimtab_protocol.messages.decode import Fault
from trimtab_protocol.messages.handover import HandoverKind, HandoverRecord
from trimtab_protocol.messages.names import (
    THE_PARTITION,
    AppId,
    Epoch,
    KeyGroup,
    OperatorId,
    Topics,
    WorkerId,
    topic_settings,
)
from trimtab_sandbox.broker import Broker, Topic

pytestmark = [pytest.mark.e2e, pytest.mark.light]
KEYS = [f"k{number}" for number in range(20)]
"""Kafka's clients would spread so many keys over all partitions."""
CHECKSUM_AT, CHECKED_FROM = 17, 21
"""Places in a batch of records."""


def written(broker: Broker, topic: str) -> list[int]:
    """How many records each of the three partitions has, control records of transactions included."""
    consumer = Consumer({"bootstrap.servers": broker.address, "group.id": "t"})
    ends = [consumer.get_watermark_offsets(TopicPartition(topic, each), timeout=LIMIT_S)[1] for each in range(3)]
    consumer.close()
    return ends


def test_records_of_all_keys_are_written_to_the_first_partition(broker: Broker, unique: str) -> None:
    topics = Topics(unique)
    broker.create_topics([Topic(name=name, partitions=3) for name in (topics.placement, topics.intents, topics.acks)])
    connection = Connection(kafka=broker.kafka)

    publisher = Publisher(connection, unique, lambda: False)
    publisher.publish([Record(topic=topics.placement, key=key.encode(), value=b"{}") for key in KEYS])
    write_intents(connection, topics, [(f"drain/{key}", None) for key in KEYS], limit_s=LIMIT_S)
    acknowledge(broker, topics)

    for name in (topics.placement, topics.intents, topics.acks):
        first, *others = written(broker, name)
        assert first >= len(KEYS), name
        assert others == [0, 0], name


def acknowledge(broker: Broker, topics: Topics) -> None:
    """As the daemon does, of one host after the other."""
    loop = asyncio.new_event_loop()
    link = KafkaLink(LinkSettings(kafka=broker.kafka, commands_topic=topics.acks), Handler(), loop, start=[])
    failures: list[str | None] = []
    for key in KEYS:
        link.produce(topics.acks, key, b"{}", failures.append, partition=THE_PARTITION)
    link.start()
    deadline = time.monotonic() + LIMIT_S
    while len(failures) < len(KEYS) and time.monotonic() < deadline:
        loop.run_until_complete(asyncio.sleep(0.05))
    link.stop(5.0)
    loop.close()
    assert failures == [None] * len(KEYS)


def test_what_is_small_only_while_it_is_packed_is_refused(broker: Broker, unique: str) -> None:
    """Readers would unpack it whole: as a batch of 16 MiB may hold 16 GB, each of them would end, again and again."""
    topics = Topics(unique)
    ensure_topics(AdminClient({"bootstrap.servers": broker.address}), topics)
    sender = Producer(
        {**Connection(kafka=broker.kafka).client("bomb"), "compression.type": "gzip", "message.max.bytes": 1 << 25}
    )
    answers: dict[str, int | None] = {}
    for name in (each.name for each in topic_settings(topics) if each.unpacked):
        for size in (1_000, 20_000_000):
            sender.produce(
                name, b"\0" * size, b"k", THE_PARTITION,
                on_delivery=lambda error, _, of=f"{name} {size}": answers.update({of: error and error.code()}),
            )  # fmt: skip
            sender.flush(LIMIT_S)
    refused = KafkaError.MSG_SIZE_TOO_LARGE
    assert answers == {
        f"{name} {size}": code
        for name in (topics.acks, topics.handover, topics.intents)
        for size, code in ((1_000, None), (20_000_000, refused))
    }


async def write_header_that_is_no_text(address: str, topic: str) -> None:
    """Kafka's clients refuse to write it; the broker does not look at it."""
    async with AIOKafkaProducer(bootstrap_servers=address) as producer:
        batch = producer.create_batch()
        batch.append(timestamp=None, key=b"k", value=b"v", headers=[("ab", b"")])
        written = bytearray(batch._build())
        at = written.index(b"ab")
        written[at : at + 2] = b"\xff\xfe"
        written[CHECKSUM_AT:CHECKED_FROM] = calc_crc32c(bytes(written[CHECKED_FROM:])).to_bytes(4, "big")
        batch._buffer = bytes(written)
        await (await producer.send_batch(batch, topic, partition=THE_PARTITION))


def test_one_hand_over_record_that_no_client_can_read_does_not_stop_all_hand_overs(broker: Broker, unique: str) -> None:
    topics, heard = Topics(unique), list[str]()
    broker.create_topics([Topic(name=name, partitions=1) for name in (topics.placement, topics.handover)])
    app = AppId("orders")
    shared = PluginState(cluster=unique, app=app, worker=WorkerId("w0"))
    channel = Channel(
        shared,
        {"bootstrap_servers": broker.address},
        on_placement=lambda: None,
        on_handover=lambda record, _: heard.append(record.handover),
    )

    async def hears(name: str) -> None:
        record = HandoverRecord(
            kind=HandoverKind.TOOK, cluster=unique, app=app, handover=name, epoch=Epoch(1, 1), generation=1,
            source=WorkerId("w0"), target=WorkerId("w1"), key_groups=(KeyGroup(app, OperatorId("sums"), 0),),
        )  # fmt: skip
        async with asyncio.timeout(LIMIT_S):
            while name not in heard:  # again, since the reader begins at the end
                await channel.publish(record)
                await asyncio.sleep(0.2)

    async def play() -> None:
        reading = asyncio.create_task(channel.run())
        await hears("before")
        await write_header_that_is_no_text(broker.address, topics.handover)
        await hears("after")
        reading.cancel()
        await channel.close()

    asyncio.run(play())
    assert shared.refused == {Fault.MALFORMED: 1}
