"""The flights job whose records say which worker wrote them: `faust -A tests.faults.recorded.attributed:app worker`.

The header is put on where records leave the process, so changelogs carry it too.
"""

import os
from typing import Any

import aiokafka

WRITER = "by"
"""Header: `worker:pid`."""

_by = f"{os.environ['TRIMTAB_WORKER']}:{os.getpid()}".encode()
_send = aiokafka.AIOKafkaProducer.send


async def _send_attributed(
    self: Any,
    topic: str,
    value: bytes | None = None,
    key: bytes | None = None,
    partition: int | None = None,
    timestamp_ms: int | None = None,
    headers: Any = None,
) -> Any:
    headers = [*(headers or ()), (WRITER, _by)]
    return await _send(self, topic, value, key, partition, timestamp_ms, headers)


aiokafka.AIOKafkaProducer.send = _send_attributed

from flights.app import app  # noqa: E402, F401 - what it makes has to find the producer attributed
