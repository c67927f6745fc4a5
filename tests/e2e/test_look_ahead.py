"""How many records lie ahead is found by looking there, whatever has made the offsets between them no records."""

import asyncio

import pytest
from aiokafka import AIOKafkaConsumer
from aiokafka.structs import TopicPartition
from confluent_kafka import Producer
from confluent_kafka import TopicPartition as Removed
from confluent_kafka.admin import AdminClient

from trimtab_agent.engines.faust.transport.thread import densities_at
from trimtab_sandbox.broker import Broker, Topic

pytestmark = pytest.mark.light

RECORDS = 300


def written(topic: str, *, by: Producer, transactions: int, each: int, abort: bool = False) -> None:
    for _ in range(transactions):
        by.begin_transaction()
        for _ in range(each):
            by.produce(topic, b"{}", b"k", 0)
        by.flush(30.0)  # an abort drops what has not been sent
        (by.abort_transaction if abort else by.commit_transaction)(30.0)


@pytest.mark.parametrize(("isolation", "aborted"), [("read_committed", 0.0), ("read_uncommitted", 1.0)])
def test_the_density_ahead_is_that_of_the_records_which_will_be_read(
    broker: Broker, unique: str, isolation: str, aborted: float
) -> None:
    every, lone, gone = (TopicPartition(f"{name}-{unique}", 0) for name in ("every", "lone", "gone"))
    broker.create_topics([Topic(name=tp.topic, partitions=1) for tp in (every, lone, gone)])
    producer = Producer({"bootstrap.servers": broker.address, "transactional.id": unique, "linger.ms": 0})
    producer.init_transactions(30.0)
    written(every.topic, by=producer, transactions=1, each=RECORDS)
    written(lone.topic, by=producer, transactions=20, each=1)
    written(gone.topic, by=producer, transactions=1, each=RECORDS, abort=True)
    removed = TopicPartition(f"removed-{unique}", 0)
    broker.create_topics([Topic(name=removed.topic, partitions=1)])
    written(removed.topic, by=producer, transactions=1, each=RECORDS)
    admin = AdminClient({"bootstrap.servers": broker.address})
    until = Removed(removed.topic, 0, RECORDS - 10)
    admin.delete_records([until])[until].result(30.0)

    async def look() -> dict[TopicPartition, float]:
        options = {"isolation_level": isolation, "auto_offset_reset": "none"}
        async with AIOKafkaConsumer(bootstrap_servers=broker.address, **options) as consumer:
            return await densities_at(consumer, {every: 100, lone: 0, gone: 100, removed: 100})

    found = asyncio.run(look())
    assert found[every] == 1.0
    assert found[lone] == pytest.approx(0.5, abs=0.03)
    assert found[gone] == pytest.approx(aborted, abs=0.01)
    assert found[removed] == pytest.approx(10 / (RECORDS - 100), abs=0.01), "the reader goes on behind what was removed"
