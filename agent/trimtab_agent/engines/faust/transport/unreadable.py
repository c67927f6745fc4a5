"""Lets a partition stand at records that cannot be read, and all others go on (patch stand-at-unreadable-record).

A batch may be compressed by a codec for which this worker has no library, or be damaged.  aiokafka raises that out of
the fetch of all partitions: the worker ends, and so does each one that is given the partition after it.  What the same
fetch had read before the batch is dropped, and not read again.
"""

from collections.abc import Iterator
from typing import Any

from aiokafka.consumer.fetcher import FetchError, FetchResult
from aiokafka.errors import KafkaError
from aiokafka.structs import TopicPartition


class UnreadableRecord(KafkaError):  # type: ignore[misc]
    """The next record of a partition cannot be read; all before it are."""

    def __init__(self, tp: TopicPartition, offset: int, why: Exception) -> None:
        super().__init__(f"{tp.topic}/{tp.partition} cannot be read from offset {offset} on: {why}")
        self.tp = tp


def stand_at_unreadable(fetcher: Any) -> None:
    """Let a fetch end before what cannot be read; the next one raises UnreadableRecord, when nothing else is there."""
    process = fetcher._proc_fetch_request

    async def process_and_try(assignment: Any, node_id: Any, request: Any) -> Any:
        answer = await process(assignment, node_id, request)
        for topic, partitions in request.topics:
            for partition, *_ in partitions:
                result = fetcher._records.get(tp := TopicPartition(topic, partition))
                if isinstance(result, FetchResult):
                    _try(fetcher, tp, result._partition_records)
        return answer

    fetcher._proc_fetch_request = process_and_try


def _try(fetcher: Any, tp: TopicPartition, records: Any) -> None:
    """Read the first record of a fetch; the rest is read when it is asked for."""
    position, rest = records.next_fetch_offset, records._records_iterator
    try:
        first = [next(rest)]
    except StopIteration:  # markers of transactions, for example
        first = []
    except Exception as why:  # a codec may raise anything
        error = UnreadableRecord(tp, records.next_fetch_offset, why)
        fetcher._records[tp] = FetchError(error=error, backoff=fetcher._prefetch_backoff)
        return
    records._records_iterator = _up_to_unreadable(records, first, rest, records.next_fetch_offset)
    records.next_fetch_offset = position  # else aiokafka believes that somebody has sought elsewhere


def _up_to_unreadable(records: Any, first: list[Any], rest: Iterator[Any], next_offset: int) -> Iterator[Any]:
    records.next_fetch_offset = next_offset
    yield from first
    try:
        yield from rest
    except Exception:  # it is read once more by the next fetch, which says why
        return
