"""Wait until the broker's metadata has a topic (patch topics-known-before-assignment).

A topic that has just been created is not in every client's metadata.  A leader that does not know it yet would assign a
part of the job, and an agent that writes a table with an unknown changelog fails on every event, each of which Faust
counts as done.
"""

import asyncio
import logging
import time
from collections.abc import Collection
from typing import Any

log = logging.getLogger(__name__)

FIRST_LOOK_AFTER_S = 0.1
WAIT_AT_MOST_S = 1.0
LOOK_AGAIN_AFTER_S = 2.0
LOOK_AGAIN_AT_MOST_S = 30.0
"""Pauses between two looks, each twice the one before: while somebody waits, and afterwards.  aiokafka logs an error
for each topic that it does not find, so a fixed short pause would flood the worker's log."""


class TopicMetadata:
    """The partition counts that one aiokafka client knows; everything runs on the client's event loop."""

    def __init__(self, client: Any) -> None:
        self._client = client
        self._given_up: frozenset[str] = frozenset()
        self._looking: asyncio.Task[None] | None = None

    async def wait_for(self, topics: Collection[str], limit_s: float) -> frozenset[str]:
        """Wait until the client knows these topics; returns those that it does not know after `limit_s`.

        A topic that is not there is waited for only once.  It is looked for in the background: aiokafka asks for a
        rebalance when it appears.
        """
        deadline = time.monotonic() + limit_s
        pause_s = FIRST_LOOK_AFTER_S
        while (missing := self._missing(topics)) - self._given_up and time.monotonic() < deadline:
            await self._refresh(missing)
            await asyncio.sleep(min(pause_s, max(0.0, deadline - time.monotonic())))
            pause_s = min(2 * pause_s, WAIT_AT_MOST_S)
        if new := missing - self._given_up:
            log.warning(
                "topics that the broker does not know, %g s after they were asked for: %s", limit_s, sorted(new)
            )
        self._given_up = missing
        if missing and (self._looking is None or self._looking.done()):
            self._looking = asyncio.ensure_future(self._look())
        return missing

    def stop(self) -> None:
        """Look for nothing more."""
        if self._looking is not None:
            self._looking.cancel()

    def _missing(self, topics: Collection[str]) -> frozenset[str]:
        return frozenset(topic for topic in topics if not self._client.cluster.partitions_for_topic(topic))

    async def _refresh(self, topics: Collection[str]) -> None:
        for topic in topics:
            self._client.add_topic(topic)
        await self._client.force_metadata_update()

    async def _look(self) -> None:
        pause_s = LOOK_AGAIN_AFTER_S
        while missing := self._missing(self._given_up):
            await asyncio.sleep(pause_s)
            await self._refresh(missing)
            pause_s = min(2 * pause_s, LOOK_AGAIN_AT_MOST_S)
        log.info("the broker knows all topics now")
