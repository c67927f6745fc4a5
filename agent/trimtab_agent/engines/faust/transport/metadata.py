"""Waits until the broker's metadata has a topic (patch topics-known-before-assignment).

A new topic is not in every client's metadata at once.  A leader that does not know it yet would assign only a part of
the job.  An agent that writes a table with an unknown changelog fails on every event, and Faust counts each as done.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Collection
from typing import Any

log = logging.getLogger(__name__)

NO_LEADER = -1
"""In the metadata of a partition whose brokers are all away."""
FIRST_LOOK_AFTER_S = 0.1
WAIT_AT_MOST_S = 1.0
LOOK_AGAIN_AFTER_S = 2.0
LOOK_AGAIN_AT_MOST_S = 30.0
"""First and longest pause between two metadata requests: while a caller waits, and afterwards in the background.

Each pause is twice the previous one.  aiokafka logs an error for every topic that it does not find, so a short fixed
pause would flood the worker's log.
"""


def silence_of(cluster: Any, broker: int | None) -> str | None:
    """How operators know a broker that does not answer; None: the metadata does not have it."""
    known = None if broker is None else cluster.broker_metadata(broker)
    return None if known is None else f"broker {broker} at {known.host}:{known.port} does not answer"


class TopicMetadata:
    """Waits for topics in the metadata of one aiokafka client.  Everything runs on the client's event loop."""

    def __init__(self, client: Any, make_again: Callable[[str], bool] = lambda _: False) -> None:
        """`make_again` is asked for each topic that is gone, and begins to create it if it returns true."""
        self._client = client
        self._make_again = make_again
        self._seen: set[str] = set()
        self._given_up: frozenset[str] = frozenset()
        self._looking: asyncio.Task[None] | None = None

    async def wait_for(self, topics: Collection[str], limit_s: float) -> frozenset[str]:
        """Wait until the client knows these topics; returns those that are still unknown after `limit_s`.

        A missing topic is waited for only once.  After that it is looked for in the background; when it appears,
        aiokafka asks for a rebalance.  One that is created again, as it was there before, is waited for once more.
        """
        deadline = time.monotonic() + limit_s
        pause_s = FIRST_LOOK_AFTER_S
        while (missing := self._missing(topics)) - self._given_up and time.monotonic() < deadline:
            await self._refresh(missing)
            await asyncio.sleep(min(pause_s, max(0.0, deadline - time.monotonic())))
            pause_s = min(2 * pause_s, WAIT_AT_MOST_S)
        gone = sorted(missing & self._seen)
        self._seen = (self._seen | set(topics)) - missing
        if [topic for topic in gone if self._make_again(topic)]:
            return await self.wait_for(topics, limit_s)
        if new := missing - self._given_up:
            log.warning("the broker still does not know these topics after %g s: %s", limit_s, sorted(new))
        self._given_up = missing
        if missing and (self._looking is None or self._looking.done()):
            self._looking = asyncio.ensure_future(self._look())
        return missing

    def stop(self) -> None:
        """Stop looking for missing topics."""
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
