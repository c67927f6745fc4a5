"""No search for cycles while a snapshot is made or read: a fleet's has millions of objects, and no cycle."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def collector_paused() -> Iterator[None]:
    """Without Python's cycle collector, which would go through all that was made so far again and again."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
