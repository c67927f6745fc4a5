"""The consumer's thread: everything that touches aiokafka's consumer, coordinator and live assignment.

All of it runs on the thread's own event loop.  A `generation` argument makes a step a compare-and-set: the step is
refused if the group has moved on.
"""

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Collection, Coroutine, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, TypeVar

from aiokafka.consumer.fetcher import READ_COMMITTED, Fetcher, FetchError
from aiokafka.consumer.group_coordinator import OffsetCommitRequest
from aiokafka.consumer.subscription_state import SubscriptionState, TopicPartitionState
from aiokafka.coordinator.protocol import ConsumerProtocol
from aiokafka.errors import (
    GroupAuthorizationFailedError,
    IllegalGenerationError,
    InconsistentGroupProtocolError,
    KafkaError,
    NoError,
    NotLeaderForPartitionError,
    RebalanceInProgressError,
    TopicAuthorizationFailedError,
    UnknownTopicOrPartitionError,
)
from aiokafka.protocol.group import HeartbeatRequest, SyncGroupRequest
from aiokafka.protocol.offset import OffsetResetStrategy
from aiokafka.structs import OffsetAndMetadata, TopicPartition
from faust.exceptions import ConsumerNotStarted
from faust.transport.drivers.aiokafka import AIOKafkaConsumerThread
from faust.types import TP

from trimtab_agent.engines.faust.safety.fence import Fence, uptime
from trimtab_agent.engines.faust.safety.in_place import MemberInPlace
from trimtab_agent.engines.faust.settings import InPlace
from trimtab_agent.engines.faust.transport.client import silent_brokers, until_answered
from trimtab_agent.engines.faust.transport.in_place import JoinInPlace
from trimtab_agent.engines.faust.transport.lost_inputs import LostInputs
from trimtab_agent.engines.faust.transport.metadata import NO_LEADER, TopicMetadata, silence_of
from trimtab_agent.engines.faust.transport.unreadable import stand_at_unreadable

log = logging.getLogger(__name__)
Result = TypeVar("Result")
NO_GENERATION: int = OffsetCommitRequest.DEFAULT_GENERATION_ID
COMMIT_LIMIT_S = 5.0
"""How long a commit may wait before nothing new is begun: if the session ends, others do all of that again."""
COMMITTED_HERE = "trimtab"
"""Metadata of each offset that a worker commits.  Whoever sets offsets by a tool of Kafka writes other metadata."""
RETRY_S = 3.0
"""Pause between two attempts to join a group that does not take this worker."""
COMPLAIN_S = 60.0
"""Pause between two lines in the log that say so, or that a commit was refused."""
GOOD = (NoError.errno, RebalanceInProgressError.errno)
"""Error codes of a heartbeat response that confirm membership and extend the session."""
STOP_LOOK_S = 2.0
"""How often to look, while this worker stops, whether the broker of its group answers."""
LOOK_INTERVAL_S = 5.0
LOOKS = 10
"""So many at each partition one after another, each where the ones before say that it tells most."""
LOOK_LIMIT_S, LOOK_WAIT_S = 5.0, 1.0
"""How long one look may take, at all partitions together, and how long one of them is waited for."""
LOOK_BYTES = 16_384
"""Of each partition; a broker sends one batch at least."""
LOOK_RECORDS = 200
ROOM_ROUND_S = 0.02
"""How long to wait for news of other partitions before it is looked again whether there is room for more records."""


class GenerationOver(Exception):
    """The group has left, or is leaving, the generation of this step."""


class CommitRefused(GenerationOver):
    """The broker did not accept the commit that should have proved membership."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstRecord:
    """Where a partition begins, and the time (epoch seconds) of the record there."""

    offset: int
    at_s: float


class SteeredThread(AIOKafkaConsumerThread):  # type: ignore[misc]
    """Faust's consumer thread with a fence, in-place assignment and commits that prove membership."""

    _topics: TopicMetadata | None = None
    joins: JoinInPlace | None = None
    """How it joins the group in place; None: it does not."""
    room: Mapping[TP, int] = MappingProxyType({})
    """Partitions of which only so many records are wanted at once.  The others have news at any time."""
    committing_since: float | None = None
    """Since when a commit, or the flush before it, has been under way (seconds of `uptime`)."""
    _denied: KafkaError | None = None
    """Why the broker has not taken the last commit, which another one may follow."""
    _complained_at = float("-inf")
    committed_here: frozenset[TP] = frozenset()
    """Partitions whose offset a worker had committed, when this worker was told the offsets last."""

    @property
    def fence(self) -> Fence:
        """The worker's self-fence."""
        fence: Fence = self.transport.fence
        return fence

    def _create_worker_consumer(self, transport: Any) -> Any:
        consumer = super()._create_worker_consumer(transport)
        consumer._fetch_max_wait_ms = self.transport.settings.fetch_max_wait_ms
        consumer._fetch_min_bytes = self.transport.settings.fetch_min_bytes
        # In an app without tables and standby replicas Faust silently uses aiokafka's round-robin assignor.
        self._assignor = self.app.assignor
        consumer._partition_assignment_strategy = [self._assignor]
        consumer._client.bootstrap = until_answered(consumer._client.bootstrap)  # (patch brokers-awaited)
        return consumer

    async def on_start(self) -> None:
        """Start the consumer and connect its coordinator to the fence (patch fence-after-session)."""
        if await self.wait_for_stopped(super().on_start()):  # told to stop before a broker has answered
            return
        coordinator = self._consumer._coordinator
        known = self._topics = TopicMetadata(self._consumer._client, self._make_again)
        watcher, tables = self.transport.watcher, self.app.tables
        LostInputs(self._consumer, lambda topic: topic not in tables.changelog_topics, watcher.tell)
        self._restore_committed(self._consumer._fetcher)
        stand_at_unreadable(self._consumer._fetcher)
        self._join_in_place(coordinator)
        joins = self.joins
        send, reset = coordinator._send_req, coordinator.reset_generation
        perform_assignment = coordinator._perform_assignment
        self._mark_commits(coordinator)
        self._note_denials(self._consumer)
        self._join_again(coordinator)

        async def send_req(request: Any) -> Any:
            if isinstance(request, OffsetCommitRequest) and coordinator.generation == NO_GENERATION:
                raise IllegalGenerationError(coordinator.group_id)  # the broker would accept it in an empty group
            sent_at = uptime()
            response = await send(request)
            if isinstance(request, HeartbeatRequest | SyncGroupRequest) and response.error_code in GOOD:
                self.fence.heard(sent_at)
                if self.fence.tripped and isinstance(request, HeartbeatRequest):
                    coordinator.request_rejoin()  # still a member, but events have been dropped from the queues
            if joins is not None:
                joins.heard(request, response, sent_at)
            if isinstance(request, OffsetCommitRequest):
                self._leave_out_deleted(response)
            return response

        def reset_generation() -> None:
            if coordinator.generation != NO_GENERATION and not coordinator._closing.done():
                self.fence.lose()
            if joins is not None:
                joins.member.thrown_out()
            reset()

        async def assign_what_is_known(response: Any) -> Any:
            told = [ConsumerProtocol.METADATA.decode(member[-1]) for member in response.members]
            topics = {topic for metadata in told for topic in metadata.subscription}
            await known.wait_for(topics, self.transport.settings.assignment_metadata_limit_s)
            await self.transport.watcher.before_assignment([metadata.user_data for metadata in told])
            return await perform_assignment(response)

        coordinator._send_req = send_req
        coordinator.reset_generation = reset_generation
        coordinator._perform_assignment = assign_what_is_known

    def _join_in_place(self, coordinator: Any) -> None:
        settings, app = self.transport.settings, self.app
        if settings.in_place is InPlace.OFF:
            return

        async def on_app(step: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
            return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(step(), app.loop))

        def mode() -> InPlace:
            return settings.in_place if self.transport.watcher.steers else InPlace.LEAVE

        member: MemberInPlace[TP] = MemberInPlace(self.fence)
        self.joins = JoinInPlace(coordinator, self._assignor, member, self.consumer, on_app, mode=mode)

    def _make_again(self, topic: str) -> bool:
        """Make a changelog that has been deleted: without it, its tables would get no partitions."""
        if topic not in self.app.tables.changelog_topics:
            return False
        self.app.loop.call_soon_threadsafe(self.app.producer.make_again, topic)
        return True

    def _mark_commits(self, coordinator: Any) -> None:
        commit_offsets, fetch_offsets = coordinator.commit_offsets, coordinator._do_fetch_commit_offsets

        async def commit_marked(assignment: Any, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
            marked = {tp: OffsetAndMetadata(at.offset, COMMITTED_HERE) for tp, at in offsets.items()}
            await commit_offsets(assignment, marked)

        async def fetch_and_see_marks(partitions: Collection[TopicPartition]) -> Any:
            found = await fetch_offsets(partitions)
            marked = {TP(*tp) for tp, at in found.items() if at.metadata == COMMITTED_HERE}
            self.committed_here = self.committed_here.difference(TP(*tp) for tp in partitions) | marked
            return found

        coordinator.commit_offsets = commit_marked
        coordinator._do_fetch_commit_offsets = fetch_and_see_marks

    def _leave_out_deleted(self, response: Any) -> None:
        """Count offsets of deleted topics as committed (patch deleted-topic-not-awaited)."""
        known, gone = self._ensure_consumer()._client.cluster.topics(), UnknownTopicOrPartitionError.errno
        response.topics = [
            (topic, [(at, NoError.errno if code == gone and topic not in known else code) for at, code in rows])
            for topic, rows in response.topics
        ]

    def _note_denials(self, consumer: Any) -> None:
        """Let a commit wait for the right to it (patch rights-awaited)."""
        commit = consumer.commit

        async def commit_or_note(offsets: Any = None) -> None:
            try:
                await commit(offsets)
            except (TopicAuthorizationFailedError, GroupAuthorizationFailedError) as error:
                self._denied = error  # raised, it would end the worker

        consumer.commit = commit_or_note

    def _join_again(self, coordinator: Any) -> None:
        """Wait for the right to the group, or for the end of members that are no Faust (patch rights-awaited)."""
        give_up = coordinator._push_error_to_user

        async def wait_or_give_up(error: KafkaError) -> None:
            if not isinstance(error, GroupAuthorizationFailedError | InconsistentGroupProtocolError):
                await give_up(error)
                return
            self._complain("the consumer group does not take this worker, which tries again: %r", error)
            await asyncio.wait([coordinator._closing], timeout=RETRY_S)
            coordinator.request_rejoin()

        coordinator._push_error_to_user = wait_or_give_up

    def _complain(self, text: str, error: KafkaError) -> None:
        if time.monotonic() - self._complained_at > COMPLAIN_S:
            self._complained_at = time.monotonic()
            log.error(text, error)

    def _restore_committed(self, fetcher: Any) -> None:
        """Restore tables without the records of aborted transactions (patch no-aborted-state).

        What isolation a fetch has is up to the whole request.  Until the sources are open it may be this one for all;
        which records of inputs reach the app is not changed.
        """
        process, tables = fetcher._proc_fetch_request, self.app.tables

        async def process_committed(assignment: Any, node_id: Any, request: Any) -> Any:
            changelogs = [each for each in request.topics if each[0] in tables.changelog_topics]
            if self.consumer.is_open or not changelogs:
                return await process(assignment, node_id, request)
            request._isolation_level = READ_COMMITTED
            answer = await process(assignment, node_id, request)
            for topic, partitions in changelogs:
                for partition, *_ in partitions:
                    fetched = getattr(
                        fetcher._records.get(TopicPartition(topic, partition)), "_partition_records", None
                    )
                    if fetched is not None:
                        fetched._isolation_level = READ_COMMITTED
            return answer

        fetcher._proc_fetch_request = process_committed

    async def on_thread_stop(self) -> None:
        """Stop the consumer, without what the group's broker does not answer (patch brokers-awaited)."""
        if self._topics is not None:
            self._topics.stop()
        stopping = asyncio.ensure_future(super().on_thread_stop())
        while not (await asyncio.wait([stopping], timeout=STOP_LOOK_S))[0]:
            known = self._consumer._coordinator and self._consumer._coordinator.coordinator_id
            if silent := await silent_brokers(self._consumer._client, None if known is None else [known]):
                log.warning("this worker ends without leaving its group: %s", silent)
                stopping.cancel()
        if stopping.cancelled():
            await self._consumer._client.close()
        else:
            stopping.result()

    async def commit(self, offsets: Mapping[TP, int]) -> bool:
        """Commit, unless Faust's flush before it has shown that something was not written.

        (patch end-when-state-fails, patch leader-not-awaited)
        """
        self._denied = None
        committed: bool = not (self.fence.broken or self.fence.dropped) and await super().commit(offsets)
        if self._denied is not None:
            self._complain("not committed, because Kafka does not let the app: %r", self._denied)
            return False
        return committed

    @property
    def commit_waits(self) -> bool:
        """Whether what is done has not been committed for so long that nothing new should be begun.

        Without anything to commit, unanswered heartbeats say that the broker of the group is silent.
        """
        since = self.committing_since
        return (since is not None and uptime() - since > COMMIT_LIMIT_S) or self.coordinator_silent

    @property
    def coordinator_silent(self) -> bool:
        """Whether the broker of the group has answered no heartbeat for some time."""
        interval_s: float = self.app.conf.broker_heartbeat_interval
        return self.fence.silent_s(uptime()) > COMMIT_LIMIT_S + interval_s

    async def wait_for_topics(self, topics: Collection[str], limit_s: float) -> frozenset[str]:
        """Wait until the broker knows these topics; returns those that are still unknown after `limit_s`."""
        assert self._topics is not None, "not started"
        return await self._in_thread(self._topics.wait_for(topics, limit_s))

    async def run(self, step: Callable[..., Result], *arguments: Any) -> Result:
        """Call a method of this class in the thread.

        `call_thread()` will not do: both workers of its queue may be busy with a long poll and a commit.
        """

        async def call() -> Result:
            return step(*arguments)

        return await self._in_thread(call())

    async def _in_thread(self, step: Coroutine[Any, Any, Result]) -> Result:
        """Run a coroutine in the thread.  Raises RuntimeError when the thread ends, because the worker does.

        CancelledError would look as if the caller were cancelled: out of a rebalance it ends the thread in the middle
        of its stop, and the worker waits for it for ever.
        """
        try:
            future = asyncio.run_coroutine_threadsafe(step, self.thread_loop)
        except RuntimeError:
            step.close()  # or Python warns that it was never awaited
            raise
        try:
            return await asyncio.wrap_future(future)
        except asyncio.CancelledError:
            caller = asyncio.current_task()
            if caller is None or caller.cancelling():
                raise
            raise RuntimeError("the consumer's thread ends") from None

    async def _fetch_records(
        self, consumer: Any, active_partitions: Collection[TP], timeout: float | None = None, **options: Any
    ) -> dict[TP, list[Any]]:
        """The next records by partition; where there is `room` for some, no more than that."""
        fetcher, fetch = consumer._fetcher, super()._fetch_records
        some = {tp: self.room[tp] for tp in self.room.keys() & active_partitions}
        some = {tp: most for tp, most in some.items() if not isinstance(fetcher._records.get(tp), FetchError)}
        if not some:
            return dict(await fetch(consumer, active_partitions, timeout=timeout, **options))
        found: dict[TP, list[Any]] = {}
        if others := frozenset(active_partitions) - some.keys():  # of none aiokafka would return all
            found.update(await fetch(consumer, others, timeout=ROOM_ROUND_S, **options))
        else:
            await asyncio.sleep(ROOM_ROUND_S)
        for tp, most in some.items():
            fetched = fetcher._records.get(tp)
            if most > 0 and fetched is not None and not isinstance(fetched, FetchError):
                if records := fetched.getall(most):
                    found[tp] = records
                if not fetched.has_more():
                    del fetcher._records[tp]
                    self._wake_fetcher(consumer)
        return found

    def partition_count(self, topic: str) -> int | None:
        """Number of partitions of a topic in the client's metadata; None if unknown.  Callable from any thread.

        The coordinator's own snapshot has them only on the leader.
        """
        return len(self._ensure_consumer().partitions_for_topic(topic) or ()) or None

    def fetches(self, tp: TP) -> bool:
        """Whether the partition is in the live assignment.  Callable from any thread."""
        assigned: bool = self._ensure_consumer()._subscription.is_assigned(_key(tp))
        return assigned

    async def offsets_since(self, times: Mapping[TP, float], limit_s: float) -> dict[TP, int]:
        """The offset of the first record that is not older than these times (epoch seconds); none if there is none.

        Raises KafkaError, and TimeoutError after `limit_s`.
        """
        asked = self._ensure_consumer().offsets_for_times({_key(tp): int(at * 1e3) for tp, at in times.items()})
        return {tp: first.offset for tp, first in (await self._answered(asked, limit_s)).items()}

    async def first_records(self, tps: Collection[TP], limit_s: float) -> dict[TP, FirstRecord]:
        """The first record of each partition; those that have none are missing.

        Raises KafkaError, and TimeoutError after `limit_s`.
        """
        asked = self._ensure_consumer().offsets_for_times({_key(tp): 0 for tp in tps})
        firsts = await self._answered(asked, limit_s)
        return {tp: FirstRecord(offset=first.offset, at_s=first.timestamp / 1e3) for tp, first in firsts.items()}

    async def _answered(self, asked: Coroutine[Any, Any, Mapping[Any, Any]], limit_s: float | None) -> dict[TP, Any]:
        """What is known of each partition, within `limit_s`; raises TimeoutError."""
        async with asyncio.timeout(limit_s):
            found = await self._in_thread(asked)
        return {TP(*tp): known for tp, known in found.items() if known is not None}

    async def highwaters(self, *partitions: TP) -> Mapping[TP, int]:
        """Where these partitions end (patch questions-apart)."""
        return await self._in_thread(self._highwaters(partitions))

    async def earliest_offsets(self, *partitions: TP) -> Mapping[TP, int]:
        """Where these partitions begin (patch questions-apart)."""
        return await self._in_thread(self._ensure_consumer().beginning_offsets(partitions))

    async def beginnings(self, tps: Collection[TP], limit_s: float) -> dict[TP, int]:
        """The offset at which each partition begins.  Raises KafkaError, and TimeoutError after `limit_s`."""
        return await self._answered(self._ensure_consumer().beginning_offsets([_key(tp) for tp in tps]), limit_s)

    async def ends(self, tps: Collection[TP], limit_s: float | None = None) -> dict[TP, int]:
        """The offset at which each partition ends now.  Raises KafkaError, and TimeoutError after `limit_s`."""
        return await self._answered(self._ensure_consumer().end_offsets([_key(tp) for tp in tps]), limit_s)

    async def ends_not_fetched(self, tps: Collection[TP], after_s: float, limit_s: float) -> dict[TP, int | None]:
        """`ends_by_leader` of those partitions whose last fetch was answered more than `after_s` seconds ago.

        While a batch of a partition waits to be taken, aiokafka does not fetch the partition again, and its high water
        mark stands still.
        """

        async def old() -> list[TP]:
            consumer = self._ensure_consumer()
            now_ms, assigned = time.time() * 1000.0, consumer.assignment()
            polled = {tp: consumer.last_poll_timestamp(_key(tp)) for tp in tps if _key(tp) in assigned}
            return [tp for tp, at_ms in polled.items() if at_ms is None or now_ms - at_ms > 1000.0 * after_s]

        return await self.ends_by_leader(await self._in_thread(old()), limit_s)

    async def ends_by_leader(self, tps: Collection[TP], limit_s: float) -> dict[TP, int | None]:
        """The end offsets of partitions; None where there is no leader, or it does not answer within `limit_s`.

        Those that have just got another leader are missing.
        """

        async def ask_one(client: Any, fetcher: Any, leader: int | None, its: list[TP]) -> dict[TP, int | None]:
            if leader in (None, NO_LEADER):
                client.force_metadata_update()
                return dict.fromkeys(its)
            asked: dict[str, list[tuple[int, int]]] = {}
            for tp in its:
                asked.setdefault(tp.topic, []).append((tp.partition, OffsetResetStrategy.LATEST))
            try:
                # Not `end_offsets`: it may wait for metadata, and the client for a silent broker that it has asked.
                async with asyncio.timeout(limit_s):
                    found = await fetcher._proc_offset_request(leader, asked)
                    return {TP(*tp): offset for tp, (offset, _) in found.items()}
            except (NotLeaderForPartitionError, UnknownTopicOrPartitionError):
                client.force_metadata_update()
                return {}
            except (KafkaError, TimeoutError):
                return dict.fromkeys(its)

        async def ask() -> dict[TP, int | None]:
            consumer = self._ensure_consumer()
            by_leader: dict[int | None, list[TP]] = {}
            for tp in tps:
                by_leader.setdefault(consumer._client.cluster.leader_for_partition(_key(tp)), []).append(tp)
            asking = (ask_one(consumer._client, consumer._fetcher, *each) for each in by_leader.items())
            return {tp: end for ends in await asyncio.gather(*asking) for tp, end in ends.items()}

        return await self._in_thread(ask())

    async def densities_at(self, places: Mapping[TP, int]) -> dict[TP, float]:
        """Records per offset from each of these places on; of those that nobody answers for it is missing."""
        try:
            found = await self._in_thread(densities_at(self._ensure_consumer(), _keys(places)))
        except (ConsumerNotStarted, RuntimeError):  # at the end
            return {}
        return {TP(*tp): density for tp, density in found.items()}

    def taken_up_to(self, tp: TP) -> int | None:
        """The offset behind what has been taken of this partition; None if unknown.  Callable from any thread."""
        assignment = self._ensure_consumer()._subscription.subscription.assignment
        state: Any = None if assignment is None else assignment._tp_state.get(_key(tp))
        return None if state is None else state._position

    def silence(self, tp: TP) -> str:
        """Why nothing is heard of this partition, as operators know its broker.  Callable from any thread."""
        cluster = self._ensure_consumer()._client.cluster
        silent = silence_of(cluster, cluster.leader_for_partition(_key(tp)))
        return silent or f"{tp.topic}/{tp.partition} has no leader"

    def positions(self, tps: Collection[TP]) -> dict[TP, int]:
        """The offsets that are read next, of those partitions of which that is known."""
        return {tp: at for tp in tps if (at := self.taken_up_to(tp)) is not None}

    def touch(self) -> None:
        """Make aiokafka count this worker as fetching (patch idle-worker-stays-member)."""
        if self._consumer is not None:
            with self._consumer._fetcher._subscriptions.fetch_context():
                pass

    def rejoin(self) -> None:
        """Ask the group for a rebalance, in place if it can be."""
        self._ensure_consumer()._coordinator.request_rejoin()

    def request_rejoin(self) -> None:
        """Ask the group for a rebalance, at which everybody revokes everything."""
        if self.joins is not None:
            self.joins.stop_all("a worker asks for it")
        else:
            self.rejoin()

    def stop_and_rejoin(self, reason: str) -> None:
        """Let this worker alone revoke everything and join again, because it cannot go on in place."""
        assert self.joins is not None, "it does not join in place"
        self.joins.stop(reason)

    async def committed(self, tps: Collection[TP]) -> dict[TP, int]:
        """Where the group goes on with these partitions: behind the committed offset, or where they begin."""

        async def ask() -> dict[TP, int]:
            consumer, keys = self._ensure_consumer(), [_key(tp) for tp in tps]
            found, starts = await asyncio.gather(
                consumer._coordinator.fetch_committed_offsets(keys), consumer.beginning_offsets(keys)
            )
            return {TP(*tp): found[tp].offset if tp in found else starts[tp] for tp in keys}

        return await self._in_thread(ask())

    async def leave(self, limit_s: float) -> None:
        """Leave the group; if its broker does not answer in time, it puts this worker out after the session."""
        coordinator = self._ensure_consumer()._coordinator
        self.fence.lose()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(limit_s):
                await self._in_thread(coordinator._maybe_leave_group())

    def attach(self, generation: int, positions: Mapping[TP, int]) -> None:
        """Fetch these partitions from these offsets, adding them to the live assignment if they are not in it."""
        consumer, assignment = self._live(generation)
        for tp, offset in _keys(positions).items():
            state = assignment._tp_state.setdefault(tp, TopicPartitionState(assignment))
            state.resume()
            state.seek(offset)
            consumer._fetcher._records.pop(tp, None)
        assignment._topic_partitions = assignment._topic_partitions | _keys(positions).keys()
        self._wake_fetcher(consumer)

    def detach(self, generation: int, tps: Collection[TP]) -> None:
        """Remove partitions from the live assignment.

        Their states stay, because the response to a fetch in flight looks them up.
        """
        consumer, assignment = self._live(generation)
        for tp in map(_key, tps):
            state = assignment._tp_state.get(tp)
            if state is not None:  # its committed offset is no longer refreshed: release the waiters
                state.update_committed(OffsetAndMetadata(-1, ""))
            consumer._fetcher._records.pop(tp, None)
        assignment._topic_partitions = assignment._topic_partitions - set(map(_key, tps))
        self._wake_fetcher(consumer)

    def pause(self, generation: int, tps: Collection[TP]) -> None:
        """Stop fetching these partitions.

        Faust alone would only stop asking for them.  aiokafka would go on prefetching, and one batch that is never
        taken would hold back all fetches from its broker.
        """
        self._check_held(tps)
        self.stop_fetching(generation, tps)

    def stop_fetching(self, generation: int, tps: Collection[TP]) -> None:
        """Stop fetching these partitions, also those that are held."""
        consumer, assignment = self._live(generation)
        for tp in map(_key, tps):
            assignment._tp_state[tp].pause()
            consumer._fetcher._records.pop(tp, None)
        self._wake_fetcher(consumer)

    async def prove_by_commit(self, generation: int, offsets: Mapping[TP, int], limit_s: float) -> None:
        """Commit these offsets and thereby prove that this worker is a member of the generation now.

        Raises GenerationOver, or CommitRefused if the broker does not accept the commit within `limit_s`.
        """
        coordinator = self._ensure_consumer()._coordinator
        wire = {tp: OffsetAndMetadata(offset, COMMITTED_HERE) for tp, offset in _keys(offsets).items()}

        async def commit_once() -> None:
            # In a later generation it would overwrite the offset of the next owner: no wait before the request is made.
            _, assignment = self._live(generation, exactly=True)
            await coordinator._do_commit_offsets(assignment, wire)

        async def commit() -> None:
            while True:
                await coordinator.ensure_coordinator_known()
                try:
                    async with coordinator._commit_lock:
                        await asyncio.shield(commit_once())
                    break
                except KafkaError as error:
                    if not error.retriable:
                        raise
                    await asyncio.sleep(coordinator._retry_backoff_ms / 1e3)
            self._live(generation, exactly=True)

        self._check_held(offsets)
        try:
            async with asyncio.timeout(limit_s):
                await self._in_thread(commit())
        except (KafkaError, TimeoutError) as error:
            raise CommitRefused(f"the commit was not accepted: {error!r}") from error

    def _check_held(self, tps: Collection[TP]) -> None:
        """Raises CommitRefused if one of them stands still, so that not all of its events are done."""
        if held := sorted(self.consumer.held.intersection(tps)):
            tp = held[0]
            raise CommitRefused(
                f"{tp.topic}/{tp.partition} stands, because Kafka refuses a record of one of its events"
            )

    def _live(self, generation: int, *, exactly: bool = False) -> tuple[Any, Any]:
        """The consumer and its live assignment.

        Raises GenerationOver unless the assignment is still that of this generation, no rebalance has begun that
        revokes it, and the state is sound.  `exactly`: the group must still be in this generation.
        """
        consumer = self._ensure_consumer()
        subscription = consumer._subscription.subscription
        if self.fence.broken:
            raise GenerationOver("state could not be written")
        coordinator = consumer._coordinator
        kept = self.joins is not None and not exactly and not coordinator._performed_join_prepare
        since = self.app.consumer_generation_id if kept else coordinator.generation  # those between came in place
        if not since <= generation <= coordinator.generation or subscription._reassignment_in_progress:
            raise GenerationOver(f"generation {generation} is over")
        return consumer, subscription.assignment

    @staticmethod
    def _wake_fetcher(consumer: Any) -> None:
        consumer._fetcher._notify(consumer._fetcher._wait_consume_future)


def _key(tp: TP) -> TopicPartition:
    return TopicPartition(tp.topic, tp.partition)


def _keys(values: Mapping[TP, int]) -> dict[TopicPartition, int]:
    return {_key(tp): value for tp, value in values.items()}


async def densities_at(consumer: Any, places: Mapping[TopicPartition, int]) -> dict[TopicPartition, float]:
    """Records per offset from each of these places on; of those that nobody answers for it is missing."""
    state = SubscriptionState()
    state.assign_from_user(list(places))
    for tp, offset in places.items():
        state.seek(tp, offset)
    fetcher = Fetcher(
        consumer._client,
        state,
        max_partition_fetch_bytes=LOOK_BYTES,
        auto_offset_reset="earliest",
        isolation_level=consumer._isolation_level,
    )
    records: dict[TopicPartition, int] = {}
    try:
        async with asyncio.timeout(LOOK_LIMIT_S):
            for tp in places:
                records[tp] = len((await fetcher.fetched_records([tp], LOOK_WAIT_S, LOOK_RECORDS)).get(tp, ()))
    except (KafkaError, TimeoutError):
        pass
    finally:
        await fetcher.close()
    passed = {tp: (state._assigned_state(tp).position or 0) - offset for tp, offset in places.items()}
    return {tp: count / passed[tp] for tp, count in records.items() if passed[tp] > 0}
