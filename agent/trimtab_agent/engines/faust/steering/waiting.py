"""Waits for a condition on the app's event loop."""

import asyncio
import time
from collections.abc import Callable
from typing import Any

POLL_S = 0.02


async def wait_until(app: Any, done: Callable[[], bool], limit_s: float) -> bool:
    """Wait until `done()`; returns False after `limit_s`, or when the app is about to stop."""
    deadline = time.monotonic() + limit_s
    while not done():
        if time.monotonic() > deadline or app.should_stop:
            return False
        await asyncio.sleep(POLL_S)
    return True
