"""Where sinks note how old a record is when they get it: a file per worker, named by JOBS_LATENCIES."""

import os
import time
from collections.abc import Iterable
from pathlib import Path

NAME = "latencies"


class LatencyLog:
    """Writes a line `epoch milliseconds` per record."""

    def __init__(self) -> None:
        path = os.environ.get("JOBS_LATENCIES")
        # Open as long as the worker lives.
        self._file = Path(path).open("a", buffering=1 << 14) if path else None  # noqa: SIM115

    def note(self, sent_s: float) -> None:
        """Note a record of the input that was sent at this time (epoch seconds)."""
        now = time.time()
        if self._file is not None:
            self._file.write(f"{now:.3f} {1000.0 * (now - sent_s):.1f}\n")


def read_latencies(paths: Iterable[Path], start: float, end: float) -> list[float]:
    """The milliseconds noted in a time (epoch seconds), sorted."""
    found = []
    for path in paths:
        lines = path.read_text().splitlines() if path.exists() else []
        rows = (line.split() for line in lines)
        found += [float(row[1]) for row in rows if len(row) == 2 and start <= float(row[0]) < end]
    return sorted(found)
