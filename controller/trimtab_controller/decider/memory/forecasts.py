"""Follows the demand of every app from window to window, fits a forecast to it, and forecasts with that.

Demand is remembered for four weeks, one number per five minutes.  A step whose demand was not known for at least half
of its time is unknown.  Steps are numbered since the epoch, so a day of UTC begins at a multiple of DAY.  A record
has the steps of one day; its key names app and day.
"""

import math
from array import array
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from math import nan
from typing import Annotated, ClassVar

import numpy as np

from trimtab_controller.decider.values.scaling import Mode
from trimtab_controller.decider.values.settings import ForecastSettings
from trimtab_models.forecast import MAX_STALE, MIN_PERIODS, Accuracy, Fitted, Floats, NoForecast, predict
from trimtab_models.forecast import fit as fit_series
from trimtab_protocol.messages.codec import Key, Most, Range, Wire, encoded
from trimtab_protocol.messages.names import AppId
from trimtab_protocol.wording import time_span

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
VERSION = 1
KEY_PREFIX = b"demand/"

PERIODS = (DAY, 7 * DAY)
"""What demand may repeat by: a day, and a week."""
REFIT_S = 6 * 3600.0
"""How often a forecast is fitted anew."""
RETRY_S = 3600.0
"""How long after a fit that failed the next one is tried."""
MAX_FIT_AGE_S = 2 * 86_400.0
"""How old a fit may be to be forecast with."""
RECORD_EVERY = 3
"""Steps after which the demand is recorded for a successor."""
MAX_APPS = 1_000
"""Apps whose demand is remembered: those that were seen first."""
MAX_HORIZON = DAY // 2
"""The longest forecast, in steps."""


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


def encode_demand(app: AppId, day: int, values: list[float | None]) -> bytes:
    """The record of a day."""
    return encoded(DemandRecord(app=app, day=day, values=tuple(values)))


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Peak:
    """The highest forecast demand (cores) of some time to come, in `in_s` seconds from now.

    `error` = mean absolute error of such forecasts over the tested time (cores), `last_error` = that of the last value.
    """

    cores: float
    in_s: float
    error: float
    last_error: float

    def __str__(self) -> str:
        when = f"in {time_span(self.in_s)}" if self.in_s >= 60.0 else "now"
        return (
            f"the forecast of {self.cores:.2f} cores {when} "
            f"(mean error {self.error:.2f} cores, of the last value {self.last_error:.2f})"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Ahead:
    """`soon`: until a worker that is asked for now runs; `later`: within the delay of a scale-in.

    None where nothing is forecast, or forecasts that far ahead have not been clearly better than the last value.
    """

    soon: Peak | None = None
    later: Peak | None = None


NOTHING_AHEAD = Ahead()


@dataclass(frozen=True, slots=True, kw_only=True)
class Times:
    """`lead_s` = from the wish for a worker until it runs; `hold_s` = the delay of a scale-in."""

    lead_s: float
    hold_s: float

    @property
    def horizons(self) -> tuple[int, int]:
        """Steps ahead of the last one that has ended, which may be nearly a step ago; and one more, see `_steps`."""
        near = min(MAX_HORIZON, math.ceil(self.lead_s / STEP_S) + 2)
        return near, max(near, min(MAX_HORIZON, math.ceil(self.hold_s / STEP_S) + 2))


@dataclass(frozen=True, slots=True, kw_only=True)
class ForecastReport:
    """What operators are told of the forecast of an app.

    `known_s` = time of which the demand is known; `why` = why there is no forecast, empty if there is one; `peak` = the
    highest demand until a worker that is started now runs, also where it is not used.  `near`, `far` = how good
    forecasts have been, until a worker runs and within the delay of a scale-in.  `used`: in this `mode` the number of
    workers follows it.  `at` = when it was fitted.
    """

    known_s: float
    why: str = ""
    period_s: float | None = None
    at: float | None = None
    peak: float | None = None
    near: Accuracy | None = None
    far: Accuracy | None = None
    used: bool = False
    mode: Mode = Mode.OFF


@dataclass(frozen=True, slots=True, kw_only=True)
class _Fit:
    """What was fitted to the demand of an app at the time `at`; the next fit is due at `next_at`."""

    at: float
    next_at: float
    found: Fitted | NoForecast


@dataclass(slots=True)
class Forecasts:
    """The demand of the apps, and the models that were fitted to it."""

    settings: ForecastSettings = field(default_factory=ForecastSettings)
    series: dict[AppId, DemandSeries] = field(default_factory=dict)
    _fits: dict[AppId, _Fit] = field(default_factory=dict)
    _times: dict[AppId, Times] = field(default_factory=dict)
    _recorded: dict[AppId, int] = field(default_factory=dict)
    _gone: set[tuple[AppId, int]] = field(default_factory=set)
    _now: float = 0.0

    def __post_init__(self) -> None:
        self._recorded = {app: each.end for app, each in self.series.items()}

    @property
    def is_on(self) -> bool:
        """Whether anything is forecast."""
        return self.settings.mode is not Mode.OFF

    def observe(
        self, start_s: float, end_s: float, demands: Mapping[AppId, float | None], times: Mapping[AppId, Times]
    ) -> None:
        """Take a window: the demand of each app in cores, None = unknown; how far ahead each must be known."""
        if not self.is_on:
            return
        self._now, self._times = end_s, dict(times)
        for app, cores in demands.items():
            if app not in self.series and len(self.series) >= MAX_APPS:
                continue
            series = self.series.setdefault(app, DemandSeries())
            before = set(days_of({app: series})) if series.values else set()
            if series.observe(start_s, end_s, cores):
                self._gone |= before - set(days_of({app: series}))
        for app in [app for app in self.series if app not in demands and self._is_over(app)]:
            self.forget(app)
        self._fit_one()

    def forget(self, app: AppId) -> None:
        """Forget an app that is gone for good."""
        if (series := self.series.pop(app, None)) is not None:
            self._gone |= set(days_of({app: series}))
        self._fits.pop(app, None)
        self._recorded.pop(app, None)

    # --- fits -----------------------------------------------------------------------------------------------------

    def _fit_one(self) -> None:
        """Make the fit that is due, of the app that waits longest: one per window, since it takes up to 0.2 s."""
        due = [app for app in self._times if app in self.series and self._is_due(app)]
        if not due:
            return
        app = min(due, key=lambda each: (self._fits[each].next_at if each in self._fits else 0.0, each))
        series, horizons = self.series[app], self._times[app].horizons
        self.learn(app, fit_series(series.array(), series.first, periods=PERIODS, horizons=horizons, refit=DAY))

    def learn(self, app: AppId, found: Fitted | NoForecast) -> None:
        """Forecast an app with this fit from now on; after one that failed, with the one before."""
        failed, before = isinstance(found, NoForecast), self._fits.get(app)
        next_at = self._now + (RETRY_S if failed else REFIT_S)
        if failed and before is not None and isinstance(before.found, Fitted):
            self._fits[app] = replace(before, next_at=next_at)  # an older model is better than none
        else:
            self._fits[app] = _Fit(at=self._now, next_at=next_at, found=found)

    def _is_due(self, app: AppId) -> bool:
        needed = MIN_PERIODS * min(PERIODS) + max(self._times[app].horizons)
        if len(self.series[app].values) < needed:
            return False
        last = self._fits.get(app)
        return last is None or self._now >= last.next_at

    # --- forecasts ------------------------------------------------------------------------------------------------

    def ahead(self, app: AppId) -> Ahead:
        """What the number of workers may follow."""
        fit, times = self._fits.get(app), self._times.get(app)
        if self.settings.mode is not Mode.ACT or fit is None or times is None:
            return NOTHING_AHEAD
        values = self._values(app)
        if values is None or not isinstance(fit.found, Fitted):
            return NOTHING_AHEAD
        near, far = fit.found.tests
        return Ahead(soon=self._peak(app, values, times.lead_s, near), later=self._peak(app, values, times.hold_s, far))

    def report(self) -> dict[AppId, ForecastReport]:
        """What operators are told, of the apps that were seen last."""
        return {app: self._tell(app) for app in self._times if app in self.series} if self.is_on else {}

    def _tell(self, app: AppId) -> ForecastReport:
        series, fit, times = self.series[app], self._fits.get(app), self._times[app]
        values = series.array()
        known_s = float(np.count_nonzero(~np.isnan(values))) * STEP_S
        if fit is None or isinstance(fit.found, NoForecast):
            needed_s = (MIN_PERIODS * min(PERIODS) + max(times.horizons)) * STEP_S
            why = fit.found.reason if fit is not None and isinstance(fit.found, NoForecast) else "other apps come first"
            if len(values) * STEP_S < needed_s:
                why = f"{len(values) * STEP_S / 3600.0:.1f} of {needed_s / 3600.0:.1f} h of history"
            return ForecastReport(known_s=known_s, why=why, mode=self.settings.mode)
        near, far = fit.found.tests
        ahead = self._values(app)
        peak = None if ahead is None else float(ahead[: self._steps(app, times.lead_s)].max())
        used = self.settings.mode is Mode.ACT and peak is not None and (near.is_better or far.is_better)
        return ForecastReport(
            known_s=known_s,
            why="the last values are unknown" if peak is None else "",
            period_s=float(fit.found.model.period * STEP_S),
            at=fit.at,
            peak=peak,
            near=near,
            far=far,
            used=used,
            mode=self.settings.mode,
        )

    def _values(self, app: AppId) -> Floats | None:
        """The forecast of the steps from the one under way on; None if there is none."""
        fit, series = self._fits[app], self.series[app]
        late = int(self._now // STEP_S) - series.end
        if not isinstance(fit.found, Fitted) or self._now - fit.at > MAX_FIT_AGE_S or not 0 <= late < MAX_STALE:
            return None
        recent = np.array(series.values[-fit.found.model.period :], dtype=np.float64)
        steps = late + 1 + max(self._times[app].horizons)
        return predict(fit.found.model, recent, series.end - len(recent), steps)

    def _steps(self, app: AppId, seconds: float) -> int:
        """How many of the forecast steps begin within so much time and a step.

        A step is a mean: the one in which a peak rises shows only a part of it, and the next one all.
        """
        return max(1, int((self._now + seconds) // STEP_S) - self.series[app].end + 2)

    def _peak(self, app: AppId, values: Floats, within_s: float, tested: Accuracy) -> Peak | None:
        if not tested.is_better or tested.model is None or tested.last is None:
            return None
        some = values[: self._steps(app, within_s)]
        at = int(some.argmax())
        begins_s = (self.series[app].end + at) * STEP_S
        return Peak(
            cores=float(some[at]),
            in_s=max(0.0, begins_s - self._now),
            error=tested.model.mae,
            last_error=tested.last.mae,
        )

    # --- records --------------------------------------------------------------------------------------------------

    def records(self) -> list[tuple[bytes, bytes | None]]:
        """Key and value of the records to publish now; None: the day is forgotten."""
        if not self.is_on:
            return []
        found: list[tuple[bytes, bytes | None]] = [(key_of(app, day), None) for app, day in sorted(self._gone)]
        self._gone.clear()
        for app, series in self.series.items():
            since = self._recorded.get(app, series.first)
            if series.end - since < RECORD_EVERY:
                continue
            self._recorded[app] = series.end
            found += [(key_of(app, day), encode_demand(app, day, series.day(day))) for day in _days(series, since)]
        return found

    def _is_over(self, app: AppId) -> bool:
        """Whether nobody has reported an app for as long as anything is remembered of it."""
        series = self.series[app]
        return self._now // STEP_S - series.end >= len(series.values)


def _days(series: DemandSeries, since: int) -> Iterator[int]:
    """The days with steps from `since` on."""
    yield from range(max(series.first, since) // DAY, (series.end - 1) // DAY + 1)
