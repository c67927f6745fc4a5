"""When events to one partition may skip the broker."""

import asyncio
from collections.abc import Sequence
from enum import Enum
from typing import Any

from faust.types import TP
from faust.types.tuples import RecordMetadata


class GateState(Enum):
    """Where an event to the partition goes."""

    OFF = "off"  # by the broker: the key group is being given away, or was not finished in time
    CLOSED = "closed"  # by the broker, until what may precede a direct event has reached the readers' queues
    OPEN = "open"  # straight to the readers' queues


class LocalGate:
    """The gate of one owned partition of a local topic.  Offsets are those of its log."""

    __slots__ = (
        *("answer", "direct", "finished_at", "keys", "need", "own", "queues", "readers", "retry_at", "sending"),
        *("state", "tp", "unfinished"),
    )

    def __init__(self, tp: TP, readers: Sequence[Any], direct: dict[TP, list[int]]) -> None:
        self.tp = tp
        self.readers = readers
        """Who reads the partition: one entry per type that they expect, see `values.Readers`."""
        self.queues: list[Any] = [queue for each in readers for queue in each.queues]
        self.state = GateState.CLOSED
        self.need: int | None = None
        """Records before this offset must reach the queues first; None = not known yet."""
        self.own = 0
        """Records before this offset were sent from here since."""
        self.sending = 0
        """Number of records on their way from here to the log."""
        self.unfinished = 0
        """Number of direct events that are not finished."""
        self.keys: dict[bytes | None, int] = {}
        """The same by key."""
        self.finished_at = 0
        """Count of the worker's finished direct events when the last one of this gate was finished."""
        self.retry_at = 0.0
        """Nothing waits for the gate before this time (monotonic seconds)."""
        self.direct = direct
        """Partition of the cause -> number of direct events and their bytes since the last report."""
        metadata = RecordMetadata(
            topic=tp.topic, partition=tp.partition, topic_partition=tp, offset=-1, timestamp=None, timestamp_type=0
        )
        self.answer: asyncio.Future[RecordMetadata] = asyncio.get_running_loop().create_future()
        """What a direct send returns."""
        self.answer.set_result(metadata)

    def close(self) -> None:
        """Nothing is direct until everything before a new barrier has reached the queues."""
        self.state, self.need = GateState.CLOSED, None

    def turn_off(self) -> None:
        """Nothing is direct, and nothing waits for it."""
        self.state, self.need = GateState.OFF, None

    def begin_send(self) -> None:
        """A record goes to the partition by the broker.  Direct events must not overtake it."""
        self.sending += 1
        if self.state is GateState.OPEN:
            self.state = GateState.CLOSED

    def end_send(self, sent: Any) -> None:
        """The broker has the record, or has refused it; `sent` is the producer's future."""
        self.sending -= 1
        if not sent.cancelled() and sent.exception() is None:
            self.own = max(self.own, sent.result().offset + 1)

    def try_open(self, given: int) -> bool:
        """Open if the queues have everything; `given` = the offset up to which they were given the log."""
        if self.state is GateState.CLOSED and self.need is not None and not self.sending and given >= self._end:
            self.state = GateState.OPEN
        return self.state is GateState.OPEN

    def lag(self, given: int) -> int | None:
        """Number of records that must reach the queues before it opens; None = not known yet."""
        return None if self.need is None else self._end - given + self.sending

    @property
    def _end(self) -> int:
        return max(self.need or 0, self.own)

    def begin(self, key: bytes | None) -> None:
        """A direct event with this key is put into the queues."""
        self.unfinished += 1
        self.keys[key] = self.keys.get(key, 0) + 1

    def finish(self, key: bytes | None, count: int) -> None:
        """A direct event is finished; `count` = the worker's finished direct events with it."""
        self.unfinished -= 1
        self.finished_at = count
        left = self.keys.get(key, 0) - 1
        if left > 0:
            self.keys[key] = left
        else:
            self.keys.pop(key, None)

    def forget_unfinished(self) -> None:
        """Their causes will be read again."""
        self.unfinished = 0
        self.keys.clear()
