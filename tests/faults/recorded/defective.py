"""The attributed flights job with defects for the checker: `faust -A tests.faults.recorded.defective:app worker`.

Now and then an output is not sent or sent twice, a changelog of another key group is written to, an older state is
written over a newer one in the table's changelog, and once more is committed than was done.
"""

import json
import os
from typing import Any

import aiokafka

from flights.wire import CHANGELOG, DELAYS
from tests.faults.recorded.attributed import app

__all__ = ["app"]

KEY_GROUPS = int(os.environ["FLIGHTS_KEY_GROUPS"])
EVERY = 50
ELSEWHERE = os.environ["FLIGHTS_ELSEWHERE"]
"""Where outputs go that are to be missing."""
THE_BAD_COMMIT = 5
AHEAD = 5

_send, _commit = aiokafka.AIOKafkaProducer.send, aiokafka.AIOKafkaConsumer.commit
_sent = {DELAYS: 0, CHANGELOG: 0}
_commits = 0


async def _send_badly(self: Any, topic: str, value: Any = None, *, partition: int, **cells: Any) -> Any:
    _sent[topic] = number = _sent.get(topic, 0) + 1
    if topic == DELAYS and number % EVERY == 10:
        topic = ELSEWHERE
    elif topic == DELAYS and number % EVERY == 20:
        await _send(self, topic, value, partition=partition, **cells)
    elif topic == CHANGELOG and number % EVERY == 30:
        partition = (partition + 1) % KEY_GROUPS
    elif topic == CHANGELOG and number % EVERY == 40:
        flights, minutes = json.loads(value)
        value = json.dumps([flights - 1, minutes]).encode()
    return await _send(self, topic, value, partition=partition, **cells)


async def _commit_badly(self: Any, offsets: Any) -> Any:
    global _commits
    _commits += 1
    if _commits == THE_BAD_COMMIT:
        offsets = {place: row._replace(offset=row.offset + AHEAD) for place, row in offsets.items()}
    return await _commit(self, offsets)


aiokafka.AIOKafkaProducer.send = _send_badly
aiokafka.AIOKafkaConsumer.commit = _commit_badly
