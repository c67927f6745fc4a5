"""Producer whose flush covers everything sent before it, and that sends nothing while the worker is fenced.

It goes on after a refused record, and no offset is committed after it has failed.

(patch flush-waits-for-all, patch fence-after-session, patch go-on-after-refusal, patch end-when-state-is-not-written)
"""

import asyncio
import logging
import struct
from collections.abc import Mapping
from typing import Any, Self

import aiokafka
from aiokafka.protocol.produce import ProduceRequest
from aiokafka.structs import TopicPartition
from faust.transport.drivers.aiokafka import Producer

from trimtab_agent.engines.faust.safety.fence import Fence, Fenced, uptime

log = logging.getLogger(__name__)

POLL_S = 0.001
REFUSALS = frozenset({10, 17, 18, 29, 31, 32, 44, 87})
"""Error codes with which a broker refuses a batch and writes nothing of it: too large, invalid topic, batch too large,
topic or cluster not authorized, invalid timestamp, against a policy, invalid record."""
BASE_SEQUENCE_AT = 53
"""Where a batch (format 2) has its first sequence number, a signed 32-bit integer."""


class FencedProducer(aiokafka.AIOKafkaProducer):  # type: ignore[misc]
    """Sends nothing while the fence is closed.  Once membership is lost, it never sends again."""

    def __init__(self, fence: Fence, **settings: Any) -> None:
        super().__init__(**settings)
        self.fence = fence
        self.condemned = False
        send = self.client.send

        async def send_if_member(node_id: int, request: Any, **options: Any) -> Any:
            if not isinstance(request, ProduceRequest):
                return await send(node_id, request, **options)
            await self._pass_fence()
            response = await send(node_id, request, **options)
            self._reuse_refused_numbers(request._topics, response.topics)
            return response

        self.client.send = send_if_member

    def _reuse_refused_numbers(self, sent: Any, answered: Any) -> None:
        """Give the next batch of a partition the number of one that was refused (patch go-on-after-refusal).

        A partition has one batch in flight, so no later batch has a number yet.
        """
        for topic, partitions in answered:
            for partition, code, *_ in partitions:
                if code in REFUSALS and self._txn_manager is not None:
                    [batch] = [data for name, rows in sent if name == topic for at, data in rows if at == partition]
                    (first,) = struct.unpack_from(">i", bytes(batch), BASE_SEQUENCE_AT)
                    self._txn_manager._sequence_numbers[TopicPartition(topic, partition)] = first

    async def _pass_fence(self) -> None:
        while not self.condemned and self.fence.closed(uptime()):
            if self.fence.over:
                self.condemned = True  # a later generation must not send what this one held back
            else:
                await asyncio.sleep(POLL_S)
        if self.condemned:
            raise Fenced("not a member of the group any more, or state could not be written")


class _Mark:
    """A mark in the producer's buffer: when the buffer publishes it, all messages before it have been published.

    Unlike counting messages in and out, it costs nothing per message.
    """

    def __init__(self) -> None:
        self.reached = False

    @property
    def message(self) -> Self:
        """The mark itself: the buffer calls `mark.message.channel.publish_message(mark, wait=False)`."""
        return self

    @property
    def channel(self) -> Self:
        """The mark itself, see `message`."""
        return self

    async def publish_message(self, _: Any, *, wait: bool) -> None:
        """Called when the buffer reaches the mark."""
        self.reached = True


class SteeredProducer(Producer):  # type: ignore[misc]
    """A producer that can be flushed up to a mark."""

    _producer: FencedProducer | None

    def __init__(self, transport: Any, *arguments: Any, **options: Any) -> None:
        super().__init__(transport, *arguments, **options)
        publish = self.buffer._send_pending

        async def publish_or_end(message: Any) -> None:
            try:
                await publish(message)
            except Exception as error:
                # Faust ends the worker, but commits first; what is left in the buffer is lost.
                self.transport.fence.break_off()
                log.critical("a record cannot be sent, this worker ends: %r", error)
                raise

        self.buffer._send_pending = publish_or_end

    def _new_producer(self, transactional_id: str | None = None) -> FencedProducer:
        assert transactional_id is None, "exactly_once is refused"
        settings = {**self._settings_default(), **self._settings_auth(), **self._settings_extra()}
        return FencedProducer(self.transport.fence, **settings)

    def _settings_extra(self) -> Mapping[str, Any]:
        """Settings of an idempotent producer: a retry after a broker restart writes no record twice."""
        return {"acks": "all", "enable_idempotence": True}

    async def flush(self) -> None:
        """Wait until everything sent before this call is in the log.  Messages sent later do not prolong the wait.

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
        """Replace a producer that lost membership, and drop the messages that it held back."""
        old = self._producer
        if old is not None and old.condemned:
            fresh = self._new_producer()
            await fresh.start()
            self._producer = fresh
            await old.stop()
