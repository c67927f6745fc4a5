"""Measures the CPU of agents exactly: every step of an agent's coroutine is charged to the partition of its event.

An agent is a coroutine on the event-loop thread.  From one suspension to the next it runs alone on that thread.  So the
cost of a step is the difference of the thread's CPU clock before and after it, whatever other tasks do in between.

The stream reports in the middle of a step that it begins an event (`KeyGroupSensor.on_stream_event_in`).  Faust
suspends at least once between two events, so each step belongs to one event.  A step that begins no event continues
the previous one.
"""

import time
from collections.abc import Awaitable, Callable, Coroutine, Generator
from typing import Any

from faust.agents import Agent
from faust.types import TP


class KeyGroupCpuMeter:
    """CPU nanoseconds per partition.  Steps before an agent's first event are under None."""

    __slots__ = ("clock", "current", "spent_ns")

    def __init__(self, clock: Callable[[], int] = time.thread_time_ns) -> None:
        self.clock = clock
        self.current: TP | None = None
        """The partition of the event that the running step works on."""
        self.spent_ns: dict[TP | None, int] = {}

    def take(self) -> dict[TP | None, int]:
        """Nanoseconds spent since the last call."""
        spent, self.spent_ns = self.spent_ns, {}
        return spent


class Metered:
    """Wraps an awaitable and charges its steps to a meter."""

    __slots__ = ("_awaitable", "_meter")

    def __init__(self, awaitable: Awaitable[Any], meter: KeyGroupCpuMeter) -> None:
        self._awaitable = awaitable
        self._meter = meter

    def __await__(self) -> Generator[Any, Any, Any]:
        steps = self._awaitable.__await__()
        meter, clock = self._meter, self._meter.clock
        partition: TP | None = None
        value: Any = None
        fault: BaseException | None = None
        while True:
            meter.current = partition
            started = clock()
            try:
                waits_for = steps.send(value) if fault is None else steps.throw(fault)
            except StopIteration as end:
                return end.value
            finally:
                spent = clock() - started
                partition, meter.current = meter.current, None
                meter.spent_ns[partition] = meter.spent_ns.get(partition, 0) + spent
            value, fault = None, None
            try:
                value = yield waits_for
            except GeneratorExit:
                steps.close()
                raise
            except BaseException as exc:  # a cancellation, too, must reach the agent
                fault = exc


class MeteredAgent(Agent):  # type: ignore[misc]
    """An agent whose steps are charged to the app's `KeyGroupSensor`."""

    def _execute_actor(self, coro: Awaitable[Any], aref: Any) -> Coroutine[Any, Any, None]:
        # This method is not a coroutine itself, because every step would then go through it.
        for sensor in self.app.sensors:
            meter = getattr(sensor, "cpu", None)
            if isinstance(meter, KeyGroupCpuMeter):
                coro = Metered(coro, meter)
        actor: Coroutine[Any, Any, None] = super()._execute_actor(coro, aref)
        return actor


def meter_agents(app: Any) -> None:
    """Meter all agents of an app, also those defined before the plug-in was installed.  Call before they start."""
    for agent in app.agents.values():
        kind = type(agent)
        if not issubclass(kind, MeteredAgent):
            agent.__class__ = type(f"Metered{kind.__name__}", (MeteredAgent, kind), {})
