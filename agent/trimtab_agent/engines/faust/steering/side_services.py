"""What the plug-in runs in its own thread, so that steering and the app's agents never wait for each other."""

import asyncio
import logging
import threading
import time
from collections.abc import Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

from trimtab_agent.engines.faust.handover.channel import Channel
from trimtab_agent.engines.faust.tables.changelog_reader import ChangelogReader
from trimtab_agent.engines.faust.waiting import in_own_thread
from trimtab_protocol.messages.handover import HandoverRecord

Result = TypeVar("Result")

CLIENT_LOGS = ("aiokafka.consumer.consumer", "aiokafka.consumer.subscription_state")


class SideLoop:
    """An event loop in its own thread: runs coroutines beside the app's event loop until it is closed."""

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


class SideServices:
    """Starts, uses and stops the services of the thread: the hand-over channel and the changelog reader.

    Called on the app's event loop.
    """

    def __init__(self, channel: Channel, reader: ChangelogReader) -> None:
        self._channel = channel
        self._reader = reader
        self._loop: SideLoop | None = None

    @property
    def started(self) -> bool:
        """Whether the thread is running."""
        return self._loop is not None

    @property
    def cpu_s(self) -> float | None:
        """CPU seconds of the thread since its start; None if there is none.  Nearly all of it is the reader's."""
        return None if self._loop is None else self._loop.cpu_s

    def start(self) -> None:
        """Begin to read placements, hand-over records and changelogs."""
        self._loop = SideLoop("trimtab")
        self._loop.submit(self._channel.run())
        self._loop.submit(self._reader.run())

    def placement_loaded(self) -> bool:
        """Whether all placements published so far have been read."""
        return self._channel.loaded.is_set()

    async def publish(self, record: HandoverRecord) -> None:
        """Write a hand-over record; returns when it is in the log.

        Raises KafkaError: the record may or may not be in the log.
        """
        assert self._loop is not None, "not started"
        await asyncio.wrap_future(self._loop.submit(self._channel.publish(record)))

    async def close(self) -> None:
        """End the thread."""
        if self._loop is not None:
            loop, self._loop = self._loop, None
            await asyncio.wrap_future(loop.submit(self._channel.close()))
            await loop.close()
