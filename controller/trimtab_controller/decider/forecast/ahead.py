"""What is forecast of an app's demand, as far as forecasts of it have been better than the last value."""

from dataclasses import dataclass


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
        when = f"in {self.in_s / 60.0:.0f} min" if self.in_s >= 60.0 else "now"
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
