"""Waits for a condition, as long as that is of use."""

import asyncio
import time
from collections.abc import Callable

POLL_S = 0.001

Check = Callable[[], None]
"""Raises if the wait has become pointless."""


async def until(done: Callable[[], bool], deadline: float, check: Check) -> bool:
    """Wait until `done()`, polled every millisecond; returns False at the deadline (monotonic seconds)."""
    while not done():
        check()
        if time.monotonic() > deadline:
            return False
        await asyncio.sleep(POLL_S)
    return True
