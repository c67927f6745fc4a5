"""A batch that cannot be read costs no record before it, and holds up no other partition."""

from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka.consumer.fetcher import READ_UNCOMMITTED, Fetcher, FetchResult, PartitionRecords
from aiokafka.consumer.subscription_state import Assignment
from aiokafka.record.default_records import DefaultRecordBatchBuilder
from aiokafka.record.memory_records import MemoryRecords
from aiokafka.record.util import calc_crc32c
from aiokafka.structs import TopicPartition

from trimtab_agent.engines.faust.transport.unreadable import UnreadableRecord, stand_at_unreadable

ORDERS, OTHER = TopicPartition("orders", 3), TopicPartition("orders", 4)
CRC, CHECKED, ATTRIBUTES = slice(17, 21), slice(21, None), 22
ZSTD = 4


def batch(first: int, count: int) -> bytearray:
    """A batch of records, as a broker sends it."""
    builder = DefaultRecordBatchBuilder(2, 0, 0, -1, -1, 0, 1 << 20)
    for offset in range(count):
        builder.append(offset, timestamp=1000 + offset, key=None, value=b"%d" % (first + offset), headers=[])
    made = bytearray(builder.build())
    made[:8] = first.to_bytes(8)
    return made


def compressed(made: bytearray) -> bytearray:
    """The batch, as if a codec had been used that this process has no library for."""
    made[ATTRIBUTES] |= ZSTD
    made[CRC] = calc_crc32c(bytes(made[CHECKED])).to_bytes(4)
    return made


def damaged(made: bytearray) -> bytearray:
    made[-1] ^= 1
    return made


class Broker:
    """Answers fetches from its logs, through aiokafka's fetcher."""

    def __init__(self, logs: dict[TopicPartition, list[bytearray]]) -> None:
        self.logs = logs
        self.assignment = Assignment(set(logs))
        for tp in logs:
            self.assignment.state_value(tp).reset_to(0)
        self.fetcher: Any = SimpleNamespace(
            _records={},
            _prefetch_backoff=0.1,
            _proc_fetch_request=self._process,
            _subscriptions=SimpleNamespace(reassignment_in_progress=False),
            _notify=lambda _: None,
            _wait_consume_future=None,
        )
        stand_at_unreadable(self.fetcher)

    async def _process(self, assignment: Assignment, node_id: int, request: Any) -> bool:
        for topic, partitions in request.topics:
            for partition, offset in partitions:
                tp = TopicPartition(topic, partition)
                rest = [made for made in self.logs[tp] if int.from_bytes(made[:8]) + last_delta(made) >= offset]
                records = PartitionRecords(
                    tp, MemoryRecords(bytes(b"".join(rest))), [], offset, None, None, True, READ_UNCOMMITTED
                )
                self.fetcher._records[tp] = FetchResult(
                    tp, assignment=assignment, partition_records=records, backoff=0.1
                )
        return True

    async def read(self, *tps: TopicPartition) -> dict[TopicPartition, list[int]]:
        """Fetch what is not there, and take it."""
        wanted = [tp for tp in tps if tp not in self.fetcher._records]
        asked = [("orders", [(tp.partition, self.assignment.state_value(tp).position) for tp in wanted])]
        await self.fetcher._proc_fetch_request(self.assignment, 1, SimpleNamespace(topics=asked))
        found = await Fetcher.fetched_records(self.fetcher, tps)
        return {tp: [record.offset for record in records] for tp, records in found.items()}


def last_delta(made: bytearray) -> int:
    return int.from_bytes(made[23:27])


@pytest.mark.parametrize(
    ("spoil", "why"), [(compressed, "Libraries for zstd compression codec not found"), (damaged, "Invalid CRC")]
)
async def test_all_before_it_is_read_and_other_partitions_go_on(spoil: Any, why: str) -> None:
    good = batch(0, 3)
    broker = Broker({ORDERS: [good, spoil(batch(3, 2)), batch(5, 1)], OTHER: [batch(0, 2), batch(2, 2)]})
    assert await broker.read(ORDERS) == {ORDERS: [0, 1, 2]}
    assert await broker.read(OTHER, ORDERS) == {OTHER: [0, 1, 2, 3]}
    for _ in range(2):
        with pytest.raises(UnreadableRecord, match=rf"orders/3 cannot be read from offset 3 on: .*{why}") as told:
            await broker.read(ORDERS)
        assert told.value.tp == ORDERS
    broker.logs[ORDERS] = [good, batch(3, 2), batch(5, 1)]
    assert await broker.read(ORDERS) == {ORDERS: [3, 4, 5]}


async def test_what_has_no_record_is_passed() -> None:
    broker = Broker({ORDERS: []})
    assert await broker.read(ORDERS) == {}
    broker.logs[ORDERS] = [batch(0, 2)]
    assert await broker.read(ORDERS) == {ORDERS: [0, 1]}
