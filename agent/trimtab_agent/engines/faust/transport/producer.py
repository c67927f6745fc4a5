"""Producer that can say "all of it is in the log", and that is silent while the worker is fenced (mends 5 and 10)."""

import asyncio
from collections.abc import Mapping
from typing import Any

import aiokafka
from aiokafka.errors import KafkaError
from aiokafka.protocol.produce import ProduceRequest
from faust.transport.drivers.aiokafka import Producer

from trimtab_agent.engines.faust.fence import Fence, uptime

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
            if self.fence.lost:
                self.condemned = True  # a later generation must not send what this one held back
            else:
                await asyncio.sleep(POLL_S)
        if self.condemned:
            raise Fenced("not a member of the group any more")


class SteeredProducer(Producer):  # type: ignore[misc]
    """Counts what goes into its buffer and what has left it."""

    _producer: FencedProducer | None

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._accepted = 0
        self._published = 0
        put, send_pending = self.buffer.put, self.buffer._send_pending

        def counted_put(message: Any) -> None:
            self._accepted += 1
            put(message)

        async def counted_send(message: Any) -> None:
            try:
                await send_pending(message)
            finally:
                self._published += 1

        self.buffer.put, self.buffer._send_pending = counted_put, counted_send

    def _new_producer(self, transactional_id: str | None = None) -> FencedProducer:
        assert transactional_id is None, "exactly_once is refused"
        settings = {**self._settings_default(), **self._settings_auth(), **self._settings_extra()}
        return FencedProducer(self.transport.fence, **settings)

    def _settings_extra(self) -> Mapping[str, Any]:
        """Idempotent: a retry after a broker's restart writes no record twice."""
        return {"acks": "all", "enable_idempotence": True}

    async def flush(self) -> None:
        """Wait until everything sent before this call is in the log (mend 5); a busy worker goes on sending."""
        until = self._accepted
        while self._published < until and not self.buffer.should_stop:
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
