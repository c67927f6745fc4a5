"""When plans for balance may begin: `freeze`, `windows` and `timezone` of the configuration's [plans]."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from trimtab_controller.decider.operators.periods import BadPeriod, Period, zone_of
from trimtab_protocol.messages.decode import BadMessage, Fault, Fields, check_text
from trimtab_protocol.wording import time_span

MAX_EXPRESSIONS = 100
"""Expressions of `[plans] freeze`, and of `windows`."""
TRIED = 19
"""Ends of freezes and begins of windows that are looked at for a time at which plans may begin."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanTimes:
    """In `freeze` no plan for balance begins; if there are `windows`, none begins outside them.  Raises BadPeriod."""

    freeze: tuple[str, ...] = ()
    windows: tuple[str, ...] = ()
    timezone: str = "UTC"

    def __post_init__(self) -> None:
        zone_of(self.timezone)
        self._periods(self.freeze + self.windows)

    def _periods(self, expressions: tuple[str, ...]) -> list[Period]:
        return [Period(expression=each, timezone=self.timezone) for each in expressions]

    def closed(self, now: float) -> str | None:
        """Why no plan for balance begins at this time (epoch seconds); None: it may."""
        if (held := self._held(now)) is None:
            return None
        why, until = held
        at = self._next_open(until)
        if at is None:
            return f"{why}; no plan may begin in the next days"
        shown = datetime.fromtimestamp(at, zone_of(self.timezone))
        return f"{why}; plans may begin from {shown:%a %d %b %H:%M} ({self.timezone}) on, in {time_span(at - now)}"

    def _next_open(self, at: float | None) -> float | None:
        """The first time from `at` on, an end of what has held, at which nothing holds; None: not soon, or never."""
        for _ in range(TRIED):
            if at is None or (held := self._held(at)) is None:
                return at
            at = held[1]
        return None

    def _held(self, at: float) -> tuple[str, float | None] | None:
        """What holds plans back at a time, and until when that does (epoch seconds; None: long, or for ever)."""
        for each in self._periods(self.freeze):
            if each.covers(at):
                return f"[plans] freeze holds: {each.expression} ({self.timezone})", each.end(at)
        windows = self._periods(self.windows)
        if not windows or any(each.covers(at) for each in windows):
            return None
        begins = [begin for each in windows if (begin := each.next_begin(at)) is not None]
        return "it is outside [plans] windows", min(begins, default=None)


def read_times(general: PlanTimes, fields: Fields) -> PlanTimes:
    """The general times with those that are given in place of them.  Raises BadMessage."""

    def texts(name: str) -> tuple[str, ...]:
        return tuple(check_text(value, at, 1000) for at, value in fields.items(name, limit=MAX_EXPRESSIONS))

    readers: dict[str, Callable[[str], Any]] = {
        "freeze": texts,
        "windows": texts,
        "timezone": lambda name: fields.text(name, limit=100),
    }
    found = {name: read(name) for name, read in readers.items() if fields.has(name)}
    try:
        return replace(general, **found)
    except BadPeriod as error:
        wrong = next((name for name in ("freeze", "windows") if error.found in found.get(name, ())), "freeze")
        key = "timezone" if error.is_zone else wrong
        raise BadMessage(Fault.RANGE, fields.at(key), error.found, error.expected) from error
