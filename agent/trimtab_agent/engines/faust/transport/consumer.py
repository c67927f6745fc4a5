"""Faust's consumer with the patches of `patches.py`, which can stop and start single partitions in a generation."""

import asyncio
import time
from collections import deque
from collections.abc import Callable, Collection, Coroutine, Mapping, MutableMapping
from typing import Any

from faust.transport.consumer import CONSUMER_PARTITIONS_REVOKED
from faust.transport.drivers.aiokafka import Consumer
from faust.types import TP
from mode import Service

from trimtab_agent.engines.faust.safety.fence import Fence
from trimtab_agent.engines.faust.settings import SteeringSettings
from trimtab_agent.engines.faust.transport.thread import SteeredThread
from trimtab_agent.engines.faust.transport.watcher import Watcher

POLL_S = 0.001
IDLE_S = 0.1
FETCH_LIMIT_S = 5.0
"""How long one fetch from the broker may take."""


Check = Callable[[], None]
"""Raises when what is waited for has become pointless."""


class SteeredConsumer(Consumer):  # type: ignore[misc]
    """Faust's consumer; `blocked` partitions are owned, but nothing of them reaches a stream."""

    _thread: SteeredThread
    _n_acked: int

    def __init__(self, transport: Any, *args: Any, **options: Any) -> None:
        self.fence: Fence = transport.fence
        self.settings: SteeringSettings = transport.settings
        self.watcher: Watcher = transport.watcher
        self.blocked: set[TP] = set()
        self.withheld: set[TP] = set()
        """Left out of periodic commits: a hand-over is committing them itself."""
        self._rebalances = 0
        self._changing = False
        """From the revocation until Faust has begun the recovery of the new assignment, and given up the one before."""
        self._sought = False
        self._open = False
        self._round: dict[TP, list[Any]] = {}
        self._delivering: TP | None = None
        self._delivered: dict[TP, deque[int]] = {}
        """Offsets given to the streams and not yet handed to a commit, in order (patch commit-up-to-first-gap)."""
        self._position: dict[TP, int] = {}
        """Where `_delivered` begins: the offset after the last one handed to a commit, at first the one sought."""
        super().__init__(transport, *args, **options)

    def _new_consumer_thread(self) -> SteeredThread:
        return SteeredThread(self, loop=self.loop, beacon=self.beacon)

    @property
    def thread(self) -> SteeredThread:
        """The thread that runs aiokafka's consumer."""
        return self._thread

    @property
    def is_open(self) -> bool:
        """Whether source partitions are fetched: this generation's seek is done."""
        return self._open

    async def subscribe(self, topics: Collection[str]) -> None:
        """Subscribe when placement and topics are known (patch topics-known-before-assignment)."""
        await self.watcher.before_join(frozenset(topics))
        await self._thread.wait_for_topics(frozenset(topics), self.settings.topics_limit_s)
        await super().subscribe(topics)

    # ---- fetching

    async def _drain_messages(self, fetcher: Any) -> None:
        """Fetch and deliver, for ever.

        Stock Faust races every single message against the end of the flow, with four tasks each time.  Here one race
        covers a fetched round; what that saves pays for the measuring of key groups.
        """
        try:
            while not (self.should_stop or fetcher.should_stop):
                await asyncio.sleep(0)  # a fetch that is answered at once gives nobody a turn
                if records := await self._next_round():
                    await self._while_flowing(self._deliver(records, self._rebalances))
        except (asyncio.CancelledError, *self.consumer_stopped_errors):
            if not self.app.should_stop:
                raise
        except Exception:
            self.log.exception("delivery failed")
            raise

    async def _while_flowing(self, delivery: Coroutine[Any, Any, None]) -> None:
        """Deliver until it is done, or the flow or the worker stops; in any case nothing is delivered afterwards."""
        task = asyncio.ensure_future(delivery)
        await self.wait_first(task, self.suspend_flow.wait())  # cancels it when it was not the first
        await asyncio.wait([task])
        if not task.cancelled():
            task.result()

    async def _next_round(self) -> dict[TP, list[Any]]:
        """Records by partition; none when the worker stops."""
        while not self.should_stop:
            if not self.flow_active:
                await self.wait(self.can_resume_flow)
                continue
            rebalances = self._rebalances
            active = frozenset(self._get_active_partitions())  # (patch fixed-partitions-during-fetch)
            if not self._open:  # (patch seek-before-sources-open)
                active = frozenset(tp for tp in active if self._is_changelog_tp(tp))
            records = await self._fetch(active)
            # What was fetched before a rebalance is dropped: the seek at the end of the recovery gives it back.
            if self.flow_active and rebalances == self._rebalances:
                for tp in self.blocked.intersection(records):
                    del records[tp]
                self._round = records
                return records
        return {}

    async def _fetch(self, active: frozenset[TP]) -> dict[TP, list[Any]]:
        self.not_waiting_next_records.clear()
        try:
            if active:
                return dict(await self._getmany(active_partitions=active, timeout=self.settings.fetch_round_s))
            await self._thread.run(self._thread.touch)  # (patch idle-worker-stays-member)
            await self.sleep(IDLE_S)
            return {}
        finally:
            self.not_waiting_next_records.set()

    async def _deliver(self, records: Mapping[TP, list[Any]], rebalances: int) -> None:
        """Give a round to the streams, partitions and topics in turns; the agents have a turn after every message."""
        changelogs = frozenset(filter(self._is_changelog_tp, records))
        track_end, give = self.app.monitor.track_tp_end_offset, self.callback
        for tp, record in self.scheduler.iterate(records):
            if not self.flow_active or rebalances != self._rebalances:
                return
            track_end(tp, self.highwater(tp))
            offset, expected = record.offset, self._read_offset[tp]
            if expected is not None and offset < expected:
                continue
            if tp not in changelogs:
                self._note_delivery(tp, offset)
            self._delivering = tp
            try:
                await give(self._to_message(tp, record))
            finally:
                self._read_offset[tp] = offset
                self._delivering = None
            await asyncio.sleep(0)
            if self._commit_every is not None and self._n_acked >= self._commit_every:
                self._n_acked = 0
                await asyncio.shield(self.commit())  # half a commit would be forgotten

    def _note_delivery(self, tp: TP, offset: int) -> None:
        delivered = self._delivered.get(tp)
        if delivered is None:
            self._delivered[tp] = deque([offset])
        elif not delivered or offset > delivered[-1]:
            delivered.append(offset)

    # ---- rebalances

    @Service.transitions_to(CONSUMER_PARTITIONS_REVOKED)  # type: ignore[untyped-decorator]
    async def on_partitions_revoked(self, revoked: set[TP]) -> None:
        """Finish, commit, and only then forget (patch begun-events-finished, patch offsets-kept-until-commit)."""
        self._rebalances += 1
        self._changing = True
        self._sought = self._open = False
        self.watcher.rebalancing()
        self.withheld.clear()  # if a hand-over's commit is refused now, the last commit of the generation has them
        sources = {tp for tp in revoked | self._delivered.keys() if not self._is_changelog_tp(tp)}
        self.block(sources)
        if not await self.drain(sources, self.app.conf.broker_rebalance_timeout / 2):
            self.log.warning("begun events were not finished in time; the rebalance goes on without them")
        await self._on_partitions_revoked(revoked)
        self.forget(sources | revoked)

    async def finish(self) -> None:
        """Finish what was begun: Faust is about to stop and to clear the queues (patch begun-events-finished)."""
        sources = {tp for tp in self._active_partitions | self._delivered.keys() if not self._is_changelog_tp(tp)}
        self.block(sources)
        if not await self.drain(sources, self.app.conf.broker_rebalance_timeout / 2):
            self.log.warning("begun events were not finished in time; the worker stops without them")

    async def on_partitions_assigned(self, assigned: set[TP], generation_id: int = 0) -> None:
        """Stop the flow (patch flow-stopped-before-assignment), then let Faust restore its tables."""
        self._sought = self._open = False
        self.stop_flow()
        self.app.flow_control.suspend()
        self.watcher.rebalancing()  # again: a step of a hand-over may have raced with the revocation
        self.blocked.clear()
        self._delivered.clear()
        try:
            async with asyncio.timeout(FETCH_LIMIT_S):
                await self.not_waiting_next_records.wait()  # (patch fixed-partitions-during-fetch)
        except TimeoutError:
            self.log.warning("the fetch in flight did not end before the assignment")
        self.fence.renew()
        await self.app.producer.renew_if_condemned()
        await super().on_partitions_assigned(assigned, generation_id)
        self._changing = False

    async def perform_seek(self) -> None:
        """Seek every source partition, also those nobody has committed (patch seek-before-sources-open).

        Between two assignments only the recovery of the first can ask for it.  It waits until Faust cancels it: done
        late, its seek would pass for that of the second, and the second's would take back what has been processed.
        """
        while self._changing:
            await asyncio.sleep(POLL_S)
        rebalances = self._rebalances
        await super().perform_seek()
        for tp in self.assignment():
            if not self._is_changelog_tp(tp) and self._committed_offset.get(tp) is None:
                await self.seek(tp, (await self.earliest_offsets(tp))[tp])
        await self._stay_if_overtaken(rebalances)
        for tp in self.assignment():
            self._position[tp] = self._read_offset[tp] or 0
        self._sought = True

    async def _stay_if_overtaken(self, rebalances: int) -> None:
        """A recovery that a rebalance overtook must not end: it would open the next one's flow.  It is cancelled."""
        if rebalances != self._rebalances:
            await asyncio.Event().wait()

    def resume_flow(self) -> None:
        """Let messages flow; source partitions only when they have been sought in this generation.

        Without an assignment nothing is sought, and nothing can be fetched too early (patch seek-before-sources-open).
        """
        was_open, self._open = self._open, self._sought or not self.assignment()
        super().resume_flow()
        if self._open and not was_open:
            self.watcher.stable()

    # ---- commits

    async def commit_and_end_transactions(self) -> None:
        """Commit, after a periodic commit that is running (patch last-commit-not-skipped)."""
        await self.wait_for_commit()
        await self.commit(start_new_transaction=False)

    async def wait_for_commit(self) -> None:
        """Wait until no commit is running: it may carry older offsets."""
        while self._commit_fut is not None:
            await self.maybe_wait_for_commit_to_finish()

    def _new_offset(self, tp: TP) -> int | None:
        """Offset of the first unfinished event (patch commit-up-to-first-gap); None when it is committed already."""
        if tp in self.withheld or self.fence.broken:
            return None
        acked, delivered = self._acked_index[tp], self._delivered.get(tp)
        self._acked[tp].clear()  # the stock bookkeeping, of which only the keys are used
        before = self._position.get(tp)
        while delivered and delivered[0] in acked:
            acked.discard(delivered[0])
            self._position[tp] = delivered.popleft() + 1
        return self._position[tp] if self._position.get(tp) != before else None

    # ---- single partitions, inside a generation

    def block(self, tps: Collection[TP]) -> None:
        """Deliver no further record of these partitions."""
        self.blocked |= set(tps)
        self._active_partitions -= set(tps)
        self._buffered_partitions -= set(tps)  # or a queue that empties would activate them again
        self._paused_partitions |= set(tps)
        for tp in tps:
            if tp in self._round:
                self._round[tp].clear()  # the drain loop's iterators over these lists end

    def unblock(self, tps: Collection[TP]) -> None:
        """Deliver records of these partitions."""
        self.blocked -= set(tps)
        self._paused_partitions -= set(tps)
        self._active_partitions |= set(tps)

    async def drain(self, tps: Collection[TP], limit_s: float, check: Check = lambda: None) -> bool:
        """Take back what no agent has begun, wait for what was begun; False when that takes too long."""
        deadline = time.monotonic() + limit_s
        return await self.take_back(tps, deadline, check) and await _until(
            lambda: not self._begun(tps), deadline, check
        )

    async def take_back(self, tps: Collection[TP], deadline: float, check: Check = lambda: None) -> bool:
        """Take events of blocked partitions that no agent has begun out of the queues: the next owner reads them again.

        First the message that the drain loop is delivering: put after the purge, it would be done out of order.
        """
        if not await _until(lambda: self._delivering not in tps, deadline, check):
            return False
        self._purge(tps)
        return True

    def _clean_unacked_messages(self) -> None:
        """Wait only for messages in an agent's hands once the fence has refused one (patch fence-after-session).

        Refused by one agent and done by another, it is never acked; it is read again in the next generation.
        """
        super()._clean_unacked_messages()
        if self.fence.tripped:
            streams = [
                actor.stream.get_active_stream() for agent in self.app.agents.values() for actor in agent._actors
            ]
            in_hands = {id(stream.current_event.message) for stream in streams if stream.current_event is not None}
            for message in list(self._unacked_messages):
                if id(message) not in in_hands:
                    self._unacked_messages.discard(message)

    def _begun(self, tps: Collection[TP]) -> bool:
        self._clean_unacked_messages()
        return any(message.tp in tps and not message.acked for message in list(self._unacked_messages))

    def _purge(self, tps: Collection[TP]) -> None:
        for queue in {channel.queue for tp in tps for channel in self.app.topics._tp_index.get(tp, ())}:
            kept = []
            for event in queue._queue:
                if event.message.tp in tps and not event.message.tracked:
                    self._undeliver(event.message.tp, event.message.offset)
                else:
                    kept.append(event)
            freed = len(queue._queue) - len(kept)
            queue._queue.clear()
            queue._queue.extend(kept)
            for _ in range(freed):
                queue._wakeup_next(queue._putters)

    def _undeliver(self, tp: TP, offset: int) -> None:
        delivered = self._delivered.get(tp)
        while delivered and delivered[-1] >= offset:
            delivered.pop()

    def next_offset(self, tp: TP) -> int:
        """Where a partition goes on that is blocked and purged."""
        delivered = self._delivered.get(tp)
        return delivered[-1] + 1 if delivered else self._position[tp]

    def backlog(self, tp: TP) -> int | None:
        """Records in the log that the streams have not finished; None when the partition is not fetched here."""
        highwater: int | None = self.highwater(tp) if self._thread.fetches(tp) else None
        if highwater is None or tp not in self._position:
            return None
        unfinished = len(self._delivered.get(tp, ())) - len(self._acked_index.get(tp, ()))
        return max(0, highwater - self.next_offset(tp)) + max(0, unfinished)

    def start_at(self, positions: Mapping[TP, int]) -> None:
        """Expect these offsets next, as committed; all before them is done."""
        for tp, offset in positions.items():
            self._delivered.pop(tp, None)
            self._acked_index.pop(tp, None)
            self._acked.pop(tp, None)
            self._position[tp] = offset
            self._read_offset[tp] = self._committed_offset[tp] = offset or None

    def go_on_at(self, positions: Mapping[TP, int]) -> None:
        """Expect these offsets next; what was begun before is still in work."""
        for tp, offset in positions.items():
            self._read_offset[tp] = offset or None

    def forget(self, tps: Collection[TP]) -> None:
        """Drop the bookkeeping of partitions that this worker no longer owns."""
        by_partition: tuple[MutableMapping[TP, Any], ...] = (
            self._acked,
            self._acked_index,
            self._read_offset,
            self._committed_offset,
            self._delivered,
            self._position,
        )
        for known in by_partition:
            for tp in tps:
                known.pop(tp, None)
        self._active_partitions -= set(tps)
        self._paused_partitions -= set(tps)


async def _until(done: Callable[[], bool], deadline: float, check: Check) -> bool:
    """Wait until `done()`, looking once a millisecond; False at the deadline (monotonic seconds)."""
    while not done():
        check()
        if time.monotonic() > deadline:
            return False
        await asyncio.sleep(POLL_S)
    return True
