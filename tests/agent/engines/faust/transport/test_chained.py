"""An agent that has failed behind `group_by` or `through` goes on there: real agents and streams of Faust."""

import asyncio
import functools
from collections.abc import Callable, Iterator
from typing import Any

import faust
import pytest
from faust.events import Event
from faust.exceptions import ValueDecodeError
from faust.streams import current_event
from faust.types import TP
from faust.types.tuples import Message

from tests.agent.engines.faust.steered import nothing
from trimtab_agent.engines.faust.measure.meter import KeyGroupCpuMeter, meter_agents
from trimtab_agent.engines.faust.transport.chained import Renewal, in_batch

FAILS = 2
LIMIT_S = 20.0


class Play:
    """An agent whose events come from a topic `in`, and whose own topics are in memory."""

    def __init__(self, app: Any) -> None:
        self.app = app
        self.inputs = app.topic("in", value_type=int)
        self.behind = app.topic("behind", value_type=int)
        self.further = app.topic("further", value_type=int)
        self.got: list[tuple[int, str]] = []
        self.failed: list[int] = []
        self.sending_fails = False
        self.to_fail = {FAILS}
        """Values at which it fails, each once."""
        self.error: BaseException = ValueError("on purpose")
        self.asked = 0
        """How often what watches the agent was told that it has failed."""

    def check(self, value: int) -> int:
        if value in self.to_fail:
            self.to_fail.remove(value)
            raise self.error
        return value

    def note(self, value: int) -> None:
        event = current_event()
        self.got.append((value, "" if event is None else event.message.topic))
        self.check(value)

    def channels(self, topic: str) -> list[Any]:
        return [channel for channel in self.app.topics if topic in channel.topics]

    async def deliver(self, topic: str, value: int) -> None:
        for channel in self.channels(topic):
            tp = TP(topic, 0)
            message = Message(topic, 0, value, 1.0, 0, None, None, b"", None, tp=tp, generation_id=0)
            await channel.queue.put(channel._create_event(None, value, headers={}, message=message))

    async def until(self, count: int) -> None:
        async with asyncio.timeout(LIMIT_S):
            while len(self.got) < count:
                await asyncio.sleep(0.01)


@pytest.fixture
def play(loop: asyncio.AbstractEventLoop, monkeypatch: pytest.MonkeyPatch) -> Iterator[Play]:
    app = faust.App("ks", web_enabled=False, store="memory://", broker="kafka://127.0.0.1:1")
    app.consumer_generation_id = 0
    made = Play(app)

    async def forward(event: Any, channel: Any, key: Any = None, **_: Any) -> None:
        if made.sending_fails:
            made.check(event.value)
        await made.deliver(str(channel.topics[0]), event.value)

    monkeypatch.setattr(Event, "forward", forward)
    monkeypatch.setattr(type(made.behind), "maybe_declare", nothing)
    yield made
    for _ in range(3):  # a supervisor may just have started an agent again
        for task in asyncio.all_tasks(loop):
            task.cancel()
        loop.run_until_complete(asyncio.sleep(0.02))


def renew(agent: Any, play: Play) -> None:
    renewal = Renewal(agent, lambda message: play.failed.append(message.offset))

    async def on_error(_: Any, reason: BaseException) -> None:
        play.asked += 1
        for actor in [each for each in agent._actors if each.actor_task is asyncio.current_task()]:
            renewal.stop(actor.stream, reason)

    agent._on_error = on_error


async def started(play: Play, function: Callable[[Any], Any], *, concurrency: int = 1) -> Any:
    """An agent whose failures are watched, once it takes events."""
    play.app.flow_control.resume()
    agent = play.app.agent(play.inputs, concurrency=concurrency)(function)
    renew(agent, play)
    await agent.start()
    await asyncio.sleep(0.1)
    return agent


async def body_fails(play: Play, stream: Any) -> None:
    async for value in stream.group_by(lambda value: value, name="x", topic=play.behind):
        play.note(value)


async def key_fails(play: Play, stream: Any) -> None:
    async for value in stream.group_by(play.check, name="x", topic=play.behind):
        play.note(value)


async def sending_fails(play: Play, stream: Any) -> None:
    play.sending_fails = True
    async for value in stream.group_by(lambda value: value, name="x", topic=play.behind):
        play.note(value)


async def through_fails(play: Play, stream: Any) -> None:
    async for value in stream.through(play.behind):
        play.note(value)


async def chained_twice(play: Play, stream: Any) -> None:
    async for value in stream.group_by(lambda value: value, name="x", topic=play.behind).through(play.further):
        play.note(value)


async def batch_fails(play: Play, stream: Any) -> None:
    async for values in stream.group_by(lambda value: value, name="x", topic=play.behind).take(1, within=0.1):
        for value in values:
            play.got.append((value, "behind"))
            play.check(value)


async def batch_alone_fails(play: Play, stream: Any) -> None:
    async for values in stream.take(10, within=0.05):
        await asyncio.sleep(0.3)  # the next one is waiting to be gathered
        for value in values:
            play.got.append((value, "in"))
            play.check(value)


async def filter_fails_before_a_batch(play: Play, stream: Any) -> None:
    stream.add_processor(functools.partial(int))
    async for values in stream.filter(play.check).take(10, within=0.05):
        play.got += [(value, "in") for value in values]


async def key_fails_before_a_batch(play: Play, stream: Any) -> None:
    async for values in stream.group_by(play.check, name="x", topic=play.behind).take(10, within=0.05):
        play.got += [(value, "behind") for value in values]


async def by_hand(play: Play, stream: Any) -> None:
    async for event in stream.noack().group_by(lambda value: value, name="x", topic=play.behind).events():
        play.note(event.value)


async def plain(play: Play, stream: Any) -> None:
    async for value in stream:
        play.note(value)


@pytest.mark.parametrize(
    ("function", "topic", "got", "failed"),
    [
        (body_fails, "behind", [1, 2, 3, 4, 5], []),
        (key_fails, "behind", [1, 3, 4, 5], []),  # Faust leaves it out
        (sending_fails, "behind", [1, 3, 4, 5], [FAILS]),
        (through_fails, "behind", [1, 2, 3, 4, 5], []),
        (chained_twice, "further", [1, 2, 3, 4, 5], []),
        (batch_fails, "behind", [1, 2, 3, 4, 5], []),
        (batch_alone_fails, "in", [1, 2, 3, 4, 5], []),
        (filter_fails_before_a_batch, "in", [1, 3, 4, 5], []),
        (key_fails_before_a_batch, "behind", [1, 3, 4, 5], []),
        (by_hand, "behind", [1, 2, 3, 4, 5], []),
        (plain, "in", [1, 2, 3, 4, 5], []),
    ],
    ids=lambda each: each.__name__ if callable(each) else None,
)
async def test_after_an_exception_it_gets_what_comes_behind(
    play: Play, function: Callable[[Play, Any], Any], topic: str, got: list[int], failed: list[int]
) -> None:
    """Stock Faust stops such an agent for ever, or (behind a batch) gives it the events of its first topic."""
    pause_s = 0.15 if function is batch_alone_fails else 0.0

    await started(play, lambda stream: function(play, stream))
    for value in (1, FAILS):
        await play.deliver("in", value)
        await asyncio.sleep(pause_s if value == FAILS else 0.5)
    for value in (3, 4, 5):
        await play.deliver("in", value)
    await play.until(len(got))
    await asyncio.sleep(0.2)
    assert play.got == [(value, topic) for value in got]
    assert play.failed == failed
    assert all(len(play.channels(each)) <= 1 for each in ("in", "behind", "further")), "two would get each event"


@pytest.mark.parametrize("function", [by_hand, batch_alone_fails, plain])
async def test_an_agent_that_awaits_what_was_cancelled_goes_on_like_one_that_fails(
    play: Play, function: Callable[[Play, Any], Any]
) -> None:
    """Stock Faust takes it for its own cancellation, and asks nobody what to do with the event."""
    play.error = asyncio.CancelledError()

    agent = await started(play, lambda stream: function(play, stream))
    for value in (1, FAILS, 3):
        await play.deliver("in", value)
        await asyncio.sleep(0.5)
    await play.until(3)
    topic = "behind" if function is by_hand else "in"
    assert play.got == [(1, topic), (FAILS, topic), (3, topic)]
    assert play.asked == 1
    for actor in list(agent._actors):
        actor.actor_task.cancel()
    await asyncio.sleep(0.05)
    assert play.asked == 1, "its own cancellation is no failure"


async def batch(play: Play, stream: Any) -> None:
    async for values in stream.take(10, within=0.05):
        play.got += [(value, "in") for value in values]


async def batch_by_hand(play: Play, stream: Any) -> None:
    async for events in stream.noack_take(10, within=0.05):
        play.got += [(event.value, "in") for event in events]


async def chained_batch(play: Play, stream: Any) -> None:
    async for values in stream.group_by(lambda value: value, name="x", topic=play.behind).take(10, within=0.05):
        play.got += [(value, "behind") for value in values]


@pytest.mark.parametrize(
    ("function", "concurrency"),
    [(body_fails, 1), (plain, 1), (batch, 1), (batch, 3), (batch_by_hand, 1), (batch_by_hand, 3), (chained_batch, 1)],
)
async def test_the_same_after_a_record_that_cannot_be_decoded(
    play: Play, function: Callable[[Play, Any], Any], concurrency: int
) -> None:
    """Stock Faust ends an agent that takes batches, and says nothing."""
    await started(play, lambda stream: function(play, stream), concurrency=concurrency)
    await play.deliver("in", 1)
    await asyncio.sleep(0.2)
    await play.channels("in")[0].throw(ValueError("not decoded"))
    await asyncio.sleep(0.2)
    await play.deliver("in", 3)
    await play.until(2)
    topic = "in" if function in (plain, batch, batch_by_hand) else "behind"
    assert play.got == [(1, topic), (3, topic)]


@pytest.mark.parametrize("function", [plain, batch])
async def test_many_records_that_cannot_be_decoded_hold_up_the_others_for_a_short_time(
    play: Play, function: Callable[[Play, Any], Any]
) -> None:
    """Stock Faust takes 5 s for each."""
    await started(play, lambda stream: function(play, stream))
    for _ in range(20):
        await play.channels("in")[0].throw(ValueDecodeError("not decoded"))
    await play.deliver("in", 3)
    await play.until(1)
    assert play.got == [(3, "in")]


async def test_a_record_that_cannot_be_decoded_does_not_end_the_batch_that_an_agent_works_on(play: Play) -> None:
    """Stock Faust acknowledges its events at once."""
    has, goes_on = asyncio.Event(), asyncio.Event()

    async def slow(stream: Any) -> None:
        async for values in stream.take(10, within=0.05):
            has.set()
            await goes_on.wait()
            play.got += [(value, "in") for value in values]

    agent = await started(play, slow)
    await play.deliver("in", 1)
    await has.wait()
    [stream] = [actor.stream for actor in agent._actors]
    await play.channels("in")[0].throw(ValueDecodeError("not decoded"))
    await asyncio.sleep(0.2)
    assert [event.value for event in in_batch(stream) or ()] == [1], "not acknowledged"
    goes_on.set()
    await play.deliver("in", 3)
    await play.until(2)
    assert play.got == [(1, "in"), (3, "in")]


async def test_actors_that_fail_at_once_all_start_again(play: Play) -> None:
    """As when a service is down.  Stock Faust ends the worker."""
    down = asyncio.Event()

    async def asks(stream: Any) -> None:
        async for value in stream:
            if value < 0:
                await down.wait()
                raise ConnectionError
            play.got.append((value, "in"))
            await asyncio.Event().wait()

    agent = await started(play, asks, concurrency=5)
    for value in (*[-1] * 5, *range(5)):
        await play.deliver("in", value)
    await asyncio.sleep(0.5)
    down.set()
    await play.until(5)
    assert not agent.supervisor.crashed


async def test_its_steps_are_measured_also_if_that_begins_later(play: Play) -> None:
    play.app.flow_control.resume()
    agent = play.app.agent(play.inputs)(lambda stream: plain(play, stream))
    renew(agent, play)
    sensor = faust.Sensor()
    sensor.cpu = KeyGroupCpuMeter()
    play.app.sensors.add(sensor)
    meter_agents(play.app)
    await agent.start()
    await play.deliver("in", 3)
    await play.until(1)
    assert sum(sensor.cpu.take().values()) > 0
