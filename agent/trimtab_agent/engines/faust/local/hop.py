"""The local hop of one worker: its gates, and what the consumer tells it."""

import asyncio
import logging
from collections import defaultdict
from collections.abc import Awaitable, Callable, Collection, Iterable
from typing import Any

from aiokafka.errors import KafkaError
from faust.types import TP, Message
from faust.types.tuples import RecordMetadata

from trimtab_agent.engines.faust.local.circles import Circles
from trimtab_agent.engines.faust.local.gate import Gate, State
from trimtab_agent.engines.faust.local.message import DirectMessage, never_done
from trimtab_agent.engines.faust.local.readers import OutsideReaders
from trimtab_agent.engines.faust.local.route import Route
from trimtab_agent.engines.faust.local.settings import LocalSettings
from trimtab_agent.engines.faust.local.values import readers_of
from trimtab_agent.engines.faust.measure.sensor import Flow

log = logging.getLogger(__name__)

RETRY_S = 1.0
ASK_LIMIT_S = 10.0
"""How long one attempt to learn the barriers may take."""


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
                route.gates[tp.partition] = Gate(tp, readers_of(self._app, channels), self._direct[tp])
        self._round += 1
        gates = [gate for route in self.routes.values() if route.refused is None for gate in route.gates.values()]
        arrived = frozenset(tps)
        for gate in gates:
            if gate.state is not State.OFF or gate.tp in arrived:  # another one may be leaving
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

    def _gates(self, tps: Iterable[TP]) -> Iterable[Gate]:
        for tp in tps:
            route = self.routes.get(tp.topic)
            gate = route.gates.get(tp.partition) if route is not None else None
            if gate is not None:
                yield gate

    async def _find_barriers(self, gates: list[Gate], number: int) -> None:
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

    def take_direct(self) -> dict[tuple[TP, TP], Flow]:
        """Direct events since the last call, by partition of their cause and their own partition."""
        taken = {(cause, tp): Flow(*count) for tp, counts in self._direct.items() for cause, count in counts.items()}
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
                    if gate.state is not State.OFF:
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
