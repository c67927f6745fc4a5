import asyncio
import threading
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import faust
import pytest
from faust.agents import Agent
from faust.serializers.codecs import Codec
from faust.types import TP, Message

from trimtab_agent.engines.faust.measure.meter import KeyGroupCpuMeter, Metered, MeteredAgent, meter_agents
from trimtab_agent.engines.faust.measure.sensor import KeyGroupSensor
from trimtab_agent.engines.faust.transport.chained import gathered

A, B = TP("t", 0), TP("t", 1)


class Clock:
    """Thread CPU that only `burn` spends."""

    def __init__(self) -> None:
        self.now = 0

    def __call__(self) -> int:
        return self.now

    def burn(self, amount: int) -> None:
        self.now += amount


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def meter(clock: Clock) -> KeyGroupCpuMeter:
    return KeyGroupCpuMeter(clock)


def test_a_step_belongs_to_the_event_begun_in_it_and_goes_on_after_a_wait(clock: Clock, meter: KeyGroupCpuMeter):
    async def agent() -> str:
        clock.burn(1)
        await asyncio.sleep(0)
        for partition, cost in ((A, 10), (B, 100), (A, 1000)):
            meter.current = partition
            clock.burn(cost)
            await asyncio.sleep(0)
            clock.burn(cost)
            await asyncio.sleep(0)
        return "result"

    assert asyncio.run(run(Metered(agent(), meter))) == "result"
    assert meter.take() == {None: 1, A: 2020, B: 200}
    assert meter.take() == {}


async def test_agents_that_go_on_inside_of_a_step_are_charged_apart(clock: Clock, meter: KeyGroupCpuMeter):
    """As where an agent asks a library that runs the loop until it has its answer (nest_asyncio)."""

    async def other() -> None:
        meter.current = B
        clock.burn(100)
        await asyncio.sleep(0)
        clock.burn(100)

    async def agent(inside: Any) -> None:
        meter.current = A
        clock.burn(1)
        for _ in range(2):
            next(inside, None)
            clock.burn(1)
            await asyncio.sleep(0)

    await run(Metered(agent(Metered(other(), meter).__await__()), meter))
    assert meter.take() == {A: 3, B: 200}


async def run(awaitable: Any) -> Any:
    return await awaitable


async def test_a_cancelled_agent_cleans_up_and_its_cleaning_is_charged(clock: Clock, meter: KeyGroupCpuMeter):
    cleaned = []

    async def agent() -> None:
        meter.current = A
        try:
            await asyncio.sleep(60)
        finally:
            clock.burn(9)
            await asyncio.sleep(0)
            cleaned.append(True)

    task = asyncio.create_task(run(Metered(agent(), meter)))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert cleaned == [True]
    assert meter.take() == {A: 9}


def test_a_closed_agent_runs_its_finally(meter: KeyGroupCpuMeter):
    cleaned = []

    async def agent() -> None:
        try:
            await asyncio.sleep(0)
        finally:
            cleaned.append(True)

    steps = Metered(agent(), meter).__await__()
    next(steps)
    steps.close()
    assert cleaned == [True]


def test_an_async_generator_is_metered_through_its_consumer(clock: Clock, meter: KeyGroupCpuMeter):
    async def agent() -> AsyncIterator[int]:
        for number, partition in enumerate((A, B, A)):
            await asyncio.sleep(0)
            meter.current = partition
            clock.burn(4)
            yield number

    async def slurp() -> list[int]:
        return [value async for value in agent()]

    assert asyncio.run(run(Metered(slurp(), meter))) == [0, 1, 2]
    assert meter.take() == {None: 0, A: 8, B: 4}


class OwnAgent(Agent):
    """A user's subclass."""


@pytest.mark.parametrize("kind", [Agent, OwnAgent])
def test_agents_defined_before_are_metered_and_stay_what_they_are(kind: type[Agent], meter: KeyGroupCpuMeter):
    agent = object.__new__(kind)
    app = SimpleNamespace(agents={"a": agent})

    meter_agents(app)
    meter_agents(app)

    assert isinstance(agent, MeteredAgent)
    assert isinstance(agent, kind)
    assert type(agent).__mro__.count(MeteredAgent) == 1


def test_a_metered_agent_charges_the_sensor_of_its_app(clock: Clock, meter: KeyGroupCpuMeter):
    async def actor() -> None:
        meter.current = B
        clock.burn(6)

    class App:
        sensors = (SimpleNamespace(), SimpleNamespace(cpu=meter))

    class Fake(MeteredAgent):
        def __init__(self) -> None:
            self.app = App()

    asyncio.run(Fake()._execute_actor(actor(), SimpleNamespace(stream=None)))
    assert meter.take() == {B: 6}


@pytest.mark.parametrize("grouped", [False, True])
async def test_an_agent_that_takes_batches_is_charged_by_their_events_and_so_is_what_it_sends(
    clock: Clock, *, grouped: bool
):
    app = faust.App("batches", store="memory://")
    sensor = KeyGroupSensor(app, gathered=gathered)
    sensor.cpu.clock = clock
    app.sensors.add(sensor)
    causes = []

    async def work(stream: Any) -> None:
        async for batch in stream.filter(bool).take(4, within=30.0) if grouped else stream.take(4, within=30.0):
            for _ in batch:
                clock.burn(12)
                causes.append(sensor.on_send_initiated(None, "out", None, 1, 1)[0])
                await asyncio.sleep(0)
            clock.burn(4)

    agent = app.agent(app.topic("t"))(work).test_context()
    meter_agents(SimpleNamespace(agents={"a": agent}))
    app.flow_control.resume()
    async with agent:
        for number in range(8):
            await agent.put(number + 1, partition=min(number % 4, 1))
        await asyncio.sleep(0.05)

    assert sensor.cpu.take() == {None: 0, A: 26, B: 78}
    assert causes == [A, B, B, B] * 2
    assert sensor.on_send_initiated(None, "out", None, 1, 1)[0] is None, "a timer's"


def burn_cpu(seconds: float) -> None:
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        pass


async def in_own_pool(function: Callable[[], None]) -> None:
    with ThreadPoolExecutor(1) as pool:
        await asyncio.get_running_loop().run_in_executor(pool, function)


async def in_own_default_pool(function: Callable[[], None]) -> None:
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(1))
    await asyncio.to_thread(function)


@pytest.mark.parametrize("in_thread", [asyncio.to_thread, in_own_pool, in_own_default_pool])
async def test_what_an_agent_computes_in_a_thread_is_charged_to_its_event_as_far_as_it_has_come(in_thread: Any):
    app, going_on, ended = faust.App("threads", store="memory://"), threading.Event(), asyncio.Event()
    sensor = KeyGroupSensor(app)
    app.sensors.add(sensor)
    await sensor.on_start()

    def compute() -> None:
        burn_cpu(0.05)
        going_on.wait(60.0)
        burn_cpu(0.02)

    async def work(stream: Any) -> None:
        async for _ in stream:
            await in_thread(compute)
            ended.set()

    app.flow_control.resume()
    async with app.agent(app.topic("t"))(work).test_context() as agent:
        await asyncio.to_thread(burn_cpu, 0.01)  # nobody's
        await agent.put(1, partition=1)
        found = Counter[TP | None]()
        try:
            async with asyncio.timeout(30.0):
                while found[B] < 50_000_000:
                    await asyncio.sleep(0.01)
                    found.update(sensor.take().agents_ns)
        finally:
            going_on.set()
        await ended.wait()
    found.update(sensor.take().agents_ns)

    assert set(+found) == {B}
    assert found[B] >= 70_000_000


async def test_a_task_that_reads_a_topic_is_charged_to_the_partitions_of_its_events():
    app = faust.App("tasks", store="memory://")
    sensor = KeyGroupSensor(app)
    app.sensors.add(sensor)
    stream = app.topic("t").stream()

    @app.task
    async def read() -> None:
        burn_cpu(0.01)  # nobody's
        async for value in stream:
            burn_cpu(value)

    await sensor.on_start()
    await sensor.on_start()
    app.flow_control.resume()
    (task,) = [asyncio.create_task(each()) for each in app._app_tasks]
    for partition, cost in ((0, 0.01), (1, 0.02)):
        message = Message("t", partition, 0, 0.0, 0, {}, None, b"", None, generation_id=app.consumer_generation_id)
        await stream.channel.queue.put(app.create_event(None, cost, {}, message))
    async with asyncio.timeout(30.0):
        while sensor.cpu.spent_ns.keys() != {None, A, B}:
            await asyncio.sleep(0.01)
    task.cancel()

    found = sensor.take().agents_ns
    assert found[None] >= 10_000_000
    assert 10_000_000 <= found[A] < found[B]


class Slow(Codec):
    """A format that takes as many seconds to read as it says."""

    def _loads(self, s: bytes) -> float:
        burn_cpu(float(s))
        return float(s)


async def test_a_message_is_decoded_at_the_cost_of_its_partition():
    app = faust.App("decodes", store="memory://")
    sensor = KeyGroupSensor(app)
    channel = app.topic("t", value_serializer=Slow()).stream().channel
    await sensor.on_start()
    await sensor.on_start()
    app.flow_control.resume()
    for tp, value in ((A, b"0.01"), (B, b"0.02")):
        message = Message("t", tp.partition, 0, 0.0, 0, {}, None, value, None, tp=tp)
        await app.topics._build_handler(tp, {channel})(message)

    assert [channel.queue.get_nowait().value for _ in (A, B)] == [0.01, 0.02]
    found = sensor.take().agents_ns
    assert found.keys() == {A, B}
    assert 10_000_000 <= found[A] < found[B]


async def in_group(*coroutines: Coroutine[Any, Any, None]) -> None:
    async with asyncio.TaskGroup() as group:
        for each in coroutines:
            group.create_task(each)


async def each_in_time(*coroutines: Coroutine[Any, Any, None]) -> None:
    for each in coroutines:
        await asyncio.wait_for(each, 30.0)


def as_tracers_do(loop: Any, coroutine: Coroutine[Any, Any, Any], **options: Any) -> asyncio.Task[Any]:
    """The task factory of Sentry; Datadog and OpenTelemetry wrap coroutines likewise."""
    return asyncio.Task(run(coroutine), loop=loop, **options)


@pytest.mark.parametrize("factory", [None, as_tracers_do, getattr(asyncio, "eager_task_factory", None)])
@pytest.mark.parametrize("begin", [asyncio.gather, in_group, each_in_time])
@pytest.mark.parametrize("batches", [False, True])
async def test_what_an_agent_does_in_tasks_is_charged_to_its_events_until_they_are_done(
    clock: Clock, *, begin: Any, batches: bool, factory: Any
):
    asyncio.get_running_loop().set_task_factory(factory)
    app, ended, later = faust.App("child", store="memory://"), asyncio.Event(), asyncio.Event()
    sensor = KeyGroupSensor(app, gathered=gathered)
    sensor.cpu.clock = clock
    app.sensors.add(sensor)
    causes, connections = list[TP | None](), list[asyncio.Task[None]]()

    async def connection() -> None:
        clock.burn(1)
        await later.wait()
        clock.burn(1000)
        ended.set()

    async def handle() -> None:
        clock.burn(20)
        await asyncio.sleep(0)
        causes.append(sensor.on_send_initiated(None, "out", None, 1, 1)[0])
        await asyncio.gather(deeper())

    async def deeper() -> None:
        clock.burn(30)
        connections.append(asyncio.create_task(connection()))

    async def work(stream: Any) -> None:
        async for _ in stream.take(2, within=30.0) if batches else stream:
            await begin(handle(), handle())

    agent = app.agent(app.topic("t"))(work).test_context()
    meter_agents(SimpleNamespace(agents={"a": agent}))
    await sensor.on_start()
    app.flow_control.resume()
    async with agent, asyncio.timeout(30.0):
        for _ in range(2):
            await agent.put(1, partition=1)
        while len(connections) < (2 if batches else 4):
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.05)
        later.set()
        await ended.wait()

    assert +Counter(sensor.cpu.take()) == {B: len(connections) * (20 + 30 + 1)}
    assert set(causes) == {B}


async def test_threads_that_are_served_again_charge_nothing_twice():
    sensor, loop = KeyGroupSensor(faust.App("again", store="memory://")), asyncio.get_running_loop()
    await sensor.on_start()
    run, create = loop.run_in_executor, loop.create_task
    await sensor.on_start()
    assert (loop.run_in_executor, loop.create_task) == (run, create)
