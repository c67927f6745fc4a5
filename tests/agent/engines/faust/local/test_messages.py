"""Acknowledgement of direct events, and what their readers get, with Faust's own classes and without a broker."""

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import faust
import pytest
from faust.sensors.distributed_tracing import TracingSensor
from faust.types import TP
from faust.types.tuples import ConsumerMessage

from trimtab_agent.engines.faust.local.gate import LocalGate
from trimtab_agent.engines.faust.local.message import DirectMessage, FinishedTopic, root
from trimtab_agent.engines.faust.local.values import PartitionReaders, codecs, readers_of

SOURCE, TARGET = TP("numbers", 1), TP("regrouped", 2)


class Consumer:
    """Notes the offsets that Faust's consumer would record."""

    def __init__(self) -> None:
        self.recorded: list[tuple[TP, int]] = []

    def ack(self, message: Any) -> bool:
        message.acked = True
        if message.topic in {"numbers", "regrouped"}:  # as in the conductor's set of topics with acknowledgements
            self.recorded.append((message.tp, message.offset))
        return True


def cause() -> ConsumerMessage:
    message = ConsumerMessage("numbers", 1, 7, 1.0, 1, None, b"k", b"1", None, tp=SOURCE)
    message.generation_id = 3
    message.refcount = 1  # the agent that works on it
    return message


def direct(of: Any, finished: Any, value: bytes = b"1") -> DirectMessage:
    async def make() -> DirectMessage:
        return DirectMessage(
            LocalGate(TARGET, [], {}), key=b"g", headers=(), timestamp=1.0, generation_id=3, encode=lambda: value,
            cause=of, era=1, finished=finished,
        )  # fmt: skip

    of.refcount += 1
    message = asyncio.run(make())
    message.refcount = 1
    return message


def test_a_cause_is_done_only_after_everything_that_it_caused() -> None:
    consumer, first = Consumer(), cause()
    second = direct(first, lambda done: done.cause.ack(consumer))
    third = direct(second, lambda done: done.cause.ack(consumer))
    assert root(third) is first

    first.ack(consumer)  # its agent has finished
    second.ack(consumer)
    assert consumer.recorded == []
    third.ack(consumer)

    assert consumer.recorded == [(SOURCE, 7)], "only the offset of the record from the broker"
    assert second.acked
    assert third.acked


def test_a_finished_message_has_a_topic_that_no_set_contains() -> None:
    message = direct(cause(), lambda done: None)
    assert message.topic in {"regrouped"}
    message.acked = True  # what the compiled stream iterator does
    assert message.topic == "regrouped"
    assert str(message.topic) == "regrouped"
    assert message.topic not in {"regrouped"}
    assert isinstance(message.topic, FinishedTopic)


def test_faust_s_sensor_for_traces_finds_that_of_the_cause_and_keeps_its_own() -> None:
    """It would fail at each direct event, and the agent with it."""
    first = cause()
    second = direct(first, lambda done: None)
    stream: Any = SimpleNamespace(concurrency_index=None, prefix="")
    event: Any = SimpleNamespace(message=second)
    sensor = TracingSensor()
    sensor.on_stream_event_in(second.tp, second.offset, stream, event)
    sensor.on_stream_event_out(second.tp, second.offset, stream, event)
    sensor.on_message_out(second.tp, second.offset, second)

    first.span = object()
    assert direct(second, lambda done: None).span is first.span


class Order(faust.Record, serializer="json"):  # type: ignore[call-arg, misc]
    number: int


@pytest.fixture
def app(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.chdir(tmp_path)
    return faust.App("local-values", store="memory://", web_enabled=False)


def received(app: Any, topic: Any, key: Any, value: Any, *, raw: bytes | None) -> Any:
    [readers] = readers_of(app, [topic])
    message = direct(cause(), lambda done: None, value=raw)  # type: ignore[arg-type]
    message.key = topic.prepare_key(key, None, None, {})[0]
    return readers.event(message, key, value, plain=True)


def test_immutable_scalars_go_by_reference_and_are_never_encoded(app: Any) -> None:
    topic = app.topic("t", key_type=str, value_type=int, key_serializer="raw", value_serializer="json")
    event = received(app, topic, "k", 41, raw=b"would not decode")
    assert (event.key, event.value) == ("k", 41)
    untyped = app.topic("t", value_serializer="json")
    assert received(app, untyped, None, "text", raw=b"would not decode").value == "text"


def test_everything_else_comes_as_a_copy_as_from_the_broker(app: Any) -> None:
    topic = app.topic("t", key_type=str, value_type=Order)
    order = Order(number=3)
    event = received(app, topic, "k", order, raw=order.dumps(serializer="json"))
    assert event.value == order
    assert event.value is not order
    untyped, given = app.topic("t", value_serializer="json"), {"a": [1]}
    event = received(app, untyped, None, given, raw=b'{"a": [1]}')
    assert event.value == given
    assert event.value is not given


def test_a_value_of_another_type_than_the_readers_is_converted_as_by_the_codec(app: Any) -> None:
    topic = app.topic("t", key_type=str, value_type=int, value_serializer="json")
    assert received(app, topic, "k", True, raw=b"1").value == 1
    assert received(app, topic, "k", "12", raw=b'"12"').value == 12


def test_readers_with_different_types_get_different_events(app: Any) -> None:
    numbers, texts = (app.topic("t", value_type=kind, value_serializer="json") for kind in (int, str))
    kinds = readers_of(app, [numbers, texts, numbers.clone()])
    assert [len(readers.queues) for readers in kinds] == [2, 1]
    assert isinstance(kinds[0], PartitionReaders)
    assert kinds[0].codecs == codecs(numbers) != codecs(texts)
