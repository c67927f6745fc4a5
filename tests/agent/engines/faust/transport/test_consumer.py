"""What is committed, and where a partition goes on: the consumer without a broker."""

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import faust
import faust.transport.drivers.aiokafka
import pytest
from aiokafka.errors import KafkaError, KafkaTimeoutError, TopicAuthorizationFailedError
from aiokafka.structs import TopicPartition
from faust.agents.replies import ReplyPromise
from faust.types import TP
from faust.types.transports import SchedulingStrategyT
from faust.types.tuples import ConsumerMessage
from mode import CrashingSupervisor

from tests.agent.engines.faust.steered import consumer_of, nothing, transport_of
from tests.agent.engines.faust.transport.brokers import listening
from trimtab_agent.engines.faust.safety.fence import Fence, WorkerFenced
from trimtab_agent.engines.faust.safety.troubles import Trouble
from trimtab_agent.engines.faust.transport import client as client_module
from trimtab_agent.engines.faust.transport import consumer as consumer_module
from trimtab_agent.engines.faust.transport.consumer import (
    BACKLOG_EVENTS,
    COMMITS_WAIT,
    FORBIDDEN_AGAIN_S,
    UNACKNOWLEDGED_S,
    SteeredConsumer,
)
from trimtab_agent.engines.faust.transport.producer import FencedProducer
from trimtab_agent.engines.faust.transport.thread import SteeredThread
from trimtab_agent.engines.faust.transport.unreadable import UnreadableRecord

ONE, OTHER = TP("in", 1), TP("in", 2)
NO_RENEWAL: Any = SimpleNamespace(stop=lambda *_: None, goes_back=lambda _: set())


class Event:
    """As much of a Faust event, and of its message, as the queues are searched for."""

    def __init__(self, tp: TP, offset: int, *, begun: bool = False) -> None:
        self.message = self
        self.tp, self.offset, self.tracked = tp, offset, begun
        self.time_in: float | None = None
        self.acked = False


class Channel:
    def __init__(self, app: Any, events: list[Event]) -> None:
        self.queue = app.FlowControlQueue(maxsize=100)
        self.queue._queue.extend(events)

    @property
    def left(self) -> list[tuple[TP, int]]:
        return [(event.tp, event.offset) for event in self.queue._queue]


class Stream:
    """As much of a stream as is asked who has a message."""

    _next = None

    def __init__(self, channel: Any, event: Any, *, enable_acks: bool) -> None:
        self.channel, self.current_event, self.enable_acks = channel, event, enable_acks
        self._processors: list[Any] = []
        self._active_agens: list[Any] = []

    def get_active_stream(self) -> "Stream":
        return self

    get_root_stream = get_active_stream


class Watched:
    async def before_join(self, topics: frozenset[str]) -> None: ...

    def topics_known(self) -> None: ...

    def rebalancing(self) -> None: ...

    def stable(self) -> None: ...


@pytest.fixture
def consumer(loop: asyncio.AbstractEventLoop) -> SteeredConsumer:
    app = faust.App("ks", web_enabled=False)
    transport = transport_of(app)
    transport.loop = loop
    made = consumer_of(transport)
    app.topics._acking_topics.add(ONE.topic)
    made.start_at({ONE: 10, OTHER: 0})
    return made


def give(consumer: SteeredConsumer, tp: TP, *offsets: int) -> None:
    for offset in offsets:
        consumer._note_delivery(tp, offset)
        consumer._read_offset[tp] = offset


def finish(consumer: SteeredConsumer, tp: TP, *offsets: int) -> None:
    consumer._acked_index[tp].update(offsets)
    consumer._acked[tp].extend(offsets)


def queued(consumer: SteeredConsumer, *events: Event) -> Channel:
    channel = Channel(consumer.app, list(events))
    for tp in (ONE, OTHER):
        consumer.app.topics._tp_index[tp].add(channel)
    return channel


def in_work(consumer: SteeredConsumer, tp: TP, *offsets: int, agents: int = 1) -> list[ConsumerMessage]:
    """Messages that so many agents have begun; the consumer knows them while somebody holds them."""
    made = [ConsumerMessage(*tp, offset, 1.0, 0, None, b"k", b"1", None, tp=tp) for offset in offsets]
    for message in made:
        message.refcount = agents
    consumer._unacked_messages.update(made)
    return made


def reader(
    consumer: SteeredConsumer, current: ConsumerMessage | None, *waiting: ConsumerMessage, enable_acks: bool = False
) -> Any:
    """An agent that reads `ONE`: it works on a message, and has yet to take others."""
    channel = queued(consumer, *(SimpleNamespace(message=each) for each in waiting))  # type: ignore[arg-type]
    channel.topics = [ONE.topic]  # type: ignore[attr-defined]
    event = None if current is None else SimpleNamespace(message=current)
    stream = Stream(channel, event, enable_acks=enable_acks)
    consumer.first_streams.add(stream)
    actor = SimpleNamespace(actor_task=None, stream=stream)
    return SimpleNamespace(concurrency=1, _actors=[actor], supervisor=None)


@dataclass(frozen=True)
class Record:
    """As much of a fetched record as is looked at before Faust's message is made of it."""

    offset: int


class Delivered:
    """A consumer whose streams note what they are given, and take no more once they hold so many."""

    def __init__(self, consumer: SteeredConsumer, monkeypatch: pytest.MonkeyPatch, *, room: int = 100) -> None:
        self.consumer, self.room = consumer, room
        self.got: list[tuple[TP, int]] = []
        self.after: dict[int, Callable[[], None]] = {}
        """What happens once so many have been given."""
        monkeypatch.setattr(consumer, "callback", self._take)
        monkeypatch.setattr(consumer, "highwater", lambda _: 100)
        monkeypatch.setattr(consumer, "_to_message", lambda tp, record: (tp, record.offset))

    async def _take(self, message: tuple[TP, int]) -> None:
        if len(self.got) >= self.room:
            await asyncio.Event().wait()  # a full queue
        self.got.append(message)
        self.after.get(len(self.got), lambda: None)()

    def deliver(self, records: dict[TP, list[Record]]) -> None:
        consumer = self.consumer
        consumer._round = records  # type: ignore[assignment]
        delivery = consumer._while_flowing(consumer._deliver(records, consumer._rebalances))
        consumer.loop.run_until_complete(asyncio.wait_for(delivery, 60.0))


@pytest.fixture
def streams(consumer: SteeredConsumer, monkeypatch: pytest.MonkeyPatch) -> Delivered:
    return Delivered(consumer, monkeypatch)


def test_a_commit_ends_before_the_first_unfinished_event(consumer: SteeredConsumer) -> None:
    give(consumer, ONE, 10, 11, 12, 13)
    finish(consumer, ONE, 11, 13)
    assert consumer._new_offset(ONE) is None

    finish(consumer, ONE, 10)
    assert consumer._new_offset(ONE) == 12
    assert consumer._new_offset(ONE) is None

    finish(consumer, ONE, 12)
    assert consumer._new_offset(ONE) == 14


def test_of_a_topic_without_acknowledgements_nothing_is_kept_and_nothing_committed(consumer: SteeredConsumer) -> None:
    """`app.topic("in", acks=False)`: its events never count as done."""
    silent = TP("silent", 1)
    consumer.start_at({silent: 3})
    give(consumer, silent, 3, 4, 5)

    assert silent not in consumer._delivered
    assert (consumer._new_offset(silent), consumer.next_offset(silent)) == (None, 6)


def add_to_buffer(value: Any) -> Any:
    """How Faust names what collects a batch."""
    return value


@pytest.mark.parametrize(
    ("enable_acks", "processors", "concurrency", "done"),
    [
        (False, [], 1, [11]),  # noack().events(): others may be in the hands of tasks
        (False, [add_to_buffer], 1, [10, 11]),  # noack_take
        (False, [add_to_buffer], 2, [11]),
        (True, [], 1, []),  # Faust acknowledges it, or has forgotten it
    ],
)
async def test_the_event_of_an_agent_that_fails_counts_as_done_however_it_acknowledges(
    consumer: SteeredConsumer, enable_acks: bool, processors: list[Any], concurrency: int, done: list[int]
) -> None:
    """Faust goes on to commit what comes after it, and each rebalance waits for it without end."""
    told: list[Any] = []

    async def on_error(*what: Any) -> None:
        told.append(what)
        raise ConnectionError("where it tells errors")

    consumer.app.topics._acking_topics.add("other")
    begun = [*in_work(consumer, ONE, 10, 11), *in_work(consumer, ONE, 12, agents=2)]
    begun += in_work(consumer, TP("other", 1), 7)
    agent = reader(consumer, begun[1], enable_acks=enable_acks)
    agent.concurrency, agent._actors[0].actor_task = concurrency, asyncio.current_task()
    agent._actors[0].stream._processors = processors
    await consumer._let_go_at_error(agent, NO_RENEWAL, on_error)(agent, ValueError())
    assert sorted(message.offset for message in begun if message.acked) == done

    assert len(told) == 1
    assert sorted(consumer._acked_index[ONE]) == done
    consumer._let_go_of_failed()
    assert 11 in consumer._acked_index[ONE]


@pytest.mark.parametrize("how", ["supervisor", "on_error"])
async def test_an_event_for_which_an_agent_ends_the_worker_is_done_again(consumer: SteeredConsumer, how: str) -> None:
    """Who acknowledges by hand and ends the worker at an error wants to lose none."""
    give(consumer, ONE, 10, 11)
    [message] = in_work(consumer, ONE, 10)
    finish(consumer, ONE, 11)

    async def crash(*_: Any) -> None:
        if how == "on_error":
            consumer.app._crashed.set()

    agent = reader(consumer, message)
    agent._actors[0].actor_task = asyncio.current_task()
    agent.supervisor = CrashingSupervisor() if how == "supervisor" else None
    await consumer._let_go_at_error(agent, NO_RENEWAL, crash)(agent, ValueError())
    consumer.app._crashed.set()
    await asyncio.wait_for(consumer.finish(), 5.0)

    assert not consumer._unacked_messages
    assert consumer._new_offset(ONE) is None


async def test_what_another_agent_has_yet_to_do_does_not_count_as_done_because_one_fails(
    consumer: SteeredConsumer,
) -> None:
    """Two agents read one topic.  The one that takes batches fails, and what it has begun is done when both have."""
    begun = {message.offset: message for message in in_work(consumer, ONE, *range(10, 15))}
    # The first has not taken 14; the other works on 12, has not taken 13, and 11 has passed both but for the failed.
    failing = reader(consumer, begun[11], begun[14])
    other = reader(consumer, begun[12], begun[13], enable_acks=True)
    failing._actors[0].stream._processors = [add_to_buffer]
    begun[13].refcount = 2
    consumer.app.agents = {"failing": failing, "other": other}

    failing._actors[0].actor_task = asyncio.current_task()
    await consumer._let_go_at_error(failing, NO_RENEWAL, None)(failing, ValueError())
    assert sorted(n for n, message in begun.items() if message.acked) == [10, 11]

    other_stream = other._actors[0].stream
    begun[12].ack(consumer)
    other_stream.channel.queue._queue.clear()
    other_stream.current_event = SimpleNamespace(message=begun[13])
    consumer._let_go_of_failed()
    assert not begun[13].acked, "the other one works on it"
    other_stream.current_event = None
    begun[13].ack(consumer)
    consumer._let_go_of_failed()
    assert begun[13].acked
    assert not begun[14].acked, "nobody has begun it"


@pytest.mark.parametrize("unknown", [False, True])
def test_two_agents_that_fail_with_one_event_do_not_wait_for_each_other(
    consumer: SteeredConsumer, unknown: bool
) -> None:
    [message] = in_work(consumer, ONE, 10)
    for _ in range(2):
        consumer._count_as_failed(reader(consumer, None), message)
    if unknown:
        queued(consumer)

    consumer._let_go_of_failed()
    assert message.acked is not unknown


def test_what_is_not_finished_in_time_is_done_again_and_writes_no_more(consumer: SteeredConsumer) -> None:
    """Faust would wait for it without end; the group would put the worker out, and SIGTERM would not end it."""
    consumer._writes_from[ONE] = 10
    give(consumer, ONE, 10, 11)
    hangs, again = in_work(consumer, ONE, 10, 10)
    consumer._unacked_messages.remove(again)
    finish(consumer, ONE, 11)
    assert not consumer.is_late(hangs)

    consumer.not_finished("the rebalance continues")
    assert not consumer._begun([ONE])
    assert not consumer._unacked_messages
    hangs.ack(consumer)
    assert consumer._new_offset(ONE) is None, "neither is it acknowledged later"
    assert consumer.is_late(hangs)
    assert not consumer.is_late(again)


def test_an_event_that_nobody_acknowledges_is_told_as_it_holds_up_all_commits(consumer: SteeredConsumer) -> None:
    """`noack()`, and the agent fails: the event is nowhere, and what comes after it is done and not committed."""
    told: list[tuple[Trouble, str | None]] = []
    consumer.watcher = SimpleNamespace(tell=lambda *what: told.append(what))  # type: ignore[assignment]
    give(consumer, ONE, 10, 11, 12)
    consumer.tell_of_gaps(1_000.0)
    finish(consumer, ONE, 11, 12)
    consumer.tell_of_gaps(2_000.0)
    consumer.tell_of_gaps(2_000.0 + UNACKNOWLEDGED_S)
    assert told == []

    consumer.tell_of_gaps(2_001.0 + UNACKNOWLEDGED_S)
    consumer.tell_of_gaps(2_100.0 + UNACKNOWLEDGED_S)
    text = (
        "in/1 offset 10 is not acknowledged since 1970-01-01 00:33 UTC: nothing after it is committed, and a restart "
        "does all of that again"
    )
    assert told == [(Trouble.UNACKNOWLEDGED, text)] * 2  # a report whose text changes makes the worker reconnect
    assert len(text) < 200

    finish(consumer, ONE, 10)
    assert consumer._new_offset(ONE) == 13
    consumer.tell_of_gaps(3_000.0)
    assert told[-1] == (Trouble.UNACKNOWLEDGED, None)


def test_an_event_that_was_not_acknowledged_is_not_given_away_as_done(consumer: SteeredConsumer) -> None:
    """`noack()`, and the app lets an event go that it could not do: it wants it again."""
    give(consumer, ONE, 10, 11, 12)
    give(consumer, OTHER, 3)
    finish(consumer, ONE, 10, 12)
    finish(consumer, OTHER, 3)
    drained = consumer.drain({ONE, OTHER}, 1.0)

    assert consumer.loop.run_until_complete(drained), "nobody works on it"
    assert consumer.abandoned({OTHER}) is None
    assert consumer.abandoned({ONE, OTHER}) == "in/1 offset 11"


def test_the_same_is_told_of_an_agent_that_takes_no_event_any_more(consumer: SteeredConsumer) -> None:
    """Nothing after them is done either: other agents have begun them, and this one never will."""
    told: list[tuple[Trouble, str | None]] = []
    consumer.watcher = SimpleNamespace(tell=lambda *what: told.append(what))  # type: ignore[assignment]
    give(consumer, ONE, 10, 11)
    give(consumer, OTHER, 5)
    begun = in_work(consumer, ONE, 10, 11, agents=0)
    consumer.tell_of_gaps(1_000.0)
    consumer.tell_of_gaps(1_001.0 + UNACKNOWLEDGED_S)
    assert len(told) == 1
    assert told[0][1] is not None
    assert told[0][1].startswith("in/1 offset 10 is not acknowledged since 1970-01-01 00:16 UTC")
    assert {message.acked for message in begun} == {False}


def test_what_was_not_committed_is_committed_later_also_without_new_events(
    consumer: SteeredConsumer, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers, asked = iter([False, True]), list[dict[TP, int]]()

    async def commit(offsets: dict[TP, int]) -> bool:
        asked.append(dict(offsets))
        return next(answers)

    async def flush() -> None: ...

    monkeypatch.setattr(consumer, "_thread", SimpleNamespace(commit=commit, assignment=lambda: {ONE}))
    monkeypatch.setattr(consumer.app, "producer", SimpleNamespace(flush=flush))
    give(consumer, ONE, 10)
    finish(consumer, ONE, 10)
    run = asyncio.get_event_loop().run_until_complete
    assert [run(consumer.force_commit()) for _ in range(3)] == [False, True, False]
    assert asked == [{ONE: 11}, {ONE: 11}]


def test_holes_in_the_log_hold_nothing_up(consumer: SteeredConsumer) -> None:
    give(consumer, ONE, 15, 40)
    finish(consumer, ONE, 15)
    assert consumer._new_offset(ONE) == 16

    finish(consumer, ONE, 40)
    assert consumer._new_offset(ONE) == 41


def test_an_app_that_goes_back_is_done_again_and_holds_up_no_commit(
    consumer: SteeredConsumer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`app.consumer.seek`: Faust acknowledges nothing again that is committed, so nothing may wait for it."""
    monkeypatch.setattr(consumer, "_thread", SimpleNamespace(seek=lambda *_: None))
    message = SimpleNamespace(tp=ONE, offset=3)
    give(consumer, ONE, 10, 11)
    finish(consumer, ONE, 10, 11)
    assert consumer._new_offset(ONE) == 12
    assert consumer.is_late(message)

    asyncio.get_event_loop().run_until_complete(consumer.seek(ONE, 3))
    give(consumer, ONE, 3, 4, 11, 12)

    assert not consumer.is_late(message)
    finish(consumer, ONE, 12)
    assert consumer._new_offset(ONE) == 13
    assert consumer.next_offset(ONE) == 13


def test_what_a_hand_over_commits_is_left_out_and_not_forgotten(consumer: SteeredConsumer) -> None:
    give(consumer, ONE, 10)
    finish(consumer, ONE, 10)
    consumer.withheld.add(ONE)
    assert consumer._new_offset(ONE) is None
    assert consumer.next_offset(ONE) == 11

    consumer.withheld.clear()
    assert consumer._new_offset(ONE) == 11


def test_events_that_nobody_has_begun_are_taken_back(consumer: SteeredConsumer) -> None:
    give(consumer, ONE, 10, 11, 12)
    give(consumer, OTHER, 0, 1)
    first = queued(consumer, Event(ONE, 11, begun=True), Event(OTHER, 1), Event(ONE, 12))
    second = queued(consumer, Event(ONE, 12))

    consumer._purge({ONE})

    assert first.left == [(ONE, 11), (OTHER, 1)]
    assert second.left == []
    assert consumer.next_offset(ONE) == 12
    finish(consumer, ONE, 10, 11)
    assert consumer._new_offset(ONE) == 12


def test_what_waits_for_room_is_taken_back_and_waits_for_no_slow_agent(
    consumer: SteeredConsumer, streams: Delivered, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a backlog the queues are full, and the next one gets in when an agent has done one, of any partition."""
    consumer.app.flow_control.resume()
    channel = queued(consumer, Event(OTHER, 0))
    channel.queue._maxsize = 1
    monkeypatch.setattr(consumer, "callback", lambda message: channel.queue.put(Event(*message)))

    async def take_back() -> bool:
        await asyncio.sleep(0.01)
        assert consumer._delivering == ONE
        consumer.block({ONE})
        try:
            return await consumer.take_back({ONE}, time.monotonic() + 5.0)
        finally:
            consumer.stop_flow()

    took = consumer.loop.create_task(take_back())
    streams.deliver({ONE: [Record(10), Record(11)]})

    assert consumer.loop.run_until_complete(took)
    assert channel.left == [(OTHER, 0)]
    assert (consumer.next_offset(ONE), channel.queue.maxsize) == (10, 1)


class Batches:
    """An agent that takes batches, on the real stream of a topic."""

    def __init__(self, consumer: SteeredConsumer, most: int, within_s: float, **processors: Any) -> None:
        self.consumer, self.got = consumer, list[list[int]]()
        self.go_on = asyncio.Event()
        self.go_on.set()
        app = consumer.app
        app._consumer = consumer
        app.consumer_generation_id = 0
        app.flow_control.resume()
        self.stream = app.topic(ONE.topic, value_type=int).stream(**processors)
        self.channel = self.stream.channel
        for tp in (ONE, OTHER):
            app.topics._tp_index[tp].add(self.channel)
        self.task = asyncio.create_task(self._take(most, within_s))

    async def _take(self, most: int, within_s: float) -> None:
        async for values in self.stream.take(most, within=within_s):
            self.got.append(list(values))
            await self.go_on.wait()

    async def until(self, count: int) -> list[list[int]]:
        """What it has got once these are so many batches."""
        async with asyncio.timeout(60.0):
            while len(self.got) < count:
                await asyncio.sleep(0.01)
        return self.got

    async def end(self) -> None:
        self.task.cancel()
        await asyncio.wait([self.task])
        await self.stream.stop()

    async def deliver(self, tp: TP, *offsets: int) -> None:
        for offset in offsets:
            give(self.consumer, tp, offset)
            message = ConsumerMessage(*tp, offset, 1.0, 0, None, None, b"", None, tp=tp, generation_id=0)
            message.incref(1)
            value = 100 * tp.partition + offset
            await self.channel.queue.put(self.channel._create_event(None, value, headers={}, message=message))
        await asyncio.sleep(0.05)


@pytest.mark.parametrize("yields", [False, True])
async def test_what_waits_in_a_batch_is_taken_back_at_once_and_comes_again(
    consumer: SteeredConsumer, yields: bool
) -> None:
    """Else a batch of a minute is waited for, and if that takes too long, it has its events twice."""
    agent = consumer.app.agent(consumer.app.channel())(lambda stream: stream)
    batches = Batches(consumer, 10, 1.0, processors=[agent._maybe_unwrap_reply_request] if yields else [])
    await batches.deliver(ONE, 10)
    await batches.deliver(OTHER, 0)
    await batches.deliver(ONE, 11)
    assert len(consumer._all_begun()) == 3

    consumer.block({ONE})
    assert consumer.oldest_in_work({ONE}) is None
    assert consumer.oldest_in_work({OTHER}) is None
    assert await consumer.drain({ONE}, 0.05)
    assert consumer.next_offset(ONE) == 10
    consumer.unblock({ONE})
    await batches.deliver(ONE, 10, 11)
    assert sorted((await batches.until(1))[0]) == [110, 111, 200]
    assert consumer._new_offset(ONE) == 12
    await batches.end()


async def test_what_an_agent_has_got_and_what_comes_before_it_is_not_taken_back(consumer: SteeredConsumer) -> None:
    batches = Batches(consumer, 2, 0.3)
    batches.go_on.clear()
    await batches.deliver(ONE, 10, 11)
    assert await batches.until(1) == [[110, 111]]
    assert not await consumer.drain({ONE}, 0.05)
    batches.go_on.set()
    await batches.deliver(ONE, 12)
    assert consumer.oldest_in_work({ONE}) is None
    consumer._acked_index[ONE].add(13)  # by another actor of the agent
    consumer._delivered[ONE].append(13)
    assert consumer.oldest_in_work({ONE}) is not None
    assert not await consumer.drain({ONE}, 0.05)
    await batches.end()


async def test_what_something_else_has_seen_stays_in_its_batch_unless_it_is_done_again(
    consumer: SteeredConsumer,
) -> None:
    """A processor before the batch may have sent something, as `stream.echo` does."""
    batches = Batches(consumer, 10, 0.3, processors=[lambda value: value])
    await batches.deliver(ONE, 10)
    assert not await consumer.drain({ONE}, 0.05)
    consumer.not_finished("the rebalance continues")
    await batches.deliver(OTHER, 0)
    assert await batches.until(1) == [[200]]
    await batches.end()


def test_with_everything_taken_back_it_goes_on_where_it_was(consumer: SteeredConsumer) -> None:
    give(consumer, OTHER, 0, 1)
    queued(consumer, Event(OTHER, 0), Event(OTHER, 1))

    consumer._purge({OTHER})

    assert consumer.next_offset(OTHER) == 0


def test_a_blocked_partition_delivers_nothing_more_of_the_running_round(consumer: SteeredConsumer) -> None:
    consumer._round = {ONE: [1, 2, 3], OTHER: [4]}
    consumer._active_partitions |= {ONE, OTHER}
    rest = iter(consumer._round[ONE])
    next(rest)

    consumer.block({ONE})

    assert list(rest) == []
    assert consumer._round[OTHER] == [4]
    assert consumer._active_partitions == {OTHER}

    consumer.on_buffer_drop(ONE)
    assert consumer._active_partitions == {OTHER}

    consumer.unblock({ONE})
    assert consumer._active_partitions == {ONE, OTHER}


def test_a_round_is_given_in_turns_and_what_is_done_is_left_out(consumer: SteeredConsumer, streams: Delivered) -> None:
    streams.deliver({ONE: [Record(9), Record(10), Record(12)], OTHER: [Record(0)]})

    assert streams.got == [(OTHER, 0), (ONE, 10), (ONE, 12)]
    assert (consumer.next_offset(ONE), consumer.next_offset(OTHER)) == (13, 1)
    assert (consumer._read_offset[ONE], consumer._delivering) == (12, None)


def test_agents_may_run_after_one_message_of_each_topic(
    consumer: SteeredConsumer, monkeypatch: pytest.MonkeyPatch
) -> None:
    streams, turns = Delivered(consumer, monkeypatch), list[int]()

    def note_turn() -> None:
        turns.append(len(streams.got))
        consumer.loop.call_soon(note_turn)

    streams.after[1] = note_turn
    other = TP("other", 0)
    streams.deliver({ONE: [Record(10), Record(11), Record(12)], other: [Record(0), Record(1)]})

    assert streams.got == [(ONE, 10), (other, 0), (ONE, 11), (other, 1), (ONE, 12)]
    assert turns[:4] == [1, 2, 4, 5]


def test_a_partition_blocked_in_the_middle_of_a_round_is_given_no_further(
    consumer: SteeredConsumer, streams: Delivered
) -> None:
    streams.after[2] = lambda: consumer.block({ONE})

    streams.deliver({ONE: [Record(10), Record(11)], OTHER: [Record(0), Record(1)]})

    assert streams.got == [(ONE, 10), (OTHER, 0), (OTHER, 1)]
    assert consumer.next_offset(ONE) == 11


class LargestTopicFirst(SchedulingStrategyT):  # type: ignore[misc]
    """An app's own `ConsumerScheduler`."""

    def iterate(self, records: Any) -> Iterator[tuple[TP, Any]]:
        copied = [(tp, list(rows)) for tp, rows in records.items()]
        return iter([(tp, row) for tp, rows in sorted(copied, key=lambda each: -len(each[1])) for row in rows])


def test_the_apps_own_scheduler_gives_nothing_more_of_a_partition_that_has_left(
    consumer: SteeredConsumer, streams: Delivered
) -> None:
    """Also if it comes back within the round: from then on it is read again from where it stopped."""
    consumer.scheduler = LargestTopicFirst()
    streams.after[1] = lambda: consumer.block({ONE})
    streams.after[2] = lambda: consumer.unblock({ONE})

    streams.deliver({ONE: [Record(10), Record(11), Record(12)], OTHER: [Record(0), Record(1)]})

    assert streams.got == [(ONE, 10), (OTHER, 0), (OTHER, 1)]
    assert consumer.next_offset(ONE) == 11


def test_a_rebalance_ends_the_round(consumer: SteeredConsumer, streams: Delivered) -> None:
    def revoke() -> None:
        consumer._rebalances += 1

    streams.after[1] = revoke
    streams.deliver({ONE: [Record(10), Record(11)]})

    assert streams.got == [(ONE, 10)]


def test_the_end_of_the_flow_ends_a_delivery_that_waits_for_room(consumer: SteeredConsumer, streams: Delivered) -> None:
    streams.room = 1
    streams.after[1] = lambda: consumer.loop.call_later(0.01, consumer.stop_flow)

    streams.deliver({ONE: [Record(10), Record(11), Record(12)]})
    streams.room = 100
    consumer.loop.run_until_complete(asyncio.sleep(0.01))

    assert streams.got == [(ONE, 10)]
    assert consumer._delivering is None


def test_what_the_streams_raise_reaches_the_loop_that_delivers(streams: Delivered) -> None:
    def fail() -> None:
        raise KeyError("no such topic")

    streams.after[1] = fail
    with pytest.raises(KeyError, match="no such topic"):
        streams.deliver({ONE: [Record(10), Record(11)]})


class FromHeaders(faust.Schema):  # type: ignore[misc]
    """As in Faust's documentation: the value's form is in the headers."""

    def loads_value(self, app: Any, message: Any, *, loads: Any = None, serializer: Any = None) -> Any:
        return message.headers["content-type"]


@pytest.mark.parametrize("another", [False, True], ids=["alone", "beside an agent that has it"])
def test_a_record_that_the_apps_own_schema_fails_on_counts_as_done_and_ends_no_worker(
    consumer: SteeredConsumer, monkeypatch: pytest.MonkeyPatch, another: bool
) -> None:
    """Stock Faust takes only its own errors for a record that cannot be decoded."""
    app = consumer.app
    own = aiter(app.topic(ONE.topic, schema=FromHeaders()))
    channels = [aiter(app.topic(ONE.topic, value_type=bytes)), own] if another else [own]
    monkeypatch.setitem(app.topics._tp_index, ONE, channels)
    app.topics._tp_to_callback[ONE] = app.topics._build_handler(ONE, channels)
    monkeypatch.setattr(consumer, "callback", app.topics.on_message)
    monkeypatch.setattr(consumer, "highwater", lambda _: 100)
    made: dict[int, Any] = {}

    def to_message(tp: TP, record: Any) -> Any:
        headers = {"content-type": "x"} if record.offset == 12 else {}
        made[record.offset] = ConsumerMessage(
            *tp, record.offset, 1.0, 0, headers, b"k", b"1", None, tp=tp, generation_id=app.consumer_generation_id
        )
        return made[record.offset]

    monkeypatch.setattr(consumer, "_to_message", to_message)
    app.flow_control.resume()
    records = {ONE: [Record(11), Record(12)]}
    consumer._round = records  # type: ignore[assignment]
    consumer.loop.run_until_complete(consumer._while_flowing(consumer._deliver(records, consumer._rebalances)))  # type: ignore[arg-type]

    assert [event.value for event in own.queue._queue] == ["x"]
    assert [made[offset].acked for offset in (11, 12)] == [not another, False]
    if another:
        assert made[11].refcount == 1, "the other agent's"


def test_so_many_finished_events_are_committed_and_a_stopped_flow_does_not_break_the_commit_off(
    consumer: SteeredConsumer, streams: Delivered, monkeypatch: pytest.MonkeyPatch
) -> None:
    story: list[str] = []

    async def commit() -> None:
        story.append("begun")
        consumer.stop_flow()
        await asyncio.sleep(0.01)
        story.append("done")

    monkeypatch.setattr(consumer, "commit", commit)
    monkeypatch.setattr(consumer, "_commit_every", 3)
    consumer._n_acked = 3

    streams.deliver({ONE: [Record(10), Record(11)]})
    consumer.loop.run_until_complete(asyncio.sleep(0.02))

    assert (streams.got, story, consumer._n_acked) == ([(ONE, 10)], ["begun", "done"], 0)


def test_nothing_is_left_of_a_partition_that_is_gone(consumer: SteeredConsumer) -> None:
    give(consumer, ONE, 10, 11)
    finish(consumer, ONE, 10)

    consumer.forget({ONE})

    assert consumer._new_offset(ONE) is None
    assert ONE not in consumer._delivered
    assert ONE not in consumer._committed_offset


class Message:
    """As much of a message as is waited for."""

    acked = False

    def __init__(self, tp: TP) -> None:
        self.tp, self.message = tp, self


async def test_a_rebalance_does_not_wait_for_an_agent_that_waits_for_an_answer(
    consumer: SteeredConsumer, monkeypatch: pytest.MonkeyPatch
) -> None:
    asker, other = Message(ONE), Message(ONE)
    replies = consumer.app._reply_consumer
    monkeypatch.setattr(replies, "_fetchers", {"f-reply-1": None})

    answers = [ReplyPromise("f-reply-1", number) for number in ("1", "2")]
    for event, answer in zip((asker, None), answers, strict=True):
        monkeypatch.setattr(consumer_module, "current_event", lambda event=event: event)
        await replies.add(answer.correlation_id, answer)
    consumer._unacked_messages.update({asker, other})

    assert consumer.asking({ONE, OTHER}) == {ONE}
    assert consumer._begun({ONE}), "a hand-over waits: answers still come"
    other.acked = True
    consumer._changing = True
    assert not consumer._begun({ONE})
    assert not consumer._unacked_messages, "Faust itself would wait for it"

    consumer._changing = False
    answers[0].set_result(7)
    await asyncio.sleep(0)
    assert consumer.asking({ONE}) == set()

    monkeypatch.setattr(consumer_module, "current_event", lambda: asker)
    await replies.add("3", given_up := ReplyPromise("f-reply-1", "3"))
    assert consumer.asking({ONE}) == {ONE}
    asker.acked = True
    assert (consumer.asking({ONE}), given_up.done()) == (set(), False)


def test_a_worker_that_stood_still_beyond_its_session_leads_nothing(
    consumer: SteeredConsumer, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = consumer.app
    monkeypatch.setattr(consumer, "assignment", lambda: {app._leader_assignor._leader_tp})
    monkeypatch.setattr(app, "consumer", consumer)
    assert app.is_leader()

    consumer.fence.heard(0.0)  # when the machine started
    assert not app.is_leader()


def test_a_reply_topic_has_only_the_queue_that_is_read(consumer: SteeredConsumer) -> None:
    topic = consumer.app._reply_consumer._reply_topic("f-reply-1")
    consumer.app.topics.add(topic)

    assert [each for each in consumer.app.topics if "f-reply-1" in each.topics] == [topic.stream().channel]


async def test_a_recovery_that_a_rebalance_overtook_opens_nothing_in_the_next_generation(
    consumer: SteeredConsumer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its seek, begun after the revocation, ends while the next assignment is being taken over (seen in a storm)."""
    seeks: list[int] = []

    async def seek(self: Any) -> None:
        seeks.append(consumer._rebalances)
        consumer._committed_offset[ONE] = consumer._read_offset[ONE] = 10

    consumer.watcher = Watched()  # type: ignore[assignment]
    consumer.not_waiting_next_records.set()
    monkeypatch.setattr(faust.transport.drivers.aiokafka.Consumer, "perform_seek", seek)
    monkeypatch.setattr(faust.transport.drivers.aiokafka.Consumer, "on_partitions_assigned", nothing)
    monkeypatch.setattr(consumer, "_on_partitions_revoked", nothing)
    monkeypatch.setattr(consumer, "assignment", lambda: {ONE})
    renewing = asyncio.Event()
    monkeypatch.setattr(consumer.app.producer, "renew_if_condemned", renewing.wait, raising=False)
    monkeypatch.setattr(consumer.app.producer, "flush_or_drop", nothing, raising=False)
    await consumer.on_partitions_revoked({ONE})
    assigned = asyncio.create_task(consumer.on_partitions_assigned({ONE}, 2))
    await asyncio.sleep(0)
    overtaken = asyncio.create_task(consumer.perform_seek())
    await asyncio.sleep(0.02)
    consumer.resume_flow()
    assert not consumer.is_open

    overtaken.cancel()  # as Faust does when the recovery of the new assignment begins
    renewing.set()
    await assigned
    consumer.resume_flow()
    assert not consumer.is_open
    await consumer.perform_seek()
    consumer.resume_flow()
    assert consumer.is_open
    assert seeks == [1]


def test_a_rebalance_leaves_time_to_join_after_it_has_waited_for_what_was_sent(
    consumer: SteeredConsumer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Begun events may wait for the same partition without a leader: they end with what is dropped."""
    waits: list[tuple[str, float]] = []

    async def drain(_: Any, limit_s: float) -> bool:
        waits.append(("begun events", limit_s))
        return False

    async def flush(limit_s: float) -> None:
        waits.append(("flush", limit_s))

    async def revoke(_: Any) -> None:
        waits.append(("Faust waits for the rest, and commits", 0.0))

    monkeypatch.setattr(consumer, "drain", drain)
    monkeypatch.setattr(consumer.app.producer, "flush_or_drop", flush, raising=False)
    monkeypatch.setattr(consumer, "_on_partitions_revoked", revoke)
    consumer.watcher = Watched()  # type: ignore[assignment]
    consumer.loop.run_until_complete(consumer.on_partitions_revoked({ONE}))
    assert waits == [("begun events", 30.0), ("flush", 15.0), ("Faust waits for the rest, and commits", 0.0)]


class Group:
    """As much of the consumer's thread as a rebalance needs; `left` = how often the worker has left its group."""

    def __init__(self, fence: Fence) -> None:
        self.left = 0
        self.coordinator_silent = self.commit_waits = False
        self.committing_since: float | None = None
        self._fence = fence

    async def leave(self, _: float) -> None:
        self.left += 1
        self._fence.lose()

    async def run(self, step: Callable[[], None]) -> None:
        step()

    def touch(self) -> None: ...


@pytest.mark.parametrize(
    "case",
    ["silent", "silent for what is sent last", "it answers, and takes nothing", "the group's broker is silent too"],
)
async def test_a_worker_whose_outputs_wait_for_a_silent_leader_leaves_the_group_until_it_answers(
    consumer: SteeredConsumer, monkeypatch: pytest.MonkeyPatch, case: str
) -> None:
    """The group would wait for it.  Where the leader lacks copies in sync it answers, and all workers wait alike."""
    out, last = TopicPartition("out", 0), list[asyncio.Future[Any]]()

    async def revoke(_: Any) -> None:
        if case == "silent for what is sent last":  # by a handler of Faust's signal, for example
            assert consumer.app.producer._producer is not None
            producer = consumer.app.producer._producer
            last.append(await producer._message_accumulator.add_message(out, b"k", b"v", 1200.0))
            await asyncio.wait(last)

    group: Any = Group(consumer.fence)
    group.coordinator_silent = case == "the group's broker is silent too"
    consumer._thread, consumer.watcher = group, Watched()  # type: ignore[assignment]
    consumer.app.conf.broker_rebalance_timeout = 0.8
    silent_s = 0.1 if case.startswith("silent") else 20.0  # one that answers may do so late here
    for name, seconds in {"SILENT_S": silent_s, "RETRY_S": 0.05, "ENDS_INTERVAL_S": 0.05}.items():
        monkeypatch.setattr(consumer_module, name, seconds)
    monkeypatch.setattr(consumer, "_on_partitions_revoked", revoke)
    async with listening(deaf=case != "it answers, and takes nothing") as broker:
        producer = FencedProducer(consumer.fence, print, print, bootstrap_servers="127.0.0.1:1")
        rows = [(0, "out", False, [(0, 0, 1, [1], [1])])]
        producer.client.cluster.update_metadata(
            SimpleNamespace(API_VERSION=1, brokers=[(1, "127.0.0.1", broker.port, None)], controller_id=1, topics=rows)
        )
        steered = consumer.transport.create_producer()
        consumer.app.producer, steered._producer = steered, producer
        await steered.buffer.start()
        if case != "silent for what is sent last":
            last.append(await producer._message_accumulator.add_message(out, b"k", b"v", 1200.0))
        rebalancing = asyncio.create_task(consumer.on_partitions_revoked({ONE}))
        if not case.startswith("silent"):
            while broker.heard < 3 and case == "it answers, and takes nothing":
                await asyncio.sleep(0.01)
            await asyncio.wait([rebalancing], timeout=0.5)
            assert (group.left, last[0].done(), consumer.out_of_reach()) == (0, False, None)
            producer._message_accumulator._batches.pop(out)[0].done_noack()
            await asyncio.wait_for(rebalancing, 20.0)
        else:
            while not group.left:
                await asyncio.sleep(0.01)
            await asyncio.wait(last)
            silent = f"broker 1 at 127.0.0.1:{broker.port} does not answer"
            assert (type(last[0].exception()), consumer.out_of_reach()) == (WorkerFenced, silent)
            assert (consumer.fence.dropped, producer.condemned) == (True, True), "else it would be committed"
            seen = broker.heard
            while broker.heard == seen:
                await asyncio.sleep(0.01)
            assert not rebalancing.done(), "it would join again without it"
            broker.deaf = False
            await asyncio.wait_for(rebalancing, 20.0)
            assert (group.left, consumer.out_of_reach()) == (1, None)
        steered.buffer._stopped.set()


@pytest.mark.parametrize("closed", [True, False])
async def test_what_is_in_flight_when_the_session_ends_is_recalled(consumer: SteeredConsumer, *, closed: bool) -> None:
    if closed:
        consumer.fence.heard(0.0)  # when the machine started
    async with listening(deaf=False) as broker:
        steered = consumer.transport.create_producer()
        consumer.app.producer = steered
        consumer.recall_if_fenced()  # before the first join there is none
        steered._producer = producer = FencedProducer(consumer.fence, print, print, bootstrap_servers="127.0.0.1:1")
        producer.client.cluster.update_metadata(
            SimpleNamespace(API_VERSION=1, brokers=[(1, "127.0.0.1", broker.port, None)], controller_id=1, topics=[])
        )
        connection = await producer.client._get_conn(1)
        for in_flight in (0, 1):
            producer._in_flight = in_flight
            consumer.recall_if_fenced()
            assert connection.connected() is not (closed and bool(in_flight))
        connection.close()


@pytest.mark.parametrize("tables", [False, True])
def test_a_recovery_waits_for_a_broker_that_is_away_for_long(
    consumer: SteeredConsumer, monkeypatch: pytest.MonkeyPatch, *, tables: bool
) -> None:
    """Faust takes the end of its own limit for the end of the worker, which then does nothing, whatever comes."""
    app, changelog, asked = consumer.app, TP("ks-sums-changelog", 1), Counter[str]()

    def answering(name: str, answer: Any) -> Callable[..., Any]:
        async def answer_late(*_: Any) -> Any:
            asked[name] += 1
            await asyncio.sleep(0.2)
            if asked[name] == 1:
                raise KafkaTimeoutError(name)
            return answer

        return answer_late

    async def story() -> bool:
        await consumer.subscribe([ONE.topic])
        await consumer.subscribe([ONE.topic, OTHER.topic])
        recovery = app.tables.recovery
        recovery.recovery_delay = 0.0
        await recovery.start()
        for generation in (1, 2):
            consumer._sought = consumer._open = False
            consumer.stop_flow()
            app.consumer_generation_id = generation
            await recovery.on_rebalance({ONE, changelog}, set(), {ONE}, generation)
            async with asyncio.timeout(20.0):
                while not consumer.is_open:
                    await asyncio.sleep(0.01)
        await recovery.stop()
        return consumer.is_open

    monkeypatch.setattr(client_module, "ASK_AGAIN_S", 0.01)
    app.conf.broker_request_timeout = 0.05
    app._consumer, app.__dict__["_fetcher"] = consumer, SimpleNamespace(maybe_start=nothing)
    consumer.watcher = Watched()  # type: ignore[assignment]
    consumer._thread = SimpleNamespace(  # type: ignore[assignment]
        committed_here=(), wait_for_topics=nothing, subscribe=nothing
    )
    monkeypatch.setattr(app.producer, "flush", nothing)
    stock = faust.transport.drivers.aiokafka.Consumer
    monkeypatch.setattr(consumer, "assignment", lambda: {ONE})
    monkeypatch.setattr(consumer, "_seek_to_start", answering("starts", {}))
    monkeypatch.setattr(stock, "perform_seek", answering("offsets", None))
    if tables:
        sums = app.Table("sums", store="memory://")
        app.assignor.assigned_actives = lambda: {changelog}
        monkeypatch.setattr(sums, "on_recovery_completed", nothing)
        monkeypatch.setattr(consumer, "highwaters", answering("ends", {changelog: 0}))
        monkeypatch.setattr(consumer, "earliest_offsets", answering("starts of logs", {changelog: 0}))
        monkeypatch.setattr(consumer, "seek_wait", answering("seeks", None))

    assert asyncio.get_event_loop().run_until_complete(story())
    assert min(asked.values()) > 1


class Thread:
    """Partitions with the ends that fetches (`highwater`) and questions to the broker (`asked`) tell."""

    commit_waits = False

    def __init__(self, highwater: dict[TP, int], asked: dict[TP, int | None]) -> None:
        self.seen, self.asked = highwater, asked
        self.fault: Exception | None = None
        self.passed: dict[TP, int] = {}

    def fetches(self, tp: TP) -> bool:
        return True

    def highwater(self, tp: TP) -> int | None:
        return self.seen.get(tp)

    async def ends_not_fetched(self, tps: Collection[TP], after_s: float, limit_s: float) -> dict[TP, int | None]:
        if self.fault is not None:
            raise self.fault
        return {tp: self.asked[tp] for tp in tps if tp in self.asked}

    def touch(self) -> None: ...

    async def run(self, step: Callable[[], None]) -> None:
        step()

    def silence(self, tp: TP) -> str:
        return "broker 2 at kafka-2:9092 does not answer"

    def taken_up_to(self, tp: TP) -> int | None:
        return self.passed.get(tp)


def test_a_backlog_counts_what_arrived_while_the_queues_were_too_full_to_fetch(consumer: SteeredConsumer) -> None:
    thread = Thread({ONE: 15}, {})
    consumer._thread = thread  # type: ignore[assignment]
    give(consumer, ONE, 10, 11, 12)
    finish(consumer, ONE, 10)
    assert (consumer.backlog(ONE), consumer.backlog(OTHER)) == (4, None), "11, 12, 13, 14; the other was never fetched"

    def refresh() -> tuple[int | None, int | None]:
        asyncio.get_event_loop().run_until_complete(consumer._ends.refresh(thread, [ONE, OTHER]))
        return consumer.backlog(ONE), consumer.backlog(OTHER)

    thread.asked = {ONE: 500, OTHER: 7}
    assert refresh() == (489, 7), "of the other one nothing was read, so it counts as its topic"
    thread.seen, thread.asked = {ONE: 600, OTHER: 7}, {}
    assert refresh() == (589, 7), "fetched again: the broker is not asked"
    thread.asked, thread.fault = {ONE: 700}, TimeoutError()
    assert refresh() == (589, 7)


def test_a_backlog_whose_broker_is_out_of_reach_is_unknown_and_not_what_it_was(consumer: SteeredConsumer) -> None:
    thread = Thread({ONE: 15, OTHER: 3}, {ONE: None})
    consumer._thread = thread  # type: ignore[assignment]
    give(consumer, ONE, 10, 11, 12)
    give(consumer, OTHER, 2)
    asyncio.get_event_loop().run_until_complete(consumer._ends.refresh(thread, [ONE, OTHER]))

    assert (consumer.backlog(ONE), consumer.backlog(OTHER)) == (None, 1)
    assert consumer.out_of_reach([OTHER, ONE]) == "broker 2 at kafka-2:9092 does not answer"
    assert consumer.out_of_reach([OTHER]) is None
    thread.commit_waits = True
    assert consumer.out_of_reach([OTHER]) == COMMITS_WAIT


def test_what_has_waited_is_read_beside_the_events_of_others_until_its_log_is_read(consumer: SteeredConsumer) -> None:
    thread = Thread({ONE: 1000, OTHER: 1000}, {})
    at = thread.passed = {ONE: 100, OTHER: 0}
    consumer._thread = thread  # type: ignore[assignment]
    consumer.start_at({ONE: 100, OTHER: 0})
    channel = queued(consumer, *(Event(OTHER, offset) for offset in range(3)))
    assert consumer._room_for_backlogs() == {}
    consumer.begin_behind({ONE})
    assert consumer._room_for_backlogs() == {ONE: BACKLOG_EVENTS + 1}
    channel.queue._queue.extend(Event(ONE, offset) for offset in range(100, 130))
    assert consumer._room_for_backlogs() == {ONE: BACKLOG_EVENTS + 1 - 30}
    give(consumer, ONE, *range(100, 900))  # what agents have and do not acknowledge takes no room
    assert consumer._room_for_backlogs() == {ONE: BACKLOG_EVENTS + 1 - 30}
    channel.queue._queue.extend(Event(OTHER, offset) for offset in range(3, BACKLOG_EVENTS + 50))
    assert consumer._room_for_backlogs() == {ONE: BACKLOG_EVENTS + 50 + 1 - 30}  # nobody is left behind
    at[ONE] = 1000
    assert consumer._room_for_backlogs() == {}
    consumer.begin_behind({OTHER})
    consumer.forget({OTHER})
    assert consumer._room_for_backlogs() == {}


def test_what_has_waited_is_not_put_behind_all_that_waits_of_others(consumer: SteeredConsumer) -> None:
    others, late = [Event(OTHER, offset) for offset in range(4)], [Event(ONE, offset) for offset in (7, 8)]
    channel = queued(consumer, *others, *late)
    consumer._let_take_turns(ONE)
    assert channel.left == [(OTHER, 0), (ONE, 7), (OTHER, 1), (ONE, 8), (OTHER, 2), (OTHER, 3)]


def test_a_worker_that_may_not_read_a_topic_says_so_and_tries_again(
    consumer: SteeredConsumer, monkeypatch: pytest.MonkeyPatch
) -> None:
    consumer._thread = Thread({}, {})  # type: ignore[assignment]
    answers = iter([TopicAuthorizationFailedError(ONE.topic), {OTHER: ["record"]}])

    async def fetch(active_partitions: Collection[TP], timeout: float) -> Any:
        if isinstance(answer := next(answers), Exception):
            raise answer
        return answer

    monkeypatch.setattr(consumer, "_getmany", fetch)
    run = asyncio.get_event_loop().run_until_complete
    assert run(consumer._fetch(frozenset([ONE, OTHER]))) == {}
    assert consumer.out_of_reach() == f"Kafka does not let the app read {ONE.topic}"
    assert consumer.out_of_reach([TP("another", 0)]) is None

    asked: list[Collection[TP]] = []
    side = TP("side", 0)

    async def note(active: Collection[TP]) -> Any:
        asked.append(active)
        return {}

    monkeypatch.setattr(consumer, "_fetch", note)
    monkeypatch.setattr(consumer, "_get_active_partitions", lambda: {ONE, OTHER, side})
    monkeypatch.setattr(consumer, "_note_passed", lambda _: None)
    consumer._open = True
    consumer.can_resume_flow.set()
    consumer.flow_active = True
    for seconds, expected in ((0.0, [{side}]), (FORBIDDEN_AGAIN_S, [{ONE, OTHER, side}])):
        consumer._forbidden[ONE.topic] = time.monotonic() - seconds
        asked.clear()
        run(consumer._next_round())
        assert asked == expected


def test_a_partition_that_cannot_be_read_stands_and_is_tried_again(
    consumer: SteeredConsumer, monkeypatch: pytest.MonkeyPatch
) -> None:
    consumer._thread = Thread({}, {})  # type: ignore[assignment]
    unreadable = UnreadableRecord(TopicPartition(*ONE), 7, ValueError("no library"))
    answers = iter([unreadable, {OTHER: ["record"]}, {ONE: ["record"]}])
    asked: list[Collection[TP]] = []

    async def fetch(active_partitions: Collection[TP], timeout: float) -> Any:
        asked.append(set(active_partitions))
        if isinstance(answer := next(answers), Exception):
            raise answer
        return answer

    monkeypatch.setattr(consumer, "_getmany", fetch)
    monkeypatch.setattr(consumer, "_get_active_partitions", lambda: {ONE, OTHER})
    consumer.watcher, consumer._sought = Watched(), True  # type: ignore[assignment]
    consumer.resume_flow()
    run = asyncio.get_event_loop().run_until_complete
    assert run(consumer._next_round()) == {}
    told = f"{ONE.topic}/{ONE.partition} cannot be read from offset 7 on: no library"
    assert consumer.out_of_reach() == consumer.out_of_reach([ONE]) == told
    assert consumer.out_of_reach([OTHER]) is None
    assert run(consumer._next_round()) == {OTHER: ["record"]}
    consumer._unreadable[ONE] = (told, 0.0)
    assert run(consumer._next_round()) == {ONE: ["record"]}
    assert asked == [{ONE, OTHER}, {OTHER}, {ONE, OTHER}]
    assert consumer.out_of_reach() is None


def test_nothing_new_is_begun_while_a_commit_waits_for_long(
    consumer: SteeredConsumer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is done meanwhile is done again, if the group goes on without this worker."""
    thread = Thread({}, {})
    thread.commit_waits, consumer._thread, consumer._open = True, thread, True  # type: ignore[assignment]

    async def fetch(active_partitions: Collection[TP], timeout: float) -> Any:
        return {ONE: ["record"]}

    monkeypatch.setattr(consumer, "_getmany", fetch)
    run = asyncio.get_event_loop().run_until_complete
    assert run(consumer._fetch(frozenset([ONE]))) == {}
    consumer._open = False
    assert run(consumer._fetch(frozenset([ONE]))) == {ONE: ["record"]}, "a table is restored"
    thread.commit_waits, consumer._open = False, True
    assert run(consumer._fetch(frozenset([ONE]))) == {ONE: ["record"]}


def test_a_flush_counts_as_part_of_the_commit_that_it_delays(
    consumer: SteeredConsumer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its broker may be out of reach, and the one that takes commits not: all that is done meanwhile is uncommitted."""
    consumer._thread = thread = SteeredThread.__new__(SteeredThread)
    seen: list[float | None] = []

    async def flush() -> None:
        seen.append(thread.committing_since)
        raise KafkaError

    monkeypatch.setattr(consumer.app.producer, "flush", flush, raising=False)
    monkeypatch.setattr(consumer, "assignment", lambda: {ONE})
    monkeypatch.setattr(consumer, "_filter_committable_offsets", lambda tps: dict.fromkeys(tps, 7))
    with pytest.raises(KafkaError):
        asyncio.get_event_loop().run_until_complete(consumer._commit_tps([ONE], start_new_transaction=False))
    assert seen != [None]
    assert thread.committing_since is None


@pytest.mark.parametrize(
    ("read", "end", "ahead", "waiting"),
    [
        pytest.param(range(60, 10_060, 50), 1_510_010, 0.02, 30_000, id="compacted: one record on 50 offsets"),
        pytest.param(range(10, 410, 2), 1_010, None, 301, id="one record per transaction, and its marker"),
        pytest.param([*range(10, 20), *range(1_000_000, 1_000_300)], 1_000_500, None, 200, id="behind deleted records"),
        pytest.param(range(10, 30), 110, None, 80, id="every offset is a record"),
        pytest.param(range(10, 1_010), 1_001_010, 1.0, 1_000_000, id="far behind"),
        pytest.param(range(10, 1_010), 1_001_010, None, None, id="far behind, and nobody has looked"),
        pytest.param([], 1_000_000, 1.0, None, id="nothing was read yet"),
        pytest.param([], 10, None, 0, id="nothing was read, and nothing is there"),
    ],
)
def test_a_difference_of_offsets_is_no_count_of_records(
    consumer: SteeredConsumer, read: Collection[int], end: int, ahead: float | None, waiting: int | None
) -> None:
    consumer._thread = Thread({ONE: end}, {})  # type: ignore[assignment]
    give(consumer, ONE, *read)
    finish(consumer, ONE, *read)
    if ahead is not None and (unread := consumer._unread(ONE)) is not None:
        while (place := consumer._density.place_to_look(ONE, unread)) is not None:
            consumer._density.look(ONE, place, ahead)
    assert consumer.backlog(ONE) == waiting


def test_the_density_of_a_topic_counts_where_nothing_was_read_of_the_partition(consumer: SteeredConsumer) -> None:
    consumer._thread = Thread({ONE: 1_010, OTHER: 500}, {})  # type: ignore[assignment]
    give(consumer, ONE, *range(19, 1_010, 10))
    assert consumer.backlog(OTHER) == 50


def test_the_marker_at_the_end_of_a_log_is_no_backlog(consumer: SteeredConsumer) -> None:
    thread = Thread({ONE: 14}, {})
    consumer._thread = thread  # type: ignore[assignment]
    give(consumer, ONE, 10, 11, 12)
    finish(consumer, ONE, 10, 11, 12)
    thread.passed = {ONE: 14}
    consumer._note_passed([ONE])
    assert consumer.backlog(ONE) == 0

    consumer.block([ONE])  # events are taken back, and read again
    consumer._take_out(queued(consumer, Event(ONE, 12)).queue, [ONE], {})
    assert consumer.next_offset(ONE) == 12


@pytest.mark.parametrize(
    ("position", "given", "processed", "ends"),
    [
        (9, 7, 7, True),  # offset 8 is the marker of a transaction
        (9, None, 4, True),  # all after what the table has is no record
        (9, 7, 6, False),  # the last record is still in the queue: it would be dropped
        (8, 7, 7, False),  # the end is not reached
    ],
)
def test_a_recovery_ends_at_the_end_of_the_log_and_not_before_what_was_given_to_it_is_applied(
    consumer: SteeredConsumer, position: int, given: int | None, processed: int, *, ends: bool
) -> None:
    changelog, recovery = TP("log", 1), consumer.app.tables.recovery
    recovery.active_highwaters[changelog], recovery.active_offsets[changelog] = 8, processed
    recovery.in_recovery = consumer.flow_active = True
    consumer._restored = {} if given is None else {changelog: given}

    class Thread:
        positions = "positions"

        async def run(self, step: Any, tps: Collection[TP]) -> dict[TP, int]:
            return dict.fromkeys(tps, position)

    consumer._thread = Thread()  # type: ignore[assignment]

    async def story() -> bool:
        waiting = asyncio.ensure_future(recovery.signal_recovery_end.wait())
        await asyncio.sleep(0)
        await consumer._end_recovery()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        return waiting.done() or not waiting.cancel()

    assert asyncio.get_event_loop().run_until_complete(story()) is ends
    assert recovery.in_recovery is not ends
    assert recovery.active_offsets[changelog] == (8 if ends else processed)
    assert not recovery.signal_recovery_end.is_set(), "it would end the next recovery"


def begun_before(tp: TP, offset: int, seconds: float) -> Event:
    """Begun by another agent of the topic, so long ago."""
    made = Event(tp, offset, begun=True)
    made.time_in = time.monotonic() - seconds
    return made


async def test_what_another_agent_has_begun_is_taken_before_other_key_groups(consumer: SteeredConsumer) -> None:
    """One agent is 60 s behind another one of its topic: a key group that leaves need not wait for that."""
    give(consumer, OTHER, *range(6))
    give(consumer, ONE, 10, 11, 12)
    waiting = [begun_before(OTHER, number, 60.0 - number) for number in range(4)]
    ours = [begun_before(ONE, 10, 50.0), begun_before(ONE, 11, 49.0)]
    channel = queued(consumer, *waiting, *ours, Event(OTHER, 4), Event(ONE, 12), Event(OTHER, 5))
    consumer._unacked_messages.update([*waiting, *ours])

    assert consumer.oldest_in_work({ONE}) is None, "no agent has it in its hands"
    assert consumer.bring_forward({ONE}) == pytest.approx(60.0 * 2 / 6, rel=0.01)
    assert channel.left[:3] == [(ONE, 10), (ONE, 11), (OTHER, 0)]
    consumer.block({ONE})
    assert not await consumer.drain({ONE}, 0.05), "it is still to be taken"
    assert channel.left == [(ONE, 10), (ONE, 11), *((OTHER, number) for number in range(6))]
    assert consumer.next_offset(ONE) == 12
