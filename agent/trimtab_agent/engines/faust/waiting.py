"""Waits that leave the event loop free: for a condition, and for what blocks (files, databases, tokens)."""

import asyncio
import functools
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")

POLL_S = 0.001
"""How often a condition is looked at while key groups may stand still."""

Check = Callable[[], object]
"""Asked at each look: true ends the wait.  It may raise if the wait has become pointless."""

_threads = ThreadPoolExecutor(max_workers=4, thread_name_prefix="trimtab")
"""Own ones: the app may have filled those of its event loop."""


async def until(
    done: Callable[[], bool], deadline: float, check: Check = lambda: False, *, poll_s: float = POLL_S
) -> bool:
    """Wait until `done()`; returns False at the deadline (monotonic seconds), or when `check()` ends the wait."""
    while not done():
        if check() or time.monotonic() > deadline:
            return False
        await asyncio.sleep(poll_s)
    return True


async def in_own_thread(function: Callable[P, R], *arguments: P.args, **options: P.kwargs) -> R:
    """The result of a function that blocks."""
    call = functools.partial(function, *arguments, **options)
    return await asyncio.get_running_loop().run_in_executor(_threads, call)
