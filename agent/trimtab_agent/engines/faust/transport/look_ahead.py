"""How many records a stretch of a log has that nobody has read: by the next records at some place in it."""

import asyncio
from collections.abc import Mapping
from typing import Any

from aiokafka.consumer.fetcher import Fetcher
from aiokafka.consumer.subscription_state import SubscriptionState
from aiokafka.errors import KafkaError
from aiokafka.structs import TopicPartition

INTERVAL_S = 5.0
LOOKS = 10
"""So many at each partition one after another, each where the ones before say that it tells most."""
LIMIT_S, WAIT_S = 5.0, 1.0
"""How long one look may take, at all partitions together, and how long one of them is waited for."""
BYTES = 16_384
"""Of each partition; a broker sends one batch at least."""
RECORDS = 200


async def densities_at(consumer: Any, places: Mapping[TopicPartition, int]) -> dict[TopicPartition, float]:
    """Records per offset from each of these places on; of those that nobody answers for it is missing."""
    state = SubscriptionState()
    state.assign_from_user(list(places))
    for tp, offset in places.items():
        state.seek(tp, offset)
    fetcher = Fetcher(
        consumer._client,
        state,
        max_partition_fetch_bytes=BYTES,
        auto_offset_reset="earliest",
        isolation_level=consumer._isolation_level,
    )
    records: dict[TopicPartition, int] = {}
    try:
        async with asyncio.timeout(LIMIT_S):
            for tp in places:
                records[tp] = len((await fetcher.fetched_records([tp], WAIT_S, RECORDS)).get(tp, ()))
    except (KafkaError, TimeoutError):
        pass
    finally:
        await fetcher.close()
    passed = {tp: (state._assigned_state(tp).position or 0) - offset for tp, offset in places.items()}
    return {tp: count / passed[tp] for tp, count in records.items() if passed[tp] > 0}
