"""Whose CPU is it?  What would leave a worker with each of its key groups.

In an interval the process used P seconds of CPU.  They are

    P = B + A + T

    A   steps of the agents' coroutines, charged exactly: a_k for key group k (see `meter`)
    B   idle base: heartbeats, timers, polling, statistics; runs whether or not there is traffic
    T   transport: fetching, decoding, queueing, encoding, producing, committing

T has no owner on the clock: one thread serves all partitions, in rounds of the network (a fetch, a produce request and
their wake-ups), each with the messages of many.  A round costs ten times a message in it, and whether one is saved when
a key group goes depends on who else is there.  A load that depends on the worker's other key groups cannot be balanced:
the plan would miss what it promised.  So rounds stay with the worker, and a key group is charged, beside its agents'
steps, what its messages w_k cost in full rounds:

    c_k = a_k + m * w_k,    m = min(MESSAGE_S, T / W)

This is the same at any owner, so a move brings what was promised; at low rates, where messages come alone and take
their rounds with them, it brings more.  `benchmarks/share_prediction.py` silences some of a worker's key groups and
compares.

B must not be charged either: it is measured when it shows alone, in intervals without traffic (`IdleBase`).  A line
through busy intervals would have to be extended far beyond them, and a minimum over busy intervals mistakes steady
traffic for idling.

A is measured and B is estimated, so B never takes anything away from A: a base that is too high costs the messages
their part of T, at most MESSAGE_S each.  Where even A and P contradict each other, nothing is known of the interval.
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
CLOCKS_S = 0.010
"""By so much the agents' steps may exceed the process's CPU: one tick of the coarsest clock that Linux has (100 Hz).

Both clocks count the same nanoseconds on today's kernels: there the steps never exceed the process, whatever the other
threads do (`benchmarks/idle_base.py`).
"""
IDLE_CORES = 0.006
"""Idle base of a worker before it has been seen without traffic; measured: 0.005 to 0.009 with 24 to 192 partitions."""
IDLE_MESSAGES_PER_S = 1.0
"""Up to this traffic an interval counts as idle."""
IDLE_INTERVALS = 30
"""How many of the newest idle intervals make the base."""
PLAUSIBLE_CORES, PLAUSIBLE_CORES_PER_KEY_GROUP = 0.080, 0.0006
"""No idle worker uses more than the first, and the second for each of its key groups.

Measured on a busy virtual machine with two slow cores, where idling costs five times what IDLE_CORES says, and with
statistics every second (`benchmarks/idle_base.py`; medians): 0.020 cores with 16 key groups, 0.050 with 128, 0.090 with
512; the largest second was at 0.030, 0.060, 0.120.  The bound is three to four times the median.
"""

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """The sums of an interval of `interval_s` seconds; `process_s` None: the process's CPU could not be read."""

    interval_s: float
    process_s: float | None
    agents_s: float
    messages: int
    key_groups: int
    """How many the worker owns."""
    calm: bool
    """Nothing but the job's own work went on: no rebalance, restore, hand-over or start in any part of it."""


class IdleBase:
    """How many cores the process uses without traffic: the median of the newest idle intervals."""

    def __init__(self) -> None:
        self._seen: deque[float] = deque(maxlen=IDLE_INTERVALS)

    def cores(self, key_groups: int) -> float:
        """The present estimate, for a worker with so many key groups."""
        return min(median(self._seen), plausible_cores(key_groups)) if self._seen else IDLE_CORES

    def observe(self, interval: Interval) -> None:
        """Learn from an idle interval; forget what a busy one disproves: it used less than that beside its agents."""
        if interval.process_s is None:
            return
        beside_s = max(0.0, interval.process_s - interval.agents_s)
        if interval.messages > IDLE_MESSAGES_PER_S * interval.interval_s:
            possible = (beside_s + CLOCKS_S) / interval.interval_s
            self._seen = deque((cores for cores in self._seen if cores <= possible), maxlen=IDLE_INTERVALS)
        elif interval.calm and beside_s / interval.interval_s <= plausible_cores(interval.key_groups):
            self._seen.append(beside_s / interval.interval_s)


def plausible_cores(key_groups: int) -> float:
    """What an idle worker with so many key groups uses at most."""
    return PLAUSIBLE_CORES + PLAUSIBLE_CORES_PER_KEY_GROUP * key_groups


def contradiction(*, process_s: float | None, agents_s: float) -> str | None:
    """Why nothing can be said about the loads of an interval; None: the parts add up."""
    if process_s is None:
        return "the CPU time of its process could not be read"
    if agents_s > process_s + CLOCKS_S:
        return f"its agents' steps take {agents_s:.3f} s of CPU, its whole process {process_s:.3f} s"
    return None


def apportion(work: Mapping[K, Work], *, process_s: float, idle_s: float) -> dict[K, float]:
    """CPU seconds of each key group: its agents' steps as they were measured, and its messages' part of the transport.

    `work` is of all that the process did; what belongs to no key group stands in it under a key of its own, so that
    nobody else pays for it.
    """
    agents_s = sum(one.agents_s for one in work.values())
    weight = sum(one.weight for one in work.values())
    transport_s = max(0.0, process_s - agents_s - idle_s)
    message_s = min(MESSAGE_S, transport_s / weight) if weight else 0.0
    return {key: one.agents_s + one.weight * message_s for key, one in work.items()}
