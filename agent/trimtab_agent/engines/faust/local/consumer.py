"""Faust's consumer, transport and sensor for an app with local topics."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from typing import Any

from aiokafka.errors import KafkaError
from faust.types import TP, AppT, EventT, StreamT
from mode import Service

from trimtab_agent.engines.faust.local.hop import LocalHop, note_batched
from trimtab_agent.engines.faust.local.message import DirectMessage, root
from trimtab_agent.engines.faust.measure import KeyGroupSensor
from trimtab_agent.engines.faust.measure.sensor import IntervalCounts, MessageCount
from trimtab_agent.engines.faust.transport.chained import in_batch
from trimtab_agent.engines.faust.transport.consumer import SteeredConsumer, SteeredTransport


class LocalConsumer(SteeredConsumer):
    """A consumer that tells the local hop which partitions come and go.

    Direct events are finished before their key groups leave.
    """

    def __init__(self, transport: Any, *args: Any, **options: Any) -> None:
        self.hop: LocalHop = transport.hop
        super().__init__(transport, *args, **options)

    def resume_flow(self) -> None:
        """Let messages flow; when sources open, direct events may flow as well."""
        was_open = self.is_open
        super().resume_flow()
        if self.is_open and not was_open:
            self.hop.restart()

    def block(self, tps: Collection[TP]) -> None:
        """Stop delivering records of these partitions, and direct events to them."""
        self.hop.close(tps)
        super().block(tps)

    def unblock(self, tps: Collection[TP]) -> None:
        """Deliver records of these partitions again."""
        super().unblock(tps)
        self.hop.open(tps)

    def forget(self, tps: Collection[TP]) -> None:
        """Drop the bookkeeping of partitions that this worker no longer owns."""
        super().forget(tps)
        self.hop.forget(tps)

    def given(self, tp: TP) -> int:
        """The offset up to which the streams' queues were given the partition's log."""
        delivered = self._delivered.get(tp)
        if not delivered:
            return self._position.get(tp, 0)
        return delivered[-1] if self._delivering == tp else delivered[-1] + 1

    @Service.task  # type: ignore[untyped-decorator]
    async def _watch_readers(self) -> None:
        while not self.should_stop:
            await self.sleep(self.hop.settings.readers_check_s)
            try:
                await self.hop.check_readers()
            except (KafkaError, TimeoutError) as error:
                self.log.info("the readers of local topics are not known: %r", error)

    def not_finished(self, complaint: str) -> None:
        """Begun events were not finished in time: those that were only queued are read again."""
        super().not_finished(complaint)
        self.hop.give_up()

    def _begun(self, tps: Collection[TP]) -> bool:
        """Also direct events, unless the fence lets streams skip them: then their causes tell what is in work."""
        return super()._begun(tps) or (self.hop.unfinished(tps) and not self.fence.tripped)

    def _clean_unacked_messages(self) -> None:
        """Wait also for the causes of direct messages that agents work on (patch fence-after-session)."""
        if not self.fence.tripped:
            super()._clean_unacked_messages()
            return
        causes = [root(message) for message in self._in_hands() if isinstance(message, DirectMessage)]
        kept = [message for message in causes if message in self._unacked_messages and not message.acked]
        super()._clean_unacked_messages()
        self._unacked_messages.update(kept)

    def is_late(self, message: Any) -> bool:
        """Also a finished direct event whose key group has been away since: no offset tells that."""
        finished = isinstance(message, DirectMessage) and message.acked
        return (finished and not self.hop.has(message.gate)) or super().is_late(message)

    def _cause(self, message: Any) -> Any:
        return root(message)

    def _note_failed(self, agent: Any, stream: Any, stay: Collection[int], *, all_of_topics: bool) -> None:
        """Also direct messages, which are never among the unfinished ones."""
        super()._note_failed(agent, stream, stay, all_of_topics=all_of_topics)
        for event in (stream.current_event, *((in_batch(stream) or ()) if all_of_topics else ())):
            if event is not None and isinstance(event.message, DirectMessage) and id(event.message) not in stay:
                self._count_as_failed(agent, event.message)

    def _is_over(self, message: Any) -> bool:
        return message.acked if isinstance(message, DirectMessage) else super()._is_over(message)

    def _untouched(self, tps: Collection[TP]) -> set[Any]:
        """None of local topics: direct events may be behind them."""
        return super()._untouched([tp for tp in tps if tp.topic not in self.hop.routes])

    def _purge(self, tps: Collection[TP]) -> None:
        """Take back records that no agent has begun.

        A record before a direct event with its key stays, with all before it: the direct event must not overtake it.
        """
        wanted = set(tps)
        for queue in self._queues(tps):
            stay: dict[TP, int] = {}
            behind: set[tuple[TP, Any]] = set()
            for event in reversed(queue._queue):
                message = event.message
                if isinstance(message, DirectMessage):
                    behind.add((message.tp, message.key))
                elif message.tp not in stay and (message.tp, message.key) in behind:
                    stay[message.tp] = message.offset
            self._take_out(queue, wanted, stay)


class LocalTransport(SteeredTransport):
    """The patched driver with the local hop."""

    Consumer = LocalConsumer

    def __init__(self, app: Any, *, hop: LocalHop, **options: Any) -> None:
        super().__init__(app, **options)
        self.hop = hop


class LocalSensor(KeyGroupSensor):
    """Counts what goes straight to its readers, beside what the broker carries.

    It also marks the events of `take()` and the like.
    """

    def __init__(
        self, app: AppT, take_direct: Callable[[], Mapping[tuple[TP, TP], MessageCount]], **options: Any
    ) -> None:
        super().__init__(app, **options)
        self._take_direct = take_direct

    def on_stream_event_in(self, tp: TP, offset: int, stream: StreamT, event: EventT) -> None:
        """A stream begins an event."""
        self.cpu.current = tp
        if not stream.enable_acks:
            note_batched(event)

    def take(self) -> IntervalCounts:
        """Return the counts since the last call, and begin the next interval."""
        return replace(super().take(), direct=self._take_direct())
