"""Runs the stream as a child process: restarts it when it ends, and ends it with the controller."""

import logging
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from trimtab_process.backoff import Backoff

log = logging.getLogger(__name__)

RESTARTS = Backoff((1.0, 2.0, 5.0, 15.0, 60.0))
SETTLED_S = 60.0
"""How long a stream must have run to be restarted without delay."""
STOP_LIMIT_S = 15.0
"""How long the stream's process may take to stop before it is killed."""


def stream_command(configuration: Path) -> list[str]:
    """The command that starts the stream; the process ends by itself when the controller is gone."""
    return [sys.executable, "-m", "trimtab_controller.stream", "--config", str(configuration), "--with-parent"]


class StreamProcess:
    """`tick` keeps it running; `restarts` counts the starts after the first."""

    def __init__(self, command: list[str], clock: Callable[[], float] = time.monotonic) -> None:
        self._command = command
        self._clock = clock
        self._process: subprocess.Popen[bytes] | None = None
        self._started_at = 0.0
        self._start_at = clock()
        self._failures = 0
        self.restarts = -1

    def tick(self) -> None:
        """Start the process if it has ended and the delay has passed."""
        now = self._clock()
        if self._process is not None and (code := self._process.poll()) is not None:
            self._process = None
            self._failures = 0 if now - self._started_at >= SETTLED_S else self._failures + 1
            delay_s = RESTARTS.after(self._failures) if self._failures else 0.0
            self._start_at = now + delay_s
            log.warning("the stream ended with exit code %d, restarting it in %g s", code, delay_s)
        if self._process is None and now >= self._start_at:
            self._process = subprocess.Popen(self._command, stdin=subprocess.DEVNULL)
            self._started_at = now
            self.restarts += 1
            log.info("started the stream as process %d", self._process.pid)

    def close(self) -> None:
        """End the process."""
        if self._process is None:
            return
        self._process.terminate()
        try:
            self._process.wait(STOP_LIMIT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process = None
