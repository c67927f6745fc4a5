"""Finds consumer groups other than the app's own that read a local topic: they would miss direct events.

A consumer without a group, or one that has never committed, cannot be seen.
"""

import asyncio
import logging
import time
from collections.abc import Mapping
from typing import Any

from aiokafka.admin import AIOKafkaAdminClient

log = logging.getLogger(__name__)

LIMIT_S = 10.0


class OutsideReaders:
    """Asks the broker which groups have committed offsets of the local topics."""

    def __init__(self, connection: Mapping[str, Any], group: str, *, interval_s: float) -> None:
        self._connection = connection
        self._group = group
        self._interval_s = interval_s
        self._asked_at: float | None = None
        self._groups: dict[str, str] = {}
        self._turn = asyncio.Lock()

    async def refusal(self, topic: str) -> str | None:
        """Why a topic may not be local; None if nobody else reads it.  Raises KafkaError, TimeoutError."""
        async with self._turn:
            if self._asked_at is None or time.monotonic() - self._asked_at > self._interval_s:
                async with asyncio.timeout(LIMIT_S):
                    await self._ask()
                self._asked_at = time.monotonic()
        group = self._groups.get(topic)
        return None if group is None else f"consumer group {group!r} reads it too, and would miss events"

    async def _ask(self) -> None:
        admin = AIOKafkaAdminClient(**self._connection)
        await admin.start()
        try:
            found: dict[str, str] = {}
            for group, *_ in await admin.list_consumer_groups():
                if group != self._group:
                    for tp in await admin.list_consumer_group_offsets(group):
                        found.setdefault(tp.topic, group)
            self._groups = found
        finally:
            await admin.close()
