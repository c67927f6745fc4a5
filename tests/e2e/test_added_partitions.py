"""Somebody adds partitions to topics that need one order: what Trimtab writes stays in the first of them."""

import asyncio
import time

import pytest
from confluent_kafka import Consumer, TopicPartition

from tests.e2e.test_topic_made_anew import LIMIT_S, Handler
from trimtab_agent.kafka_link import KafkaLink, LinkSettings
from trimtab_controller.kafka.connection import Connection
from trimtab_controller.kafka.intents import write_intents
from trimtab_controller.kafka.publisher import Publisher, Record
from trimtab_protocol.messages.names import THE_PARTITION, Topics
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
