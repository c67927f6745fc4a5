"""Runs the stream as a child process: restarts it when it ends, and tells it when the controller leads."""

import logging
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from trimtab_controller.stream.configuration import LEAD, STAND_BY
from trimtab_process.backoff import Backoff

log = logging.getLogger(__name__)

RESTARTS = Backoff((1.0, 2.0, 5.0, 15.0, 60.0))
SETTLED_S = 60.0
"""How long a stream must have run to be restarted without delay."""
STOP_LIMIT_S = 15.0
"""How long the stream's process may take to stop before it is killed."""


def stream_command(configuration: Path, *, acting: bool) -> list[str]:
    """The command that starts the stream; the process ends by itself when the controller is gone.

    A dry run takes no part in the election, so nobody tells its stream when to publish.
    """
    program = [sys.executable, "-m", "trimtab_controller.stream", "--config", str(configuration), "--with-parent"]
    return [*program, "--told"] if acting else program


class StreamProcess:
    """`tick` keeps it running; `restarts` counts the starts after the first.

    It publishes between `lead` and `stand_by`.  With `warm`, it runs on in between, else it ends.
    """

    def __init__(self, command: list[str], clock: Callable[[], float] = time.monotonic, *, warm: bool = False) -> None:
        self._command = command
        self._warm = warm
        self._leads = False
        self._clock = clock
        self._process: subprocess.Popen[bytes] | None = None
        self._started_at = 0.0
        self._start_at = clock()
        self._failures = 0
        self._code: int | None = None
        self.restarts = -1

    @property
    def trouble(self) -> str | None:
        """What is wrong with the process; None while it runs, unless it has ended in the minute before."""
        if self._code is None or (self._process is not None and self._clock() - self._started_at >= SETTLED_S):
            return None
        now = "runs again" if self._process is not None else "will be started again"
        times = "once" if self._failures <= 1 else f"{self._failures} times in a row"
        return f"Spark's process has ended {times}, at last with exit code {self._code}, and {now}"

    def tick(self) -> None:
        """Start the process if it has ended and the delay has passed."""
        now = self._clock()
        if self._process is not None and (code := self._process.poll()) is not None:
            if self._process.stdin is not None:
                self._process.stdin.close()
            self._process, self._code = None, code
            self._failures = 0 if now - self._started_at >= SETTLED_S else self._failures + 1
            delay_s = RESTARTS.after(self._failures) if self._failures else 0.0
            self._start_at = now + delay_s
            log.warning("the stream ended with exit code %d, restarting it in %g s", code, delay_s)
        if self._process is None and now >= self._start_at:
            self._process = subprocess.Popen(self._command, stdin=subprocess.PIPE, bufsize=0)
            self._started_at = now
            self.restarts += 1
            log.info("started the stream as process %d", self._process.pid)
            if self._leads:
                self._tell(LEAD)

    def lead(self) -> None:
        """Let the stream publish, instead of any other of the cluster."""
        self._leads = True
        self._tell(LEAD)

    def stand_by(self) -> None:
        """Let the stream publish no more."""
        self._leads = False
        if self._warm:
            self._tell(STAND_BY)
        else:
            self.close()

    def _tell(self, line: bytes) -> None:
        if self._process is None or self._process.stdin is None:
            return
        try:
            self._process.stdin.write(line + b"\n")
        except OSError:  # it has ended; `tick` sees that and starts another one
            log.debug("cannot write to the stream's process: %s", line.decode())

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
        if self._process.stdin is not None:
            self._process.stdin.close()
        self._process = self._code = None
        self.restarts = -1
