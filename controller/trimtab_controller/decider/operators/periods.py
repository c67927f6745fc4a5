"""Times in which something happens or does not, as cron expressions and a time zone.

An expression matches the minutes in which it holds, as in Flink's `excluded.periods`: `* 9-17 * * mon-fri` is every
minute from 9:00 to 17:59 on working days.  With a duration it holds for so long from each match on:
`30 22 * * fri for 4h`.  The package that reads them is imported where there is such an expression: the console, which
predicts with the decider, does without it.
"""

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo
from functools import lru_cache
from itertools import islice
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

MINUTE = timedelta(minutes=1)
DURATION = re.compile(r"(.+?)\s+for\s+([1-9][0-9]{0,4})([mhd])")
UNITS = {"m": MINUTE, "h": timedelta(hours=1), "d": timedelta(days=1)}
LONGEST = timedelta(days=7)
FORESEEN = timedelta(days=3)
"""What holds for longer than this is not followed to its end, which for `* * * * *` would never come."""
TRIED = 200
"""Begins that are looked at: those of one hour may be skipped by a change of the clocks."""


class BadPeriod(ValueError):
    """An expression or a time zone that cannot be read: what was found, and what was expected."""

    def __init__(self, found: str, expected: str, *, is_zone: bool = False) -> None:
        self.found, self.expected, self.is_zone = found, expected, is_zone
        super().__init__(f"found {found!r}, expected {expected}")


@dataclass(frozen=True, slots=True, kw_only=True)
class CronPeriod:
    """A cron expression of five fields, with or without a duration, in the wall time of a time zone.

    Raises BadPeriod.
    """

    expression: str
    timezone: str

    def __post_init__(self) -> None:
        from cronsim import CronSim, CronSimError

        zone_of(self.timezone)
        cron, lasts = self._parts()
        if lasts > LONGEST:
            raise BadPeriod(self.expression, "a duration of at most 7d")
        try:
            CronSim(cron, datetime(2000, 1, 1))
        except CronSimError as error:
            expected = f"a cron expression of five fields, or one with a duration such as `for 4h` ({error})"
            raise BadPeriod(self.expression, expected) from error

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

    def end(self, at: float) -> float | None:
        """The first minute in which it does not hold any more (epoch seconds); None: not within FORESEEN.

        It holds at `at`.
        """
        return _end(self, at - at % 60.0)

    def next_begin(self, at: float) -> float | None:
        """When it begins to hold next (epoch seconds); None: never."""
        begins = (self._next_shown(at), self._next_repeated(at))
        return min((each for each in begins if each is not None), default=None)

    def _next_repeated(self, at: float) -> float | None:
        """Of the begins that clocks have shown in this hour and are about to show again, the next one."""
        from cronsim import CronSim

        local, zone = self._local(at), zone_of(self.timezone)
        first, second = (local.replace(tzinfo=zone, fold=fold).timestamp() for fold in (0, 1))
        if second <= at:
            return None
        for begin in CronSim(self._parts()[0], local - timedelta(seconds=second - first)):
            if begin > local:
                return None
            found = begin.replace(tzinfo=zone, fold=1).timestamp()
            if found > at:
                return found
        return None

    def _next_shown(self, at: float) -> float | None:
        """The next begin of those that clocks have not shown yet."""
        from cronsim import CronSim

        cron, lasts = self._parts()
        for begin in islice(CronSim(cron, self._local(at)), TRIED):
            first, second = (begin.replace(tzinfo=zone_of(self.timezone), fold=fold).timestamp() for fold in (0, 1))
            if (found := next((each for each in (first, second) if each > at), None)) is None:
                continue
            if self._local(found) == begin:
                return found
            if lasts > MINUTE and (late := self._after_skip(second, first)) is not None and late > at:
                return late
        return None

    def _after_skip(self, before: float, after: float) -> float | None:
        """The first minute in which it holds, of those around an hour that a change of the clocks skips."""
        minutes = (before + 60.0 * number for number in range(round((after - before) / 60.0) + 1))
        return next((each for each in minutes if self.covers(each)), None)


@lru_cache(maxsize=100)
def _end(period: CronPeriod, at: float) -> float | None:
    """Remembered, because all apps in one window ask the same."""
    from cronsim import CronSim

    cron, lasts = period._parts()
    local, zone = period._local(at), zone_of(period.timezone)
    end = local
    for begin in CronSim(cron, local - lasts):
        if begin > end:
            break
        end = begin + lasts
        if end - local > FORESEEN:
            return None
    found = max(end.replace(tzinfo=zone, fold=fold).timestamp() for fold in (0, 1))
    if period._local(found) == end and found - at == (end - local).total_seconds():
        return found
    # The clocks change meanwhile: they skip the end, or show it and then show again a time in which it holds.
    minutes = (at + 60.0 * number for number in range(round((found - at) / 60.0) + 1))
    return next(each for each in minutes if not period.covers(each))


def zone_of(name: str) -> tzinfo:
    """The time zone of this name.  Raises BadPeriod."""
    if name == "UTC":  # known also where the system has no time zones
        return UTC
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise BadPeriod(name, "a time zone that this system knows, such as Europe/Berlin", is_zone=True) from error
