"""The consumer's thread, with the ends of logs."""

from collections.abc import Collection

from aiokafka.structs import TopicPartition
from faust.types import TP

from trimtab_agent.engines.faust.transport.thread import SteeredThread


class LocalThread(SteeredThread):
    """Asks the broker where logs end, whatever else the thread is doing."""

    async def ends(self, tps: Collection[TP]) -> dict[TP, int]:
        """The end offsets of these partitions now.  Raises KafkaError."""

        async def ask() -> dict[TP, int]:
            ends = await self._ensure_consumer().end_offsets([TopicPartition(*tp) for tp in tps])
            return {tp: ends[TopicPartition(*tp)] for tp in tps}

        return await self._in_thread(ask())
