"""An event loop in its own thread, so that steering and the app's agents never wait for each other."""

import asyncio
import logging
import threading
import time
from collections.abc import Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

from trimtab_agent.engines.faust.own_threads import in_own_thread

Result = TypeVar("Result")

CLIENT_LOGS = ("aiokafka.consumer.consumer", "aiokafka.consumer.subscription_state")


class SideLoop:
    """Runs coroutines beside the app's event loop until it is closed."""

    def __init__(self, name: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name=name, daemon=True)
        self._thread.start()
        # While the thread lives: the clock of an ended thread answers with an error, but cannot be asked for.
        self._clock = time.pthread_getcpuclockid(self._thread.ident or 0)
        for log in CLIENT_LOGS:
            logging.getLogger(log).addFilter(self._is_news)

    @property
    def cpu_s(self) -> float | None:
        """CPU seconds of the thread since its start; None if it has ended."""
        if not self._thread.is_alive():
            return None  # for a moment longer, the system may still answer
        try:
            return time.clock_gettime(self._clock)
        except OSError:
            return None

    def submit(self, coroutine: Coroutine[Any, Any, Result]) -> Future[Result]:
        """Start a coroutine.  Another loop can await the result with `asyncio.wrap_future`."""
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop)

    async def close(self) -> None:
        """Cancel all running coroutines and end the thread.  Called from another loop."""

        async def cancel_all() -> None:
            others = asyncio.all_tasks() - {asyncio.current_task()}
            for task in others:
                task.cancel()
            await asyncio.gather(*others, return_exceptions=True)

        await asyncio.wrap_future(self.submit(cancel_all()))
        for log in CLIENT_LOGS:
            logging.getLogger(log).removeFilter(self._is_news)
        self._loop.call_soon_threadsafe(self._loop.stop)
        await in_own_thread(self._thread.join)
        self._loop.close()

    def _is_news(self, record: logging.LogRecord) -> bool:
        """Drop aiokafka's info lines from this thread's clients; keep those of the app's consumer.

        aiokafka logs one at each change of a client's partitions.
        """
        return record.thread != self._thread.ident or record.levelno > logging.INFO
