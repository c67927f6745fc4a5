"""Where sinks note how old a record is when they get it: a file per worker, named by JOBS_LATENCIES."""

import os
import time
from collections.abc import Iterable
from pathlib import Path

NAME = "latencies"
FLUSH_S = 0.5
"""A measurement reads the files while the job goes on."""


class LatencyLog:
    """Writes a line `epoch milliseconds` per record."""

    def __init__(self) -> None:
        path = os.environ.get("JOBS_LATENCIES")
        self._flushed_at = 0.0
        # Open as long as the worker lives.
        self._file = Path(path).open("a", buffering=1 << 14) if path else None  # noqa: SIM115

    def note(self, taken_s: float) -> None:
        """Note a record of the input that the source took at this time (epoch seconds)."""
        now = time.time()
        if self._file is not None:
            self._file.write(f"{now:.3f} {1000.0 * (now - taken_s):.1f}\n")
            if now - self._flushed_at > FLUSH_S:
                self._flushed_at = now
                self._file.flush()


def read_latencies(paths: Iterable[Path], start: float, end: float) -> list[float]:
    """The milliseconds noted in a time (epoch seconds), sorted."""
    found = []
    for path in paths:
        text = path.read_text() if path.exists() else ""
        rows = (line.split() for line in text.rpartition("\n")[0].splitlines())  # the rest is being written
        found += [float(row[1]) for row in rows if start <= float(row[0]) < end]
    return sorted(found)
