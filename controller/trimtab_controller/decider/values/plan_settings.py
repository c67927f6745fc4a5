"""What happens to the plans of each app, and when they may begin: the configuration's [plans].

Times in which something happens or does not are cron expressions with a time zone.  An expression matches the minutes
in which it holds, as in Flink's `excluded.periods`: `* 9-17 * * mon-fri` is every minute from 9:00 to 17:59 on
working days.  With a duration it holds for so long from each match on: `30 22 * * fri for 4h`.  The package that
reads them is imported where there is such an expression: the console, which predicts with the decider, does without
it.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta, tzinfo
from enum import StrEnum
from typing import Annotated
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from trimtab_protocol.messages.codec import Inline, Most, Range, Text
from trimtab_protocol.messages.decode import BadMessage, Fault
from trimtab_protocol.messages.names import AppId

MINUTE = timedelta(minutes=1)
DURATION = re.compile(r"(.+?)\s+for\s+([1-9][0-9]{0,4})([mhd])")
UNITS = {"m": MINUTE, "h": timedelta(hours=1), "d": timedelta(days=1)}
LONGEST = timedelta(days=7)
DAY_S = 86_400.0
MAX_APPS = 10_000
"""Apps with a mode of their own."""
MAX_EXPRESSIONS = 100
"""Expressions of `[plans] freeze`, and of `windows`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CronPeriod:
    """A cron expression of five fields, with or without a duration, in the wall time of a time zone.

    Raises BadMessage.
    """

    expression: str
    timezone: str

    def __post_init__(self) -> None:
        from cronsim import CronSim, CronSimError

        zone_of(self.timezone)
        cron, lasts = self._parts()
        if lasts > LONGEST:
            raise BadMessage(Fault.RANGE, "", self.expression, "a duration of at most 7d")
        try:
            CronSim(cron, datetime(2000, 1, 1))
        except CronSimError as error:
            expected = f"a cron expression of five fields, or one with a duration such as `for 4h` ({error})"
            raise BadMessage(Fault.RANGE, "", self.expression, expected) from error

    def _parts(self) -> tuple[str, timedelta]:
        found = DURATION.fullmatch(self.expression)
        return (self.expression, MINUTE) if found is None else (found[1], int(found[2]) * UNITS[found[3]])

    def _local(self, at: float) -> datetime:
        """Wall time without a zone: an hour that a change of the clocks skips or repeats counts as clocks show it."""
        return datetime.fromtimestamp(at, zone_of(self.timezone)).replace(second=0, microsecond=0, tzinfo=None)

    def covers(self, at: float) -> bool:
        """Whether it holds at this time (epoch seconds)."""
        from cronsim import CronSim

        cron, lasts = self._parts()
        local = self._local(at)
        begin = next(CronSim(cron, local - lasts), None)
        return begin is not None and begin <= local


def zone_of(name: str) -> tzinfo:
    """The time zone of this name.  Raises BadMessage."""
    if name == "UTC":  # known also where the system has no time zones
        return UTC
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        expected = "a time zone that this system knows, such as Europe/Berlin"
        raise BadMessage(Fault.RANGE, "timezone", name, expected) from error


Expressions = Annotated[tuple[str, ...], Most(MAX_EXPRESSIONS)]
Zone = Annotated[str, Text(100)]


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanTimes:
    """In `freeze` no plan for balance begins, and no size changes by itself.

    If there are `windows`, no plan for balance begins outside them.  Raises BadMessage.
    """

    freeze: Expressions = ()
    windows: Expressions = ()
    timezone: Zone = "UTC"

    def __post_init__(self) -> None:
        zone_of(self.timezone)
        for key, expressions in (("freeze", self.freeze), ("windows", self.windows)):
            try:
                self._periods(expressions)
            except BadMessage as bad:
                raise BadMessage(bad.fault, key, bad.found, bad.expected) from bad

    def _periods(self, expressions: tuple[str, ...]) -> list[CronPeriod]:
        return [CronPeriod(expression=each, timezone=self.timezone) for each in expressions]

    def frozen(self, at: float) -> str | None:
        """Which freeze holds at a time (epoch seconds); None: none does."""
        found = next((each for each in self._periods(self.freeze) if each.covers(at)), None)
        return None if found is None else f"[plans] freeze holds: {found.expression} ({self.timezone})"

    def closed(self, at: float) -> str | None:
        """Why no plan for balance begins at a time (epoch seconds); None: it may."""
        if (freeze := self.frozen(at)) is not None:
            return freeze
        windows = self._periods(self.windows)
        return "it is outside [plans] windows" if windows and not any(each.covers(at) for each in windows) else None


class PlanMode(StrEnum):
    """What the controller does with its own plans for an app."""

    DRY_RUN = "dry-run"  # it says what it would do
    APPROVE = "approve"  # a plan waits until an operator approves it
    ACT = "act"  # it carries them out


@dataclass(frozen=True, slots=True, kw_only=True)
class AppPlans:
    """What an app has of its own; None: as all others."""

    mode: PlanMode | None = None
    freeze: Expressions | None = None
    windows: Expressions | None = None
    timezone: Zone | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanSettings:
    """The mode of every app, and of those that have their own.  Times in seconds.

    `approval_s`: how long a plan waits for approval; after a rejection nothing else is proposed for so long.
    `keep_moved_s`: how long what an operator moved stays where it is.  `times`: when plans for balance may begin.
    """

    mode: PlanMode = PlanMode.ACT
    approval_s: Annotated[float, Range(10.0, 7 * DAY_S)] = 1800.0
    keep_moved_s: Annotated[float, Range(0.0, 30 * DAY_S)] = 3600.0
    times: Annotated[PlanTimes, Inline()] = PlanTimes()
    apps: Annotated[Mapping[AppId, AppPlans], Most(MAX_APPS)] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for app in self.apps:
            try:
                self.times_of(app)
            except BadMessage as bad:
                raise BadMessage(bad.fault, f"apps.{app}.{bad.path}", bad.found, bad.expected) from bad

    def of(self, app: AppId) -> PlanMode:
        """The mode of an app."""
        return self.apps.get(app, AppPlans()).mode or self.mode

    def times_of(self, app: AppId) -> PlanTimes:
        """When plans for balance of an app may begin."""
        if (own := self.apps.get(app)) is None:
            return self.times
        times = self.times
        return PlanTimes(
            freeze=times.freeze if own.freeze is None else own.freeze,
            windows=times.windows if own.windows is None else own.windows,
            timezone=own.timezone or times.timezone,
        )
