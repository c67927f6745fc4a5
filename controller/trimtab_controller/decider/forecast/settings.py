"""The configuration's [forecast]."""

from dataclasses import dataclass
from enum import StrEnum

from trimtab_protocol.messages.decode import Fields


class ForecastMode(StrEnum):
    """What the controller does about the demand to come."""

    OFF = "off"  # nothing: it remembers no demand, and forecasts none
    ADVISE = "advise"  # it says what it forecasts, and how good its forecasts have been
    ACT = "act"  # the number of workers also follows forecasts that have been better than the last value


@dataclass(frozen=True, slots=True, kw_only=True)
class ForecastSettings:
    """Default is `off`: the number of workers follows the demand that is there."""

    mode: ForecastMode = ForecastMode.OFF


def read_forecast(fields: Fields) -> ForecastSettings:
    """The section of controller.toml; a key that is missing has its default.  Raises BadMessage."""
    default = ForecastSettings()
    settings = ForecastSettings(mode=fields.choice("mode", ForecastMode) if fields.has("mode") else default.mode)
    fields.done()
    return settings
