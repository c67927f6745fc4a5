"""Moves for balance that wait for a peak to pass, because it passes before they would have paid.  Pure.

A plan for balance is held if the load distance of the app as it is placed is forecast to come back into the band
within the pay-back time of its moves, and mostly stays there for some time.  It is not held

- where such forecasts have not been clearly better than the last value,
- while a worker is asked for more than its capacity, or is forecast to be,
- longer than was said when the hold began, and one step: then the peak has not passed, and the moves are made.
"""

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from trimtab_controller.decider.decision import Planned, Skip
from trimtab_controller.decider.forecast.day_pattern import (
    HORIZONS,
    MAX_AHEAD,
    MIN_DAYS,
    DayPattern,
    PatternError,
    deviations_of,
    distance_of,
    sums_of,
)
from trimtab_controller.decider.forecast.history import STEP_S
from trimtab_controller.decider.forecast.pattern_records import encode_pattern, key_of_pattern, record_of
from trimtab_controller.decider.forecast.pay_back import Costs, pay_back_s
from trimtab_controller.decider.forecast.settings import LONGEST_HOLD_S, ForecastMode, ForecastSettings
from trimtab_controller.decider.observing.evaluate import Evaluation
from trimtab_controller.decider.observing.owned import Floats
from trimtab_controller.decider.observing.view import AppView, NotReady
from trimtab_controller.decider.reasons import SkipReason
from trimtab_controller.decider.settings import Settings
from trimtab_controller.plan import MoveReason, PlanReason
from trimtab_protocol.messages.names import AppId
from trimtab_protocol.wording import time_span

MAX_KEY_GROUPS = 100_000
"""Key groups whose loads are remembered: those of the apps that were seen first."""
MOSTLY = 0.5
"""The share of the time after the peak for which the app must be in its band, since the next peak may come soon: until
the moves would have paid back, and for at least as long as the peak still lasts."""
FULL_PCT = 100.0
"""A worker with so much of its capacity asked for is relieved at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Passing:
    """A peak that is forecast to pass in `in_s` seconds, while moves pay back after `pay_back_s`."""

    in_s: float
    pay_back_s: float
    error: PatternError

    def __str__(self) -> str:
        pays = "never pay back" if math.isinf(self.pay_back_s) else f"pay back after {time_span(self.pay_back_s)}"
        errors = f"mean error {self.error.forecast:.1f} pp, of the last value {self.error.last:.1f} pp"
        return f"the peak is forecast to pass in {time_span(self.in_s)} ({errors}), moves {pays}"


@dataclass(slots=True)
class MoveForecasts:
    """The patterns of the apps, and until when the moves of which app wait (epoch seconds)."""

    settings: ForecastSettings
    patterns: dict[AppId, DayPattern] = field(default_factory=dict)
    gone: set[tuple[AppId, int]] = field(default_factory=set)
    _held: dict[AppId, float] = field(default_factory=dict)

    @property
    def is_on(self) -> bool:
        """Whether anything is remembered."""
        return self.settings.mode is not ForecastMode.OFF and self.settings.hold_moves_s > 0.0

    def see(
        self, views: Mapping[AppId, AppView | NotReady], evaluations: Mapping[AppId, Evaluation], band: float
    ) -> None:
        """Take a window; `band` = the load distance within which nothing moves."""
        if not self.is_on:
            return
        for app, view in views.items():
            if not isinstance(view, AppView) or not len(view.owned):
                continue
            pattern = self.patterns.get(app)
            if pattern is None or pattern.sizes != view.sizes:
                self.patterns.pop(app, None)
                if sum(map(len, self.patterns.values())) + sum(view.sizes.values()) > MAX_KEY_GROUPS:
                    continue
                self.patterns[app] = pattern = DayPattern(sizes=dict(view.sizes))
            pattern.see(view, band)
            found = evaluations.get(app)
            if found is not None and found.load_distance is not None and found.load_distance <= band:
                self._held.pop(app, None)  # it has passed, and the next one may be waited for

    def forget(self, app: AppId) -> None:
        """Forget an app that is gone for good."""
        if (pattern := self.patterns.pop(app, None)) is not None:
            self.gone |= {(app, slot) for slot in pattern.recorded()}
        self._held.pop(app, None)

    def records(self) -> list[tuple[bytes, bytes | None]]:
        """Key and value of the records to publish now; None: the step is forgotten."""
        found: list[tuple[bytes, bytes | None]] = [(key_of_pattern(app, slot), None) for app, slot in sorted(self.gone)]
        self.gone.clear()
        for app, pattern in self.patterns.items():
            changed = sorted(pattern.changed)
            pattern.changed.clear()
            found += [(key_of_pattern(app, slot), encode_pattern(record_of(app, pattern, slot))) for slot in changed]
        return found

    def told(self) -> dict[AppId, str]:
        """How good the forecasts are, of each app."""
        return {app: _told(pattern) for app, pattern in self.patterns.items()} if self.is_on else {}

    def judged(
        self, now: float, view: AppView, planned: Planned, settings: Settings, costs: Callable[[], Costs]
    ) -> Planned | Skip:
        """The plan, or why it waits; in mode `advise` a note says so.  `costs` = of moves, asked where they matter."""
        if planned.plan.reason is not PlanReason.LOAD_DISTANCE or not self.is_on or _has_other_use(planned, settings):
            return planned
        found = self._passing(now, view, planned, settings.load_distance, costs)
        if found is None:
            return planned
        if self.settings.mode is not ForecastMode.ACT:
            note = f'{found}: with forecast.mode = "act" this would wait'
            return replace(planned, plan=replace(planned.plan, note=note))
        self._held.setdefault(view.app, now + found.in_s + STEP_S)
        detail = f"{view.app}: {planned.plan.detail}, held: {found}"
        return Skip(reason=SkipReason.PEAK_PASSES, detail=detail, app=view.app)

    def _passing(
        self, now: float, view: AppView, planned: Planned, band: float, costs: Callable[[], Costs]
    ) -> Passing | None:
        """The peak that is to be waited for, if there is one."""
        pattern = self.patterns.get(view.app)
        if pattern is None or pattern.sizes != view.sizes or now >= self._held.get(view.app, now + 1.0):
            return None
        errors = [pattern.error(steps) for steps in HORIZONS]
        if not any(each.is_better for each in errors if each is not None):
            return None
        first_s, loads = pattern.ahead(view, now, MAX_AHEAD)
        calm = np.array([distance_of(view, deviations_of(view, each)) for each in loads]) <= band
        if not calm.any():
            return None
        passed = int(calm.argmax())
        in_s, error = first_s + passed * STEP_S, pattern.error(passed + 1)
        if error is None or not error.is_better or in_s > self.settings.hold_moves_s:
            return None
        if _highest(view, (view.owned.load, *loads[:passed])) >= FULL_PCT:
            return None
        after_s = pay_back_s(view, planned.plan, costs())
        until_s = min(max(after_s, 2.0 * in_s), LONGEST_HOLD_S)
        within = calm[passed : max(passed, round((until_s - first_s) / STEP_S)) + 1]
        if in_s >= after_s or within.mean() < MOSTLY:
            return None
        return Passing(in_s=in_s, pay_back_s=after_s, error=error)


def _has_other_use(planned: Planned, settings: Settings) -> bool:
    """Whether a plan also relieves a host that is full, or saves messages between workers."""
    plan = planned.plan
    saves = plan.collocation is not None and plan.collocation.saved_pp >= settings.min_gain
    return saves or (plan.why is not None and MoveReason.HOST_FULL in plan.why.reasons)


def _highest(view: AppView, loads: Iterable[Floats]) -> float:
    """The highest load of a worker (percent of its capacity)."""
    found = (sums_of(view, each) for each in loads)
    return max(float((sums / capacity).max()) for sums, capacity, _ in found)


def _told(pattern: DayPattern) -> str:
    errors = [found for each in HORIZONS if (found := pattern.error(each)) is not None]
    if not any(each.is_known for each in errors):
        days, known = max((each.days for each in errors), default=0), len(pattern.recorded()) * STEP_S / 3600.0
        return (
            f"none: {known:.0f} h of the day are known, and load distances above the band were forecast on {days} days "
            f"of {MIN_DAYS}"
        )
    shown = next((each for each in errors if each.is_better), next(each for each in errors if each.is_known))
    better = "" if shown.is_better else ", so it is not used"
    return (
        f"workers' loads {time_span(shown.steps * STEP_S)} ahead: mean error {shown.forecast:.2f} pp, "
        f"of the last value {shown.last:.2f} pp{better}"
    )
