"""Inputs that the broker no longer has are told of with their number, where aiokafka goes on without a warning."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka.consumer.fetcher import OffsetResetStrategy
from aiokafka.consumer.subscription_state import Assignment
from aiokafka.errors import KafkaConnectionError
from aiokafka.structs import TopicPartition

from trimtab_agent.engines.faust.safety.troubles import Trouble, Troubles
from trimtab_agent.engines.faust.transport.lost_inputs import LostInputs, Missed, describe_lost
from trimtab_protocol.messages.reason_text import reason_text

NOW = 1e9
ORDERS, OTHER, LOG = TopicPartition("orders", 3), TopicPartition("orders", 4), TopicPartition("log", 3)


def test_deleted_records_are_counted() -> None:
    missed = [
        Missed(partition=ORDERS, offset=100, start=220, end=500),
        Missed(partition=OTHER, offset=7, start=8, end=8),
    ]

    [lost] = describe_lost(missed, NOW)

    assert lost.text.startswith(
        "up to 121 inputs are lost: they were deleted before this worker read them, from orders/3, orders/4."
    )
    assert lost.short == (
        "inputs are lost, up to 121 of orders/3 and 1 more, seen 2001-09-09 01:46 UTC: deleted before they were read"
    )
    assert reason_text(lost.short) == lost.short, "a report can hold it as it is"


def test_a_log_that_has_become_shorter_is_told() -> None:
    [lost] = describe_lost([Missed(partition=ORDERS, offset=100, start=0, end=60)], NOW)

    assert "orders/3 (60 instead of 100)" in lost.text
    assert "orders/3 (60 instead of 100)" in lost.short


def test_a_partition_that_is_in_range_is_not_told() -> None:
    assert not list(describe_lost([Missed(partition=ORDERS, offset=100, start=0, end=100)], NOW))


class Consumer:
    """An aiokafka consumer whose broker answers a fetch with OFFSET_OUT_OF_RANGE for the partitions in `gone`."""

    def __init__(self, gone: set[TopicPartition], fault: Exception | None = None) -> None:
        self._fetcher = SimpleNamespace(_proc_fetch_request=self._process)
        self._gone, self._fault = gone, fault

    async def _process(self, assignment: Assignment, node_id: int, request: Any) -> bool:
        for tp in self._gone:
            assignment.state_value(tp).await_reset(OffsetResetStrategy.EARLIEST)
        return True

    async def beginning_offsets(self, tps: list[TopicPartition]) -> dict[TopicPartition, int]:
        if self._fault is not None:
            raise self._fault
        return dict.fromkeys(tps, 30)

    async def end_offsets(self, tps: list[TopicPartition]) -> dict[TopicPartition, int]:
        return dict.fromkeys(tps, 50)


def fetched(consumer: Consumer, troubles: Troubles) -> bool:
    """Fetch all partitions from offset 10, as aiokafka does."""

    async def fetch() -> bool:
        assignment = Assignment({ORDERS, OTHER, LOG})
        for tp in (ORDERS, OTHER, LOG):
            assignment.state_value(tp).seek(10)
        LostInputs(consumer, lambda topic: topic != LOG.topic, troubles.tell)
        request = SimpleNamespace(topics=[("orders", [(3, 10, 1000), (4, 10, 1000)]), ("log", [(3, 10, 1000)])])
        answer: bool = await consumer._fetcher._proc_fetch_request(assignment, 1, request)
        await asyncio.sleep(0.01)
        return answer

    return asyncio.run(fetch())


@pytest.mark.parametrize(
    ("consumer", "said"),
    [
        pytest.param(Consumer({ORDERS}), ["up to 20 inputs are lost: "], id="one partition"),
        pytest.param(Consumer({LOG}), [], id="a changelog may begin later"),
        pytest.param(Consumer(set()), [], id="all in range"),
        pytest.param(
            Consumer({OTHER}, KafkaConnectionError()), ["inputs may be lost: "], id="the broker goes away meanwhile"
        ),
    ],
)
def test_fetches_are_watched(consumer: Consumer, said: list[str], caplog: pytest.LogCaptureFixture) -> None:
    troubles = Troubles()
    assert fetched(consumer, troubles)

    told = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert len(told) == len(said)
    assert all(text.startswith(begin) for text, begin in zip(told, said, strict=True))
    reported = troubles.worst(Trouble.INPUTS_LOST)
    assert reported is None if not said else reported is not None and reported.startswith("inputs ")


async def test_the_same_loss_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    consumer = Consumer({ORDERS})
    LostInputs(consumer, lambda _: True, Troubles().tell)
    for offset in (10, 10, 12):
        assignment = Assignment({ORDERS})
        assignment.state_value(ORDERS).seek(offset)
        request = SimpleNamespace(topics=[("orders", [(3, offset, 1000)])])
        await consumer._fetcher._proc_fetch_request(assignment, 1, request)
        await asyncio.sleep(0.01)

    assert [record.getMessage().split(":")[0] for record in caplog.records] == [
        "up to 20 inputs are lost",
        "up to 18 inputs are lost",
    ]


async def test_a_fetch_that_waits_for_the_broker_ends_with_the_worker() -> None:
    fetcher = SimpleNamespace(_proc_fetch_request=lambda *_: asyncio.sleep(3600.0))
    LostInputs(SimpleNamespace(_fetcher=fetcher), lambda _: True, Troubles().tell)
    fetch = asyncio.ensure_future(fetcher._proc_fetch_request(Assignment({ORDERS}), 1, None))
    await asyncio.sleep(0)
    fetch.cancel()
    assert await fetch is False  # as aiokafka does when it closes
