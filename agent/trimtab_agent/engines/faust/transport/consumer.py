"""Faust's consumer and transport with the patches of `patches.py`.

The consumer can stop and start single partitions inside a generation.
"""

import asyncio
import contextlib
import copy
import functools
import itertools
import time
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterable, Iterator, Mapping, MutableMapping
from typing import Any, ParamSpec, Protocol, TypeVar
from weakref import WeakSet

from aiokafka.errors import KafkaConnectionError, KafkaError, TopicAuthorizationFailedError
from faust.exceptions import ConsumerNotStarted
from faust.stores.rocksdb import Store
from faust.streams import current_event
from faust.transport.consumer import CONSUMER_PARTITIONS_REVOKED
from faust.transport.drivers.aiokafka import Consumer, Transport
from faust.types import TP
from mode import CrashingSupervisor, Service, get_logger

from trimtab_agent.engines.faust.safety.fence import Fence, uptime
from trimtab_agent.engines.faust.safety.store_guard import StoreGuard
from trimtab_agent.engines.faust.safety.troubles import Trouble, minute
from trimtab_agent.engines.faust.settings import SteeringSettings
from trimtab_agent.engines.faust.transport.chained import Renewal, chain, in_batch, only_gathers, waiting_in_batch
from trimtab_agent.engines.faust.transport.client import CONNECT, BrokerWaits, reset_connections, until_answered
from trimtab_agent.engines.faust.transport.density import Density
from trimtab_agent.engines.faust.transport.in_work import EventsInWork, InWork
from trimtab_agent.engines.faust.transport.producer import SteeredProducer
from trimtab_agent.engines.faust.transport.thread import (
    LOOK_INTERVAL_S,
    LOOKS,
    RETRY_S,
    GenerationOver,
    SteeredThread,
)
from trimtab_agent.engines.faust.transport.unreadable import UnreadableRecord
from trimtab_agent.engines.faust.waiting import POLL_S, Check, until
from trimtab_protocol.messages.decode import printable

logger = get_logger(__name__)
P = ParamSpec("P")
R = TypeVar("R")

ENDS_INTERVAL_S = 1.0
"""How often to ask where logs end, and how long ago the last fetch of a partition must be."""
ENDS_LIMIT_S = 5.0
"""How long that answer may take."""
LAST_COMMIT_S = 5.0
"""How long the last commit waits for the end of a rebalance in place."""
IDLE_S = 0.1
FETCH_LIMIT_S = 5.0
"""How long one fetch from the broker may take."""
UNACKNOWLEDGED_S = 300.0
"""How long an event may hold up the commits of later ones that are done before it is told."""
FORBIDDEN_S = 5.0
"""How long after a refusal to read a topic it is told."""
FORBIDDEN_AGAIN_S = 1.0
"""How often it is tried to read such a topic."""
BACKLOG_EVENTS = 200
"""So many events of partitions with a backlog may wait for agents, or as many as of all others."""
TURNS_S = 0.1
"""How often the events that wait for agents are put in turn while there is a backlog."""
SILENT_S = 5.0
"""How long a broker that is asked may be silent before it counts as out of reach."""
CUT_OFF = (
    "%s, and the group waits for what was sent there: this worker leaves the group, and joins again when it does. "
    "What was done since the last commit is done again"
)
JOIN = "join the group and restore tables"
COMMITS_WAIT = "its outputs or commits do not get through"
UNREADABLE_S = 10.0
"""How often it is tried to read what could not be read."""


class Watcher(Protocol):
    """Receives the events of the consumer group, on the app's event loop."""

    async def before_join(self, topics: frozenset[str]) -> None:
        """The worker is about to subscribe to these topics."""

    def topics_known(self) -> None:
        """Partition counts are known, and the worker is about to join.  Raises TooFewFiles."""

    async def before_assignment(self, told: Collection[bytes]) -> None:
        """As leader, this worker is about to assign; `told` = the members' data.  Called in the consumer's thread."""

    def rebalancing(self) -> None:
        """The group leaves its generation.  From here on only Faust opens and restores state."""

    def stable(self) -> None:
        """Tables are restored and sources are open."""

    def renewed(self, assignment: Any, new: frozenset[TP], generation: int) -> None:
        """A rebalance in place has ended.  This worker owns what it owned before; `new` it is to take over."""

    def against_keeping(self) -> str | None:
        """Why this worker should not keep what it owns through a rebalance; None: nothing speaks against it."""

    @property
    def steers(self) -> bool:
        """Whether this worker is steered, and does not only report."""

    def tell(self, trouble: Trouble, text: str | None) -> None:
        """Something has gone wrong with inputs or state; None: no more.  Called from any thread."""

    def breached(self) -> None:
        """The worker ends because a changelog was about to overwrite its state.  Called from any thread."""


class LogEnds:
    """Where the logs end whose partitions are not being fetched, because the worker's queues are full.

    While a batch of a partition waits to be taken, aiokafka does not fetch the partition again, and its high water mark
    stands still.  So the broker is asked.  A worker that keeps up asks nothing.  Where the leader of a partition is out
    of reach, nothing is known of what waits there.  The answer is empty when the broker could not be asked.
    """

    def __init__(self) -> None:
        self._ends: Mapping[TP, int | None] = {}

    async def refresh(self, thread: SteeredThread, tps: Collection[TP]) -> None:
        """Ask for the partitions that are not being fetched, and forget all others."""
        try:
            self._ends = await thread.ends_not_fetched(tps, ENDS_INTERVAL_S, ENDS_LIMIT_S)
        except (ConsumerNotStarted, KafkaError, TimeoutError, RuntimeError) as error:  # at the end
            self._ends = {}
            logger.debug("the ends of the logs are not known: %r", error)

    def out_of_reach(self) -> frozenset[TP]:
        """The partitions whose leader has not answered."""
        return frozenset(tp for tp, end in self._ends.items() if end is None)

    def newest(self, tp: TP, highwater: int | None) -> int | None:
        """The end of the log: the later one of the high water mark and what the broker answered; None if unknown."""
        if tp in self._ends and self._ends[tp] is None:
            return None
        known = [end for end in (highwater, self._ends.get(tp)) if end is not None]
        return max(known, default=None)


class SteeredConsumer(Consumer):  # type: ignore[misc]
    """Faust's consumer.  Records of `blocked` partitions reach no stream although the worker owns the partitions."""

    _thread: SteeredThread
    _n_acked: int

    def __init__(self, transport: Any, *args: Any, **options: Any) -> None:
        self.fence: Fence = transport.fence
        self.settings: SteeringSettings = transport.settings
        self.watcher: Watcher = transport.watcher
        self._forbidden: dict[str, float] = {}
        """When Kafka has refused last to let it read a topic (monotonic seconds)."""
        self._unreadable: dict[TP, tuple[str, float]] = {}
        """Why the next records of a partition cannot be read, and when to try again (monotonic seconds)."""
        self.blocked: set[TP] = set()
        self.withheld: set[TP] = set()
        """Partitions left out of periodic commits, because a hand-over commits them itself."""
        self.closing_windows: dict[object, frozenset[TP]] = {}
        """Windows that are being closed, with the source partitions of their key groups; drained like begun events."""
        self._held: dict[TP, int] = {}
        """Partitions that stand still, each with the offset of the event whose record Kafka refuses."""
        self._behind: set[TP] = set()
        """Partitions that have stood still, and whose position may be further than what was committed."""
        self._writes_from: dict[TP, int] = {}
        """Where each source partition of this worker began when it came here; events before it are of another time."""
        self.has_begun = False
        """Whether this worker has ever begun a generation.  Before, all events of topics are made by the app's own
        tests, which need no broker."""
        self._closed: set[TP] = set()
        """Source partitions whose events are finished because they leave: what they write now is too late."""
        self._rebalances = 0
        self._changing = False
        """True from a revocation until Faust has started to recover the new assignment and dropped the old recovery."""
        self._sought = False
        self._open = False
        self._generation: int | None = None
        """Of the group, since a rebalance in place; None: Faust's own number is that of the group."""
        self._left: str | None = None
        """Which broker does not answer, if this worker has left the group for that reason."""
        self._left_for: frozenset[Any] = frozenset()
        """The partitions for which outputs waited then."""
        self._round: dict[TP, list[Any]] = {}
        self._delivering: TP | None = None
        self._delivered: dict[TP, deque[int]] = {}
        """Offsets given to the streams and not yet passed to a commit, in order (patch commit-up-to-first-gap)."""
        self._position: dict[TP, int] = {}
        """Start of `_delivered`: the offset after the last one passed to a commit, initially the sought offset."""
        self._turns_at = 0.0
        self._backlogs: set[TP] = set()
        """Partitions that this worker has taken over with a backlog, and whose log it has not read to its end."""
        self._ends = LogEnds()
        self._density = Density()
        self._passed: dict[TP, int] = {}
        """Offset before which all is delivered: behind markers of transactions, which are no records, too."""
        self._passed_at = 0.0
        self.in_work = EventsInWork()
        self._gaps: dict[TP, tuple[int, float]] = {}
        """The first event of each partition that is not acknowledged while later ones are, and since when (epoch)."""
        self._gaps_told = False
        self._restored: dict[TP, int] = {}
        """The last record of each changelog that was given to Faust's recovery in this generation."""
        self.from_start: dict[TP, range] = {}
        """Offsets of each source partition that had no committed offset, or 0, when this generation began."""
        self.set_by_others: frozenset[TP] = frozenset()
        """Source partitions whose committed offset, if any, no worker had committed when this generation began."""
        self._asking: dict[Any, Any] = {}
        """Answers that agents wait for, with the messages that they work on meanwhile (patch asking-not-waited-for)."""
        self._finishing = False
        self._given_up: WeakSet[Any] = WeakSet()
        """Messages that were not finished before their generation ended."""
        self._failed: dict[Any, list[Any]] = {}
        """Messages that agents have begun which have failed, each with these agents, until they count as done."""
        self.first_streams: WeakSet[Any] = WeakSet()
        """Those that read a topic, of agents and of tasks; others are behind them."""
        super().__init__(transport, *args, **options)
        self._note_streams(self.app)
        self._follow_replies(self.app._reply_consumer)
        for agent in self.app.agents.values():
            renewal = Renewal(agent, functools.partial(self._count_as_failed, agent))
            agent._on_error = self._let_go_at_error(agent, renewal, agent._on_error)
        leader = self.app._leader_assignor
        is_leader = leader.is_leader
        leader.is_leader = lambda: not self.fence.closed_now() and is_leader()  # (patch fence-after-session)

    def _note_streams(self, app: Any) -> None:
        make = app.stream

        def make_and_note(*arguments: Any, **options: Any) -> Any:
            made = make(*arguments, **options)
            self.first_streams.add(made)
            return made

        app.stream = make_and_note

    def _follow_replies(self, replies: Any) -> None:
        reply_topic, add = replies._reply_topic, replies.add

        async def note_and_add(correlation_id: str, answer: Any) -> None:
            if (event := current_event()) is not None:
                self._asking[answer] = event.message
                answer.add_done_callback(lambda _: self._asking.pop(answer, None))
            await add(correlation_id, answer)

        replies._reply_topic = lambda name: aiter(reply_topic(name))  # (patch replies-acknowledged)
        replies.add = note_and_add

    def _let_go_at_error(self, agent: Any, renewal: Renewal, on_error: Any) -> Any:
        """Let the events of a failing agent count as done, whoever was to acknowledge them (patch failed-event-done).

        Faust does so only for the event that an agent has in its hands, and a moment later.  It forgets those that the
        agent was to acknowledge, and one at which a processor of its stream has failed (`stream.filter`).
        """

        async def let_go(*arguments: Any) -> None:
            task = asyncio.current_task()
            actors = [actor for actor in agent._actors if actor.actor_task is task]
            for actor in actors:
                stream = actor.stream.get_active_stream()
                renewal.stop(actor.stream, arguments[-1])
                if not self.fence.broken:
                    whole = in_batch(stream) is not None and agent.concurrency == 1
                    self._note_failed(agent, stream, renewal.goes_back(actor.stream), all_of_topics=whole)
            try:
                if on_error is not None:
                    await on_error(*arguments)
            except Exception:  # Faust would not start the agent again
                self.log.exception("on_error of agent %r has failed", agent)
            finally:
                ends = isinstance(agent.supervisor, CrashingSupervisor)
                if not ends and any(not actor.stream.get_active_stream().enable_acks for actor in actors):
                    self._let_go_of_failed()

        return let_go

    def _note_failed(self, agent: Any, stream: Any, stay: Collection[int], *, all_of_topics: bool) -> None:
        """Note what this stream has begun: its event, or all of its topics, if they are its batch.

        Others may be in the hands of tasks that will acknowledge them.
        """
        current = stream.current_event
        topics = getattr(stream.channel, "topics", ()) if all_of_topics else ()
        queued = _messages_in([stream.channel.queue]) if topics else set()
        for message in self._unacked_messages:
            mine = message.topic in topics or (current is not None and message is current.message)
            if mine and id(message) not in queued and id(message) not in stay:
                self._count_as_failed(agent, message)

    def _count_as_failed(self, agent: Any, message: Any) -> None:
        self._failed.setdefault(message, []).append(agent)

    def _let_go_of_failed(self) -> None:
        """Acknowledge events of agents that have failed, once no other agent has them.

        Not those for which the app ends the worker: they are to be done again.
        """
        if self.app.crashed:
            for message in self._failed:
                self._give_up(self._cause(message))
            self._failed.clear()
        for message in [message for message in self._failed if self._is_over(message)]:
            del self._failed[message]
        tps = {message.tp for message in self._failed}
        queued = _messages_in(self._queues(tps))
        for message, agents in list(self._failed.items()):
            if message.refcount == 1 and id(message) not in queued and not self._may_work_on(message, agents):
                message.ack(self)
                del self._failed[message]

    def _is_over(self, message: Any) -> bool:
        """Whether nobody waits for the end of a message any more."""
        return message not in self._unacked_messages

    def _may_work_on(self, message: Any, failed: Collection[Any]) -> bool:
        """Whether a stream of others than these agents works on a message, or has it in a batch."""
        own = {id(each) for agent in failed for actor in agent._actors for each in chain(actor.stream)}
        readers = [each for each in self._streams() if message.topic in getattr(each.channel, "topics", ())]
        channels = self.app.topics._tp_index.get(message.tp, ())
        if len(channels) > len({id(stream.channel.queue) for stream in readers}):
            return True  # nobody knows whose it is
        readers = [each for each in readers if id(each) not in own]
        return any(_has(stream, message) for stream in readers)

    def _new_consumer_thread(self) -> SteeredThread:
        return SteeredThread(self, loop=self.loop, beacon=self.beacon)

    @property
    def thread(self) -> SteeredThread:
        """The thread that runs aiokafka's consumer."""
        return self._thread

    @property
    def is_open(self) -> bool:
        """Whether source partitions are fetched, that is, whether the seek of this generation is done."""
        return self._open

    # ---- rebalances in place: what `Holder` says

    @property
    def group_generation(self) -> int:
        """The generation that this worker's group is in.  Faust's number stays as it is at a rebalance in place: its
        streams skip queued events of another one.
        """
        return self.app.consumer_generation_id if self._generation is None else self._generation

    @property
    def joining(self) -> bool:
        """Whether the group rebalances in place: nothing may be taken or given."""
        joins = getattr(self._thread, "joins", None)
        return joins is not None and joins.member.barrier

    def may_keep(self) -> str | None:
        """Why this worker cannot go on with what it owns through a rebalance; None: it can."""
        if not self._open or self._changing or self._left is not None or self.app.rebalancing:
            return "its tables are not restored"
        return self.watcher.against_keeping()

    def owned(self) -> frozenset[TP]:
        """All partitions that this worker owns, its changelogs' too."""
        return frozenset(self.app.assignor._assignment.active_tps)

    def renew(self, assignment: Any, new: frozenset[TP], generation: int) -> None:
        """Adopt the leader's assignment, in which nothing is lost.  What is new is taken over later."""
        self._generation = generation
        self.watcher.renewed(assignment, new, generation)

    async def commit_refused(self) -> None:
        """Commit what the group has refused while it rebalanced in place."""
        if self._thread.joins is not None and self._behind - self._held.keys():
            await self.commit(start_new_transaction=False)

    async def subscribe(self, topics: Collection[str]) -> None:
        """Subscribe once placement and topics are known (patch topics-known-before-assignment)."""
        self.transport.waits.begin(JOIN)
        _await_broker(self.app.tables.recovery)  # it belongs to the loop in which it is made
        await self.watcher.before_join(frozenset(topics))
        await self._thread.wait_for_topics(frozenset(topics), self.settings.topics_limit_s)
        self.watcher.topics_known()
        await super().subscribe(topics)

    # ---- fetching

    async def _drain_messages(self, fetcher: Any) -> None:
        """Fetch and deliver until the worker stops.

        Stock Faust races every single message against the end of the flow, with four tasks each time.  Here one race
        covers a whole fetched round.  The saving pays for the measurement of key groups.
        """
        try:
            while not (self.should_stop or fetcher.should_stop):
                await asyncio.sleep(0)  # a fetch that returns at once would let no other task run
                restored = self._restored
                if records := await self._next_round():
                    await self._while_flowing(self._deliver(records, self._rebalances))
                if not self._open and self.flow_active and restored is self._restored:
                    await self._end_recovery()
        except (asyncio.CancelledError, *self.consumer_stopped_errors):
            if not self.app.should_stop:
                raise
        except Exception:
            self.log.exception("delivery failed")
            raise

    async def _while_flowing(self, delivery: Coroutine[Any, Any, None]) -> None:
        """Deliver until all is delivered, or the flow or the worker stops.  Nothing is delivered after the return."""
        task = asyncio.ensure_future(delivery)
        await self.wait_first(task, self.suspend_flow.wait())  # cancels the task if it was not the first
        await asyncio.wait([task])
        if not task.cancelled():
            task.result()

    async def _next_round(self) -> dict[TP, list[Any]]:
        """The next records by partition; empty when the worker stops."""
        while not self.should_stop:
            if not self.flow_active:
                await self.wait(self.can_resume_flow)
                continue
            rebalances = self._rebalances
            active = frozenset(self._get_active_partitions())  # (patch fixed-partitions-during-fetch)
            if not self._open:  # (patch seek-before-sources-open)
                active = frozenset(tp for tp in active if self._is_changelog_tp(tp))
            self._note_passed(active)
            now = time.monotonic()
            if refused := self._refused_since(now - FORBIDDEN_AGAIN_S):  # each refusal holds up the fetch of all others
                active -= {tp for tp in active if tp.topic in refused}
            if self._unreadable:
                active -= {tp for tp, (_, again_at) in self._unreadable.items() if again_at > now}
            self._thread.room = self._room_for_backlogs()
            records = await self._fetch(active)
            # Records fetched before a rebalance are dropped: after the seek at the end of the recovery they come again.
            if self.flow_active and rebalances == self._rebalances:
                for tp in self.blocked.intersection(records):
                    del records[tp]
                for tp in self._unreadable.keys() & records:
                    self.log.warning("%s/%d can be read again", *tp)
                    del self._unreadable[tp]
                for tp in records:
                    self.app.monitor.track_tp_end_offset(tp, self.highwater(tp))
                self._round = records
                return records
        return {}

    def begin_behind(self, tps: Collection[TP]) -> None:
        """Let what has waited in these partitions not delay the events of all others."""
        self._backlogs |= set(tps)

    def _room_for_backlogs(self) -> dict[TP, int]:
        """How many records to read now of each partition with a backlog, as long as it has one."""
        for tp in list(self._backlogs):
            at, end = self._thread.taken_up_to(tp), self.log_end(tp)
            if at is not None and end is not None and at >= end:
                self._backlogs.discard(tp)
        if not self._backlogs:
            return {}
        # Not those that agents have: they may acknowledge none before they have many.
        waiting = Counter(event.message.tp for queue in self._queues(self._backlogs) for event in queue._queue)
        others = sum(count for tp, count in waiting.items() if tp not in self._backlogs)
        share = max(BACKLOG_EVENTS, others) // len(self._backlogs) + 1
        return {tp: max(0, share - waiting[tp]) for tp in self._backlogs}

    def _let_take_turns(self, tp: TP) -> None:
        """Let the queues of a partition with a backlog have events of all partitions in turn, a few times a second."""
        now = time.monotonic()
        if now - self._turns_at > TURNS_S:
            self._turns_at = now
            for queue in self._queues({tp}):
                waiting: dict[Any, list[Any]] = {}
                for event in queue._queue:
                    waiting.setdefault(event.message.tp, []).append(event)
                turns = itertools.zip_longest(*waiting.values())
                queue._queue.clear()
                queue._queue.extend(event for turn in turns for event in turn if event is not None)

    def _note_passed(self, active: Collection[TP]) -> None:
        """Note up to where partitions are read.  Between two rounds all that was fetched is delivered."""
        now = time.monotonic()
        if now - self._passed_at > ENDS_INTERVAL_S:
            self._passed_at = now
            at = {tp: self._thread.taken_up_to(tp) for tp in active if tp in self._position}
            self._passed = {tp: offset for tp, offset in at.items() if offset is not None}

    async def _fetch(self, active: frozenset[TP]) -> dict[TP, list[Any]]:
        self.not_waiting_next_records.clear()
        try:
            if active and not (self._open and self._thread.commit_waits):
                return dict(await self._getmany(active_partitions=active, timeout=self.settings.fetch_round_s))
            await self._thread.run(self._thread.touch)  # (patch idle-worker-stays-member)
        except TopicAuthorizationFailedError as error:  # else all workers would end, also after each start
            self._forbidden[error.args[0]] = time.monotonic()
        except UnreadableRecord as error:  # (patch stand-at-unreadable-record)
            tp = TP(*error.tp)
            if tp not in self._unreadable:
                self.log.error("%s. It is tried again from time to time, and all other partitions go on", error.args[0])
            self._unreadable[tp] = error.args[0], time.monotonic() + UNREADABLE_S
        finally:
            self.not_waiting_next_records.set()
        await self.sleep(IDLE_S)
        return {}

    def _refused_since(self, since: float) -> set[str]:
        """The topics that Kafka has refused to let it read since then (monotonic seconds)."""
        return {topic for topic, at in self._forbidden.items() if at > since}

    async def _deliver(self, records: Mapping[TP, list[Any]], rebalances: int) -> None:
        """Give a round to the streams, alternating topics and partitions.

        Agents may run after one message of each topic.  They take one at a turn of the event loop, so more would only
        fill their queues, and hold up other topics when one is full.
        """
        changelogs = frozenset(filter(self._is_changelog_tp, records))
        give, delivered = self.callback, self.transport.guard.refused.delivered
        self._round = left = dict(records)
        given: set[str] = set()
        for tp, record in self.scheduler.iterate(records):
            if tp.topic in given:
                given.clear()
                await asyncio.sleep(0)
            given.add(tp.topic)
            if not self.flow_active or rebalances != self._rebalances:
                return
            if tp not in left:  # a scheduler of the app's own may have copied the lists
                continue
            offset, expected = record.offset, self._read_offset[tp]
            if expected is not None and offset < expected:
                continue
            if tp not in changelogs:
                self._note_delivery(tp, offset)
            self._delivering = tp
            message = self._to_message(tp, record)
            try:
                await give(message)
                if tp in self._backlogs:
                    self._let_take_turns(tp)
                if tp not in changelogs:
                    delivered(tp, offset)
            except Exception:
                if not getattr(message, "refcount", 0):  # no channel has it
                    raise
                self._leave_out(message)
            finally:
                self._read_offset[tp] = offset
                self._delivering = None
                if tp in changelogs:
                    self._restored[tp] = offset
            if self._commit_every is not None and self._n_acked >= self._commit_every:
                self._n_acked = 0
                await asyncio.shield(self.commit())  # a cancelled commit would lose its offsets

    def _leave_out(self, message: Any) -> None:
        """Count a record as done that a schema of the app's own fails on (patch failed-event-done).

        Faust does so if it raises KeyDecodeError or ValueDecodeError, and else ends worker after worker.
        """
        where = f"{message.topic}/{message.partition} offset {message.offset}"
        self.log.exception("%s cannot be decoded, and counts as done", where)
        channels = self.app.topics._tp_index.get(message.tp, ())
        queued = sum(id(message) in _messages_in([channel.queue]) for channel in channels)
        message.ack(self, n=message.refcount - queued)

    def _note_delivery(self, tp: TP, offset: int) -> None:
        self._density.read(tp, offset)
        if not self.app.topics.acks_enabled_for(tp.topic):  # nothing of it is ever done, as far as is known
            self._position[tp] = offset + 1
            return
        delivered = self._delivered.get(tp)
        if offset < self._position.get(tp, 0):
            return  # the app has gone back: Faust acknowledges nothing that is committed already
        if delivered is None:
            self._delivered[tp] = deque([offset])
        elif not delivered or offset > delivered[-1]:
            delivered.append(offset)

    async def _end_recovery(self) -> None:
        """End Faust's recovery when all changelogs are read up to their ends (patch recovery-ends-at-position).

        The drain loop calls this after it has delivered all that it fetched.  So whatever lies before a position is
        in the recovery's queue or has come out of it, and `_restored` says which of it came last.
        """
        recovery, restored = self.app.tables.recovery, self._restored
        if behind := [tp for tp, records in recovery.active_remaining().items() if records > 0]:
            positions = await self._thread.run(self._thread.positions, behind)
            if restored is not self._restored or not self.flow_active:
                return
            offsets, ends = recovery.active_offsets, recovery.active_highwaters
            for tp in positions.keys() & ends.keys():
                at = offsets.get(tp)
                if at is not None and at >= restored.get(tp, -1) and at < ends[tp] < positions[tp]:
                    offsets[tp] = ends[tp]
        if recovery.active_highwaters and not recovery.need_recovery():
            if recovery.in_recovery:
                recovery.flush_buffers()
                recovery._set_recovery_ended()
            recovery.signal_recovery_end.set()  # wakes whoever waits now, and is not left for the next recovery
            recovery.signal_recovery_end.clear()

    # ---- rebalances

    @Service.transitions_to(CONSUMER_PARTITIONS_REVOKED)  # type: ignore[untyped-decorator]
    async def on_partitions_revoked(self, revoked: set[TP]) -> None:
        """Finish begun events, commit, then forget (patch begun-events-finished, patch offsets-kept-until-commit)."""
        self.transport.waits.begin(JOIN)
        self._rebalances += 1
        self._changing = True
        self._sought = self._open = False
        self.watcher.rebalancing()
        self._backlogs.clear()
        self.withheld.clear()  # if a hand-over's commit is refused now, the generation's last commit includes them
        written_here = dict(self._writes_from)
        sources = {tp for tp in revoked | self._delivered.keys() if not self._is_changelog_tp(tp)}
        self.block(sources)
        limit_s = self.app.conf.broker_rebalance_timeout
        leaving = asyncio.ensure_future(self._leave_if_cut_off(limit_s / 4))
        try:
            if not await self.drain(sources, limit_s / 2):
                self.not_finished("the rebalance continues")
            if sources:  # else this may be the first join, with nothing to send
                await self.app.producer.flush_or_drop(limit_s / 4)
            await self._on_partitions_revoked(revoked)
            if self._held:
                await self.app.producer.flush()  # what was sent again must not follow what the next owner writes
        finally:
            if self._left is None:
                leaving.cancel()
            await asyncio.wait([leaving])
            self.transport.guard.refused.leave()
            self.forget(sources | revoked)
            self._writes_from = written_here  # those that stay here go on
            self._closed |= written_here.keys()
        await self._until_within_reach()

    async def _leave_if_cut_off(self, limit_s: float) -> None:
        """Leave the group if a broker that does not answer this worker has kept its outputs waiting for `limit_s`.

        The others would wait for it.  Where the broker of the group is silent too, they do not.
        (patch silent-leader-not-awaited)
        """
        since = self._thread.committing_since or uptime()
        await asyncio.sleep(since + limit_s - SILENT_S - uptime())
        while True:
            producer = self.app.producer._producer
            waiting = producer.waiting() if producer is not None and not self._thread.coordinator_silent else ()
            if (silent := await producer.silent_leader(waiting, SILENT_S) if waiting else None) is not None:
                break
            await asyncio.sleep(ENDS_INTERVAL_S)
        self.log.error(CUT_OFF, silent)
        self._left, self._left_for = silent, frozenset(waiting)
        producer.cut_off()
        await self._thread.leave(SILENT_S)

    async def _until_within_reach(self) -> None:
        """After it has left the group, wait until the broker answers; then this worker joins again."""
        while self._left is not None:
            await self.sleep(RETRY_S)
            if self.should_stop or self.app.should_stop:
                return
            await self._thread.run(self._thread.touch)
            self._left = await self.app.producer._producer.silent_leader(self._left_for, SILENT_S)

    async def finish(self) -> None:
        """Finish begun events before Faust stops and clears the queues (patch begun-events-finished)."""
        self._finishing = True
        self._let_go_of_failed()
        sources = {tp for tp in self._active_partitions | self._delivered.keys() if not self._is_changelog_tp(tp)}
        self.block(sources)
        if not await self.drain(sources, self.app.conf.broker_rebalance_timeout / 2):
            self.not_finished("the worker stops")

    def not_finished(self, what: str) -> None:
        """Begun events were not finished in time: they are read again, and what they still write is too late.

        Faust would wait for them without end.
        """
        self.log.warning("begun events were not finished in time; %s without them, and they are done again", what)
        for message in (begun := set(self._all_begun())):
            self._give_up(message)
        self._leave_out_of_batches(begun)

    def _give_up(self, message: Any) -> None:
        message.acked = True  # who acknowledges it later must not do so for its copy
        self._given_up.add(message)
        self._unacked_messages.discard(message)

    async def on_partitions_assigned(self, assigned: set[TP], generation_id: int = 0) -> None:
        """Stop the flow (patch flow-stopped-before-assignment), then let Faust restore its tables."""
        self._sought = self._open = False
        self._generation = None
        self.stop_flow()
        self.app.flow_control.suspend()
        self.watcher.rebalancing()  # once more, because a hand-over step may have raced with the revocation
        self.blocked.clear()
        self._delivered.clear()
        self._restored = {}
        stay = set() if self.fence.lost else assigned  # without membership, others may have owned them meanwhile
        self._writes_from = {tp: start for tp, start in self._writes_from.items() if tp in stay}
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
        """Seek, as soon as the broker answers (patch restore-awaits-broker)."""
        await until_answered(self._seek_sources)()

    async def _seek_sources(self) -> None:
        """Seek every source partition, also those without a committed offset (patch seek-before-sources-open).

        Between two assignments only the recovery of the first one can call this.  The call waits until Faust cancels
        it.  Otherwise its late seek would count for the second assignment, whose own seek would then rewind the input.
        """
        while self._changing:
            await asyncio.sleep(POLL_S)
        rebalances = self._rebalances
        await super().perform_seek()
        fresh = [tp for tp in self.assignment() if not self._is_changelog_tp(tp) and not self._committed_offset.get(tp)]
        committed_here = self._thread.committed_here
        self.set_by_others = frozenset(tp for tp in self.assignment() if tp not in committed_here)
        self.from_start = await self._seek_to_start(fresh) if fresh else {}
        await self._stay_if_overtaken(rebalances)
        for tp in self.assignment():
            self._position[tp] = self._read_offset[tp] or 0
            self._density.begin(tp, self._position[tp])
            if not self._is_changelog_tp(tp):
                self._writes_from.setdefault(tp, self._position[tp])
        self._sought = self.has_begun = True

    async def _seek_to_start(self, tps: Collection[TP]) -> dict[TP, range]:
        """Read these partitions from their start; returns the offsets that each has."""
        starts, ends = await asyncio.gather(self.earliest_offsets(*tps), self.highwaters(*tps))
        await self.seek_wait({tp: starts[tp] for tp in tps})
        return {tp: range(starts[tp], max(starts[tp], ends.get(tp) or 0)) for tp in tps}

    async def seek(self, partition: TP, offset: int) -> None:
        """Read on elsewhere, because the app says so: its events may write, wherever they are."""
        await super().seek(partition, offset)
        if (start := self._writes_from.get(partition)) is not None:
            self._writes_from[partition] = min(start, offset)

    async def _stay_if_overtaken(self, rebalances: int) -> None:
        """Hold a recovery that a rebalance overtook until Faust cancels it: its end would open the next one's flow."""
        if rebalances != self._rebalances:
            await asyncio.Event().wait()

    def resume_flow(self) -> None:
        """Let messages flow, those of source partitions only after the seek of this generation.

        Without an assignment there is nothing to seek or to fetch too early (patch seek-before-sources-open).
        """
        was_open, self._open = self._open, self._sought or not self.assignment()
        super().resume_flow()
        if self._open and not was_open:
            self._closed.clear()
            self.transport.waits.begin(None)
            self.watcher.stable()

    def is_late(self, message: Any) -> bool:
        """Whether the key group of an event has left since the event was read, or is just leaving.

        Also between a revocation and the end of the recovery.  An event of a channel in memory is in no key group.
        """
        if self._cause(message) in self._given_up:
            return True
        tp = message.tp
        start = self._writes_from.get(tp)
        if start is None:
            return self.has_begun if tp.topic is not None else self.is_leaving(tp.partition)
        return tp in self._closed or -1 < message.offset < start  # -1: an event that has skipped the broker

    def is_leaving(self, partition: int) -> bool:
        """Whether a key group with this partition number is leaving."""
        return any(tp.partition == partition for tp in self._closed)

    # ---- commits

    async def commit_and_end_transactions(self) -> None:
        """Commit after any running periodic commit has ended (patch last-commit-not-skipped).

        The group may refuse it while it completes a rebalance in place; then it takes it afterwards.
        """
        await self.wait_for_commit()
        await self.commit(start_new_transaction=False)
        if self.joining and self._behind - self._held.keys():
            await until(lambda: not self.joining, time.monotonic() + LAST_COMMIT_S)
        await self.commit_refused()

    async def wait_for_commit(self) -> None:
        """Wait until no commit is running, because it may carry older offsets."""
        while self._commit_fut is not None:
            await self.maybe_wait_for_commit_to_finish()

    def _new_offset(self, tp: TP) -> int | None:
        """Offset of the first unfinished event, or None if it is committed already (patch commit-up-to-first-gap)."""
        if tp in self.withheld or self.fence.broken:
            return None
        acked, delivered = self._acked_index[tp], self._delivered.get(tp)
        self._acked[tp].clear()  # stock Faust's bookkeeping, only its keys are used here
        before = self._position.get(tp)
        while delivered and delivered[0] in acked:
            acked.discard(delivered[0])
            self._position[tp] = delivered.popleft() + 1
        if self._position.get(tp) == before and tp not in self._behind:
            return None
        self._behind.discard(tp)
        return self._position.get(tp)

    async def _commit_tps(self, tps: Iterable[TP], start_new_transaction: bool) -> bool:
        """Send what the commit waits for, then commit; the thread knows since when."""
        self._thread.committing_since = uptime()
        try:
            return bool(await super()._commit_tps(tps, start_new_transaction))
        finally:
            self._thread.committing_since = None

    async def _commit(self, offsets: MutableMapping[TP, int]) -> bool:
        """Commit, after the flush, nothing beyond an event that is held (patch stand-at-refused-record)."""
        for tp in self._held.keys() & offsets.keys():
            offsets[tp] = max(min(offsets[tp], self._held[tp]), self._committed_offset[tp] or 0)
        committed: bool = await super()._commit(offsets)
        if not committed:  # Faust counts it as committed all the same
            self._behind |= offsets.keys()
            offsets.update({tp: self._committed_offset[tp] or 0 for tp in offsets})
        return committed

    # ---- single partitions, inside a generation

    def block(self, tps: Collection[TP]) -> None:
        """Stop delivering records of these partitions."""
        self.blocked |= set(tps)
        self._active_partitions -= set(tps)
        self._buffered_partitions -= set(tps)  # otherwise an emptying queue would activate them again
        self._paused_partitions |= set(tps)
        for tp in tps:
            self._passed.pop(tp, None)  # what is taken back has been passed
            if (rest := self._round.pop(tp, None)) is not None:
                rest.clear()  # the drain loop's iterators over these lists end

    def unblock(self, tps: Collection[TP]) -> None:
        """Deliver records of these partitions again, and let their events write."""
        self._closed -= set(tps)
        going = set(tps) - self._held.keys()
        self.blocked -= going
        self._paused_partitions -= going
        self._active_partitions |= going

    async def drain(self, tps: Collection[TP], limit_s: float, check: Check = lambda: None) -> bool:
        """Take back events that no agent has begun, wait for the begun ones; False if it takes over `limit_s`.

        If it is True, no event of these partitions writes a table any more, until they are unblocked.
        """
        deadline = time.monotonic() + limit_s
        finished = await self.take_back(tps, deadline, check) and await until(
            lambda: not self._begun(tps), deadline, check
        )
        if finished:
            self._closed |= set(tps)
        return finished

    # ---- partitions that stand still (patch stand-at-refused-record)

    @property
    def held(self) -> set[TP]:
        """Partitions that stand still because Kafka refuses a record of one of their events."""
        return set(self._held)

    def hold(self, tp: TP, offset: int) -> None:
        """Deliver and commit nothing of a partition from this event on."""
        self._held[tp] = min(offset, self._held.get(tp, offset))
        self._behind.add(tp)
        self.block({tp})

    async def keep_held(self) -> None:
        """Take back what was delivered of held partitions; fetch nothing of them, whatever has asked for it."""
        if held := self.held:
            self.block(held)
            await self.take_back(held, time.monotonic() + FETCH_LIMIT_S)
            with contextlib.suppress(GenerationOver):
                await self._thread.run(self._thread.stop_fetching, self.group_generation, held)

    def count_as_done(self, tp: TP) -> None:
        """Let the events of a held partition be committed."""
        if self._held.pop(tp, None) is not None:
            self._behind.add(tp)

    async def go_on(self, tp: TP) -> None:
        """Go on with a held partition after what was delivered of it."""
        self.count_as_done(tp)
        positions = {tp: self.next_offset(tp)}
        self.go_on_at(positions)
        with contextlib.suppress(GenerationOver):
            await self._thread.run(self._thread.attach, self.group_generation, positions)
            self.unblock({tp})

    # ---- what is in work

    async def take_back(self, tps: Collection[TP], deadline: float, check: Check = lambda: None) -> bool:
        """Take events of blocked partitions that no agent has got out of queues and batches; they are read again.

        First waits for the message being delivered: queued after the purge, it would be processed out of order.
        """
        with self._room_in(self._queues({self._delivering} & set(tps))):
            if not await until(lambda: self._delivering not in tps, deadline, check):
                return False
        self._purge(tps)
        for message in (untouched := self._untouched(tps)):
            self._undeliver(message.tp, message.offset)
            self._unacked_messages.discard(message)
        self._leave_out_of_batches(untouched)
        return True

    def _streams(self) -> list[Any]:
        return [each for first in list(self.first_streams) for each in chain(first)]

    def _untouched(self, tps: Collection[TP]) -> set[Any]:
        """Messages that only wait in a batch for more of them: nobody has done anything with them, or later ones."""
        alone = {tp for tp in tps if len(self.app.topics._tp_index.get(tp, ())) == 1}
        batches = [waiting_in_batch(stream)[1] for stream in self._streams() if only_gathers(stream)]
        waiting = {(event.message.tp, event.message.offset): event.message for events in batches for event in events}
        begun = {(message.tp, message.offset) for message in self._all_begun()}
        found = set()
        for tp in alone.intersection(tp for tp, _ in waiting):
            for offset in reversed(self._delivered.get(tp, ())):
                message = waiting.get((tp, offset))
                if message is not None and message.refcount == 1:
                    found.add(message)
                elif (tp, offset) in begun or offset in self._acked_index[tp]:
                    break
        return found

    def _leave_out_of_batches(self, messages: set[Any]) -> None:
        """Let no agent get these messages, or what they have caused, in a batch any more."""
        for values, events in map(waiting_in_batch, self._streams()) if messages else ():
            for at in reversed(range(len(events))):
                if self._cause(events[at].message) in messages:
                    del values[at], events[at]

    def _queues(self, tps: Collection[Any]) -> set[Any]:
        return {channel.queue for tp in tps for channel in self.app.topics._tp_index.get(tp, ())}

    @contextlib.contextmanager
    def _room_in(self, queues: Collection[Any]) -> Iterator[None]:
        """Let one more message into these queues.  Agents may need long for those that they work on."""
        for queue in (full := [queue for queue in queues if queue.full()]):
            queue._maxsize += 1
            queue._wakeup_next(queue._putters)
        try:
            yield
        finally:
            for queue in full:
                queue._maxsize -= 1

    def _clean_unacked_messages(self) -> None:
        """After the fence has refused an event, wait only for messages that agents work on (patch fence-after-session).

        A message that one agent refused and another finished is never acked.  It is read again in the next generation.
        So is one whose agent waits for an answer that cannot come before that (patch asking-not-waited-for).
        """
        super()._clean_unacked_messages()
        if self._changing or self._finishing:
            for message in self._asking.values():
                self._unacked_messages.discard(self._cause(message))
        if self.fence.tripped:
            in_hands = set(map(id, self._in_hands()))
            for message in list(self._unacked_messages):
                if id(message) not in in_hands:
                    self._unacked_messages.discard(message)

    def _cause(self, message: Any) -> Any:
        """The broker's message that is not done before this one."""
        return message

    def _in_hands(self) -> list[Any]:
        """The messages that agents work on."""
        streams = [actor.stream.get_active_stream() for agent in self.app.agents.values() for actor in agent._actors]
        return [stream.current_event.message for stream in streams if stream.current_event is not None]

    def asking(self, tps: Collection[TP]) -> set[TP]:
        """Those of these partitions with an event whose agent waits for another one's answer."""
        for answer, message in list(self._asking.items()):
            if message.acked:  # its agent did not wait for all answers
                del self._asking[answer]
        return {message.tp for message in self._asking.values() if message.tp in tps}

    def _begun(self, tps: Collection[TP]) -> bool:
        self._clean_unacked_messages()
        if any(not sources.isdisjoint(tps) for sources in self.closing_windows.values()):
            return True
        return any(message.tp in tps for message in self._all_begun())

    def _all_begun(self) -> list[Any]:
        return [message for message in list(self._unacked_messages) if not message.acked]

    def oldest_in_work(self, tps: Collection[TP]) -> InWork | None:
        """The event of these partitions that agents have had in their hands for the longest time."""
        others = self._untouched(tps).union(*self._waiting(tps).values())
        begun = [each for each in self._all_begun() if each.tp in tps and each not in others]
        found = self.in_work.oldest_of(begun, time.monotonic())
        return max(found.values(), key=lambda each: each.age_s, default=None)

    def _waiting(self, tps: Collection[TP]) -> dict[Any, list[Any]]:
        """Begun messages that another agent has yet to take, by the queues of these partitions."""
        return {
            queue: [event.message for event in queue._queue if event.message.tracked] for queue in self._queues(tps)
        }

    def bring_forward(self, tps: Collection[TP]) -> float:
        """Let agents take what others have begun of these partitions before anything else.

        Returns about how long that takes, in seconds.  The order within a partition stays.
        """
        longest_s, now = 0.0, time.monotonic()
        for queue, waiting in self._waiting(tps).items():
            left = Counter(message.tp for message in waiting)
            if left.keys().isdisjoint(tps):
                continue
            longest_s = max(longest_s, self.in_work.seconds_behind(queue, waiting, tps, now))
            first, others = list[Any](), list[Any]()
            for event in queue._queue:
                tp = event.message.tp
                (first if tp in tps and left[tp] > 0 else others).append(event)  # with what is before them in the log
                left[tp] -= event.message.tracked
            queue._queue.clear()
            queue._queue.extend([*first, *others])
        return longest_s

    def abandoned(self, tps: Collection[TP]) -> str | None:
        """An event of drained partitions that was not acknowledged, although nobody has it any more; None: all were.

        An app that acknowledges by hand wants it again, from whoever begins at what was committed.
        """
        for tp in sorted(tps):
            acked = self._acked_index.get(tp, ())
            if (left := next((each for each in self._delivered.get(tp, ()) if each not in acked), None)) is not None:
                return f"{tp.topic}/{tp.partition} offset {left}"
        return None

    def _purge(self, tps: Collection[TP]) -> None:
        for queue in self._queues(tps):
            self._take_out(queue, tps, {})

    def _take_out(self, queue: Any, tps: Collection[TP], stay: Mapping[TP, int]) -> None:
        """Take events that no agent has begun out of a queue, except those up to an offset that must `stay`."""
        kept = []
        for event in queue._queue:
            tp, offset = event.message.tp, event.message.offset
            if tp in tps and not event.message.tracked and offset > stay.get(tp, -1):
                self._undeliver(tp, offset)
            else:
                kept.append(event)
        kept.sort(key=lambda event: event.message.tp not in tps)  # what is waited for comes first
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
        """The offset at which a blocked and purged partition continues."""
        delivered = self._delivered.get(tp)
        return delivered[-1] + 1 if delivered else self._position[tp]

    def backlog(self, tp: TP) -> int | None:
        """About how many records in the log agents have not begun, fetched or not; None if that is unknown.

        What has not been fetched is estimated by what was read before, and what is found far ahead.  What an agent
        holds without acknowledging it does not wait for the worker.
        """
        if (unread := self._unread(tp)) is None:
            return None
        unfinished = len(self._delivered.get(tp, ())) - len(self._acked_index.get(tp, ())) - self.in_work.counts[tp]
        waiting = self._density.records(tp, unread)
        return None if waiting is None else waiting + max(0, unfinished)

    def _unread(self, tp: TP) -> range | None:
        """The offsets that have not been fetched; None if that is unknown."""
        end = self.log_end(tp)
        return None if end is None else range(max(self.next_offset(tp), self._passed.get(tp, 0)), end)

    def log_end(self, tp: TP) -> int | None:
        """The offset at which the log ends, as far as is known; None if that is unknown, or it is not fetched here."""
        if tp not in self._position or not self._thread.fetches(tp):
            return None
        return self._ends.newest(tp, self.highwater(tp))

    def out_of_reach(self, tps: Collection[TP] | None = None) -> str | None:
        """Why one of these (all) partitions is not read, or nothing committed; None: all is well, as far as known."""
        if self._left is not None:
            return self._left
        silent = self._ends.out_of_reach() if tps is None else self._ends.out_of_reach().intersection(tps)
        if silent:
            return self._thread.silence(min(silent))
        unreadable = self._unreadable.keys() if tps is None else self._unreadable.keys() & tps
        if unreadable:
            return printable(self._unreadable[min(unreadable)][0])[:200]
        refused = self._refused_since(time.monotonic() - FORBIDDEN_S)
        if forbidden := refused if tps is None else refused.intersection(tp.topic for tp in tps):
            return f"Kafka does not let the app read {min(forbidden)}"
        return COMMITS_WAIT if self._thread.commit_waits else None

    async def check_leaders(self, tps: Collection[TP]) -> str | None:
        """Ask the leaders of partitions that are not fetched here; why one does not answer, None: all do."""
        ends = await self._thread.ends_by_leader(tps, ENDS_LIMIT_S)
        silent = [tp for tp, end in ends.items() if end is None]
        return self._thread.silence(min(silent)) if silent else None

    @Service.task  # type: ignore[untyped-decorator]
    async def _follow_ends(self) -> None:
        while not self.should_stop:
            await self.sleep(ENDS_INTERVAL_S)
            self._let_go_of_failed()
            self.in_work.see(self._all_begun(), self._waiting(self._position), time.monotonic())
            self.tell_of_gaps(time.time())
            self.recall_if_fenced()
            await self._ends.refresh(self._thread, list(self._position))

    def recall_if_fenced(self) -> None:
        """Let nothing arrive late when the network is back: the kernel would go on sending (patch fence-after-session).

        The next owner may have written by then.
        """
        producer = self.app.producer._producer
        if producer is not None and self.fence.closed_now():
            producer.recall()

    def tell_of_gaps(self, now: float) -> None:
        """Tell of an event that holds up all commits of its partition; `now` in epoch seconds.

        An agent that acknowledges by hand, and fails before it does, never comes back to it.  One that hangs takes no
        event any more.
        """
        seen = self._gaps
        begun = {(message.tp, message.offset) for message in self._all_begun()}
        firsts = {
            tp: offsets[0]
            for tp, offsets in self._delivered.items()
            if offsets and (self._acked_index.get(tp) or (tp, offsets[0]) in begun)
        }
        gaps = {tp: first for tp, first in firsts.items() if first not in self._acked_index[tp]}
        self._gaps = {
            tp: seen[tp] if tp in seen and seen[tp][0] == first else (first, now) for tp, first in gaps.items()
        }
        old = {tp: (first, since) for tp, (first, since) in self._gaps.items() if now - since > UNACKNOWLEDGED_S}
        if old:
            tp = min(old, key=lambda tp: (old[tp][1], tp))
            self.watcher.tell(
                Trouble.UNACKNOWLEDGED,
                f"{tp.topic}/{tp.partition} offset {old[tp][0]} is not acknowledged since {minute(old[tp][1])}: "
                "nothing after it is committed, and a restart does all of that again",
            )
        elif self._gaps_told:
            self.watcher.tell(Trouble.UNACKNOWLEDGED, None)
        self._gaps_told = bool(old)

    @Service.task  # type: ignore[untyped-decorator]
    async def _look_ahead(self) -> None:
        while not self.should_stop:
            await self.sleep(LOOK_INTERVAL_S)
            self._density.begin_turn()
            for _ in range(LOOKS):
                unread = {tp: offsets for tp in list(self._position) if (offsets := self._unread(tp))}
                places = {tp: self._density.place_to_look(tp, offsets) for tp, offsets in unread.items()}
                asked = {tp: place for tp, place in places.items() if place is not None}
                if not asked or self.should_stop:
                    break
                found = await self._thread.densities_at(asked)
                for tp, place in asked.items():
                    self._density.look(tp, place, found.get(tp))

    def start_at(self, positions: Mapping[TP, int]) -> None:
        """Continue at these offsets and count them as committed: everything before them is done."""
        self.has_begun = True
        for tp, offset in positions.items():
            self._delivered.pop(tp, None)
            self._acked_index.pop(tp, None)
            self._acked.pop(tp, None)
            self._position[tp] = self._writes_from[tp] = offset
            self._density.begin(tp, offset)
            self._passed.pop(tp, None)
            self._read_offset[tp] = self._committed_offset[tp] = offset or None

    def go_on_at(self, positions: Mapping[TP, int]) -> None:
        """Continue at these offsets; events begun before them may still be unfinished."""
        for tp, offset in positions.items():
            self._read_offset[tp] = offset or None

    def forget(self, tps: Collection[TP]) -> None:
        """Drop the bookkeeping of partitions that this worker no longer owns."""
        kept = {this: sources for this, sources in self.closing_windows.items() if sources.isdisjoint(tps)}
        self.closing_windows = kept
        by_partition: tuple[MutableMapping[TP, Any], ...] = (
            self._acked,
            self._acked_index,
            self._read_offset,
            self._committed_offset,
            self._delivered,
            self._position,
            self._held,
            self._writes_from,
            self._unreadable,
        )
        for known in by_partition:
            for tp in tps:
                known.pop(tp, None)
        for tp in tps:
            self._density.forget(tp)
            self._passed.pop(tp, None)
        left = (self._active_partitions, self._paused_partitions, self._behind, self._closed, self._backlogs)
        for marked in left:
            marked.difference_update(tps)
        self.in_work.forget(tps)


def _has(stream: Any, message: Any) -> bool:
    """Whether a stream works on a message, or has it in a batch; perhaps, if it acknowledges by hand."""
    if stream.current_event is not None and stream.current_event.message is message:
        return True
    if stream.enable_acks:
        return False
    held = in_batch(stream, by_hand=False)
    return held is None or any(event.message is message for event in held)


def _messages_in(queues: Collection[Any]) -> set[int]:
    """The ids of the messages that agents have yet to take from these queues."""
    # The app may put values into a channel in memory, which are no events.
    return {id(event.message) for queue in queues for event in queue._queue if hasattr(event, "message")}


def _await_broker(recovery: Any) -> None:
    """Let Faust's recovery wait until the broker answers, or the next one begins (patch restore-awaits-broker).

    It takes the end of its own time limit for the end of the worker: it ends for good, and whatever comes, no table is
    restored and no source opened any more, while the worker stays in the group.
    """
    if "_wait" in vars(recovery):  # the app subscribes again, to new topics
        return
    wait = recovery._wait

    async def wait_without_limit(waited: Any, timeout: float | None = None) -> None:
        await wait(waited)

    recovery._wait = wait_without_limit
    for step in ("_build_highwaters", "_build_offsets", "_seek_offsets"):
        setattr(recovery, step, until_answered(getattr(recovery, step)))


def keep_what_waits(flow_control: Any) -> None:
    """Let `resume()` change nothing while the flow is open (patch standby-records-kept).

    Each call empties all queues.  Faust calls it up to three times for an assignment, the last time when it already
    reads the changelogs of its standbys.  The first call drops what the assignment before has left, and is enough: the
    consumer suspends the flow before every assignment.
    """
    resume: Callable[[], None] = flow_control.resume

    def resume_if_suspended() -> None:
        if flow_control._suspend.is_set():
            resume()

    flow_control.resume = resume_if_suspended


class SteeredTransport(Transport):  # type: ignore[misc]
    """Faust's aiokafka driver with the patched consumer and producer.  They share one fence and one watcher."""

    Consumer = SteeredConsumer
    Producer = SteeredProducer

    def __init__(self, app: Any, *, fence: Fence, settings: SteeringSettings, watcher: Watcher) -> None:
        super().__init__(app.conf.broker_consumer, app)
        self.fence = fence
        self.settings = settings
        self.watcher = watcher
        self.waits = BrokerWaits(lambda: app.producer._producer.client)
        self.guard = StoreGuard(
            app, fence, on_breach=lambda: self.watcher.breached(), tell=lambda *told: self.watcher.tell(*told)
        )

    def create_producer(self, **options: Any) -> Any:
        """Create the app's producer.  A program that only asks or sends is no worker, and has Faust's own."""
        no_worker = self.app.client_only or self.app.producer_only
        return (
            Transport(self.url, self.app).create_producer(**options)
            if no_worker
            else super().create_producer(**options)
        )

    def until_answered(self, ask: Callable[P, Awaitable[R]], client: Any) -> Callable[P, Awaitable[R]]:
        """`ask` of a producer's client, repeated until the brokers answer (patch brokers-awaited).

        Its own time limit is the one for records, 20 minutes.
        """
        limit_s: float = self.app.conf.broker_request_timeout
        return until_answered(ask, limit_s=limit_s, reset=lambda: reset_connections(client))

    async def _create_topic(self, *arguments: Any, **options: Any) -> None:
        """Make a topic, also if somebody else who waits for it is cancelled meanwhile."""
        with contextlib.suppress(asyncio.InvalidStateError):  # it is made, or this worker ends
            await super()._create_topic(*arguments, **options)

    async def _really_create_topic(self, owner: Any, client: Any, topic: str, *arguments: Any, **options: Any) -> None:
        """Make a topic, as soon as the brokers answer (patch brokers-awaited).

        One that is made again is not waited for: it is asked for again and again.
        """
        make = super()._really_create_topic
        if options.get("ensure_created"):
            await make(owner, client, topic, *arguments, **options)
            return
        self.waits.begin(f"make the topic {topic}")
        await self.until_answered(make, client)(owner, client, topic, *arguments, **options)
        opened = self.app._consumer is not None and self.app._consumer.is_open
        self.waits.begin(None if opened else CONNECT)

    async def _get_controller_node(self, owner: Any, client: Any, timeout: int = 30000) -> int | None:
        """Ask all brokers for the controller; Faust asks one, and ends the worker if that one does not answer."""
        if not await client.force_metadata_update() or client.cluster.controller is None:
            raise KafkaConnectionError("no broker has said which of them is the controller")
        controller: int = client.cluster.controller.nodeId
        return controller

    def create_consumer(self, callback: Any, **options: Any) -> Any:
        """Create the app's consumer.  All tables of the app exist by now, so the store guard starts here.

        So does what changes the flow control: it belongs to the event loop in which it is made, and before the app
        starts there may be another one (an app that runs inside of a web server).

        A program that only asks (`app.start_client()`) is in no group, and has Faust's own.
        """
        if self.app.client_only:
            return Transport(self.url, self.app).create_consumer(callback, **options)
        for table in self.app.tables.values():
            if isinstance(table.data, Store):
                _restore_as_stored(table)
        self.guard.watch()
        self.fence.guard(self.app.flow_control)
        keep_what_waits(self.app.flow_control)
        return super().create_consumer(callback, **options)


def _restore_as_stored(table: Any) -> None:
    """Let Faust's recovery apply a table's records as they are, once (patch restored-as-stored).

    A database has the bytes of its changelog, so nothing need be decoded.  Faust decodes each record all the same, by
    the types that the app has now (of a window: by the type of its key), and leaves out what it cannot decode.
    """
    if table._on_changelog_event is None:  # it gets the events, and only an app that is not steered has it
        topic = table.changelog_topic
        schema = copy.copy(topic.schema)  # the app may use it elsewhere
        schema.loads_key, schema.loads_value = _key_as_stored, _value_as_stored
        # Only for what the recovery reads: an agent may read the topic, too.  Of two channels with the same types Faust
        # would decode for one.
        topic.clone_using_queue = lambda queue: topic.clone(
            queue=queue, is_iterator=True, schema=schema, key_type=bytes, value_type=bytes
        )
    if not table.is_global:  # with a buffer of one record, Faust goes on to apply the worker's own ones
        table.recovery_buffer_size = max(2, table.recovery_buffer_size)


def _key_as_stored(_: Any, message: Any, **__: Any) -> bytes | None:
    key: bytes | None = message.key
    return key


def _value_as_stored(_: Any, message: Any, **__: Any) -> bytes | None:
    value: bytes | None = message.value
    return value
