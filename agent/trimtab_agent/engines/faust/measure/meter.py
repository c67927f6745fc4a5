"""Measures the CPU of agents exactly: every step of an agent's coroutine is charged to the partition of its event.

An agent is a coroutine on the event-loop thread.  From one suspension to the next it runs alone on that thread.  So the
cost of a step is the difference of the thread's CPU clock before and after it, whatever other tasks do in between.

The stream reports in the middle of a step that it begins an event (`KeyGroupSensor.on_stream_event_in`).  Faust
suspends at least once between two events, so each step belongs to one event.  A step that begins no event continues
the previous one.

An agent that takes batches (`stream.take`) begins no event: another task gathers them.  Its steps are charged to the
partitions of the events in its batch, in equal parts.

What agents compute in threads of their event loop, and in tasks that they begin for an event (`asyncio.gather`), is
charged like their steps (`MeteredLoop`).  Tasks of the app that read topics are metered like agents (`MeteredTask`).
Before an event reaches an agent it is decoded, which may cost more than all else (`MeteredHandlers`).
"""

import itertools
import threading
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Generator, Mapping, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Self
from weakref import ref

from faust.agents import Agent
from faust.streams import current_event
from faust.types import TP


@dataclass(frozen=True, slots=True, eq=False)
class TakenBatch:
    """The partitions of a batch, one for each of its events, and the message of the first.

    The reference is weak, because Faust waits for each message that somebody has.
    """

    tps: Sequence[TP]
    first: "ref[Any]"
    counts: Mapping[TP, int] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "counts", Counter(self.tps))


Begun = tuple[TP | None, TakenBatch | None, int | None, int]
"""The step around one that begins (partition, batch, what others in it have spent), and the clock."""


def nothing(_: Any) -> tuple[()]:
    """What is gathered for an agent that takes no batches."""
    return ()


class KeyGroupCpuMeter:
    """CPU nanoseconds per partition.  Steps before an agent's first event are under None."""

    __slots__ = ("_by_batch", "_inner_ns", "_turns", "batch", "clock", "current", "gathered", "spent_ns")

    def __init__(
        self,
        clock: Callable[[], int] = time.thread_time_ns,
        gathered: Callable[[Any], Sequence[Any]] = nothing,
    ) -> None:
        """`gathered` = the events of the batch that an agent has or will get, by its stream."""
        self.clock = clock
        self.gathered = gathered
        self.current: TP | None = None
        """The partition of the event that the running step works on."""
        self.batch: TakenBatch | None = None
        """The batch that the running step works on, if it is no single event."""
        self.spent_ns: dict[TP | None, int] = {}
        self._by_batch: dict[TakenBatch, int] = {}
        """Nanoseconds that are divided when somebody asks: a batch may have thousands of steps."""
        self._inner_ns: int | None = None
        """What steps inside of the running one have spent; None: no step runs."""
        self._turns = itertools.count()

    def begin(self, partition: TP | None, batch: TakenBatch | None) -> Begun:
        """Begin a step, maybe inside of another one: an eager task's, or one of a loop that nest_asyncio runs in it."""
        # A stream that no agent iterates itself (`take`) names its events outside of all steps.
        outer = (None, None, None) if self._inner_ns is None else (self.current, self.batch, self._inner_ns)
        self.current, self.batch, self._inner_ns = partition, batch, 0
        return *outer, self.clock()

    def end(self, begun: Begun, partition: TP | None, batch: TakenBatch | None) -> None:
        """End a step, and charge it without those inside of it; `begun` is what `begin` has returned."""
        current, outer_batch, inner_ns, started = begun
        spent = self.clock() - started
        self.charge(partition, batch, spent - (self._inner_ns or 0))
        self.current, self.batch = current, outer_batch
        self._inner_ns = None if inner_ns is None else inner_ns + spent

    def cause(self) -> TP | None:
        """The partition that has caused what the running step sends; of a batch, those of its events in turn."""
        if self.batch is not None:
            return self.batch.tps[next(self._turns) % len(self.batch.tps)]
        return None if self._inner_ns is None else self.current

    def charge(self, partition: TP | None, batch: TakenBatch | None, spent: int) -> None:
        """Charge a step to a partition, or to those of a batch."""
        if partition is None and batch is not None:
            self._by_batch[batch] = self._by_batch.get(batch, 0) + spent
        else:
            self.spent_ns[partition] = self.spent_ns.get(partition, 0) + spent

    def take(self) -> dict[TP | None, int]:
        """Nanoseconds spent since the last call."""
        by_batch, self._by_batch = self._by_batch, {}
        for batch, spent in by_batch.items():
            for tp, count in batch.counts.items():
                self.charge(tp, None, spent * count // len(batch.tps))
        taken, self.spent_ns = self.spent_ns, {}
        return taken


class Metered:
    """Wraps an awaitable and charges its steps to a meter."""

    __slots__ = ("_awaitable", "_batch", "_meter", "_partition")

    def __init__(
        self,
        awaitable: Awaitable[Any],
        meter: KeyGroupCpuMeter,
        batch: Callable[[], TakenBatch | None] = lambda: None,
        partition: TP | None = None,
    ) -> None:
        """`partition` = that of the event that it works on before it begins one."""
        self._awaitable = awaitable
        self._meter = meter
        self._batch = batch
        self._partition = partition

    def __await__(self) -> Generator[Any, Any, Any]:
        steps = self._awaitable.__await__()
        meter, partition = self._meter, self._partition
        value: Any = None
        fault: BaseException | None = None
        while True:
            begun = meter.begin(partition, None if partition is not None else self._batch())
            try:
                waits_for = steps.send(value) if fault is None else steps.throw(fault)
            except StopIteration as end:
                return end.value
            finally:
                partition = meter.current
                meter.end(begun, partition, meter.batch)
            value, fault = None, None
            try:
                value = yield waits_for
            except GeneratorExit:
                steps.close()
                raise
            except BaseException as exc:  # a cancellation, too, must reach the agent
                fault = exc


class MeteredChild(Coroutine[Any, Any, Any]):
    """What a task runs that an agent has begun for its event or its batch, as by `asyncio.gather` or `wait_for`.

    It is charged until that is done: what a library has begun meanwhile, such as a connection, may live on.
    """

    __slots__ = ("_batch", "_coroutine", "_message", "_meter", "_partition")

    def __init__(
        self,
        coroutine: Coroutine[Any, Any, Any],
        meter: KeyGroupCpuMeter,
        message: "ref[Any]",
        partition: TP | None,
        batch: TakenBatch | None,
    ) -> None:
        self._coroutine = coroutine
        self._meter = meter
        self._message = message
        self._partition = partition
        self._batch = batch

    def __getattr__(self, name: str) -> Any:
        return getattr(self._coroutine, name)

    def __await__(self) -> Self:
        return self  # a task factory, such as Sentry's, may await it in a coroutine of its own

    def __next__(self) -> Any:
        return self._step(self._coroutine.send, None)

    def send(self, value: Any) -> Any:
        """Go on with a value."""
        return self._step(self._coroutine.send, value)

    def throw(self, *fault: Any) -> Any:
        """Go on with an exception."""
        return self._step(self._coroutine.throw, *fault)

    def close(self) -> None:
        """End it."""
        self._coroutine.close()

    def _step(self, step: Callable[..., Any], *arguments: Any) -> Any:
        meter, message = self._meter, self._message()
        if message is None or message.acked:
            return step(*arguments)
        del message  # Faust waits for each message that somebody has
        begun = meter.begin(self._partition, self._batch)
        try:
            return step(*arguments)
        finally:
            meter.end(begun, self._partition, self._batch)


@dataclass(slots=True, eq=False)
class _ThreadCall:
    """A call in a thread, charged up to `at_ns` of the thread's own clock."""

    partition: TP | None
    batch: TakenBatch | None
    clock: int
    at_ns: int


class MeteredLoop:
    """Charges what an agent has begun in threads of its event loop, or in tasks, to its event or to its batch.

    A call in a thread may last longer than an interval: it is charged as far as it has come whenever somebody asks.
    """

    def __init__(self, meter: KeyGroupCpuMeter) -> None:
        self._meter = meter
        self._loop: Any = None
        self._lock = threading.Lock()
        self._running: set[_ThreadCall] = set()
        self._spent: list[tuple[TP | None, TakenBatch | None, int]] = []

    def serve(self, loop: Any) -> None:
        """Charge what is begun in this loop, or by it in a pool of threads that the app has made.

        Not in threads where one cannot read another's clock (macOS).
        """
        if loop is self._loop:
            return
        self._loop, run, create = loop, loop.run_in_executor, loop.create_task

        def run_and_charge(pool: Executor | None, function: Callable[..., Any], *arguments: Any) -> Any:
            event, batch = current_event(), self._meter.batch
            begun = event is not None or batch is not None
            if begun and (pool is None or isinstance(pool, ThreadPoolExecutor)):
                partition = None if event is None else event.message.tp
                return run(pool, self._measured, partition, batch, function, *arguments)
            return run(pool, function, *arguments)

        def create_and_charge(coroutine: Any, **options: Any) -> Any:
            return create(self._of_agent(coroutine), **options)

        if hasattr(time, "pthread_getcpuclockid"):
            loop.run_in_executor = run_and_charge
        loop.create_task = create_and_charge

    def _of_agent(self, coroutine: Any) -> Any:
        meter, event = self._meter, current_event()
        if meter.current is not None and event is not None:
            return MeteredChild(coroutine, meter, ref(event.message), event.message.tp, None)
        if meter.batch is not None:
            return MeteredChild(coroutine, meter, meter.batch.first, None, meter.batch)
        return coroutine

    def _measured(
        self,
        partition: TP | None,
        batch: TakenBatch | None,
        function: Callable[..., Any],
        *arguments: Any,
    ) -> Any:
        clock = time.pthread_getcpuclockid(threading.get_ident())
        call = _ThreadCall(partition, batch, clock, time.clock_gettime_ns(clock))
        with self._lock:
            self._running.add(call)
        try:
            return function(*arguments)
        finally:
            with self._lock:  # the clock of a thread that has ended must not be read
                self._note(call)
                self._running.discard(call)

    def _note(self, call: _ThreadCall) -> None:
        now = time.clock_gettime_ns(call.clock)
        self._spent.append((call.partition, call.batch, now - call.at_ns))
        call.at_ns = now

    def charge(self) -> None:
        """Charge what was spent since the last call.  Runs on the event loop."""
        with self._lock:
            for call in self._running:
                self._note(call)
            spent, self._spent = self._spent, []
        for partition, batch, nanoseconds in spent:
            self._meter.charge(partition, batch, nanoseconds)


class BatchOfStream:
    """The batch of an agent's stream.  It is looked at in each step, so what has been found and counted is kept."""

    def __init__(self, stream: Any, gathered: Callable[[Any], Sequence[Any]]) -> None:
        self._stream = stream
        self._gathered = gathered
        self._events: Sequence[Any] = ()
        """The list of the stream, which is filled and emptied again and again."""
        self._seen: tuple[int, int, int] | None = None
        self._batch: TakenBatch | None = None

    def __call__(self) -> TakenBatch | None:
        """The batch that the agent has, or that is gathered for it; None: there is none, or nothing is in it."""
        if not self._events:
            self._events = self._gathered(self._stream)
        if not (events := self._events):
            return None
        seen = id(events[0]), events[0].message.offset, len(events)
        if self._seen != seen:
            self._seen = seen
            self._batch = TakenBatch([event.message.tp for event in events], ref(events[0].message))
        return self._batch


class MeteredAgent(Agent):  # type: ignore[misc]
    """An agent whose steps are charged to the app's `KeyGroupSensor`."""

    def _execute_actor(self, coro: Awaitable[Any], aref: Any) -> Coroutine[Any, Any, None]:
        # This method is not a coroutine itself, because every step would then go through it.
        if (meter := meter_of(self.app)) is not None:
            coro = Metered(coro, meter, BatchOfStream(aref.stream, meter.gathered))
        actor: Coroutine[Any, Any, None] = super()._execute_actor(coro, aref)
        return actor


def meter_of(app: Any) -> KeyGroupCpuMeter | None:
    """The meter of the app's `KeyGroupSensor`; None while it has none."""
    meters = (getattr(sensor, "cpu", None) for sensor in app.sensors)
    return next((meter for meter in meters if isinstance(meter, KeyGroupCpuMeter)), None)


def meter_agents(app: Any) -> None:
    """Meter all agents of an app, also those defined before the plug-in was installed.  Call before they start."""
    for agent in app.agents.values():
        kind = type(agent)
        if not issubclass(kind, MeteredAgent):
            agent.__class__ = type(f"Metered{kind.__name__}", (MeteredAgent, kind), {})


@dataclass(frozen=True, slots=True)
class MeteredTask:
    """A task of the app (`@app.task`), which may read a topic like an agent."""

    task: Callable[[], Awaitable[None]]
    meter: KeyGroupCpuMeter

    async def __call__(self) -> None:
        """Run it, and charge its steps; those that work on no event are nobody's."""
        await Metered(self.task(), self.meter)


def meter_tasks(app: Any, meter: KeyGroupCpuMeter) -> None:
    """Meter all tasks of an app.  Call before they start."""
    app._app_tasks[:] = [each if isinstance(each, MeteredTask) else MeteredTask(each, meter) for each in app._app_tasks]


@dataclass(frozen=True, slots=True)
class MeteredHandlers:
    """Builds what Faust calls for each message of a partition: it decodes the message for its streams."""

    build: Callable[[TP, Any], Callable[[Any], Awaitable[None]]]
    meter: KeyGroupCpuMeter
    changelogs: frozenset[str]

    def __call__(self, tp: TP, channels: Any) -> Callable[[Any], Awaitable[None]]:
        """A handler whose steps are charged to the partition, unless that is of a changelog."""
        handler = self.build(tp, channels)
        if tp.topic in self.changelogs:
            return handler

        async def handle(message: Any) -> None:
            await Metered(handler(message), self.meter, partition=tp)

        return handle


def meter_handlers(app: Any, meter: KeyGroupCpuMeter, changelogs: frozenset[str]) -> None:
    """Meter how the messages of an app are decoded, but those of changelogs.  Call before it gets partitions."""
    build = app.topics._build_handler
    if not isinstance(build, MeteredHandlers):
        app.topics._build_handler = MeteredHandlers(build, meter, changelogs)
