"""Whether the app has state yet: offsets that its consumer group has committed, or records in its changelogs."""

import asyncio
import logging
from collections.abc import Collection

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient

from trimtab_agent.engines.faust.transport.client import Connection

log = logging.getLogger(__name__)

LIMIT_S = 5.0
"""How long the broker may take to answer."""


async def is_empty(connection: Connection, group: str, changelogs: Collection[str]) -> bool:
    """Whether the group has committed no offset and no changelog has had a record; False if that cannot be learned.

    A changelog that does not exist yet has had none.  One whose records were all deleted has state: the offsets at
    which its partitions end are not 0.
    """
    try:
        async with asyncio.timeout(LIMIT_S):
            return not await _has_committed(connection, group) and not await _have_records(connection, changelogs)
    except Exception as error:  # whatever it is, the app then counts as one that runs
        log.warning("it is not known whether the app has state, so its placement is adopted: %r", error)
        return False


async def _has_committed(connection: Connection, group: str) -> bool:
    admin = AIOKafkaAdminClient(**connection)
    try:
        await admin.start()
        return any(found.offset >= 0 for found in (await admin.list_consumer_group_offsets(group)).values())
    finally:
        await admin.close()


async def _have_records(connection: Connection, changelogs: Collection[str]) -> bool:
    reader = AIOKafkaConsumer(**connection, enable_auto_commit=False)
    try:
        await reader.start()
        existing = await reader.topics()
        partitions = [
            TopicPartition(topic, partition)
            for topic in changelogs
            if topic in existing
            for partition in reader.partitions_for_topic(topic) or ()
        ]
        return bool(partitions) and any((await reader.end_offsets(partitions)).values())
    finally:
        await reader.stop()
