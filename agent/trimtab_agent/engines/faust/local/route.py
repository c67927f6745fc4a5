"""Where the events of one local topic go: straight to their readers on this worker, or by the broker."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
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

    async def send(self, topic: Any, fields: Mapping[str, Any]) -> Sent:
        """Implements `faust.Topic.send()` for this topic; `fields` = its keyword arguments."""
        event, key, partition = current_event(), fields.get("key"), fields.get("partition")
        if event is None or not self.gates or (key is None and partition is None):
            return await self._by_broker(topic, **fields)
        cause, hop = event.message, self._hop
        if cause.acked or BATCHED in event.__dict__ or not self._may_link(cause.tp.topic):
            return await self._by_broker(topic, **fields)
        known: Partitions | None = topic.__dict__.get(KEPT)
        if known is None:
            known = topic.__dict__[KEPT] = Partitions(topic)
        get = fields.get
        plain = partition is None and not (get("schema") or get("key_serializer") or get("value_serializer"))
        place = known.place(hop.producer, self.name, key) if plain and type(key) is str else None
        if place is None:
            place = await self._place(topic, key, partition, fields)
        gate = self.gates.get(place[1])
        if gate is None:
            return self._not_sent(cause) if hop.cut_off(cause) else await self._send_by_broker(topic, place[1], fields)
        era = hop.era
        while gate.state is State.OPEN or await self._wait_until_open(gate):
            if self.unfinished < self._settings.depth and not _full(gate):
                if not self._deliver(topic, gate, cause, place[0], known.codecs if plain else None, fields):
                    break
                callback = fields.get("callback")
                return gate.answer if callback is None else await self._answered(topic, gate, callback)
            if not await self._wait_for_room(gate):
                break
        if place[0] in gate.keys or not hop.is_flushed(gate.finished_at):
            await self._settle(gate, place[0])
        if era != hop.era or hop.cut_off(cause) or hop.is_fenced:
            return self._not_sent(cause)
        return await self._send_by_broker(topic, place[1], fields)

    async def _send_by_broker(self, topic: Any, partition: int, fields: Mapping[str, Any]) -> Sent:
        """Send, and keep the partition's gate closed until the record has reached the queues."""
        gate = self.gates.get(partition)
        if gate is not None:
            gate.begin_send()
        try:
            sent: Any = await self._by_broker(topic, **fields)
        except BaseException:
            if gate is not None:
                gate.sending -= 1
            raise
        if gate is not None:
            sent.add_done_callback(gate.end_send)
        if (now := self.gates.get(partition)) is not None and now is not gate:  # the key group arrived meanwhile
            now.begin_send()
            sent.add_done_callback(now.end_send)
        return sent  # type: ignore[no-any-return]

    # ---- where to

    def _may_link(self, source: str) -> bool:
        known = self._open_from.get(source)
        if known is None:
            known = self._open_from[source] = self._hop.links(source, self.name)
        return known

    async def _place(self, topic: Any, key: Any, partition: int | None, fields: Mapping[str, Any]) -> Place:
        hop, headers = self._hop, topic.prepare_headers(fields.get("headers"))
        raw, _ = topic.prepare_key(key, fields.get("key_serializer"), fields.get("schema"), dict(headers))
        while (place := place_of(hop.producer, self.name, raw, partition)) is None:
            await hop.learn_partitions(self.name)
        return place

    # ---- straight to the readers

    def _deliver(
        self, topic: Any, gate: Gate, cause: Message, key: bytes | None, written_by: Any, fields: Mapping[str, Any]
    ) -> bool:
        """Put the event into its readers' queues; False if it must go by the broker, which reports what is wrong."""
        hop, value = self._hop, fields.get("value")
        headers = topic.prepare_headers(fields["headers"]) if fields.get("headers") is not None else None

        def encode() -> bytes | None:
            codec, schema = fields.get("value_serializer"), fields.get("schema")
            raw: bytes | None = topic.prepare_value(value, codec, schema, dict(headers or {}))[0]
            return raw

        message = DirectMessage(
            gate,
            key=key,
            headers=list(headers.items()) if isinstance(headers, dict) else (headers or ()),
            timestamp=fields.get("timestamp") or time.time(),
            generation_id=hop.generation,
            encode=encode,
            cause=cause,
            era=hop.era,
            finished=self._finished,
        )
        try:
            events = [
                (readers.queues, readers.event(message, fields.get("key"), value, plain=written_by == readers.codecs))
                for readers in gate.readers
            ]
        except Exception:
            return False
        with ack_lock:
            if cause.acked:  # by another thread
                return False
            cause.refcount += 1
            message.refcount = len(gate.queues)
            gate.begin(key)
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
        if now < gate.retry_at or self.refused is not None:
            return False
        deadline = now + settings.open_wait_s
        while gate.state is State.CLOSED:
            lag = gate.lag(hop.given(gate.tp))
            if lag is None:  # nothing to wait for yet
                return False
            if lag > settings.open_lag or time.monotonic() > deadline:
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
            if era != hop.era or hop.is_fenced:
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
    return any(queue.full() for queue in gate.queues)


def note_batched(event: Event) -> None:
    """Events of this stream are acknowledged in batches or by the app: what they cause has no single cause."""
    event.__dict__[BATCHED] = True
