"""Producer whose flush covers everything sent before it, and that sends nothing while the worker is fenced.

It goes on after a refused record, and no offset is committed after it has failed.

(patch flush-waits-for-all, patch fence-after-session, patch go-on-after-refusal, patch end-when-state-fails,
patch impossible-record-refused, patch leaders-not-forgotten, patch brokers-awaited, patch leader-not-awaited,
patch silent-leader-not-awaited)
"""

import asyncio
import functools
import logging
import struct
import time
from collections import Counter
from collections.abc import Callable, Collection, Coroutine, Mapping
from contextvars import ContextVar
from typing import Any, Self

import aiokafka
from aiokafka.conn import AIOKafkaConnection
from aiokafka.errors import (
    KafkaError,
    NoError,
    TopicAlreadyExistsError,
    UnknownTopicOrPartitionError,
    for_code,
)
from aiokafka.producer.message_accumulator import MessageBatch
from aiokafka.protocol.produce import ProduceRequest
from aiokafka.record.default_records import DefaultRecordBatchBuilder
from aiokafka.record.memory_records import MemoryRecords
from aiokafka.structs import TopicPartition
from faust.streams import current_event
from faust.transport.drivers.aiokafka import Producer

from trimtab_agent.engines.faust.safety.fence import Fence, WorkerFenced, break_off, uptime
from trimtab_agent.engines.faust.safety.refused import REFUSALS, refusal
from trimtab_agent.engines.faust.safety.store_guard import ImpossibleRecord, of_event
from trimtab_agent.engines.faust.safety.troubles import Trouble, minute
from trimtab_agent.engines.faust.transport.client import CONNECT, answers, reset_connections
from trimtab_agent.engines.faust.transport.metadata import NO_LEADER, silence_of
from trimtab_agent.engines.faust.waiting import POLL_S
from trimtab_protocol.wording import first_few

log = logging.getLogger(__name__)

CONNECT_LIMIT_S = 30.0
"""How long a broker may take to take a connection.  aiokafka waits for its answer as long as for one to records (20
minutes), and makes none to other brokers meanwhile."""
GONE_S = 20.0
"""How long all commits and hand-overs wait for records whose topic is not there."""
LOOK_AGAIN_S = 1.0
"""How often to look whether such a topic is back, while there are outputs for it."""
LOOK_S = 0.1
"""How often to look at what waits for a topic that is not there, or is dropped before a rebalance."""
TURN_S = 0.005
"""How often a record lets others run before it is sent."""
NOT_SENT = "%s cannot be sent, this worker ends: %s"
DROPPED = "the group rebalances while %s has no leader: what was done since the last commit is dropped and done again"
FATAL = frozenset({45, 47, 59})
"""Error codes after which the broker refuses everything that this producer sends to the partition: out of order,
epoch, unknown producer."""
MOST_OVERHEAD = 4096
"""Bytes of a record beside key and value, as a bound; its size is looked at closely only when it may be too large."""
BUFFERED: ContextVar[bool] = ContextVar("BUFFERED", default=False)
"""Whether a record comes from the buffer: all that is behind it waits, changelogs too."""
BASE_SEQUENCE_AT = 53
"""Where a batch (format 2) has its first sequence number, a signed 32-bit integer."""


class FencedProducer(aiokafka.AIOKafkaProducer):  # type: ignore[misc]
    """Sends nothing while the fence is closed.  Once membership is lost, it never sends again."""

    def __init__(
        self,
        fence: Fence,
        on_fatal: Callable[[KafkaError], None],
        on_refused: Callable[[str, int, KafkaError, list[bytes | None]], None],
        is_output: Callable[[str], bool] = lambda _: False,
        on_changelog_gone: Callable[[str], None] = lambda _: None,
        **settings: Any,
    ) -> None:
        super().__init__(**settings)
        self.fence = fence
        self._is_output = is_output
        """Whether a topic may be given up: it is no changelog."""
        self._gone: set[str] = set()
        """Topics of outputs that were not there for `GONE_S`: until they are back, the buffer waits for none."""
        self._missing_since: dict[str, float] = {}
        """Since when no broker knows the topic of records that wait (seconds of `uptime`)."""
        self._asked_for: Counter[str] = Counter()
        """Topics that are not there, each with the number of records that wait for it outside of a batch."""
        self._on_changelog_gone = on_changelog_gone
        self._on_refused = on_refused
        self.condemned = False
        self._on_fatal = on_fatal
        self._unsure: set[TopicPartition] = set()
        """Partitions of whose last batch the broker may have written something, although it did not say so."""
        self._known: dict[str, tuple[Any, list[int], list[int]]] = {}
        """By topic: its metadata, all its partitions, and those that have a leader."""
        self._in_flight = 0
        """Produce requests that were sent, or begun to be sent, and not answered."""
        send, connected, known = self.client.send, self.client._get_conn, self.client._wait_on_metadata

        async def guarded(*arguments: Any, **options: Any) -> Any:
            try:
                async with asyncio.timeout(CONNECT_LIMIT_S):
                    connection = await connected(*arguments, **options)
            except TimeoutError:
                self.client.force_metadata_update()
                return None
            if connection is not None:
                guard(connection, self._withheld)
            return connection

        async def send_if_member(node_id: int, request: Any, **options: Any) -> Any:
            if not isinstance(request, ProduceRequest):
                return await send(node_id, request, **options)
            await self._pass_fence()
            sent = {TopicPartition(topic, at): batch for topic, rows in request._topics for at, batch in rows}
            before = self._unsure & sent.keys()
            self._unsure |= sent.keys()
            self._in_flight += 1
            try:
                response = await send(node_id, request, **options)
            finally:
                self._in_flight -= 1
            for topic, rows in response.topics:
                for partition, code, *_ in rows:
                    tp = TopicPartition(topic, partition)
                    self._look_at(code, tp, sent[tp], unsure=tp in before)
            return response

        self.client.send, self.client._get_conn = send_if_member, guarded
        self.client._wait_on_metadata = functools.partial(self._until_known, known)
        accumulator = self._message_accumulator
        accumulator.drain_by_nodes = functools.partial(self._drain_and_give_up, accumulator.drain_by_nodes)
        accumulator._append_batch = functools.partial(self._begin_batch, accumulator._append_batch)

    def _partition(
        self, topic: str, partition: int | None, key: Any, value: Any, serialized_key: Any, serialized_value: Any
    ) -> int:
        """The partition of a record.  aiokafka goes through all partitions for each."""
        if partition is not None:
            return int(super()._partition(topic, partition, key, value, serialized_key, serialized_value))
        metadata = self._metadata._partitions[topic]  # replaced, never changed
        known = self._known.get(topic)
        if known is None or known[0] is not metadata:
            available = self._metadata.available_partitions_for_topic(topic)
            known = self._known[topic] = metadata, sorted(metadata), sorted(available)
        _, all_partitions, available = known
        return int(self._partitioner(serialized_key, list(all_partitions), list(available)))

    async def flush(self) -> None:
        """Send what lingers, and wait until all is in the log.  aiokafka waits until it has lingered."""
        accumulator = self._message_accumulator
        for batches in accumulator._batches.values():
            for batch in batches:
                batch._linger_time = 0.0
        accumulator._wakeup(accumulator.waiter())
        await super().flush()

    def _asked_s(self) -> float:
        """How long ago a broker has last told its topics (seconds)."""
        return time.time() - float(self.client.cluster._last_successful_refresh_ms) / 1e3

    async def _until_known(self, known: Callable[[str], Coroutine[Any, Any, Any]], topic: str) -> Any:
        """Wait for a topic; ask for it in each later update, too, also if it is known (patch leaders-not-forgotten).

        An output that an agent sends by itself holds up its own event only, so it waits as long as in stock Faust.
        """
        self.client._topics.add(topic)
        if topic in self.client.cluster._partitions:
            return self.client.cluster.partitions_for_topic(topic)
        is_output = self._is_output(topic)
        given_up = is_output and BUFFERED.get()
        since, asking = uptime(), asyncio.ensure_future(known(topic))
        self._asked_for[topic] += 1
        try:
            while not (given_up and self._is_gone(topic)):
                if self.condemned:
                    raise WorkerFenced(f"the group rebalances, and {topic} is not there")
                if (await asyncio.wait([asking], timeout=LOOK_S))[0]:
                    return asking.result()
                if uptime() - since > GONE_S and self._asked_s() < GONE_S / 2:  # a broker has said so
                    since = uptime()
                    if given_up:
                        self._gone.add(topic)
                    elif not is_output:
                        self._on_changelog_gone(topic)
        finally:
            asking.cancel()
            self._asked_for[topic] -= 1
        raise UnknownTopicOrPartitionError(topic)

    def _is_gone(self, topic: str) -> bool:
        if topic in self.client.cluster._partitions:
            self._gone.discard(topic)
        elif topic in self._gone and self._asked_s() > LOOK_AGAIN_S:
            self.client.force_metadata_update()
        return topic in self._gone

    def _begin_batch(self, begin: Callable[..., Any], builder: Any, tp: TopicPartition) -> Any:
        """Begin a batch.  Where others linger, it is sent with them, in one request.

        aiokafka lets each linger by itself, and looks at all of them whenever one begins or has lingered.
        """
        accumulator = self._message_accumulator
        if (waking := accumulator._wakeup_handle) is None:
            return begin(builder, tp)
        batch = MessageBatch(tp, builder, accumulator._batch_ttl, waking.when() - time.monotonic())
        accumulator._batches[tp].append(batch)
        return batch

    def _drain_and_give_up(self, drain: Callable[..., tuple[Any, bool]], *arguments: Any, **options: Any) -> Any:
        batches, some_have_no_leader = drain(*arguments, **options)
        if some_have_no_leader:  # else nothing is missing, and going through all would cost as much as the drain
            self._give_up()
        else:
            self._missing_since.clear()
        return batches, some_have_no_leader

    def _give_up(self) -> None:
        """Let outputs expire whose topic has been deleted; make changelogs again (patch deleted-topic-not-awaited).

        Called after a drain that has found partitions without a leader; the next one drops what has expired.

        A broker that has just started may not know its topics yet, so each of its answers has to lack the topic.
        """
        there, now, waiting = self.client.cluster._partitions, uptime(), self._message_accumulator._batches
        missing = {tp.topic for tp in waiting if tp.topic not in there}
        self._missing_since = {topic: self._missing_since.get(topic, now) for topic in missing}
        for topic in [each for each in missing if now - self._missing_since[each] > GONE_S]:
            if not self._is_output(topic):
                missing.discard(topic)
                self._missing_since[topic] = now
                self._on_changelog_gone(topic)
        for tp, batches in waiting.items():
            if tp.topic in missing and now - self._missing_since[tp.topic] > GONE_S:
                self._gone.add(tp.topic)
                batches[0]._ttl = 0.0
                gone: list[bytes | None] = [None] * batches[0].record_count
                self._on_refused(tp.topic, tp.partition, UnknownTopicOrPartitionError(), gone)

    def without_leader(self) -> list[str]:
        """The partitions that records wait for and that no broker leads, and topics that are not there."""
        leader = self.client.cluster.leader_for_partition
        waiting = sorted(tp for tp in self._message_accumulator._batches if leader(tp) in (None, NO_LEADER))
        return [f"{tp.topic}/{tp.partition}" for tp in waiting] + sorted(+self._asked_for)

    def waiting(self) -> set[TopicPartition]:
        """The partitions of which records are not in their logs, as far as is known."""
        accumulator = self._message_accumulator
        return {*accumulator._batches, *(batch.tp for batch in accumulator._pending_batches)}

    async def silent_leader(self, tps: Collection[TopicPartition], limit_s: float) -> str | None:
        """Which broker leads one of these partitions and does not answer this worker; None: all answer."""
        cluster = self.client.cluster
        for leader in sorted({leader for tp in tps if (leader := cluster.leader_for_partition(tp)) is not None}):
            if (silent := silence_of(cluster, leader)) and not await answers(self.client, leader, limit_s):
                return silent
        return None

    def cut_off(self) -> None:
        """Send nothing more of this generation, and let nothing that is in flight arrive later."""
        self.drop_what_waits()
        self.recall()

    def recall(self) -> None:
        """Let nothing that is in flight arrive from now on; it is sent again if this worker is still a member."""
        if self._in_flight:
            reset_connections(self.client)

    def drop_what_waits(self) -> None:
        """Send nothing more, and let go of what is not in flight."""
        self.condemned = self.fence.dropped = True
        accumulator = self._message_accumulator
        accumulator._exception = WorkerFenced("the group rebalances")
        for batches in accumulator._batches.values():
            for batch in batches:
                batch.failure(accumulator._exception)

    def _withheld(self) -> bool:
        return self._in_flight > 0 and (self.condemned or self.fence.closed(uptime()))

    def _look_at(self, code: int, tp: TopicPartition, batch: bytes, *, unsure: bool) -> None:
        """Give the next batch of a partition the number of one that was refused (patch go-on-after-refusal).

        A partition has one batch in flight, so no later batch has a number yet.
        """
        if code == NoError.errno or (code in REFUSALS and not unsure):
            self._unsure.discard(tp)
        if code in FATAL or (code in REFUSALS and unsure):
            self._on_fatal(for_code(code)(f"{tp.topic}/{tp.partition} takes no more records of this worker"))
        elif code in REFUSALS:
            self._on_refused(tp.topic, tp.partition, for_code(code)(), _keys(batch))
            if self._txn_manager is not None:
                (first,) = struct.unpack_from(">i", batch, BASE_SEQUENCE_AT)
                self._txn_manager._sequence_numbers[tp] = first

    async def _pass_fence(self) -> None:
        while not self.condemned and self.fence.closed(uptime()):
            if self.fence.over:
                self.condemned = True  # a later generation must not send what this one held back
            else:
                await asyncio.sleep(POLL_S)
        if self.condemned:
            raise WorkerFenced("not a member of the group any more, or state could not be written")


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
        self._turn_at = 0.0
        """When a record has let others run last (monotonic seconds)."""
        publish = self.buffer._send_pending

        async def publish_or_end(message: Any) -> None:
            BUFFERED.set(True)
            try:
                await publish(message)
            except Exception as error:  # Faust ends the worker, but commits first; what is in the buffer is lost
                record = message.message
                gone = isinstance(error.__cause__, UnknownTopicOrPartitionError) and self._is_output(record.channel)
                dropped = isinstance(error.__cause__, WorkerFenced)  # and so is the commit of its event
                if dropped or gone or refusal(error) is not None:  # the client knows already what the broker would say
                    if not dropped:
                        self.transport.guard.outputs_lost(str(record.channel), record.partition, error, [record.key])
                    sent: asyncio.Future[None] = asyncio.get_running_loop().create_future()
                    sent.set_exception(error.__cause__ or error)
                    sizes = {"keysize": len(record.key or b""), "valsize": len(record.value or b"")}
                    # The sensors' own state, since Faust's for Prometheus, Datadog and Statsd expect a time in it.
                    state = self.app.sensors.on_send_initiated(self, str(record.channel), message=record, **sizes)
                    record.channel._on_published(sent, message=message, producer=self, state=state)
                    return
                what = f"a record of {record.channel} with {len(record.value or b'')} bytes"
                break_off(self.transport.fence, NOT_SENT, what, error)
                raise

        self.buffer._send_pending = publish_or_end

    async def on_start(self) -> None:
        """Connect, as soon as a broker answers (patch brokers-awaited).  An app connects its producer first."""
        self.transport.waits.begin(CONNECT)
        await super().on_start()
        self.app.maybe_start_producer = self._started_already

    async def _started_already(self) -> Self:
        """For each record Faust takes up to three turns of the event loop to see whether the producer has started.

        So whoever sends without end still lets all others run.
        """
        if (now := time.monotonic()) - self._turn_at > TURN_S:
            self._turn_at = now
            await asyncio.sleep(0)
        return self

    async def on_stop(self) -> None:
        """Stop."""
        self.transport.waits.begin(None)
        self.app.__dict__.pop("maybe_start_producer", None)  # Faust may ask again
        await super().on_stop()

    def send_soon(self, fut: Any) -> None:
        """Buffer a record.  Raises ImpossibleRecord in the app's event (patch impossible-record-refused).

        What does not fit would end the buffer, and with it each worker that processes the event.
        """
        record = fut.message
        key, value = record.key, record.value
        for part in (key, value):
            if type(part) is not bytes and not (part is None or isinstance(part, bytearray | memoryview)):
                raise ImpossibleRecord(f"{_what(record)}: found a {type(part).__name__}, expected bytes")
        if len(key or b"") + len(value or b"") + MOST_OVERHEAD > self.max_request_size:
            headers = record.headers or ()
            pairs = list(headers.items() if isinstance(headers, Mapping) else headers)
            size = DefaultRecordBatchBuilder.estimate_size_in_bytes(key, value, pairs)
            if size > self.max_request_size:
                raise ImpossibleRecord(
                    f"{_what(record)}: found {size} bytes, expected at most {self.max_request_size} "
                    "(producer_max_request_size)"
                )
        if not self.transport.guard.let_pass(fut):
            self._check_output(record)
        super().send_soon(fut)

    def _check_output(self, record: Any) -> None:
        """Raise what the client would raise of a record for which the app has chosen where, when and how to send it."""
        channel, partition = record.channel, record.partition
        topic = channel if isinstance(channel, str) else channel.get_topic_name()  # raises if it has several names
        if record.key is None and record.value is None:
            raise ImpossibleRecord(f"a record of {topic} has neither a key nor a value")
        known = None if self._producer is None else self._producer.client.cluster.partitions_for_topic(topic)
        if partition is not None and (partition < 0 or (known and partition not in known)):
            raise ImpossibleRecord(f"{_what(record)}: found partition {partition}, expected one of {len(known or ())}")
        if record.headers or record.timestamp:
            headers = record.headers or ()
            pairs = list(headers.items() if isinstance(headers, Mapping) else headers)
            try:
                at_ms = int(record.timestamp * 1000.0) if record.timestamp else None
                trial = DefaultRecordBatchBuilder(2, 0, 0, -1, -1, -1, 0)
                trial.append(0, at_ms, record.key, record.value, pairs)
            except (TypeError, ValueError, OverflowError) as error:
                raise ImpossibleRecord(f"{_what(record)}: its headers or its timestamp: {error}") from error

    def _end(self, error: Exception) -> None:
        """End the worker without a commit."""
        break_off(self.transport.fence, NOT_SENT, "a record", error)
        self.transport.app.add_future(self.transport.app.crash(error))

    def _new_producer(self, transactional_id: str | None = None) -> FencedProducer:
        assert transactional_id is None, "exactly_once is refused"
        settings = {**self._settings_default(), **self._settings_auth(), **self._settings_extra()}
        told = {
            "on_fatal": self._end,
            "on_refused": self.transport.guard.outputs_lost,
            "is_output": self._is_output,
            "on_changelog_gone": self.make_again,
        }
        producer = FencedProducer(self.transport.fence, **told, **settings)
        producer.start = self.transport.until_answered(producer.start, producer.client)
        return producer

    def make_again(self, changelog: str) -> None:
        """Make a changelog that has been deleted, as Faust does at the start of a worker."""
        app = self.transport.app
        topic = app.tables._changelogs[changelog].changelog_topic

        async def make() -> None:
            try:
                client = self._ensure_producer().client
                await client.force_metadata_update()
                if changelog in client.cluster.topics():
                    return
                await self.create_topic(
                    changelog,
                    topic.partitions or app.conf.topic_partitions,
                    topic.replicas or app.conf.topic_replication_factor or 1,
                    config=topic.config,
                    retention=topic.retention,
                    compacting=topic.compacting,
                    deleting=topic.deleting,
                    ensure_created=True,
                )
            except TopicAlreadyExistsError:  # another worker was faster, or a broker had not known it yet
                return
            except Exception as error:  # it is tried again while something waits for it
                log.error("the changelog %s cannot be made again: %r", changelog, error)
            said = f"state is lost, seen {minute(time.time())}: the changelog {changelog} was deleted"
            log.critical(
                "%s. What is written to its table waits until it is made again, and nothing is committed", said
            )
            self.transport.watcher.tell(Trouble.STATE_LOST, said[:200])

        self.transport._topic_waiters.pop(changelog, None)  # it has the producer of the first time
        app.add_future(make())

    def _is_output(self, topic: Any) -> bool:
        return str(topic) not in self.transport.app.tables.changelog_topics

    def _settings_extra(self) -> Mapping[str, Any]:
        """Settings of an idempotent producer: a retry after a broker restart writes no record twice."""
        return {"acks": "all", "enable_idempotence": True}

    async def flush(self) -> None:
        """Wait until everything sent before this call is in the log.  Messages sent later do not prolong the wait.

        (patch flush-waits-for-all)
        """
        mark = _Mark()
        self.buffer.put(mark)
        while not mark.reached and self.buffer.started and not self.buffer.should_stop:
            await asyncio.sleep(POLL_S)
        if self._producer is not None:
            await self._producer.flush()
        await asyncio.sleep(0)  # let the callbacks run that persist the changelog offsets

    async def flush_or_drop(self, limit_s: float) -> None:
        """Flush before a rebalance; drop all that is left after `limit_s`, if a partition of it has no leader.

        The group would put out the workers that wait for it, and all their key groups would stand.
        (patch leader-not-awaited)
        """
        flushing, producer = asyncio.ensure_future(self.flush()), self._producer
        try:
            while not (await asyncio.wait([flushing], timeout=limit_s))[0]:
                limit_s = LOOK_AGAIN_S
                if producer is not None and (producer.condemned or (waiting := producer.without_leader())):
                    if not producer.condemned:
                        log.error(DROPPED, first_few(waiting))
                    producer.drop_what_waits()
                    limit_s = LOOK_S
            await flushing
        finally:
            flushing.cancel()

    async def renew_if_condemned(self) -> None:
        """Replace a producer that lost membership, and drop the messages that it held back."""
        old = self._producer
        if old is not None and old.condemned:
            fresh = self._new_producer()
            await fresh.start()
            self._producer = fresh
            old._message_accumulator.fail_all(
                WorkerFenced("the worker has rejoined")
            )  # or it would wait for their leaders
            await old.stop()


def _keys(batch: bytes) -> list[bytes | None]:
    """The keys of the records in a batch."""
    records, found = MemoryRecords(bytes(batch)), list[bytes | None]()
    while (each := records.next_batch()) is not None:
        found += [record.key for record in each]
    return found


def _what(record: Any) -> str:
    event = current_event()
    return f"a record of {record.channel} with key {record.key!r:.60}{of_event(event and event.message)}"


class GuardedSocket:
    """A socket that looks at the fence directly before each system call that sends.

    The producer looks at the fence before it sends a request.  Between that look and the system call the request is
    encoded, and whatever the socket's buffer cannot take waits in the process.  A worker that was stopped there would
    send it when it goes on, long after another worker has taken over (patch fence-after-session).
    """

    def __init__(self, socket: Any, closed: Callable[[], bool]) -> None:
        self._socket, self._closed = socket, closed

    def __getattr__(self, name: str) -> Any:
        return getattr(self._socket, name)

    def send(self, *arguments: Any) -> int:
        """Like `socket.send`.  Raises ConnectionAbortedError while the fence is closed."""
        self._look()
        sent: int = self._socket.send(*arguments)
        return sent

    def sendmsg(self, *arguments: Any) -> int:
        """Like `socket.sendmsg`.  Raises ConnectionAbortedError while the fence is closed."""
        self._look()
        sent: int = self._socket.sendmsg(*arguments)
        return sent

    def _look(self) -> None:
        if self._closed():
            raise ConnectionAbortedError("the session of this worker's group is over")


def guard(connection: AIOKafkaConnection, closed: Callable[[], bool]) -> None:
    """Make a connection end instead of sending while the fence is closed.

    An event loop that does not use Python's sockets (uvloop) cannot be guarded; the producer's own look remains.
    """
    transport: Any = connection._writer.transport if connection._writer is not None else None
    if (tls := getattr(transport, "_ssl_protocol", None)) is not None:
        transport = tls._transport
    socket = getattr(transport, "_sock", None)
    if socket is not None and not isinstance(socket, GuardedSocket):
        transport._sock = GuardedSocket(socket, closed)
