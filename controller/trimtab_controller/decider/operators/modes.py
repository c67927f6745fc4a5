"""What becomes of the plans of each app: the configuration's [plans]."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from types import MappingProxyType
from typing import Any

from trimtab_controller.decider.operators.plan_times import PlanTimes, read_times
from trimtab_protocol.messages.decode import BadMessage, Fault, Fields, check_text
from trimtab_protocol.messages.names import AppId

DAY_S = 86_400.0
MAX_APPS = 10_000
"""Apps with a mode of their own."""


class PlanMode(StrEnum):
    """What the controller does with its own plans for an app."""

    DRY_RUN = "dry-run"  # it says what it would do
    APPROVE = "approve"  # a plan waits until an operator approves it
    ACT = "act"  # it carries them out


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanSettings:
    """The mode of every app, and of those that have their own.  Times in seconds.

    `approval_s`: how long a plan waits for approval; after a rejection nothing else is proposed for so long.
    `keep_moved_s`: how long what an operator moved stays where it is.  `times`: when plans for balance may begin;
    `app_times` = those of apps that have their own.
    """

    mode: PlanMode = PlanMode.ACT
    approval_s: float = 1800.0
    keep_moved_s: float = 3600.0
    apps: Mapping[AppId, PlanMode] = field(default_factory=dict)
    times: PlanTimes = PlanTimes()  # noqa: RUF009 - frozen
    app_times: Mapping[AppId, PlanTimes] = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "apps", MappingProxyType(dict(self.apps)))
        object.__setattr__(self, "app_times", MappingProxyType(dict(self.app_times)))

    def of(self, app: AppId) -> PlanMode:
        """The mode of an app."""
        return self.apps.get(app, self.mode)

    def times_of(self, app: AppId) -> PlanTimes:
        """When plans for balance of an app may begin."""
        return self.app_times.get(app, self.times)


def read_plans(fields: Fields) -> PlanSettings:
    """The section of controller.toml; a key that is missing has its default.  Raises BadMessage."""
    found: dict[str, Any] = {}
    if fields.has("mode"):
        found["mode"] = fields.choice("mode", PlanMode)
    if fields.has("approval_s"):
        found["approval_s"] = fields.number("approval_s", low=10.0, high=7 * DAY_S)
    if fields.has("keep_moved_s"):
        found["keep_moved_s"] = fields.number("keep_moved_s", low=0.0, high=30 * DAY_S)
    found["times"] = times = read_times(PlanTimes(), fields)
    modes: dict[AppId, PlanMode] = {}
    own_times: dict[AppId, PlanTimes] = {}
    if fields.has("apps"):
        for app, at, value in fields.members("apps", limit=MAX_APPS):
            if not isinstance(value, dict):
                modes[AppId(app)] = _mode(at, value)
                continue
            own = Fields(value, at)
            if own.has("mode"):
                modes[AppId(app)] = own.choice("mode", PlanMode)
            own_times[AppId(app)] = read_times(times, own)
            own.done()
    found |= {"apps": modes, "app_times": own_times}
    fields.done()
    return replace(PlanSettings(), **found)


def _mode(at: str, value: object) -> PlanMode:
    text = check_text(value, at, 100)
    try:
        return PlanMode(text)
    except ValueError:
        raise BadMessage(Fault.RANGE, at, text, "one of " + ", ".join(PlanMode)) from None
