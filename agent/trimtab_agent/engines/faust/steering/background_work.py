"""Counts and runs what a worker does beside its job: hand-overs, standbys, rebalances."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

log = logging.getLogger(__name__)

Work = Callable[[], Coroutine[Any, Any, None]]


class BackgroundWork:
    """Counts the work beside the job, so that the CPU of an interval with such work is not taken for idling."""

    def __init__(self) -> None:
        self._begun = 0
        self._running = 0
        self._tasks: set[asyncio.Task[None]] = set()
        self._loop: asyncio.AbstractEventLoop | None = None

    @property
    def begun(self) -> int | None:
        """How many pieces of such work have begun since the start; None while any goes on."""
        return None if self._running else self._begun

    def count(self) -> None:
        """Something was done that takes no time here but costs CPU."""
        self._begun += 1

    async def during(self, work: Awaitable[None]) -> None:
        """Await work that is counted."""
        self._begun += 1
        self._running += 1
        try:
            await work
        finally:
            self._running -= 1

    def start(self, work: Coroutine[Any, Any, None]) -> None:
        """Run it on the app's event loop; a fault is logged and nothing else ends by it."""
        task = asyncio.ensure_future(self.during(work))
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def attach(self, loop: asyncio.AbstractEventLoop) -> None:
        """From now on other threads may start work on this loop, the app's."""
        self._loop = loop

    def start_from_thread(self, work: Work) -> None:
        """Start work from another thread."""
        assert self._loop is not None, "not attached to the app's event loop"
        self._loop.call_soon_threadsafe(lambda: self.start(work()))

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            log.error("background work of the plug-in failed", exc_info=task.exception())
