"""Services that the plug-in runs in its own thread: the hand-over channel and the changelog reader."""

import asyncio

from trimtab_agent.engines.faust.handover.channel import Channel
from trimtab_agent.engines.faust.tables.changelog_reader import ChangelogReader
from trimtab_agent.engines.faust.transport.side_loop import SideLoop
from trimtab_protocol.messages.handover import HandoverRecord


class SideServices:
    """Starts, uses and stops the services of the side thread.  Called on the app's event loop."""

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
