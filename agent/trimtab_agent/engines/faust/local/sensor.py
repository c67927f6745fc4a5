"""Counts what goes straight to its readers, beside what the broker carries."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from faust.types import TP, AppT, EventT, StreamT

from trimtab_agent.engines.faust.local.route import note_batched
from trimtab_agent.engines.faust.measure import KeyGroupSensor
from trimtab_agent.engines.faust.measure.sensor import Flow, Taken


class LocalSensor(KeyGroupSensor):
    """The plug-in's sensor for an app with local topics.  It also marks the events of `take()` and the like."""

    def __init__(self, app: AppT, take_direct: Callable[[], Mapping[tuple[TP, TP], Flow]], **options: Any) -> None:
        super().__init__(app, **options)
        self._take_direct = take_direct

    def on_stream_event_in(self, tp: TP, offset: int, stream: StreamT, event: EventT) -> None:
        """A stream begins an event."""
        self.cpu.current = tp
        if not stream.enable_acks:
            note_batched(event)

    def take(self) -> Taken:
        """Return the counts since the last call, and begin the next interval."""
        return replace(super().take(), direct=self._take_direct())
