"""The configuration's [scaling], in the words of Flink's autoscaler."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Annotated, Any

from trimtab_controller.decider.values.plan_settings import DAY_S
from trimtab_protocol.messages.codec import Most, NotSent, Range, keys_of
from trimtab_protocol.messages.decode import BadMessage, Fault, Fields
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
    apps: Annotated[Mapping[AppId, Mapping[str, Any]], NotSent()] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.min_utilisation < self.target_utilisation <= self.max_utilisation:
            band = f"{self.min_utilisation:g} < {self.target_utilisation:g} <= {self.max_utilisation:g}"
            raise ValueError(f"min_utilisation < target_utilisation <= max_utilisation does not hold: {band}")
        if self.min_workers > self.max_workers:
            raise ValueError(f"min_workers {self.min_workers} is above max_workers {self.max_workers}")

    def of(self, app: AppId) -> "ScalingSettings":
        """The settings of an app: the general ones, with its own in place of them."""
        return replace(self, apps={}, **self.apps[app]) if app in self.apps else self

    def own(self, app: AppId) -> tuple[str, ...]:
        """The app's own settings, as text: `max_workers = 4`.  The command line of a hook is left out."""
        return tuple(
            key if key == "hook" else f'{key} = "{value}"' if isinstance(value, str) else f"{key} = {value:g}"
            for key, value in sorted(self.apps.get(app, {}).items())
        )


def read_scaling(fields: Fields) -> ScalingSettings:
    """The section of controller.toml; a key that is missing has its default.  Raises BadMessage."""
    general = _combined(ScalingSettings(), keys_of(ScalingSettings, fields), fields)
    apps: dict[AppId, Mapping[str, Any]] = {}
    if fields.has("apps"):
        for name, path, value in fields.members("apps", limit=MAX_APPS):
            own = Fields(value, path)
            found = keys_of(ScalingSettings, own)
            own.done()
            _combined(general, found, own)
            apps[AppId(name)] = found
    fields.done()
    return replace(general, apps=apps)


def _combined(general: ScalingSettings, found: Mapping[str, Any], fields: Fields) -> ScalingSettings:
    """The general settings with those that were found; raises BadMessage where they contradict each other."""
    try:
        return replace(general, **found)
    except ValueError as error:
        raise BadMessage(Fault.RANGE, fields.path, "settings that contradict each other", str(error)) from error
