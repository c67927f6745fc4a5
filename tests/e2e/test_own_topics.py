"""Trimtab's own topics: somebody adds partitions, and what is written stays in the first; a sender packs too much."""

import asyncio
import time

import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from tests.e2e.test_topic_made_anew import LIMIT_S, Handler
from trimtab_agent.kafka_link import KafkaLink, LinkSettings
from trimtab_controller.kafka.connection import Connection, ensure_topics
from trimtab_controller.kafka.intents import write_intents
from trimtab_controller.kafka.publisher import Publisher, Record
from trimtab_protocol.messages.names import THE_PARTITION, Topics, topic_settings
from trimtab_sandbox.broker import Broker, Topic

pytestmark = [pytest.mark.e2e, pytest.mark.light]
KEYS = [f"k{number}" for number in range(20)]
"""Kafka's clients would spread so many keys over all partitions."""


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
