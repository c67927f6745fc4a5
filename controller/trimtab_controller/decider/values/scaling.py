"""The configuration's [scaling], in the words of Flink's autoscaler."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Annotated, Any

from trimtab_controller.decider.values.plan_settings import DAY_S
from trimtab_protocol.messages.codec import Most, Range, WrittenAs, given
from trimtab_protocol.messages.decode import BadMessage, Fault
from trimtab_protocol.messages.intents import MAX_WORKERS
from trimtab_protocol.messages.names import AppId

MAX_HOOK_WORDS = 100
"""Words of the command line `[scaling] hook`."""
MAX_APPS = 1_000
"""Apps with settings of their own in `[scaling.apps]`."""
Count = Annotated[int, Range(1, MAX_WORKERS)]


class Mode(StrEnum):
    """What the controller does about the number of workers."""

    OFF = "off"  # nothing, and it says nothing
    ADVISE = "advise"  # it says how many are wanted, in status and metrics
    ACT = "act"  # it also starts workers of the pool, and drains and stops workers


def _read_own(found: Any) -> dict[str, Any]:
    """The settings of one app, by key."""
    if isinstance(found, dict) and "apps" in found:
        raise BadMessage(Fault.UNKNOWN, "apps", found["apps"], "no such field")
    return given(ScalingSettings, found)


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalingSettings:
    """When the number of workers of an app changes.  Times in seconds.

    Utilisation = demand / capacity of the workers that stay.  Outside the band from `min_utilisation` to
    `max_utilisation` the size changes so that the app is at most at `target_utilisation`, once it was outside for
    `scale_up_delay_s` or `scale_down_delay_s` without a break.  `restart_s`: how long a started worker takes until it
    runs, until one was seen to start (`Starts`); it is waited for at least so long.  `hook` = command line of a program
    that adds workers from outside; empty: there is none.

    `apps` = the settings, by key, in which single apps differ.
    """

    mode: Mode = Mode.ADVISE
    target_utilisation: Annotated[float, Range(0.05, 1.0)] = 0.7
    min_utilisation: Annotated[float, Range(0.0, 1.0)] = 0.4
    max_utilisation: Annotated[float, Range(0.05, 1.0)] = 0.85
    scale_up_delay_s: Annotated[float, Range(0.0, DAY_S)] = 30.0
    scale_down_delay_s: Annotated[float, Range(0.0, 7 * DAY_S)] = 3600.0
    restart_s: Annotated[float, Range(1.0, DAY_S)] = 120.0
    min_workers: Count = 1
    max_workers: Count = MAX_WORKERS
    max_changes_per_hour: Annotated[int, Range(1, 60)] = 6
    hook: Annotated[tuple[str, ...], Most(MAX_HOOK_WORDS)] = ()
    apps: Annotated[Mapping[AppId, Annotated[Mapping[str, Any], WrittenAs(Any, dict, _read_own)]], Most(MAX_APPS)] = (
        field(default_factory=dict)
    )

    def __post_init__(self) -> None:
        if not self.min_utilisation < self.target_utilisation <= self.max_utilisation:
            band = f"{self.min_utilisation:g} < {self.target_utilisation:g} <= {self.max_utilisation:g}"
            raise self._contradiction(f"min_utilisation < target_utilisation <= max_utilisation does not hold: {band}")
        if self.min_workers > self.max_workers:
            raise self._contradiction(f"min_workers {self.min_workers} is above max_workers {self.max_workers}")
        for app in self.apps:
            try:
                self.of(app)
            except BadMessage as bad:
                raise BadMessage(bad.fault, f"apps.{app}", bad.found, bad.expected) from None

    def _contradiction(self, expected: str) -> BadMessage:
        return BadMessage(Fault.RANGE, "", "settings that contradict each other", expected)

    def of(self, app: AppId) -> "ScalingSettings":
        """The settings of an app: the general ones, with its own in place of them."""
        return replace(self, apps={}, **self.apps[app]) if app in self.apps else self

    def own(self, app: AppId) -> tuple[str, ...]:
        """The app's own settings, as text: `max_workers = 4`.  The command line of a hook is left out."""
        return tuple(
            key if key == "hook" else f'{key} = "{value}"' if isinstance(value, str) else f"{key} = {value:g}"
            for key, value in sorted(self.apps.get(app, {}).items())
        )
