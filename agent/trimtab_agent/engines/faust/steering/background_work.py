"""Runs and counts the work that a worker does beside its job: hand-overs, standbys, rebalances."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

log = logging.getLogger(__name__)

Work = Callable[[], Coroutine[Any, Any, None]]


class BackgroundWork:
    """Counts the work beside the job, so that its CPU is not mistaken for the idle base."""

    def __init__(self) -> None:
        self._begun = 0
        self._running = 0
        self._tasks: set[asyncio.Task[None]] = set()
        self._loop: asyncio.AbstractEventLoop | None = None

    @property
    def begun(self) -> int | None:
        """Number of pieces of work begun since the start; None while any is running."""
        return None if self._running else self._begun

    def count(self) -> None:
        """Count work that needs no waiting here but costs CPU."""
        self._begun += 1

    async def during(self, work: Awaitable[None]) -> None:
        """Await a piece of work and count it."""
        self._begun += 1
        self._running += 1
        try:
            await work
        finally:
            self._running -= 1

    def start(self, work: Coroutine[Any, Any, None]) -> None:
        """Run work on the app's event loop.  An exception is logged and affects nothing else."""
        task = asyncio.ensure_future(self.during(work))
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def attach(self, loop: asyncio.AbstractEventLoop) -> None:
        """Set the app's event loop, so that other threads can start work on it."""
        self._loop = loop

    def start_from_thread(self, work: Work) -> None:
        """Start work from another thread."""
        assert self._loop is not None, "not attached to the app's event loop"
        self._loop.call_soon_threadsafe(lambda: self.start(work()))

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            log.error("background work of the plug-in failed", exc_info=task.exception())
