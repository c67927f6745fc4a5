"""What the producer sends: nothing late, nothing for ever held up; what the broker refuses is told."""

import asyncio
import time
from collections.abc import Callable
from typing import Any

import pytest
from aiokafka.errors import KafkaError, MessageSizeTooLargeError
from aiokafka.protocol.produce import ProduceRequest
from confluent_kafka import Consumer, TopicPartition

from trimtab_agent.engines.faust.safety.fence import Fence, WorkerFenced, uptime
from trimtab_agent.engines.faust.safety.refused import refusal
from trimtab_agent.engines.faust.transport.producer import FencedProducer
from trimtab_sandbox.broker import Broker, Topic

pytestmark = pytest.mark.light
SESSION_S = 2.0
LIMIT_S = 60.0


def fenced(
    broker: Broker,
    fence: Fence,
    on_fatal: Callable[[KafkaError], None] = lambda _: None,
    on_refused: Callable[..., None] = print,
) -> FencedProducer:
    return FencedProducer(fence, on_fatal, on_refused, bootstrap_servers=broker.address, enable_idempotence=True)


@pytest.mark.parametrize(("stopped_s", "written"), [(0.0, 2), (SESSION_S + 0.5, 1)], ids=["not stopped", "stopped"])
def test_a_request_that_was_being_sent_when_the_worker_stopped_is_not_sent_later(
    broker: Broker, unique: str, monkeypatch: pytest.MonkeyPatch, stopped_s: float, written: int
) -> None:
    broker.create_topics([Topic(name=unique, partitions=1)])
    fence, faults, begun = Fence(SESSION_S), list[KafkaError](), asyncio.Event()
    prepare = ProduceRequest.prepare

    def stopped(request: Any, versions: Any) -> Any:
        """The whole loop stands still, as it does in a stopped process."""
        time.sleep(stopped_s)
        begun.set()
        return prepare(request, versions)

    async def send() -> int:
        producer = fenced(broker, fence, faults.append)
        await producer.start()
        try:
            fence.heard(uptime() + LIMIT_S)
            await asyncio.wait_for(producer.send_and_wait(unique, b"before"), LIMIT_S)
            fence.heard(uptime() + (0.0 if stopped_s else LIMIT_S))
            with monkeypatch.context() as patch:
                patch.setattr(ProduceRequest, "prepare", stopped)
                sending = asyncio.create_task(producer.send_and_wait(unique, b"late"))
                await asyncio.wait_for(begun.wait(), LIMIT_S)
            if stopped_s:
                fence.lose()  # as the first heartbeat after the stop is answered
                with pytest.raises(WorkerFenced):
                    await asyncio.wait_for(sending, LIMIT_S)
            else:
                await asyncio.wait_for(sending, LIMIT_S)
        finally:
            await producer.stop()
        return Consumer({"bootstrap.servers": broker.address, "group.id": unique}).get_watermark_offsets(
            TopicPartition(unique, 0), timeout=LIMIT_S
        )[1]

    assert asyncio.run(send()) == written
    assert not faults


def test_a_record_that_waits_while_the_producer_meets_a_new_topic_is_sent(broker: Broker, unique: str) -> None:
    later = f"{unique}-later"
    broker.create_topics([Topic(name=unique, partitions=1)])

    async def send() -> None:
        fence = Fence(SESSION_S)
        producer = fenced(broker, fence)
        await producer.start()  # it asks for all topics now
        try:
            broker.create_topics([Topic(name=later, partitions=1)])
            fence.heard(uptime() - 2 * SESSION_S)
            told = [await producer.send(unique, b"in flight")]  # the closed fence holds it, and what follows
            await asyncio.sleep(0.1)
            told += [await producer.send(unique, b"waits"), await producer.send(later, b"new")]
            await asyncio.sleep(0.1)
            fence.heard(uptime() + LIMIT_S)
            await asyncio.wait_for(asyncio.gather(*told), LIMIT_S)
        finally:
            fence.lose()
            await producer.stop()

    asyncio.run(send())


def test_all_records_of_a_batch_that_the_broker_refuses_are_told_and_later_ones_are_written(
    broker: Broker, unique: str
) -> None:
    broker.create_topics([Topic(name=unique, partitions=1, settings={"max.message.bytes": "2000"})])
    told: list[tuple[str, int, str | None, list[bytes | None]]] = []

    async def send() -> None:
        fence = Fence(SESSION_S)
        producer = fenced(broker, fence, on_refused=lambda *row: told.append((*row[:2], refusal(row[2]), row[3])))
        await producer.start()
        try:
            fence.heard(uptime() - 2 * SESSION_S)  # so that both are in one batch
            sent = [await producer.send(unique, b"x" * size, key=key) for size, key in ((5000, b"large"), (1, None))]
            fence.heard(uptime() + LIMIT_S)
            refused = await asyncio.wait_for(asyncio.gather(*sent, return_exceptions=True), LIMIT_S)
            assert [type(each) for each in refused] == [MessageSizeTooLargeError] * 2
            await asyncio.wait_for(producer.send_and_wait(unique, b"small", key=b"next"), LIMIT_S)
        finally:
            await producer.stop()

    asyncio.run(send())
    why = "MessageSizeTooLarge: it is larger than max.message.bytes"
    assert told == [(unique, 0, why, [b"large", None])]
