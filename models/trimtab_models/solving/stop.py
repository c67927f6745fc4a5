"""Stop rules, which a solver checks inside every loop.  Only they read a clock."""

from collections.abc import Callable
from typing import Protocol


class StopRule(Protocol):
    """A stop rule."""

    def __call__(self) -> bool:
        """Whether the search must return what it has; once True, always True."""
        ...


class Never:
    """Never stops: the search ends by its own limits, so the same seed gives the same plan on any machine."""

    def __call__(self) -> bool:
        """Always False."""
        return False


class Deadline:
    """Stops when `clock` (seconds, such as time.monotonic) has reached `at_s`."""

    def __init__(self, clock: Callable[[], float], at_s: float, *, wall_per_s: float = 1.0) -> None:
        """`wall_per_s` = wall-clock seconds that may pass per second of `clock`, if that is not a wall clock."""
        self._clock = clock
        self._at_s = at_s
        self._wall_per_s = wall_per_s

    def __call__(self) -> bool:
        """Whether the deadline has passed."""
        return self._clock() >= self._at_s

    def part(self, share: float) -> "Deadline":
        """A deadline after `share` of the time that is left."""
        return Deadline(self._clock, self._clock() + share * self.left_s(), wall_per_s=self._wall_per_s)

    def left_s(self) -> float:
        """Seconds until the deadline, at least 0."""
        return max(0.0, self._at_s - self._clock())

    def left_wall_s(self) -> float:
        """The same in wall-clock seconds, for external solvers that take a time limit instead of a stop rule."""
        return self._wall_per_s * self.left_s()


def part_of(stop: StopRule, share: float) -> StopRule:
    """`stop` after a share of the time that is left; without a deadline `stop` itself."""
    return stop.part(share) if isinstance(stop, Deadline) else stop
