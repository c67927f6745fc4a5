"""Times in which the size of an app does not change by itself, as cron expressions and a time zone.

An expression matches the minutes in which it holds, as in Flink's `excluded.periods`: `* 9-17 * * mon-fri` is every
minute from 9:00 to 17:59 on working days.  The package that reads them is imported where there is such an expression:
the console, which predicts with the decider, does without it.
"""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

MINUTE = timedelta(minutes=1)


class BadFreeze(ValueError):
    """An expression or a time zone that cannot be read: the key, what was found, and what was expected."""

    def __init__(self, key: str, found: str, expected: str) -> None:
        self.key, self.found, self.expected = key, found, expected
        super().__init__(f"{key}: found {found!r}, expected {expected}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Freeze:
    """A cron expression of five fields, in the wall time of a time zone.  Raises BadFreeze."""

    expression: str
    timezone: str

    def __post_init__(self) -> None:
        from cronsim import CronSim, CronSimError

        zone_of(self.timezone)
        try:
            CronSim(self.expression, datetime(2000, 1, 1))
        except CronSimError as error:
            raise BadFreeze("freeze", self.expression, f"a cron expression of five fields ({error})") from error

    def covers(self, at: float) -> bool:
        """Whether it holds at this time (epoch seconds)."""
        from cronsim import CronSim

        # Wall time without a zone: an hour that a change of the clocks skips or repeats is judged by what clocks show.
        local = datetime.fromtimestamp(at, zone_of(self.timezone)).replace(second=0, microsecond=0, tzinfo=None)
        return next(CronSim(self.expression, local - MINUTE), None) == local


def zone_of(name: str) -> tzinfo:
    """The time zone of this name.  Raises BadFreeze."""
    if name == "UTC":  # known also where the system has no time zones
        return UTC
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise BadFreeze("freeze_timezone", name, "a time zone that this system knows, such as Europe/Berlin") from error
