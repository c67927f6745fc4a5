"""How tests wait: for what happens, within a limit that a slow and busy machine keeps."""

import time
from collections.abc import Callable
from typing import TypeVar

import pytest

T = TypeVar("T")

LIMIT_S = 240.0
"""Spark or a worker may start meanwhile."""


def wait_for(
    holds: Callable[[], T], what: str = "", *, every_s: float = 0.1, log: Callable[[], object] = lambda: ""
) -> T:
    """The first true value of `holds`; fails with `what` did not come, and the log."""
    deadline = time.monotonic() + LIMIT_S
    while not (found := holds()):
        if time.monotonic() > deadline:
            pytest.fail(f"not within {LIMIT_S:g} s: {what}\n{log()}")
        time.sleep(every_s)
    return found
