"""What the oracle's app and its judge share."""

import time
from pathlib import Path

WINDOW_S = 10.0
BUCKETS_PER_S = 200
"""Resolution of the times at which events were processed: 5 ms."""


def note_fault(folder: Path) -> None:
    """A worker is about to die or to be stopped."""
    with (folder / "faults").open("a") as log:
        log.write(f"{time.time()}\n")


def faults(folder: Path) -> list[float]:
    """When workers died or were stopped, epoch seconds."""
    log = folder / "faults"
    return [float(line) for line in log.read_text().split()] if log.exists() else []
