"""What a leaving key group takes along when direct events wait in the queues: the consumer without a broker."""

import asyncio
from types import SimpleNamespace
from typing import Any

import faust
import faust.transport.drivers.aiokafka
import pytest
from faust.events import Event
from faust.types import TP
from faust.types.tuples import ConsumerMessage

from tests.agent.engines.faust.steered import consumer_of, nothing, processing
from trimtab_agent.engines.faust import SteeringSettings
from trimtab_agent.engines.faust.local.consumer import LocalConsumer, LocalTransport
from trimtab_agent.engines.faust.local.gate import GateState, LocalGate
from trimtab_agent.engines.faust.local.hop import LocalHop, LocalSettings
from trimtab_agent.engines.faust.local.message import DirectMessage
from trimtab_agent.engines.faust.local.values import readers_of
from trimtab_agent.engines.faust.safety.fence import Fence

TARGET, OTHER = TP("regrouped", 1), TP("regrouped", 2)


@pytest.fixture
def consumer(loop: asyncio.AbstractEventLoop) -> LocalConsumer:
    app = faust.App("ks", web_enabled=False)
    outside: Any = SimpleNamespace(refusal=nothing)
    hop = LocalHop(
        app,
        ["regrouped"],
        by_broker=nothing,
        outside=outside,
        refused=lambda: False,
        tell=lambda reason: None,
        settings=LocalSettings(),
    )
    transport = LocalTransport(app, hop=hop, fence=Fence(10.0), settings=SteeringSettings(), watcher=None)
    transport.loop = loop
    made: Any = consumer_of(transport)
    app.topics._acking_topics.add(TARGET.topic)
    made.start_at({TARGET: 10, OTHER: 0})
    return made


def record(tp: TP, offset: int, key: bytes) -> Any:
    message = ConsumerMessage(tp.topic, tp.partition, offset, 1.0, 1, None, key, b"1", None, tp=tp)
    return SimpleNamespace(message=message)


def direct(consumer: LocalConsumer, tp: TP, key: bytes) -> Any:
    async def make() -> LocalGate:
        return LocalGate(tp, [], {})

    gates = consumer.hop.routes["regrouped"].gates
    if tp.partition not in gates:
        gates[tp.partition] = asyncio.get_event_loop().run_until_complete(make())
    message = DirectMessage(
        gates[tp.partition], key=key, headers=(), timestamp=1.0, generation_id=0, encode=lambda: b"1",
        cause=record(TP("numbers", 0), 5, b"k").message, era=0, finished=lambda message: None,
    )  # fmt: skip
    gates[tp.partition].begin(key)
    return SimpleNamespace(message=message)


def queue(consumer: LocalConsumer, *events: Any) -> Any:
    channel = SimpleNamespace(queue=consumer.app.FlowControlQueue(maxsize=100))
    channel.queue._queue.extend(events)
    for tp in (TARGET, OTHER):
        consumer.app.topics._tp_index[tp] = [channel]
    for event in events:
        if not isinstance(event.message, DirectMessage):
            consumer._note_delivery(event.message.tp, event.message.offset)
    return channel.queue._queue


def test_what_is_brought_forward_overtakes_nothing_of_its_partition(consumer: LocalConsumer) -> None:
    before, after = record(TARGET, 10, b"g"), record(TARGET, 11, b"g")
    other, hop = record(OTHER, 0, b"g"), direct(consumer, TARGET, b"g")
    left = queue(consumer, other, before, hop, after)

    consumer.bring_forward({TARGET})

    assert list(left) == [before, hop, other, after]


def test_a_record_before_a_direct_event_with_its_key_stays(consumer: LocalConsumer) -> None:
    before, same, behind, after = (record(TARGET, n, key) for n, key in enumerate([b"a", b"g", b"b", b"g"], start=10))
    other, hop = record(OTHER, 0, b"g"), direct(consumer, TARGET, b"g")
    left = queue(consumer, other, before, same, behind, hop, after)

    consumer._purge({TARGET})

    assert list(left) == [before, same, hop, other], "what is waited for comes first"
    assert consumer.next_offset(TARGET) == 12


def test_a_key_group_with_unfinished_direct_events_has_begun_events(consumer: LocalConsumer) -> None:
    direct(consumer, TARGET, b"g")
    assert consumer._begun({TARGET})
    assert not consumer._begun({OTHER})


def test_a_finished_direct_event_writes_no_more_once_its_key_group_has_been_away(consumer: LocalConsumer) -> None:
    message = direct(consumer, TARGET, b"g").message
    message.acked = True
    assert not consumer.is_late(message)
    consumer.forget({TARGET})
    assert consumer.is_late(message)
    consumer.start_at({TARGET: 10})
    again = direct(consumer, TARGET, b"g").message
    assert consumer.is_late(message)
    assert not consumer.is_late(again)


def test_the_queues_were_given_what_is_not_being_delivered(consumer: LocalConsumer) -> None:
    assert consumer.given(TARGET) == 10
    consumer._note_delivery(TARGET, 10)
    consumer._delivering = TARGET
    assert consumer.given(TARGET) == 10
    consumer._delivering = None
    assert consumer.given(TARGET) == 11


def test_blocked_partitions_get_no_direct_events(consumer: LocalConsumer) -> None:
    direct(consumer, TARGET, b"g")
    gate = consumer.hop.routes["regrouped"].gates[TARGET.partition]
    consumer.block({TARGET})
    assert gate.state is GateState.OFF


def test_what_was_given_up_is_dropped_and_its_cause_is_read_again(consumer: LocalConsumer) -> None:
    event = direct(consumer, TARGET, b"g")
    left = queue(consumer, event, record(TARGET, 10, b"a"))
    gate = consumer.hop.routes["regrouped"].gates[TARGET.partition]
    gate.queues = [consumer.app.topics._tp_index[TARGET][0].queue]

    consumer.not_finished("the rebalance continues")

    assert [one.message.offset for one in left] == [10]
    assert consumer.hop.given_up == 1
    assert not consumer._begun({TARGET})
    assert event.message.cause.topic not in {"numbers"}


def test_events_without_a_key_take_turns_among_the_partitions_of_their_worker(consumer: LocalConsumer) -> None:
    route = consumer.hop.routes["regrouped"]
    assert route._next_own_partition() is None
    for tp in (TARGET, OTHER):
        direct(consumer, tp, b"g")
    gates = route.gates
    assert {route._next_own_partition() for _ in range(2)} == {TARGET.partition, OTHER.partition}
    gates[OTHER.partition].state = GateState.OPEN
    assert {route._next_own_partition() for _ in range(4)} == {OTHER.partition}
    gates[OTHER.partition].turn_off()
    assert {route._next_own_partition() for _ in range(4)} == {TARGET.partition}, "one that leaves gets none"
    gates[TARGET.partition].turn_off()
    assert route._next_own_partition() is None


class Reader:
    """As much of a stream as is looked at."""

    channel: Any
    current_event: Any
    get_root_stream: Any
    enable_acks, _next = True, None
    _processors: tuple[Any, ...] = ()


def test_a_direct_event_whose_agent_fails_before_it_acknowledges_it_counts_as_done(consumer: LocalConsumer) -> None:
    """`stream.filter` that raises, or `noack`: its cause waits for it, and so does each hand-over."""
    app = consumer.app
    events = [direct(consumer, TARGET, b"g"), direct(consumer, TARGET, b"h")]
    channel = SimpleNamespace(queue=app.FlowControlQueue(maxsize=9), topics=[TARGET.topic])
    app.topics._tp_index[TARGET] = [channel]

    def reader(event: Any) -> Any:
        stream = Reader()
        stream.channel, stream.current_event = channel, event
        stream.get_root_stream = lambda: stream
        consumer.first_streams.add(stream)
        return SimpleNamespace(_actors=[SimpleNamespace(stream=stream)], concurrency=1)

    failing, other = reader(events[0]), reader(events[1])
    events[0].message.refcount, events[1].message.refcount = 1, 1
    for event in events:  # the other one works on the second
        failing._actors[0].stream.current_event = event
        consumer._note_failed(failing, failing._actors[0].stream, (), all_of_topics=False)
    consumer._let_go_of_failed()
    assert [event.message.acked for event in events] == [True, False]

    other._actors[0].stream.current_event = None
    consumer._let_go_of_failed()
    assert events[1].message.acked
    assert not consumer._failed


def test_what_the_app_has_connected_is_called_for_direct_events_and_may_add_headers(consumer: LocalConsumer) -> None:
    """A trace, or Faust's LiveCheck, which would otherwise end at a local topic."""
    app, told = consumer.app, []

    @app.on_produce_message.connect  # type: ignore[untyped-decorator]
    def trace(_: Any, *, value: bytes, headers: list[tuple[str, bytes]], **known: Any) -> None:
        headers.append(("trace", b"7"))
        told.append((known["key"], value, known["partition"]))

    async def send() -> Any:
        topic = app.topic("regrouped", key_type=str, value_type=int)
        readers = topic.clone(is_iterator=True)
        gate, cause = LocalGate(TARGET, readers_of(app, [readers]), {}), record(TP("numbers", 0), 5, b"k").message
        for fields in ({"value": 3}, {"value": 4, "headers": {"of": b"a"}}):
            assert consumer.hop.routes["regrouped"]._deliver(topic, gate, cause, b"g", None, fields)
        return [event.headers for event in readers.queue._queue]

    assert asyncio.get_event_loop().run_until_complete(send()) == [
        {"trace": b"7"},
        {"of": b"a", "trace": b"7"},
    ]
    assert told == [(b"g", b"3", TARGET.partition), (b"g", b"4", TARGET.partition)]


def test_a_callback_gets_what_was_sent_and_its_failure_is_not_that_of_the_event(consumer: LocalConsumer) -> None:
    app, route, told, failed = consumer.app, consumer.hop.routes["regrouped"], [], []
    metadata = SimpleNamespace(_partitions={"regrouped": {TARGET.partition: None}})
    producer = SimpleNamespace(_metadata=metadata, _partition=lambda *_: TARGET.partition)
    app._producer = SimpleNamespace(_producer=producer)

    def callback(sent: Any) -> None:
        told.append((sent.message.key, sent.message.value, sent.message.partition, sent.result().topic))
        raise ValueError

    async def send() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, found: failed.append(type(found["exception"])))
        topic = app.topic("regrouped", key_type=str, value_type=int)
        gate = route.gates[TARGET.partition] = LocalGate(TARGET, readers_of(app, [topic.clone(is_iterator=True)]), {})
        gate.state = GateState.OPEN
        cause = Event(app, "k", 1, None, record(TP("numbers", 0), 5, b"k").message)
        with processing(cause):
            await route.send(topic, {"key": "g", "value": 3, "callback": callback})
        await asyncio.sleep(0)

    asyncio.get_event_loop().run_until_complete(send())
    assert told == [(b"g", b"3", TARGET.partition, "regrouped")]
    assert failed == [ValueError]
