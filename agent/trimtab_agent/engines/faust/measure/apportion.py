"""Whose CPU is it?  What would leave a worker with each of its key groups.

In an interval the process used P seconds of CPU.  They are

    P = B + A + T

    A   steps of the agents' coroutines, charged exactly: a_k for key group k (see `meter`)
    B   idle base: heartbeats, timers, polling, statistics; runs whether or not there is traffic
    T   transport: fetching, decoding, queueing, encoding, producing, committing

T has no owner on the clock: one thread serves all partitions, in rounds of the network (a fetch, a produce request and
their wake-ups), each with the messages of many.  A round costs ten times a message in it, and whether one is saved when
a key group goes depends on who else is there.  A load that depends on the neighbours cannot be balanced: the plan would
miss what it promised.  So rounds stay with the worker, and a key group is charged, beside its agents' steps, what its
messages w_k cost in full rounds:

    c_k = a_k + m * w_k,    m = min(MESSAGE_S, T / W),    sum(c_k) <= P - B

This is the same at any owner, so a move brings what was promised; at low rates, where messages come alone and take
their rounds with them, it brings more.  `benchmarks/share_prediction.py` silences some of a worker's key groups and
compares.

B must not be charged either: it is measured when it shows alone, in intervals without traffic (`IdleBase`).  A line
through busy intervals would have to be extended far beyond them, and a minimum over busy intervals mistakes steady
traffic for idling.
"""

from collections import deque
from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from statistics import median
from typing import TypeVar

BYTES_PER_MESSAGE = 16 * 1024
"""So many bytes weigh as much as one more message (serialisation and copies against the fixed cost per message)."""
MESSAGE_S = 70e-6
"""CPU seconds of one message in full rounds, from fetch or to produce (measured with 200 events/s on one worker)."""
IDLE_CORES = 0.006
"""Idle base of a worker before it has been seen without traffic; measured: 0.005 to 0.009 with 24 to 192 partitions."""
IDLE_MESSAGES_PER_S = 1.0
"""Up to this traffic an interval counts as idle."""
IDLE_INTERVALS = 30
"""How many of the newest idle intervals make the base."""

K = TypeVar("K", bound=Hashable)


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """What one key group did in an interval: CPU seconds of its agents; messages and bytes in, out and logged."""

    agents_s: float = 0.0
    messages: int = 0
    bytes: int = 0

    def __post_init__(self) -> None:
        if self.agents_s < 0 or self.messages < 0 or self.bytes < 0:
            raise ValueError(f"work is not negative: {self}")

    @property
    def weight(self) -> float:
        """Of its part of the transport, in messages."""
        return self.messages + self.bytes / BYTES_PER_MESSAGE


class IdleBase:
    """How many cores the process uses without traffic: the median of the newest idle intervals."""

    def __init__(self) -> None:
        self._seen: deque[float] = deque(maxlen=IDLE_INTERVALS)

    @property
    def cores(self) -> float:
        """The present estimate."""
        return median(self._seen) if self._seen else IDLE_CORES

    def observe(self, *, process_s: float, interval_s: float, messages: int) -> None:
        """Learn from an interval in which the worker was neither joining nor recovering."""
        if messages <= IDLE_MESSAGES_PER_S * interval_s:
            self._seen.append(process_s / interval_s)


def apportion(work: Mapping[K, Work], *, process_s: float, idle_s: float) -> dict[K, float]:
    """CPU seconds of each key group; together at most `process_s - idle_s`.

    `work` is of all that the process did; what belongs to no key group stands in it under a key of its own, so that
    nobody else pays for it.
    """
    agents_s = sum(one.agents_s for one in work.values())
    weight = sum(one.weight for one in work.values())
    busy_s = max(0.0, process_s - idle_s)
    # The agents' clock is read more often than the process's; with coarse clocks it may show a little more.
    exact = min(1.0, busy_s / agents_s) if agents_s else 1.0
    transport_s = max(0.0, busy_s - agents_s)
    message_s = min(MESSAGE_S, transport_s / weight) if weight else 0.0
    return {key: one.agents_s * exact + one.weight * message_s for key, one in work.items()}
