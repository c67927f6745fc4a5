"""How the loads of an app's key groups repeat by day, and how well that has forecast the loads of its workers.  Pure.

The pattern has the mean load of each key group in each step of the day (UTC).  The load in h steps is forecast as

    load(t + h) = load(t) + pattern(t + h) - pattern(t')        not below 0

where t' is t or a step beside it, whichever is most like the present loads: a daily peak is not punctual.  What rises
at another time than usual is not in the pattern, so the forecast of it is that it stays.  What a step adds enters the
pattern one step later, so that t' never shows the present loads themselves.

Key groups are forecast, and not workers, because key groups move.  Each step that ends is compared with what was
forecast for it, as the deviations of the present workers from their mean load (pp); beside it stands the last value.
Only steps count in which the load distance was above the band, or had been when the forecast was made: in all others
nobody asks for one.  A pattern takes 2 bytes per key group and step, 58 MB with MAX_KEY_GROUPS.
"""

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from trimtab_controller.decider.forecast.history import DAY, MIN_KNOWN, STEP_S
from trimtab_controller.decider.observing.owned import Floats, Integers, OwnedTable
from trimtab_controller.decider.observing.view import AppView
from trimtab_models.forecast.back_test import MARGIN
from trimtab_protocol.messages.names import OperatorId

Halves = NDArray[np.float16]

HORIZONS = (1, 2, 3, 6, 9, 12, 24)
"""Steps ahead for which forecasts are tested; for those between, the next larger one counts."""
MAX_AHEAD = HORIZONS[-1]
"""Steps that are forecast at most: two hours."""
TESTED = 7 * DAY
"""Steps over which errors are averaged: those of the last week that count."""
MAX_TESTED = 500
"""Steps over which errors are averaged at most: the newest."""
MIN_TESTED, MIN_DAYS = 6, 2
"""Steps that must have been tested for a forecast to be used, and on how many days."""
DAYS = 3
"""A new day counts for a third of the pattern, before that for its share of the days seen."""
MOST = 60_000.0
"""The highest load of a key group that is remembered (percent of a core): 16 bits do not hold more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PatternError:
    """Mean absolute errors of the workers' deviations `steps` ahead (pp): of the forecast, and of the last value.

    Over `tested` steps of `days` days.
    """

    steps: int
    tested: int
    days: int
    forecast: float
    last: float

    @property
    def is_known(self) -> bool:
        """Whether so many steps were tested that the errors say something."""
        return self.tested >= MIN_TESTED and self.days >= MIN_DAYS

    @property
    def is_better(self) -> bool:
        """Whether the forecast has clearly been better than the last value."""
        return self.is_known and self.forecast <= (1.0 - MARGIN) * self.last


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Origin:
    """The loads in a step, and the pattern at the step of the day that was most like them then."""

    step: int
    loads: Halves
    base: Halves


@dataclass(slots=True, eq=False)
class DayPattern:
    """The pattern of an app with so many key groups per operator; NaN = unknown.

    `days` = on how many days each step of the day was known, `steps` = the number of the last one.  `errors` =
    (2, HORIZONS) mean absolute errors by number of the step.  `changed` = steps of the day that are to be recorded.
    """

    sizes: Mapping[OperatorId, int]
    rows: Halves = field(init=False)
    days: Integers = field(init=False)
    steps: Integers = field(init=False)
    errors: dict[int, Floats] = field(default_factory=dict)
    changed: set[int] = field(default_factory=set)
    step: int | None = None
    _first: dict[OperatorId, int] = field(init=False)
    _sum: Floats = field(init=False)
    _seconds: Floats = field(init=False)
    _origins: "deque[_Origin]" = field(default_factory=lambda: deque(maxlen=MAX_AHEAD))
    _pending: tuple[int, Floats] | None = None

    def __post_init__(self) -> None:
        self._first, total = {}, 0
        for operator, count in sorted(self.sizes.items()):
            self._first[operator] = total
            total += count
        self.rows = np.full((DAY, total), np.nan, np.float16)
        self.days, self.steps = np.zeros(DAY, np.int64), np.zeros(DAY, np.int64)
        self._sum, self._seconds = np.zeros(total), np.zeros(total)

    def __len__(self) -> int:
        """The number of key groups."""
        return len(self._sum)

    # --- what is learned ----------------------------------------------------------------------------------------------

    def see(self, view: AppView, band: float) -> None:
        """Take the loads of a window; `band` = the load distance within which nothing moves."""
        step = int((view.start_s + view.end_s) / 2.0 // STEP_S)
        if self.step is not None and step < self.step:
            return
        if self.step is not None and step > self.step:
            self._end_step(self.step, view, band)
        self.step = step
        seconds = view.end_s - view.start_s
        for table in (view.owned, view.kept_table):
            known = ~np.isnan(table.load)
            at = self.places_of(table)[known]
            self._sum[at] += table.load[known] * seconds
            self._seconds[at] += seconds

    def places_of(self, table: OwnedTable) -> Integers:
        """The column of each row of a table."""
        first = np.array([self._first[name] for name in table.operators], np.int64)
        places: Integers = first[table.operator] + table.partition if len(table) else np.zeros(0, np.int64)
        return places

    def _end_step(self, step: int, view: AppView, band: float) -> None:
        known = self._seconds >= MIN_KNOWN * STEP_S
        loads = np.where(known, np.minimum(self._sum / np.where(known, self._seconds, 1.0), MOST), np.nan)
        self._sum[:] = self._seconds[:] = 0.0
        if known.any():
            self._test(step, loads, view, band)
            base = self.rows[self._most_like(loads, step)]
            self._origins.append(_Origin(step=step, loads=loads.astype(np.float16), base=base.copy()))
        self._learn()
        self._pending = (step, loads) if known.any() else None

    def _learn(self) -> None:
        """Let the last step but one become part of the pattern."""
        if self._pending is None:
            return
        step, loads = self._pending
        slot = step % DAY
        self.days[slot] += 1
        self.steps[slot] = step
        row = self.rows[slot].astype(np.float64)
        weight = 1.0 / min(DAYS, self.days[slot])
        mixed = np.where(np.isnan(row), loads, row + weight * (loads - row))
        self.rows[slot] = np.where(np.isnan(loads), row, mixed)
        self.changed.add(slot)

    # --- forecasts ----------------------------------------------------------------------------------------------------

    def ahead(self, view: AppView, now: float, steps: int) -> tuple[float, Floats]:
        """(steps, K) the load of each key group that plans may move, in the steps to come, and when the first begins.

        A key group of which the pattern does not know both times keeps its load.
        """
        table, step = view.owned, int(now // STEP_S)
        at = self.places_of(table)
        present = np.full(len(self), np.nan)
        present[at] = table.load
        base = self.rows[self._most_like(present, step), at].astype(np.float64)
        slots = (step + 1 + np.arange(steps)) % DAY
        change = self.rows[np.ix_(slots, at)].astype(np.float64) - base
        found: Floats = np.maximum(0.0, table.load + np.where(np.isnan(change), 0.0, change))
        return (step + 1) * STEP_S - now, found

    def error(self, steps: int) -> PatternError | None:
        """How good forecasts so far ahead have been; None if nothing was tested."""
        column = next((place for place, each in enumerate(HORIZONS) if each >= steps), None)
        if column is None or not self.errors:
            return None
        rows = np.array([each[:, column] for each in self.errors.values()])
        known = ~np.isnan(rows).any(axis=1)
        if not known.any():
            return None
        forecast, last = rows[known].mean(axis=0).tolist()
        days = len({step // DAY for step, is_known in zip(self.errors, known.tolist(), strict=True) if is_known})
        return PatternError(steps=HORIZONS[column], tested=int(known.sum()), days=days, forecast=forecast, last=last)

    def _most_like(self, loads: Floats, step: int) -> int:
        """The step of the day beside this one that is most like these loads."""

        def apart(slot: int) -> float:
            differences = np.abs(self.rows[slot] - loads)
            known = ~np.isnan(differences)
            return float(differences[known].mean()) if known.any() else np.inf

        return min((step % DAY, (step + 1) % DAY, (step - 1) % DAY), key=apart)

    # --- tests --------------------------------------------------------------------------------------------------------

    def _test(self, step: int, loads: Floats, view: AppView, band: float) -> None:
        """Compare this step with what was forecast for it, and with the last values then."""
        origins = {each.step: each for each in self._origins}
        at = self.places_of(view.owned)
        found = np.full((2, len(HORIZONS)), np.nan)
        truth, pattern = loads[at], self.rows[step % DAY][at].astype(np.float64)
        for column, horizon in enumerate(HORIZONS):
            if (origin := origins.get(step - horizon)) is None:
                continue
            last = origin.loads[at].astype(np.float64)
            forecast = np.maximum(0.0, last + pattern - origin.base[at])
            known = ~np.isnan(forecast) & ~np.isnan(truth)
            if not len(known) or known.mean() < MIN_KNOWN:
                continue
            now, ahead, before = (deviations_of(view, np.where(known, each, 0.0)) for each in (truth, forecast, last))
            if max(distance_of(view, now), distance_of(view, before)) > band:
                found[:, column] = np.abs(ahead - now).mean(), np.abs(before - now).mean()
        if not np.isnan(found).all():
            self.errors[step] = found
        newest = sorted(each for each in self.errors if each > step - TESTED)[-MAX_TESTED:]
        if len(newest) < len(self.errors):
            self.errors = {each: self.errors[each] for each in newest}

    # --- records ------------------------------------------------------------------------------------------------------

    @property
    def first(self) -> Mapping[OperatorId, int]:
        """The first column of each operator."""
        return self._first

    def recorded(self) -> list[int]:
        """The steps of the day that are known."""
        found: list[int] = np.flatnonzero(self.days).tolist()
        return found

    def errors_of(self, slot: int) -> dict[int, Floats]:
        """The errors of a step of the day, by number of the step."""
        return {step: row for step, row in self.errors.items() if step % DAY == slot}

    def recall(self, step: int, days: int, loads: Mapping[OperatorId, Halves], errors: Mapping[int, Floats]) -> None:
        """Take over what was recorded of a step, unless something newer is known of it."""
        slot = step % DAY
        if self.steps[slot] >= step:
            return
        self.days[slot], self.steps[slot] = days, step
        self.rows[slot] = np.concatenate([loads[operator] for operator in self._first])
        self.errors |= errors


def deviations_of(view: AppView, loads: Floats) -> Floats:
    """(workers,) the loads of the workers less their mean, in percent of their capacity."""
    sums, capacity, kept = sums_of(view, loads)
    mean = sums.sum() / (capacity[kept] if kept.any() else capacity).sum()
    found: Floats = sums / capacity - mean
    return found


def distance_of(view: AppView, deviations: Floats) -> float:
    """The load distance; a worker that is being drained counts upwards only."""
    kept = np.array([not worker.draining for worker in view.workers])
    return float(np.where(kept, np.abs(deviations), np.maximum(deviations, 0.0)).max())


def sums_of(view: AppView, loads: Floats) -> tuple[Floats, Floats, NDArray[np.bool_]]:
    """What the key groups of each worker load it with (percent of a core), its capacity, and whether it stays."""
    table, places = view.owned, {worker.id: place for place, worker in enumerate(view.workers)}
    owner = np.array([places[name] for name in table.workers], np.int64)[table.owner]
    sums = np.bincount(owner, weights=loads, minlength=len(view.workers)).astype(np.float64)
    capacity = np.array([worker.capacity for worker in view.workers])
    return sums, capacity, np.array([not worker.draining for worker in view.workers])
