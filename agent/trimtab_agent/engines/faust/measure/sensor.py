"""Counts per partition what a Faust worker receives, sends and computes.

Everything here runs on the worker's event-loop thread, so `take` loses nothing.  The sensor keeps no reference to
messages or events: that would delay Faust's acknowledgement and keep whole batches in memory.
"""

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import faust
from faust.streams import current_event
from faust.types import TP, AppT, EventT, Message, StreamT

from trimtab_agent.engines.faust.measure.meter import (
    KeyGroupCpuMeter,
    MeteredLoop,
    meter_agents,
    meter_handlers,
    meter_tasks,
    nothing,
)


@dataclass(frozen=True, slots=True)
class MessageCount:
    """Messages and their bytes (key and value, serialised)."""

    messages: int = 0
    bytes: int = 0

    def __add__(self, other: "MessageCount") -> "MessageCount":
        return MessageCount(self.messages + other.messages, self.bytes + other.bytes)


@dataclass(frozen=True, slots=True, kw_only=True)
class IntervalCounts:
    """Counts of one interval.

    `sent` is by (partition of the event that caused it, partition it went to).  The cause is None where it is unknown
    (`send_soon`), or there is none: timers, pages, tasks.
    """

    received: Mapping[TP, MessageCount] = field(default_factory=dict)
    sent: Mapping[tuple[TP | None, TP], MessageCount] = field(default_factory=dict)
    logged: Mapping[TP, MessageCount] = field(default_factory=dict)
    """Changelog records, by their own partition: Faust's buffer sends them, outside of all events."""
    direct: Mapping[tuple[TP, TP], MessageCount] = field(default_factory=dict)
    """What went straight to its readers, past the broker, by (partition of the cause, its own)."""
    agents_ns: Mapping[TP | None, int] = field(default_factory=dict)
    process_ns: int | None = 0
    """CPU of the whole process; None if its clock could not be read or went back."""


class KeyGroupSensor(faust.Sensor):  # type: ignore[misc]
    """Sensor for `app.sensors`.  When the app starts, it begins to meter the app's agents, and what they begin."""

    def __init__(
        self,
        app: AppT,
        *,
        process_clock: Callable[[], int] = time.process_time_ns,
        gathered: Callable[[Any], Sequence[Any]] = nothing,
        **options: Any,
    ) -> None:
        """`gathered`: see `KeyGroupCpuMeter`."""
        super().__init__(**options)
        self.cpu = KeyGroupCpuMeter(gathered=gathered)
        self.loop_of_agents = MeteredLoop(self.cpu)
        self._app = app
        self._process_clock = process_clock
        self._process_ns = self._read_process()
        self._received: dict[TP, list[int]] = {}
        self._sent: dict[tuple[TP | None, TP], list[int]] = {}
        self._logged: dict[TP, list[int]] = {}
        self._changelogs: frozenset[str] = frozenset()

    async def on_start(self) -> None:
        """Meter the app's agents and tasks, and how it decodes; Faust starts sensors before them."""
        self._changelogs = frozenset(self._app.tables.changelog_topics)
        meter_agents(self._app)
        meter_tasks(self._app, self.cpu)
        meter_handlers(self._app, self.cpu, self._changelogs)
        self.loop_of_agents.serve(asyncio.get_running_loop())

    def on_message_in(self, tp: TP, offset: int, message: Message) -> None:
        """A message reaches the first of its streams."""
        _count(self._received, tp, len(message.key or b"") + len(message.value or b""))

    def on_stream_event_in(self, tp: TP, offset: int, stream: StreamT, event: EventT) -> None:
        """A stream begins an event: from here on the running step is charged to its partition."""
        self.cpu.current = tp

    def on_send_initiated(
        self, producer: Any, topic: str, message: Any, keysize: int, valsize: int
    ) -> tuple[TP | None, int]:
        """A message goes to the producer; returns the partition of the event that caused it, and its size in bytes."""
        event = current_event()
        return (event.message.tp if event is not None else self.cpu.cause(), keysize + valsize)

    def on_send_completed(self, producer: Any, state: tuple[TP | None, int], metadata: Any) -> None:
        """The broker has the message; only now its partition is known."""
        (source, size), tp = state, metadata.topic_partition
        if source is None and tp.topic in self._changelogs:
            _count(self._logged, tp, size)
        else:
            _count(self._sent, (source, tp), size)

    def asdict(self) -> Mapping[str, Any]:
        """What the app's monitor says: whoever reads `Sensor0` on Faust's page of statistics wants that.

        The page numbers the sensors in any order.
        """
        said: Mapping[str, Any] = self._app.monitor.asdict()
        return said

    def take(self) -> IntervalCounts:
        """Return the counts since the last call, and begin the next interval."""
        self.loop_of_agents.charge()  # before the process's clock is read, which has at least as much
        received, self._received = self._received, {}
        sent, self._sent = self._sent, {}
        logged, self._logged = self._logged, {}
        before, self._process_ns = self._process_ns, self._read_process()
        return IntervalCounts(
            received={tp: MessageCount(*count) for tp, count in received.items()},
            sent={pair: MessageCount(*count) for pair, count in sent.items()},
            logged={tp: MessageCount(*count) for tp, count in logged.items()},
            agents_ns=self.cpu.take(),
            process_ns=None if before is None or (now := self._process_ns) is None or now < before else now - before,
        )

    def _read_process(self) -> int | None:
        try:
            return self._process_clock()
        except (OSError, OverflowError, RuntimeError):  # raised by `time` if there is no such clock
            return None


def _count(counts: dict[Any, list[int]], key: Any, size: int) -> None:
    count = counts.get(key)
    if count is None:
        counts[key] = [1, size]
    else:
        count[0] += 1
        count[1] += size
