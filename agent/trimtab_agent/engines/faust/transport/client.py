"""Connection settings and retry loop of the plug-in's own Kafka clients."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from trimtab_protocol.messages.rate_limit import RateLimit

log = logging.getLogger(__name__)

RETRY_S = 1.0

Connection = Mapping[str, Any]
"""Bootstrap servers and security settings of an aiokafka client."""


async def for_ever(work: Callable[[], Awaitable[None]], complaint: str) -> None:
    """Repeat the work until cancelled, whatever it raises.  Logs at most one error a minute."""
    complaints = RateLimit(rate=1 / 60, burst=1)
    while True:
        try:
            await work()
        except Exception as error:
            if complaints.spend(time.monotonic()):
                log.warning("%s: %r", complaint, error)
        await asyncio.sleep(RETRY_S)
