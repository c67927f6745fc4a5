"""What a flush waits for: the producer without a broker."""

import asyncio
from typing import Any

import faust
import pytest

from trimtab_agent.engines.faust import SteeringSettings
from trimtab_agent.engines.faust.safety.fence import Fence
from trimtab_agent.engines.faust.transport.producer import SteeredProducer
from trimtab_agent.engines.faust.transport.steered import SteeredTransport


class Pending:
    """A message in the buffer that takes its time to be published."""

    def __init__(self, story: list[str], name: str, delay_s: float) -> None:
        self.message = self.channel = self
        self._story, self._name, self._delay_s = story, name, delay_s

    async def publish_message(self, _: Any, *, wait: bool) -> None:
        self._story.append(f"{self._name} begun")
        await asyncio.sleep(self._delay_s)
        self._story.append(f"{self._name} published")


def made() -> SteeredProducer:
    app = faust.App("ks", web_enabled=False)
    transport = SteeredTransport(app, fence=Fence(10.0), settings=SteeringSettings(), watcher=None)  # type: ignore[arg-type]
    producer: SteeredProducer = transport.create_producer()
    return producer


def test_a_flush_waits_for_all_before_it_also_slow_ones_and_for_nothing_after() -> None:
    story: list[str] = []

    async def flush() -> None:
        producer = made()
        await producer.buffer.start()
        try:
            producer.buffer.put(Pending(story, "first", 0.25))  # stock Faust gives up after 0.1 s
            producer.buffer.put(Pending(story, "second", 0.0))
            flushing = asyncio.create_task(producer.flush())
            await asyncio.sleep(0)
            producer.buffer.put(Pending(story, "later", 10.0))
            await asyncio.wait_for(flushing, 5.0)
            story.append("flushed")
        finally:
            producer.buffer._stopped.set()

    asyncio.run(flush())
    assert [line for line in story if not line.startswith("later")] == [
        *("first begun", "first published", "second begun", "second published", "flushed"),
    ]


def test_a_stopped_buffer_holds_up_no_flush() -> None:
    async def flush() -> None:
        producer = made()
        await producer.buffer.start()
        producer.buffer._stopped.set()
        producer.buffer.put(Pending([], "never", 0.0))
        await asyncio.wait_for(producer.flush(), 5.0)

    asyncio.run(flush())


@pytest.mark.parametrize("times", [1, 3])
def test_flushing_an_idle_buffer_ends(times: int) -> None:
    async def flush() -> None:
        producer = made()
        await producer.buffer.start()
        try:
            for _ in range(times):
                await asyncio.wait_for(producer.flush(), 5.0)
        finally:
            producer.buffer._stopped.set()
        assert producer.buffer.size == 0

    asyncio.run(flush())
