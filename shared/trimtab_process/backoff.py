"""Waiting times between attempts."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Backoff:
    """Waits `steps_s[i]` seconds after failure i + 1, and the last step after all further failures."""

    steps_s: tuple[float, ...]

    def __post_init__(self) -> None:
        if not self.steps_s or not all(step_s >= 0 for step_s in self.steps_s):
            raise ValueError(f"steps_s: found {self.steps_s}, expected at least one number of seconds, none negative")

    def after(self, failures: int) -> float:
        """Seconds to wait after `failures` failures in a row (at least 1)."""
        if failures < 1:
            raise ValueError(f"failures: found {failures}, expected 1 or more")
        return self.steps_s[min(failures, len(self.steps_s)) - 1]

    @property
    def longest_s(self) -> float:
        """The longest wait, in seconds."""
        return max(self.steps_s)


BROKER = Backoff((0.5, 1.0, 2.0, 5.0))
"""Waits between attempts to reach a broker, or to repeat a request that failed for a transient reason."""
