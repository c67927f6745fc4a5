"""Producer that knows when all of it is in the log, and that sends nothing while the worker is fenced.

(patch flush-waits-for-all, patch fence-after-session)
"""

import asyncio
from collections.abc import Mapping
from typing import Any, Self

import aiokafka
from aiokafka.errors import KafkaError
from aiokafka.protocol.produce import ProduceRequest
from faust.transport.drivers.aiokafka import Producer

from trimtab_agent.engines.faust.safety.fence import Fence, uptime

POLL_S = 0.001


class Fenced(KafkaError):  # type: ignore[misc]
    """Not sent: the worker has lost its place in the group."""

    retriable = False


class FencedProducer(aiokafka.AIOKafkaProducer):  # type: ignore[misc]
    """Sends nothing while the fence is closed; once membership is lost, nothing for ever."""

    def __init__(self, fence: Fence, **settings: Any) -> None:
        super().__init__(**settings)
        self.fence = fence
        self.condemned = False
        send = self.client.send

        async def send_if_member(node_id: int, request: Any, **options: Any) -> Any:
            if isinstance(request, ProduceRequest):
                await self._pass_fence()
            return await send(node_id, request, **options)

        self.client.send = send_if_member

    async def _pass_fence(self) -> None:
        while not self.condemned and self.fence.closed(uptime()):
            if self.fence.over:
                self.condemned = True  # a later generation must not send what this one held back
            else:
                await asyncio.sleep(POLL_S)
        if self.condemned:
            raise Fenced("not a member of the group any more, or state could not be written")


class _Mark:
    """Put into the producer's buffer like a message: once it is published, all before it have been.

    Costs nothing per message, as counting what goes in and out would.
    """

    def __init__(self) -> None:
        self.reached = False

    @property
    def message(self) -> Self:
        """What the buffer publishes: `mark.message.channel.publish_message(mark, wait=False)`."""
        return self

    @property
    def channel(self) -> Self:
        """Where the buffer publishes it."""
        return self

    async def publish_message(self, _: Any, *, wait: bool) -> None:
        """The buffer has come to the mark."""
        self.reached = True


class SteeredProducer(Producer):  # type: ignore[misc]
    """A producer that can be flushed up to a mark."""

    _producer: FencedProducer | None

    def _new_producer(self, transactional_id: str | None = None) -> FencedProducer:
        assert transactional_id is None, "exactly_once is refused"
        settings = {**self._settings_default(), **self._settings_auth(), **self._settings_extra()}
        return FencedProducer(self.transport.fence, **settings)

    def _settings_extra(self) -> Mapping[str, Any]:
        """Idempotent: a retry after a broker's restart writes no record twice."""
        return {"acks": "all", "enable_idempotence": True}

    async def flush(self) -> None:
        """Wait until everything sent before this call is in the log; a busy worker goes on sending.

        (patch flush-waits-for-all)
        """
        mark = _Mark()
        self.buffer.put(mark)
        while not mark.reached and not self.buffer.should_stop:
            await asyncio.sleep(POLL_S)
        if self._producer is not None:
            await self._producer.flush()
        await asyncio.sleep(0)  # let the callbacks run that persist the changelog offsets

    async def renew_if_condemned(self) -> None:
        """After a lost membership: a fresh producer, without what the old one held back."""
        old = self._producer
        if old is not None and old.condemned:
            fresh = self._new_producer()
            await fresh.start()
            self._producer = fresh
            await old.stop()
