"""The configuration's [forecast]."""

from dataclasses import dataclass
from enum import StrEnum

from trimtab_protocol.messages.decode import Fields

LONGEST_HOLD_S = 7200.0
"""Loads of key groups are forecast for two hours."""


class ForecastMode(StrEnum):
    """What the controller does about the demand to come."""

    OFF = "off"  # nothing: it remembers no demand, and forecasts none
    ADVISE = "advise"  # it says what it forecasts, and how good its forecasts have been
    ACT = "act"  # the number of workers, and moves for balance, also follow forecasts better than the last value


@dataclass(frozen=True, slots=True, kw_only=True)
class ForecastSettings:
    """Preset is `off`, since forecasts need a package that the controller does without otherwise.

    A plan for balance waits for a peak that passes before its moves pay back, `hold_moves_s` at most; 0: for none.
    """

    mode: ForecastMode = ForecastMode.OFF
    hold_moves_s: float = 3600.0


def read_forecast(fields: Fields) -> ForecastSettings:
    """The section of controller.toml; what is missing is as preset.  Raises BadMessage."""
    preset = ForecastSettings()
    settings = ForecastSettings(
        mode=fields.choice("mode", ForecastMode) if fields.has("mode") else preset.mode,
        hold_moves_s=fields.number("hold_moves_s", high=LONGEST_HOLD_S)
        if fields.has("hold_moves_s")
        else preset.hold_moves_s,
    )
    fields.done()
    return settings
