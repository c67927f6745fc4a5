"""Where the events of one local topic go: straight to their readers on this worker, or by the broker."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from faust.events import Event
from faust.streams import current_event
from faust.types import FutureMessage, Message, PendingMessage
from faust.types.tuples import RecordMetadata, ack_lock
from mode.utils.futures import maybe_async

from trimtab_agent.engines.faust.local.gate import Gate, State
from trimtab_agent.engines.faust.local.message import DirectMessage, never_done
from trimtab_agent.engines.faust.local.partitions import Partitions, Place, place_of
from trimtab_agent.engines.faust.local.values import traffic_bytes

if TYPE_CHECKING:
    from trimtab_agent.engines.faust.local.hop import LocalHop

POLL_S = 0.002
KEPT = "_trimtab_partitions"
"""Attribute of a topic object with its `Partitions`."""
BATCHED = "trimtab_batched"
"""Attribute of an event whose stream does not acknowledge events one by one."""
Sent = Awaitable[RecordMetadata]


class Route:
    """The sends to one local topic."""

    def __init__(self, hop: "LocalHop", name: str, by_broker: Callable[..., Awaitable[Sent]]) -> None:
        self.name = name
        self.gates: dict[int, Gate] = {}
        """Partition -> its gate, for the partitions that this worker owns."""
        self.unfinished = 0
        """Number of direct events that are not finished."""
        self.refused: str | None = None
        """Why nothing is direct here."""
        self._hop = hop
        self._settings = hop.settings
        self._by_broker = by_broker
        self._open_from: dict[str, bool] = {}
        """Topic of the cause -> whether such an event may be direct: False if the link closes a circle."""

    async def send(
        self,
        topic: Any,
        *,
        key: Any = None,
        value: Any = None,
        partition: int | None = None,
        timestamp: float | None = None,
        headers: Any = None,
        schema: Any = None,
        key_serializer: Any = None,
        value_serializer: Any = None,
        callback: Any = None,
        force: bool = False,
    ) -> Sent:
        """Implements `faust.Topic.send()` for this topic."""
        by_broker = partial(
            self._by_broker, topic, key=key, value=value, partition=partition, timestamp=timestamp, headers=headers,
            schema=schema, key_serializer=key_serializer, value_serializer=value_serializer, callback=callback,
            force=force,
        )  # fmt: skip
        event = current_event()
        if event is None or not self.gates or (key is None and partition is None):
            return await by_broker()
        cause = event.message
        if cause.acked or BATCHED in event.__dict__ or not self._may_link(cause.tp.topic):
            return await by_broker()
        kept = topic.__dict__.get(KEPT)
        if kept is None:
            kept = topic.__dict__[KEPT] = Partitions(topic)
        own_codecs = schema is None and key_serializer is None and value_serializer is None
        if headers is not None:
            headers = topic.prepare_headers(headers)
        place = await self._place(kept, topic, key, partition, headers, schema, key_serializer)
        gate = self.gates.get(place[1])
        if gate is None:
            if self._hop.cut_off(cause):
                return self._not_sent(cause)
            return await by_broker()
        era = self._hop.era
        while True:
            if gate.state is not State.OPEN and not await self._wait_until_open(gate):
                break
            if self.unfinished >= self._settings.depth or _full(gate):
                if not await self._wait_for_room(gate):
                    break
                continue  # the gate may have closed while this waited
            written_by = kept.codecs if own_codecs else None
            if self._deliver(topic, gate, cause, place[0], key, value, timestamp, headers, schema, value_serializer,
                             written_by):  # fmt: skip
                return await self._answered(topic, gate, callback)
            break
        await self._settle(gate, place[0])
        if era != self._hop.era or self._hop.cut_off(cause):
            return self._not_sent(cause)
        if gate.state is State.OFF:
            return await by_broker()
        gate.begin_send()
        try:
            sent = await by_broker()
        except BaseException:
            gate.sending -= 1
            raise
        sent.add_done_callback(gate.end_send)  # type: ignore[attr-defined]
        return sent

    # ---- where to

    def _may_link(self, source: str) -> bool:
        known = self._open_from.get(source)
        if known is None:
            known = self._open_from[source] = self._hop.links(source, self.name)
        return known

    async def _place(
        self, kept: Partitions, topic: Any, key: Any, partition: int | None, headers: Any, schema: Any, codec: Any
    ) -> Place:
        hop = self._hop
        if partition is None and type(key) is str and schema is None and codec is None and kept.plain:
            while (place := kept.place(hop.producer, self.name, key)) is None:
                await hop.learn_partitions(self.name)
            return place
        raw, _ = topic.prepare_key(key, codec, schema, dict(headers or {}))
        while (place := place_of(hop.producer, self.name, raw, partition)) is None:
            await hop.learn_partitions(self.name)
        return place

    # ---- straight to the readers

    def _deliver(
        self,
        topic: Any,
        gate: Gate,
        cause: Message,
        raw_key: bytes | None,
        key: Any,
        value: Any,
        timestamp: float | None,
        headers: Any,
        schema: Any,
        value_serializer: Any,
        written_by: Any,
    ) -> bool:
        """Put the event into its readers' queues; False if it must go by the broker, which reports what is wrong."""
        hop = self._hop

        def encode() -> bytes | None:
            raw: bytes | None = topic.prepare_value(value, value_serializer, schema, dict(headers or {}))[0]
            return raw

        message = DirectMessage(
            gate,
            key=raw_key,
            headers=list(headers.items()) if isinstance(headers, dict) else (headers or ()),
            timestamp=timestamp or time.time(),
            generation_id=hop.generation,
            encode=encode,
            cause=cause,
            era=hop.era,
            finished=self._finished,
        )
        try:
            events = [
                (readers.queues, readers.event(message, key, value, plain=written_by == readers.codecs))
                for readers in gate.readers
            ]
        except Exception:
            return False
        with ack_lock:
            if cause.acked:  # by another thread
                return False
            cause.refcount += 1
            message.refcount = sum(len(queues) for queues, _ in events)
            gate.begin(raw_key)
            self.unfinished += 1
        counted = gate.direct.get(cause.tp)
        if counted is None:
            counted = gate.direct[cause.tp] = [0, 0]
        counted[0] += 1
        counted[1] += traffic_bytes(message, value)
        for queues, event in events:
            for queue in queues:
                queue.force_put_nowait(event)
        return True

    async def _answered(self, topic: Any, gate: Gate, callback: Any) -> Sent:
        if callback is not None:
            told = FutureMessage(PendingMessage(topic, None, None, gate.tp.partition, None, None, None, None, callback))
            told.set_result(gate.answer.result())
            await maybe_async(callback(told))
        return gate.answer

    def _finished(self, message: DirectMessage) -> None:
        """All readers have finished it: its cause may be done now."""
        hop, cause = self._hop, message.cause
        if message.era == hop.era:
            hop.finished += 1
            self.unfinished -= 1
            message.gate.finish(message.key, hop.finished)
        elif hop.is_over(cause):
            never_done(cause)  # it has been read again since
        hop.release(cause)

    # ---- waiting

    async def _wait_until_open(self, gate: Gate) -> bool:
        """Wait for the gate if it is about to open; returns whether it is open."""
        hop, settings = self._hop, self._settings
        if gate.try_open(hop.given(gate.tp)):
            return True
        now = time.monotonic()
        if now < gate.retry_at:
            return False
        deadline = now + settings.open_wait_s
        while gate.state is State.CLOSED:
            if (gate.lag(hop.given(gate.tp)) or 0) > settings.open_lag or time.monotonic() > deadline:
                gate.retry_at = time.monotonic() + settings.retry_s
                return False
            await asyncio.sleep(POLL_S)
            gate.try_open(hop.given(gate.tp))
        return gate.state is State.OPEN

    async def _wait_for_room(self, gate: Gate) -> bool:
        """Wait until the readers' queues have room; returns False after the limit, and then closes the gate."""
        deadline = time.monotonic() + self._settings.room_wait_s
        while gate.state is State.OPEN and (self.unfinished >= self._settings.depth or _full(gate)):
            if time.monotonic() > deadline:
                gate.state = State.CLOSED
                gate.retry_at = time.monotonic() + self._settings.retry_s
                return False
            await asyncio.sleep(POLL_S)
        return True

    async def _settle(self, gate: Gate, key: bytes | None) -> None:
        """Wait until direct events with this key are finished and what they wrote is in the log."""
        hop, era = self._hop, self._hop.era
        deadline = time.monotonic() + self._settings.settle_wait_s
        while key in gate.keys:
            if era != hop.era:
                return
            if time.monotonic() > deadline:
                hop.overtaking += 1
                return
            await asyncio.sleep(POLL_S)
        try:
            async with asyncio.timeout(max(POLL_S, deadline - time.monotonic())):
                await hop.flush_since(gate.finished_at)
        except TimeoutError:
            hop.overtaking += 1

    def _not_sent(self, cause: Message) -> Sent:
        """The cause is read again after the rebalance, and sends it then."""
        never_done(cause)
        return self._hop.nothing()


def _full(gate: Gate) -> bool:
    return any(queue.full() for readers in gate.readers for queue in readers.queues)


def note_batched(event: Event) -> None:
    """Events of this stream are acknowledged in batches or by the app: what they cause has no single cause."""
    event.__dict__[BATCHED] = True
