"""The demand of an app over the last four weeks, one number per five minutes, and its records for a successor.

A step whose demand was not known for at least half of its time is unknown.  Steps are numbered since the epoch, so a
day of UTC begins at a multiple of DAY.  A record has the steps of one day; its key names app and day.
"""

from array import array
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from math import nan
from typing import Annotated, ClassVar

import numpy as np

from trimtab_models.forecast import Floats
from trimtab_protocol.messages.codec import Key, Most, Range, Wire, decoded, encoded
from trimtab_protocol.messages.decode import BadMessage, Fault, check_name
from trimtab_protocol.messages.names import AppId

STEP_S = 300
"""Seconds of a step."""
DAY = 86_400 // STEP_S
"""Steps of a day."""
KEPT_DAYS = 28
"""Days that are remembered: four weeks show what repeats by week."""
MIN_KNOWN = 0.5
"""The share of a step for which the demand must be known."""
DIGITS = 4
"""Digits of cores behind the point in a record."""
MAX_CORES = 1e9
"""The largest demand of a record, in cores."""
MAX_DIGITS = 9
"""Digits of a day in a key."""
VERSION = 1
KEY_PREFIX = b"demand/"


@dataclass(slots=True)
class DemandSeries:
    """`values` = mean demand of each step in cores, NaN = unknown; that of step `first` comes first.

    The step that is under way is not among them.
    """

    first: int = 0
    values: "array[float]" = field(default_factory=lambda: array("f"))
    _sum: float = 0.0
    _seconds: float = 0.0

    @property
    def end(self) -> int:
        """The number of the step that is under way."""
        return self.first + len(self.values)

    def observe(self, start_s: float, end_s: float, cores: float | None) -> bool:
        """Take the demand of a window; None = unknown.  Return whether a step has ended with it."""
        step = int((start_s + end_s) / 2.0 // STEP_S)
        if not self.values and not self._seconds:
            self.first = step
        if step < self.end:
            return False
        ended = step > self.end
        if ended:
            self._end_steps(step)
        if cores is not None:
            self._sum += cores * (end_s - start_s)
            self._seconds += end_s - start_s
        return ended

    def array(self) -> Floats:
        """The values as an array of its own."""
        return np.array(self.values, dtype=np.float64)

    def day(self, day: int) -> list[float | None]:
        """The values of a day from its first step on; None = unknown."""
        begin, end = max(self.first, day * DAY), min(self.end, (day + 1) * DAY)
        known = self.values[begin - self.first : end - self.first] if end > begin else ()
        padding: list[float | None] = [None] * (begin - day * DAY)
        return [*padding, *(None if value != value else round(value, DIGITS) for value in known)]

    def _end_steps(self, step: int) -> None:
        """End the step under way; those between it and `step` are unknown."""
        known = self._seconds >= MIN_KNOWN * STEP_S
        self.values.append(self._sum / self._seconds if known else nan)
        self._sum = self._seconds = 0.0
        self._skip_to(step)

    def _skip_to(self, step: int) -> None:
        """What lies between the last step and this one is unknown; forget what is too old."""
        most = KEPT_DAYS * DAY
        if step - self.end >= most:
            self.first, self.values = step, array("f")
        self.values.extend([nan] * (step - self.end))
        if (surplus := len(self.values) - most) > 0:
            del self.values[:surplus]
            self.first += surplus

    def continue_with(self, first: int, values: Iterable[float]) -> None:
        """Append what is known from step `first` on, which comes after all that is here."""
        if not self.values:
            self.first = first
        self._skip_to(max(first, self.end))
        self.values.extend(values)
        self._skip_to(self.end)


@dataclass(frozen=True, slots=True, kw_only=True)
class DemandRecord:
    """The demand of an app on one day: `values` = cores by step, None = unknown; `day` = days since the epoch."""

    WIRE: ClassVar = Wire(version=VERSION, derived=("step_s",))

    app: AppId
    day: int
    values: Annotated[tuple[float | None, ...], Key("cores"), Most(DAY), Range(0.0, MAX_CORES)]

    @property
    def step_s(self) -> int:
        """The step of this version."""
        return STEP_S


def key_of(app: AppId, day: int) -> bytes:
    """The key of the record of a day."""
    return KEY_PREFIX + f"{app}/{day}".encode()


def day_of(key: bytes) -> tuple[AppId, int]:
    """App and day of the key of a record; raises BadMessage."""
    app, slash, day = key.removeprefix(KEY_PREFIX).decode(errors="replace").rpartition("/")
    if not key.startswith(KEY_PREFIX) or not slash or not (day.isascii() and day.isdigit() and len(day) <= MAX_DIGITS):
        raise BadMessage(Fault.RANGE, "key", key[:200], f"{KEY_PREFIX.decode()}APP/DAY")
    return AppId(check_name(app, "key")), int(day)


def encode_demand(app: AppId, day: int, values: list[float | None]) -> bytes:
    """The record of a day."""
    return encoded(DemandRecord(app=app, day=day, values=tuple(values)))


def decode_demand(payload: bytes | None) -> DemandRecord:
    """Decode a record; raises BadMessage."""
    return decoded(payload, DemandRecord)


def series_of(records: Iterable[DemandRecord]) -> dict[AppId, DemandSeries]:
    """The demand of each app, from the records of its days."""
    found: dict[AppId, DemandSeries] = {}
    for record in sorted(records, key=lambda each: each.day):
        if record.values:
            series = found.setdefault(record.app, DemandSeries())
            series.continue_with(record.day * DAY, (nan if value is None else value for value in record.values))
    return found


def days_of(series: Mapping[AppId, DemandSeries]) -> Iterator[tuple[AppId, int]]:
    """The days of which something is remembered."""
    for app, each in series.items():
        for day in range(each.first // DAY, (each.end - 1) // DAY + 1):
            yield app, day
