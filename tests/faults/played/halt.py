"""SIGTERM or SIGINT ends a matrix early: what has been played is judged first; a second signal ends it at once."""

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class Interrupted(Exception):
    """A signal arrived amid a cell."""


class Halt:
    """Whether a signal has asked for the end.

    Amid a cell the first signal raises Interrupted there.  From the first cell of a stage until its verdict it is only
    remembered otherwise, so that what is recorded gets judged.  At any other time, it ends the process.
    """

    def __init__(self) -> None:
        self.asked = False
        self._played = False
        self._amid = False

    def listen(self) -> None:
        """Handle both signals from now on."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._handle)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self.asked or not self._played:
            sys.exit(128 + number)
        self.asked = True
        if self._amid:
            raise Interrupted(signal.Signals(number).name)

    @contextmanager
    def cell(self) -> Iterator[None]:
        """A cell is being played."""
        self._played = self._amid = True
        try:
            yield
        finally:
            self._amid = False

    def judged(self) -> None:
        """What was played on the present stage has its verdict."""
        self._played = False
