"""What happens to the plans of each app, and when plans for balance may begin: the configuration's [plans]."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum
from types import MappingProxyType
from typing import Any

from trimtab_controller.decider.operators.periods import BadPeriod, CronPeriod, zone_of
from trimtab_protocol.messages.decode import BadMessage, Fault, Fields, check_text
from trimtab_protocol.messages.names import AppId
from trimtab_protocol.wording import time_span

DAY_S = 86_400.0
MAX_APPS = 10_000
"""Apps with a mode of their own."""
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

    def _periods(self, expressions: tuple[str, ...]) -> list[CronPeriod]:
        return [CronPeriod(expression=each, timezone=self.timezone) for each in expressions]

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


class PlanMode(StrEnum):
    """What the controller does with its own plans for an app."""

    DRY_RUN = "dry-run"  # it says what it would do
    APPROVE = "approve"  # a plan waits until an operator approves it
    ACT = "act"  # it carries them out


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanSettings:
    """The mode of every app, and of those that have their own.  Times in seconds.

    `approval_s`: how long a plan waits for approval; after a rejection nothing else is proposed for so long.
    `keep_moved_s`: how long what an operator moved stays where it is.  `times`: when plans for balance may begin;
    `app_times` = those of apps that have their own.
    """

    mode: PlanMode = PlanMode.ACT
    approval_s: float = 1800.0
    keep_moved_s: float = 3600.0
    apps: Mapping[AppId, PlanMode] = field(default_factory=dict)
    times: PlanTimes = PlanTimes()
    app_times: Mapping[AppId, PlanTimes] = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "apps", MappingProxyType(dict(self.apps)))
        object.__setattr__(self, "app_times", MappingProxyType(dict(self.app_times)))

    def of(self, app: AppId) -> PlanMode:
        """The mode of an app."""
        return self.apps.get(app, self.mode)

    def times_of(self, app: AppId) -> PlanTimes:
        """When plans for balance of an app may begin."""
        return self.app_times.get(app, self.times)


def read_plans(fields: Fields) -> PlanSettings:
    """The section of controller.toml; a key that is missing has its default.  Raises BadMessage."""
    found: dict[str, Any] = {}
    if fields.has("mode"):
        found["mode"] = fields.choice("mode", PlanMode)
    if fields.has("approval_s"):
        found["approval_s"] = fields.number("approval_s", low=10.0, high=7 * DAY_S)
    if fields.has("keep_moved_s"):
        found["keep_moved_s"] = fields.number("keep_moved_s", low=0.0, high=30 * DAY_S)
    found["times"] = times = read_times(PlanTimes(), fields)
    modes: dict[AppId, PlanMode] = {}
    own_times: dict[AppId, PlanTimes] = {}
    if fields.has("apps"):
        for app, at, value in fields.members("apps", limit=MAX_APPS):
            if not isinstance(value, dict):
                modes[AppId(app)] = _mode(at, value)
                continue
            own = Fields(value, at)
            if own.has("mode"):
                modes[AppId(app)] = own.choice("mode", PlanMode)
            own_times[AppId(app)] = read_times(times, own)
            own.done()
    found |= {"apps": modes, "app_times": own_times}
    fields.done()
    return replace(PlanSettings(), **found)


def _mode(at: str, value: object) -> PlanMode:
    text = check_text(value, at, 100)
    try:
        return PlanMode(text)
    except ValueError:
        raise BadMessage(Fault.RANGE, at, text, "one of " + ", ".join(PlanMode)) from None
