"""The local hop of one worker: where the events of local topics go, straight to their readers or by the broker."""

import asyncio
import functools
import logging
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import faust
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.errors import KafkaError
from faust.events import Event
from faust.streams import current_event
from faust.types import TP, FutureMessage, Message, PendingMessage
from faust.types.tuples import RecordMetadata, ack_lock

from trimtab_agent.engines.faust.local.gate import GateState, LocalGate
from trimtab_agent.engines.faust.local.message import DirectMessage, never_done
from trimtab_agent.engines.faust.local.values import codecs, is_plain, readers_of, traffic_bytes
from trimtab_agent.engines.faust.measure.sensor import MessageCount
from trimtab_agent.engines.faust.waiting import until

log = logging.getLogger(__name__)

HOP = "_trimtab_local_hop"
"""Attribute of an app that has a local hop."""
KEPT = "_trimtab_partitions"
"""Attribute of a topic object with its `Partitions`."""
BATCHED = "trimtab_batched"
"""Attribute of an event whose stream does not acknowledge events one by one."""
MAX_KEPT = 10_000
"""Keys kept per topic object; then all are forgotten."""
POLL_S = 0.002
RETRY_S = 1.0
ASK_LIMIT_S = 10.0
"""How long one attempt to learn the barriers may take."""
READERS_LIMIT_S = 10.0
"""How long the broker may take to name the groups and their offsets."""

Place = tuple[bytes | None, int]
"""Serialised key and partition."""
Send = Callable[..., Awaitable[Any]]
Sent = Awaitable[RecordMetadata]


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalSettings:
    """How much may be under way, and how long an event waits before it goes by the broker."""

    depth: int = 256
    """Unfinished direct events per topic.  A hand-over or rebalance has to finish them first."""
    room_wait_s: float = 1.0
    """How long an event waits for room in its readers' queues."""
    open_wait_s: float = 0.25
    """How long an event waits for its gate to open."""
    open_lag: int = 500
    """An event waits only if at most so many records must reach the queues before the gate opens."""
    retry_s: float = 5.0
    """After a wait in vain, events go by the broker for so long without waiting."""
    settle_wait_s: float = 30.0
    """How long an event for the broker waits for direct events with its key.  It then goes, and is counted."""
    readers_check_s: float = 60.0
    """How often the broker is asked whether another group reads a local topic."""

    def __post_init__(self) -> None:
        for name in self.__slots__:
            if not getattr(self, name) > 0:
                raise ValueError(f"{name}: found {getattr(self, name)!r}, expected a number above 0")


class Circles:
    """Which agents feed which through local topics, and which link closes a circle.

    This cannot be told when the app is installed or starts.  What an agent reads is declared then, but not what it
    sends: that is any `send()` in its code and in what it calls.  So a link is learned at its first send, before
    anything has waited on it.  Which link of a circle closes it may differ between workers.  Each worker keeps to its
    choice as long as it runs, so all events of a source topic take the same way there.
    """

    def __init__(self) -> None:
        self._targets: defaultdict[str, set[str]] = defaultdict(set)

    def add(self, read_together: Iterable[str], target: str) -> bool:
        """Learn that an agent which reads these topics sends to `target`; False if that closes a circle.

        A link that closes a circle is not learned, because nothing ever waits on it.
        """
        sources = set(read_together)
        if self._reaches(target, sources):
            return False
        for source in sources:
            self._targets[source].add(target)
        return True

    def _reaches(self, begin: str, ends: set[str]) -> bool:
        seen, left = set(), [begin]
        while left:
            topic = left.pop()
            if topic in ends:
                return True
            if topic not in seen:
                seen.add(topic)
                left.extend(self._targets.get(topic, ()))
        return False


class Partitions:
    """Key -> serialised key and partition, for one topic object.  Keys are serialised as it does.

    The producer computes the partition.  Its hash is pure Python, so the answers for text keys are kept, up to a limit.
    """

    __slots__ = ("_count", "_kept", "_topic", "codecs", "plain")

    def __init__(self, topic: Any) -> None:
        self._topic = topic
        self._count = 0
        self._kept: dict[str, Place] = {}
        self.plain = is_plain(topic)
        self.codecs = codecs(topic) if self.plain else None

    def place(self, producer: Any, name: str, key: str) -> Place | None:
        """The place of a text key; None if it cannot be kept, or the partitions are not known yet."""
        if producer is None or not self.plain:
            return None
        known = producer._metadata._partitions.get(name)
        if not known:
            return None
        if len(known) != self._count:
            self._count = len(known)
            self._kept.clear()
        found = self._kept.get(key)
        if found is None:
            if len(self._kept) >= MAX_KEPT:
                self._kept.clear()
            raw, _ = self._topic.prepare_key(key, None, None, {})
            found = self._kept[key] = raw, producer._partition(name, None, None, None, raw, None)
        return found


def place_of(producer: Any, name: str, raw: bytes | None, partition: int | None) -> Place | None:
    """The place of a serialised key, or the partition that the sender chose; None if partitions are not known yet."""
    if producer is None or not producer._metadata._partitions.get(name):
        return None
    return raw, producer._partition(name, partition, None, None, raw, None)


class OutsideReaders:
    """Asks the broker which other groups have committed offsets of the local topics: they would miss direct events.

    A consumer without a group, or one that has never committed, cannot be seen.
    """

    def __init__(self, connection: Mapping[str, Any], group: str, *, interval_s: float) -> None:
        self._connection = connection
        self._group = group
        self._interval_s = interval_s
        self._asked_at: float | None = None
        self._groups: dict[str, str] = {}
        self._turn = asyncio.Lock()

    async def refusal(self, topic: str) -> str | None:
        """Why a topic may not be local; None if nobody else reads it.  Raises KafkaError, TimeoutError."""
        async with self._turn:
            if self._asked_at is None or time.monotonic() - self._asked_at > self._interval_s:
                async with asyncio.timeout(READERS_LIMIT_S):
                    await self._ask()
                self._asked_at = time.monotonic()
        group = self._groups.get(topic)
        return None if group is None else f"consumer group {group!r} reads it too, and would miss events"

    async def _ask(self) -> None:
        admin = AIOKafkaAdminClient(**self._connection)
        await admin.start()
        try:
            found: dict[str, str] = {}
            for group, *_ in await admin.list_consumer_groups():
                if group != self._group:
                    for tp in await admin.list_consumer_group_offsets(group):
                        found.setdefault(tp.topic, group)
            self._groups = found
        finally:
            await admin.close()


class Route:
    """The sends to one local topic."""

    def __init__(self, hop: "LocalHop", name: str, by_broker: Callable[..., Awaitable[Sent]]) -> None:
        self.name = name
        self.gates: dict[int, LocalGate] = {}
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
        self._turn = 0
        """Number of events that had no place of their own."""

    async def send(self, topic: Any, fields: Mapping[str, Any]) -> Sent:
        """Implements `faust.Topic.send()` for this topic; `fields` = its keyword arguments."""
        event, key, partition = current_event(), fields.get("key"), fields.get("partition")
        if event is None or not self.gates:
            return await self._by_broker(topic, **fields)
        cause, hop = event.message, self._hop
        if cause.acked or BATCHED in event.__dict__ or not self._may_link(cause.tp.topic):
            return await self._by_broker(topic, **fields)
        anywhere = key is None and partition is None
        if anywhere:
            if (partition := self._next_own_partition()) is None:
                return await self._by_broker(topic, **fields)
            fields = {**fields, "partition": partition}
        known: Partitions | None = topic.__dict__.get(KEPT)
        if known is None:
            known = topic.__dict__[KEPT] = Partitions(topic)
        get = fields.get
        plain = not (get("schema") or get("key_serializer") or get("value_serializer"))
        place = known.place(hop.producer, self.name, key) if plain and partition is None and type(key) is str else None
        if place is None:
            place = await self._place(topic, key, partition, fields)
        gate = self.gates.get(place[1])
        if gate is None:
            return self._not_sent(cause) if hop.cut_off(cause) else await self._send_by_broker(topic, place[1], fields)
        era = hop.era
        while gate.state is GateState.OPEN or await self._wait_until_open(gate):
            if self.unfinished < self._settings.depth and not _full(gate):
                sent = self._deliver(topic, gate, cause, place[0], known.codecs if plain else None, fields)
                if sent is None:
                    break
                if (callback := fields.get("callback")) is not None:
                    self._call_back(topic, sent, callback)
                return gate.answer
            if not await self._wait_for_room(gate):
                break
        if not anywhere and (place[0] in gate.keys or not hop.is_flushed(gate.finished_at)):
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

    def _next_own_partition(self) -> int | None:
        """Where an event with neither key nor partition goes; None if all of this worker's partitions leave.

        They take turns, those first that are open: local stream partitioning (L/F, section 2.1).
        """
        for state in (GateState.OPEN, GateState.CLOSED):
            if own := [partition for partition, gate in self.gates.items() if gate.state is state]:
                self._turn += 1
                return own[self._turn % len(own)]
        return None

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
        self, topic: Any, gate: LocalGate, cause: Message, key: bytes | None, written_by: Any, fields: Mapping[str, Any]
    ) -> DirectMessage | None:
        """Put the event into its readers' queues; None if it must go by the broker, which reports what is wrong."""
        hop, value = self._hop, fields.get("value")
        headers = topic.prepare_headers(fields.get("headers"))

        def encode() -> bytes | None:
            codec, schema = fields.get("value_serializer"), fields.get("schema")
            raw: bytes | None = topic.prepare_value(value, codec, schema, dict(headers))[0]
            return raw

        message = DirectMessage(
            gate,
            key=key,
            headers=list(headers.items()) if isinstance(headers, dict) else headers,
            timestamp=fields.get("timestamp") or time.time(),
            generation_id=hop.generation,
            encode=encode,
            cause=cause,
            era=hop.era,
            finished=self._finished,
        )
        try:
            hop.tell_app(message, fields.get("timestamp"))
            events = [
                (readers.queues, readers.event(message, fields.get("key"), value, plain=written_by == readers.codecs))
                for readers in gate.readers
            ]
        except Exception:
            return None
        with ack_lock:
            if cause.acked:  # by another thread
                return None
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
        return message

    def _call_back(self, topic: Any, sent: DirectMessage, callback: Callable[[Any], Any]) -> None:
        """Tell the app, as Faust does when the broker has a record: if that fails, the event does not."""
        about = sent.key, sent.value, sent.partition, sent.timestamp, sent.headers
        told = FutureMessage(PendingMessage(topic, *about, None, None, callback))
        told.set_result(sent.gate.answer.result())
        asyncio.get_running_loop().call_soon(callback, told)

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

    async def _wait_until_open(self, gate: LocalGate) -> bool:
        """Wait for the gate if it is about to open; returns whether it is open."""
        hop, settings = self._hop, self._settings
        if gate.try_open(hop.given(gate.tp)):
            return True
        now = time.monotonic()
        if now < gate.retry_at or self.refused is not None:
            return False
        deadline = now + settings.open_wait_s
        while gate.state is GateState.CLOSED:
            lag = gate.lag(hop.given(gate.tp))
            if lag is None:  # nothing to wait for yet
                return False
            if lag > settings.open_lag or time.monotonic() > deadline:
                gate.retry_at = time.monotonic() + settings.retry_s
                return False
            await asyncio.sleep(POLL_S)
            gate.try_open(hop.given(gate.tp))
        return gate.state is GateState.OPEN

    async def _wait_for_room(self, gate: LocalGate) -> bool:
        """Wait until the readers' queues have room; returns False after the limit, and then closes the gate."""
        deadline = time.monotonic() + self._settings.room_wait_s

        def has_room() -> bool:
            return gate.state is not GateState.OPEN or (self.unfinished < self._settings.depth and not _full(gate))

        if await until(has_room, deadline, poll_s=POLL_S):
            return True
        gate.state = GateState.CLOSED
        gate.retry_at = time.monotonic() + self._settings.retry_s
        return False

    async def _settle(self, gate: LocalGate, key: bytes | None) -> None:
        """Wait until direct events with this key are finished and what they wrote is in the log."""
        hop, era = self._hop, self._hop.era
        deadline = time.monotonic() + self._settings.settle_wait_s

        def is_over() -> bool:
            return era != hop.era or hop.is_fenced

        if not await until(lambda: key not in gate.keys, deadline, is_over, poll_s=POLL_S):
            hop.overtaking += not is_over()
            return
        try:
            async with asyncio.timeout(max(POLL_S, deadline - time.monotonic())):
                await hop.flush_since(gate.finished_at)
        except TimeoutError:
            hop.overtaking += 1

    def _not_sent(self, cause: Message) -> Sent:
        """The cause is read again after the rebalance, and sends it then."""
        never_done(cause)
        return self._hop.nothing()


def _full(gate: LocalGate) -> bool:
    return any(queue.full() for queue in gate.queues)


def note_batched(event: Event) -> None:
    """Events of this stream are acknowledged in batches or by the app: what they cause has no single cause."""
    event.__dict__[BATCHED] = True


class LocalHop:
    """Sends events of local topics straight to their readers where it can.  Lives on the app's event loop."""

    def __init__(
        self,
        app: Any,
        topics: Iterable[str],
        *,
        by_broker: Callable[..., Awaitable[Any]],
        outside: OutsideReaders,
        refused: Callable[[], bool],
        tell: Callable[[str], None],
        settings: LocalSettings,
    ) -> None:
        self.settings = settings
        self.routes = {name: Route(self, name, by_broker) for name in topics}
        self.era = 0
        """Changes with each generation, and when unfinished direct events are given up."""
        self.generation = 0
        self.finished = 0
        """Number of direct events finished since the start."""
        self.overtaking = 0
        """Number of events that went by the broker before direct events with their key were known to be written."""
        self.given_up = 0
        """Number of direct events given up because they were not finished in time; their causes are read again."""
        self._app = app
        self._outside = outside
        self._is_refused = refused
        self._tell = tell
        self._circles = Circles()
        self._cut_off: int | None = None
        self._flushed = 0
        self._round = 0
        self._direct: defaultdict[TP, dict[TP, list[int]]] = defaultdict(dict)
        self._asking: set[asyncio.Task[None]] = set()

    # ---- what the consumer tells

    def restart(self) -> None:
        """A generation begins: tables are restored, sources are about to flow."""
        self.era += 1
        self.generation = self._app.consumer_generation_id
        for route in self.routes.values():
            route.gates.clear()
            route.unfinished = 0
        if not self._is_refused():
            self.open(list(self._app.topics._tp_index))

    def open(self, tps: Collection[TP]) -> None:
        """Key groups have arrived: make gates for their partitions, and let all gates wait for what came before."""
        for tp in tps:
            route, channels = self.routes.get(tp.topic), self._app.topics._tp_index.get(tp)
            if route is not None and channels and tp.partition not in route.gates:
                route.gates[tp.partition] = LocalGate(tp, readers_of(self._app, channels), self._direct[tp])
        self._round += 1
        gates = [gate for route in self.routes.values() if route.refused is None for gate in route.gates.values()]
        arrived = frozenset(tps)
        for gate in gates:
            if gate.state is not GateState.OFF or gate.tp in arrived:  # another one may be leaving
                gate.close()
        if gates:
            task = asyncio.ensure_future(self._find_barriers(gates, self._round))
            self._asking.add(task)
            task.add_done_callback(self._asking.discard)

    def close(self, tps: Iterable[TP]) -> None:
        """Key groups are about to leave: from now on their events go by the broker."""
        for gate in self._gates(tps):
            gate.turn_off()

    def forget(self, tps: Iterable[TP]) -> None:
        """Key groups have left."""
        for tp in tps:
            if (route := self.routes.get(tp.topic)) is not None:
                route.gates.pop(tp.partition, None)

    def has(self, gate: LocalGate) -> bool:
        """Whether this gate is still that of its partition: each arrival and each generation has its own."""
        return gate in self._gates([gate.tp])

    def unfinished(self, tps: Iterable[TP]) -> bool:
        """Whether direct events of these partitions are not finished."""
        return any(gate.unfinished for gate in self._gates(tps))

    def give_up(self) -> None:
        """Drop the direct events that no agent has begun; their causes are read again in the next generation.

        What agents have begun is still waited for.  What they send to local topics from now on is not sent: it would
        overtake what was dropped.
        """
        self._cut_off = self.generation
        queues = {id(q): q for route in self.routes.values() for gate in route.gates.values() for q in gate.queues}
        self.era += 1
        for route in self.routes.values():
            route.unfinished = 0
            for gate in route.gates.values():
                if gate.unfinished:
                    self.given_up += gate.unfinished
                    gate.forget_unfinished()
        for queue in queues.values():
            dropped = [event for event in queue._queue if isinstance(event.message, DirectMessage)]
            kept = [event for event in queue._queue if not isinstance(event.message, DirectMessage)]
            queue._queue.clear()
            queue._queue.extend(kept)
            for event in dropped:
                never_done(event.message)
                event.message.ack(self._app.consumer)
        if self.given_up:
            log.warning("direct events were not finished in time and will be processed again: %d", self.given_up)

    def _gates(self, tps: Iterable[TP]) -> Iterable[LocalGate]:
        for tp in tps:
            route = self.routes.get(tp.topic)
            gate = route.gates.get(tp.partition) if route is not None else None
            if gate is not None:
                yield gate

    async def _find_barriers(self, gates: list[LocalGate], number: int) -> None:
        """Learn up to where each log must reach the queues: its end after everything sent before has arrived in it."""
        tps = [gate.tp for gate in gates]
        while number == self._round and not self._app.should_stop:
            try:
                async with asyncio.timeout(ASK_LIMIT_S):
                    for name in {tp.topic for tp in tps}:
                        await self.learn_partitions(name)
                    await self.check_readers()
                    await self._app.producer.flush()
                    ends = await self._app.consumer.thread.ends(tps)
            except (KafkaError, TimeoutError, RuntimeError) as error:
                log.info("the ends of local topics are not known yet: %r", error)
                await asyncio.sleep(RETRY_S)
                continue
            if number == self._round:
                for gate in gates:
                    if self.routes[gate.tp.topic].refused is None:
                        gate.need = ends[gate.tp]
            return

    def take_direct(self) -> dict[tuple[TP, TP], MessageCount]:
        """Direct events since the last call, by partition of their cause and their own partition."""
        taken = {
            (cause, tp): MessageCount(*count) for tp, counts in self._direct.items() for cause, count in counts.items()
        }
        for counts in self._direct.values():
            counts.clear()
        return taken

    async def check_readers(self) -> None:
        """Close the gates of topics that another group reads by now.  Raises KafkaError, TimeoutError."""
        for name, route in self.routes.items():
            if route.gates and (reason := await self._outside.refusal(name)) is not None and route.refused is None:
                log.warning("%s is not local: %s", name, reason)
                route.refused = reason
                self._tell(f"{name} is not local: {reason}")
                for gate in route.gates.values():
                    if gate.state is not GateState.OFF:
                        gate.close()

    # ---- what the routes ask

    @property
    def producer(self) -> Any:
        """aiokafka's producer."""
        return self._app.producer._producer

    async def learn_partitions(self, topic: str) -> None:
        """Wait until the producer knows a topic's partitions."""
        await self._app.maybe_start_producer()
        await self.producer.partitions_for(topic)

    def tell_app(self, message: DirectMessage, timestamp: float | None) -> None:
        """Call what the app has connected to `on_produce_message`, as the producer does: it may add headers."""
        produced = self._app.on_produce_message
        if next(iter(produced.iter_receivers(self._app)), None) is not None:  # else nothing need be encoded
            produced.send(
                key=message.key,
                value=message.value,
                partition=message.partition,
                timestamp=timestamp,
                headers=message.headers,
            )

    def links(self, source: str, target: str) -> bool:
        """Whether events of `source` may cause direct events of `target`; False if that closes a circle of agents."""
        together = {name for channel in self._app.topics if source in channel.topics for name in channel.topics}
        if self._circles.add(together | {source}, target):
            return True
        log.warning("%s -> %s closes a circle of local topics: this link goes by the broker", source, target)
        return False

    def given(self, tp: TP) -> int:
        """The offset up to which the readers' queues were given the partition's log."""
        given: int = self._app.consumer.given(tp)
        return given

    @property
    def is_fenced(self) -> bool:
        """Whether this worker may have lost its membership: events are skipped, and come back after a rejoin."""
        fenced: bool = self._app.consumer.fence.tripped
        return fenced

    def cut_off(self, cause: Message) -> bool:
        """Whether direct events of the cause's generation were given up."""
        return self._cut_off is not None and cause.generation_id == self._cut_off

    def is_over(self, cause: Message) -> bool:
        """Whether the cause's generation is over, so that it has been read again."""
        over: bool = cause.generation_id != self._app.consumer_generation_id
        return over

    def is_flushed(self, finished: int) -> bool:
        """Whether what the first `finished` direct events wrote is in the log."""
        return self._flushed >= finished

    async def flush_since(self, finished: int) -> None:
        """Wait until what the first `finished` direct events wrote is in the log."""
        if not self.is_flushed(finished):
            count = self.finished
            await self._app.producer.flush()
            self._flushed = max(self._flushed, count)

    def release(self, cause: Message) -> None:
        """A direct event is finished; its cause has one reference less."""
        if cause.ack(self._app.consumer):
            self._app.sensors.on_message_out(cause.tp, cause.offset, cause)

    def nothing(self) -> asyncio.Future[RecordMetadata]:
        """The answer of a send that was not done."""
        answer: asyncio.Future[RecordMetadata] = asyncio.get_running_loop().create_future()
        tp = TP("", -1)
        answer.set_result(
            RecordMetadata(topic="", partition=-1, topic_partition=tp, offset=-1, timestamp=None, timestamp_type=0)
        )
        return answer


def stock_send() -> Send:
    """`Topic.send()` as Faust defines it.  From now on topics of an app with a local hop ask that first."""
    found: Any = faust.Topic.send
    stock: Any = getattr(found, "stock", found)
    if stock is found:

        @functools.wraps(stock)
        def send(self: Any, **fields: Any) -> Any:
            hop = getattr(self.app, HOP, None)
            if hop is not None and len(self.topics) == 1 and (route := hop.routes.get(self.topics[0])) is not None:
                return route.send(self, fields)
            return stock(self, **fields)

        send.stock = stock  # type: ignore[attr-defined]
        faust.Topic.send = send
    send_by_broker: Send = stock
    return send_by_broker


def local_hop(
    app: Any,
    topics: Iterable[str],
    *,
    connection: Mapping[str, Any],
    refused: Callable[[], bool],
    tell: Callable[[str], None],
    settings: LocalSettings,
) -> LocalHop:
    """Give the app a local hop for these topics.  `refused` = whether the worker is not steered.

    `tell` is called with the reason when a topic turns out not to be local.
    """
    outside = OutsideReaders(connection, app.conf.id, interval_s=settings.readers_check_s)
    hop = LocalHop(app, topics, by_broker=stock_send(), outside=outside, refused=refused, tell=tell, settings=settings)
    setattr(app, HOP, hop)
    return hop
