"""What a process that fits forecasts is asked, and what it answers."""

from dataclasses import dataclass

from trimtab_models.forecast import Fitted, NotFitted
from trimtab_models.forecast.seasonal import Floats
from trimtab_protocol.messages.names import AppId


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ForecastQuestion:
    """Fit the demand of an app: `values` in cores by step, the first of number `first`, NaN = unknown.

    `periods`, `horizons` and `refit` in steps, as in `trimtab_models.forecast.fit`.
    """

    app: AppId
    values: Floats
    first: int
    periods: tuple[int, ...]
    horizons: tuple[int, ...]
    refit: int


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ForecastAnswer:
    """What was found for an app."""

    app: AppId
    found: Fitted | NotFitted
