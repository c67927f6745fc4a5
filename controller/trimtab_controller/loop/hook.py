"""Runs the program of `[scaling] hook`, which adds workers from outside: one at a time, with a time limit.

An app may have one of its own.

It gets what is wanted in environment variables: TRIMTAB_CLUSTER, TRIMTAB_APP, TRIMTAB_WORKERS (how many there are),
TRIMTAB_DESIRED (how many there should be), TRIMTAB_SHORT (how many of these it is to add) and TRIMTAB_REASON.
"""

import logging
import os
import signal
import subprocess
import tempfile
import time
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import IO

from trimtab_controller.decider.values.scaling import ScalingSettings
from trimtab_protocol.messages.names import AppId

log = logging.getLogger(__name__)

LIMIT_S = 60.0
"""A program that takes longer is ended: one whose workers take longer to come starts them, and ends."""
MAX_OUTPUT_BYTES = 10_000_000
"""Output of a program; one that writes more is ended."""
SHOWN_BYTES = 200
"""How much of the end of a failed program's output is shown."""


@dataclass(frozen=True, slots=True)
class HookResult:
    """How the program that was run for an app has ended; `failure` None: with exit code 0."""

    app: AppId
    failure: str | None


@dataclass(slots=True)
class _Running:
    app: AppId
    process: subprocess.Popen[bytes]
    output: IO[bytes]
    until: float


class Hook:
    """Runs the command line of the app's settings; calls while it runs wait for their turn.  `poll` never blocks."""

    def __init__(
        self, settings: ScalingSettings, clock: Callable[[], float] = time.monotonic, *, limit_s: float = LIMIT_S
    ) -> None:
        """`limit_s`: after so long a run is ended."""
        self._settings = settings
        self._limit_s = limit_s
        self._clock = clock
        self._waiting: deque[tuple[AppId, Mapping[str, str]]] = deque()
        self._running: _Running | None = None

    def call(self, app: AppId, values: Mapping[str, str]) -> None:
        """Run it for an app, with these environment variables."""
        self._waiting.append((app, values))

    def poll(self) -> HookResult | None:
        """Begin the next run, or tell how one has ended."""
        if self._running is None:
            return self._begin(*self._waiting.popleft()) if self._waiting else None
        running = self._running
        # Not reaped yet: until then nobody else has its process group.
        ended = os.waitid(os.P_PID, running.process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
        too_long = os.fstat(running.output.fileno()).st_size > MAX_OUTPUT_BYTES
        if not ended and not too_long and self._clock() < running.until:
            return None
        self._running = None
        self._kill(running)  # also what a finished program has left behind
        code = running.process.returncode if ended else None
        if code == 0:
            running.output.close()
            log.info("the hook for %s has ended", running.app)
            return HookResult(running.app, None)
        how = f"not done after {self._limit_s:g} s"
        if ended:
            how = f"exit code {code}"
        elif too_long:
            how = f"more than {MAX_OUTPUT_BYTES} bytes of output"
        return self._failed(running.app, how + _end_of(running.output))

    def close(self) -> None:
        """End the run that is under way."""
        if self._running is not None:
            self._kill(self._running)
            self._running = None

    def _begin(self, app: AppId, values: Mapping[str, str]) -> HookResult | None:
        settings = self._settings.of(app)
        output = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the run
        try:
            process = subprocess.Popen(
                settings.hook,
                env={**os.environ, **{name: value.replace("\0", " ") for name, value in values.items()}},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        except (OSError, ValueError) as error:  # ValueError: characters that the locale does not have
            output.close()
            return self._failed(app, f"it cannot be started: {getattr(error, 'strerror', None) or error}")
        log.info("running the hook for %s: %s", app, values.get("TRIMTAB_REASON", ""))
        self._running = _Running(app, process, output, self._clock() + self._limit_s)
        return None

    @staticmethod
    def _failed(app: AppId, why: str) -> HookResult:
        log.warning("the hook for %s failed: %s", app, why)
        return HookResult(app, why)

    @staticmethod
    def _kill(running: _Running) -> None:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(running.process.pid, signal.SIGKILL)
        running.process.wait()


def _end_of(output: IO[bytes]) -> str:
    with output:
        size = output.seek(0, os.SEEK_END)
        output.seek(max(0, size - SHOWN_BYTES))
        text = " ".join(output.read().decode(errors="replace").split())
    return f": {text}" if text else ""
