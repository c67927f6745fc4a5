"""Pauses Python's cycle collector while a snapshot is built or read: a fleet's has millions of objects and no cycle."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def collector_paused() -> Iterator[None]:
    """Run without Python's cycle collector, which would scan all objects built so far again and again."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
