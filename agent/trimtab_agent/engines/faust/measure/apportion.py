"""Whose CPU is it?  Shares of a worker process's CPU time for its key groups.

In an interval the process used P seconds of CPU.  They are

    P = B + A + T

    A   steps of the agents' coroutines, charged exactly, A = sum of a_k over the key groups k (see `meter`)
    B   idle base: heartbeats, timers, polling, statistics; runs whether or not there is traffic
    T   transport: fetching, decoding, queueing, encoding, producing, committing

T has no owner on the clock (one thread serves all partitions, in batches) and is apportioned:

    c_k = a_k + T * w_k / sum(w),    w_k = messages_k + bytes_k / BYTES_PER_MESSAGE

with the messages that k received, sent, and wrote to its changelogs.  What the clock shows (one worker, 24 to 192
partitions, 50 to 400 events/s): T is close to proportional to the messages while they come one by one, about 0.7 ms
each, and flattens to a quarter of that when they come in batches.  A share is then the average, not the last message's
cost; it is the same function on every worker, so equal sums still mean equal work.

B must not be charged: it stays where it is when a key group moves.  It is measured when it shows alone, in intervals
without traffic (`IdleBase`); a line fitted through busy intervals would have to be extended far beyond them, and the
minimum over busy intervals mistakes steady traffic for idling.

So sum(c_k) <= P - B, in every interval.
"""

from collections import deque
from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from statistics import median
from typing import TypeVar

BYTES_PER_MESSAGE = 16 * 1024
"""So many bytes weigh as much as one more message (serialisation and copies against the fixed cost per message)."""
IDLE_CORES = 0.006
"""Idle base of a worker before it has been seen without traffic; measured: 0.005 to 0.009 with 24 to 192 partitions."""
IDLE_MESSAGES_PER_S = 1.0
"""Up to this traffic an interval counts as idle."""
IDLE_INTERVALS = 30
"""How many of the newest idle intervals make the base."""

K = TypeVar("K", bound=Hashable)


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """What one key group did in an interval: CPU seconds of its agents; messages and bytes received, sent, logged."""

    agents_s: float = 0.0
    messages: int = 0
    bytes: int = 0

    def __post_init__(self) -> None:
        if self.agents_s < 0 or self.messages < 0 or self.bytes < 0:
            raise ValueError(f"work is not negative: {self}")

    @property
    def weight(self) -> float:
        """In messages."""
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
    per_weight = transport_s / weight if weight else 0.0
    return {key: one.agents_s * exact + one.weight * per_weight for key, one in work.items()}
