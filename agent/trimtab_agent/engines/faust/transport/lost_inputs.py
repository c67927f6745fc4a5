"""Says that inputs are lost, because the broker no longer has the record that a worker is to read next.

aiokafka goes on elsewhere and logs that at level INFO only, without a number.  The worker logs it as a warning, and
reports it for a while.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from aiokafka.errors import KafkaError
from aiokafka.structs import TopicPartition

from trimtab_agent.engines.faust.safety.troubles import Tell, Trouble, minute
from trimtab_protocol.wording import first_few

log = logging.getLogger(__name__)

LIMIT_S = 5.0
"""How long the broker may take to say where the logs begin and end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Missed:
    """The record `offset` of a partition was to be read next, but the log has those from `start` to `end` - 1."""

    partition: TopicPartition
    offset: int
    start: int
    end: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Lost:
    """What is lost: `text` for the worker's log, `short` for its report."""

    text: str
    short: str


def describe_lost(missed: Collection[Missed], now: float) -> Iterator[Lost]:
    """What to tell of partitions whose next record is gone; `now` in epoch seconds.  What matters most comes last."""
    shorter = sorted(
        f"{_name(each)} ({each.end} instead of {each.offset})" for each in missed if each.offset > each.end
    )
    if shorter:
        yield Lost(
            text=f"logs end before what was processed already: {first_few(shorter)}. They have lost records (an "
            "unclean leader election, a broker's disk), or their offsets were set by mistake. New records count as "
            "processed until the logs are as long as before",
            short=f"inputs may be lost, seen {minute(now)}: logs end before what was processed, "
            f"{first_few(shorter, most=1)}",
        )
    deleted = {_name(each): each.start - each.offset for each in missed if each.offset < each.start}
    if deleted:
        lost, names = sum(deleted.values()), sorted(deleted)
        yield Lost(
            text=f"up to {lost} inputs are lost: they were deleted before this worker read them, from "
            f"{first_few(names)}. Do the topics keep records for longer than the app may be stopped or behind "
            "(retention.ms, retention.bytes)?",
            short=f"inputs are lost, up to {lost} of {first_few(names, most=1)}, seen {minute(now)}: deleted before "
            "they were read",
        )


def _name(missed: Missed) -> str:
    return f"{missed.partition.topic}/{missed.partition.partition}"


class LostInputs:
    """Watches the fetches of an aiokafka consumer, on its event loop.  `counts` = whether a topic's records are inputs.

    A changelog may begin behind the offset that Faust seeks; that is no loss.
    """

    def __init__(self, consumer: Any, counts: Callable[[str], bool], tell: Tell) -> None:
        self._consumer = consumer
        self._counts = counts
        self._report = tell
        self._asking: set[asyncio.Task[None]] = set()
        self._told: dict[TopicPartition, int] = {}
        """The last offset told of each partition: Faust seeks it a second time when it has restored its tables."""
        process = consumer._fetcher._proc_fetch_request

        async def process_and_look(assignment: Any, node_id: Any, request: Any) -> Any:
            try:
                answer = await process(assignment, node_id, request)
            except asyncio.CancelledError:
                # (patch end-while-the-broker-is-away)
                return False
            self._look(assignment, request.topics)
            return answer

        consumer._fetcher._proc_fetch_request = process_and_look

    def _look(self, assignment: Any, asked: Collection[Any]) -> None:
        """A partition that was fetched has a position, unless the broker has just said that it is out of range."""
        offsets = {
            tp: offset
            for topic, partitions in asked
            for partition, offset, *_ in partitions
            if (state := assignment._tp_state.get(tp := TopicPartition(topic, partition))) is not None
            and state.awaiting_reset
            and self._counts(topic)
            and self._told.get(tp) != offset
        }
        if offsets:
            self._told.update(offsets)
            task = asyncio.ensure_future(self._tell(offsets))
            self._asking.add(task)
            task.add_done_callback(self._asking.discard)

    async def _tell(self, offsets: Mapping[TopicPartition, int]) -> None:
        names = first_few(sorted(f"{tp.topic}/{tp.partition}" for tp in offsets))
        try:
            async with asyncio.timeout(LIMIT_S):
                starts = await self._consumer.beginning_offsets(list(offsets))
                ends = await self._consumer.end_offsets(list(offsets))
        except (KafkaError, TimeoutError) as fault:
            log.warning("inputs may be lost: the broker no longer has the next record of %s (%r)", names, fault)
            self._report(
                Trouble.INPUTS_LOST, f"inputs may be lost, seen {minute(time.time())}: next records of {names}"
            )
            return
        missed = [Missed(partition=tp, offset=at, start=starts[tp], end=ends[tp]) for tp, at in offsets.items()]
        for lost in describe_lost(missed, time.time()):
            log.warning("%s", lost.text)
            self._report(Trouble.INPUTS_LOST, lost.short)
