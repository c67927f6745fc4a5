"""Stopping rules: tiny objects that a solver asks inside every loop. Only they see a clock."""

from collections.abc import Callable
from typing import Protocol


class Stop(Protocol):
    """A stopping rule."""

    def __call__(self) -> bool:
        """True when the search must return what it has; once True it stays so."""
        ...


class Never:
    """No rule: the search ends by its own limits; the same seed gives the same plan on any machine."""

    def __call__(self) -> bool:
        """Never stops."""
        return False


class Deadline:
    """Stops when `clock` (seconds, such as time.monotonic) has reached `at_s`."""

    def __init__(self, clock: Callable[[], float], at_s: float, *, wall_per_s: float = 1.0) -> None:
        """`wall_per_s`: how much time may pass on the wall per second of `clock`, if that is no clock on the wall."""
        self._clock = clock
        self._at_s = at_s
        self._wall_per_s = wall_per_s

    def __call__(self) -> bool:
        """Whether the time has come."""
        return self._clock() >= self._at_s

    def left_s(self) -> float:
        """Seconds until then, at least 0."""
        return max(0.0, self._at_s - self._clock())

    def left_wall_s(self) -> float:
        """The same on the wall: for a solver of others, which takes a limit instead of asking."""
        return self._wall_per_s * self.left_s()
