"""Records of what is known of the loads of an app's key groups by time of the day, for a successor.

One record has one step of the day: the loads of all key groups, and the errors of the forecasts for that step in the
last week.  Its key names app and step.  Loads are 16-bit floats in percent of a core, little-endian, in base64.
"""

import base64
import binascii
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from trimtab_controller.decider.forecast.day_pattern import DAYS, HORIZONS, TESTED, DayPattern
from trimtab_controller.decider.forecast.history import DAY
from trimtab_protocol.messages.decode import (
    BadMessage,
    Fault,
    Fields,
    check_name,
    check_number,
    check_text,
    encode,
    parse,
)
from trimtab_protocol.messages.names import MAX_PARTITIONS, AppId, OperatorId
from trimtab_protocol.messages.placement import MAX_OPERATORS

VERSION = 1
KEY_PREFIX = b"pattern/"
HALF = np.dtype("<f2")
MAX_STEP = 10**9
"""The highest number of a step since the epoch."""
MAX_ERROR = 1e9
"""The largest error, in percentage points."""
DIGITS = 3
"""Digits of an error behind the point."""
MAX_TEXT = 4 * MAX_PARTITIONS
"""Characters of the loads of an operator."""

Errors = tuple[tuple[float | None, ...], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PatternRecord:
    """The step of the day that was last known in step number `step`, on `days` days in all.

    `loads` = 16-bit floats by operator, `errors` of the forecast and of the last value at each horizon, by number of
    the step; None = not known.
    """

    app: AppId
    step: int
    days: int
    loads: Mapping[OperatorId, bytes]
    errors: Mapping[int, Errors]

    @property
    def sizes(self) -> dict[OperatorId, int]:
        """The number of key groups of each operator."""
        return {operator: len(row) // HALF.itemsize for operator, row in self.loads.items()}


def key_of_pattern(app: AppId, slot: int) -> bytes:
    """The key of the record of a step of the day."""
    return KEY_PREFIX + f"{app}/{slot}".encode()


def record_of(app: AppId, pattern: DayPattern, slot: int) -> PatternRecord:
    """What is known of a step of the day."""
    row = pattern.rows[slot].astype(HALF)
    return PatternRecord(
        app=app,
        step=pattern.steps[slot].item(),
        days=min(DAYS, pattern.days[slot].item()),
        loads={name: row[first : first + pattern.sizes[name]].tobytes() for name, first in pattern.first.items()},
        errors={
            step: tuple(
                tuple(None if each != each else round(each, DIGITS) for each in part) for part in found.tolist()
            )
            for step, found in sorted(pattern.errors_of(slot).items())
        },
    )


def encode_pattern(record: PatternRecord) -> bytes:
    """The value of a record."""
    return encode(
        {
            "v": VERSION,
            "app": record.app,
            "step": record.step,
            "days": record.days,
            "loads": {operator: base64.b64encode(row).decode() for operator, row in record.loads.items()},
            "horizons": HORIZONS,
            "errors": [{"step": step, "of": found} for step, found in record.errors.items()],
        }
    )


def decode_pattern(payload: bytes | None) -> PatternRecord:
    """Decode a record; raises BadMessage."""
    fields = parse(payload, version=VERSION)
    app = AppId(check_name(fields.take("app"), "app"))
    step, days = fields.integer("step", high=MAX_STEP), fields.integer("days", low=1, high=DAYS)
    loads = {OperatorId(name): _halves(value, at) for name, at, value in fields.members("loads", limit=MAX_OPERATORS)}
    return PatternRecord(app=app, step=step, days=days, loads=loads, errors=_errors(fields))


def _halves(value: object, at: str) -> bytes:
    text = check_text(value, at, MAX_TEXT)
    try:
        content = base64.b64decode(text, validate=True)
        row = np.frombuffer(content, HALF)
    except (binascii.Error, ValueError) as error:
        raise BadMessage(Fault.RANGE, at, text[:200], "16-bit floats in base64") from error
    if np.isinf(row).any() or (row < 0.0).any():
        raise BadMessage(Fault.RANGE, at, text[:200], "loads from 0 on")
    return content


def _errors(fields: Fields) -> dict[int, Errors]:
    """None of them if they are of other horizons, as another version may test."""
    horizons = [check_number(each, at, 1, DAY) for at, each in fields.items("horizons", limit=DAY)]
    rows = list(fields.objects("errors", limit=TESTED // DAY))
    return {row.integer("step", high=MAX_STEP): _error(row) for row in rows} if horizons == list(HORIZONS) else {}


def _error(row: Fields) -> Errors:
    parts = list(row.items("of", limit=2))
    found = []
    for at, part in parts:
        if not isinstance(part, list) or len(part) != len(HORIZONS) or len(parts) != 2:
            raise BadMessage(Fault.RANGE, at, str(part)[:200], f"two rows of {len(HORIZONS)} errors")
        found.append(tuple(None if each is None else check_number(each, at, 0.0, MAX_ERROR) for each in part))
    if not found:
        raise BadMessage(Fault.RANGE, row.at("of"), "no rows", f"two rows of {len(HORIZONS)} errors")
    return tuple(found)


def patterns_of(records: Iterable[PatternRecord]) -> dict[AppId, DayPattern]:
    """The pattern of each app; what was recorded while it had other key groups is left out."""
    found: dict[AppId, DayPattern] = {}
    for record in sorted(records, key=lambda each: -each.step):
        if not record.loads or not all(record.sizes.values()):
            continue
        if record.app not in found:
            found[record.app] = DayPattern(sizes=record.sizes)
        pattern = found[record.app]
        if pattern.sizes == record.sizes:
            loads = {name: np.frombuffer(row, HALF).astype(np.float16) for name, row in record.loads.items()}
            errors = {step: np.array(each, dtype=np.float64) for step, each in record.errors.items()}  # None is NaN
            pattern.recall(record.step, record.days, loads, errors)
    return found
