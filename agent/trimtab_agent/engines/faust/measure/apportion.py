"""Divides a worker's CPU among its key groups: the part that would leave the worker with each of them.

The process used P seconds of CPU in an interval:

    P = B + A + T

    A   steps of the agents' coroutines, their threads, and decoding, charged exactly: a_k for key group k (see `meter`)
    B   idle base: heartbeats, timers, polling, statistics; runs with or without traffic
    T   transport: fetching, producing, committing

The CPU clock cannot attribute T.  One thread serves all partitions in network rounds (a fetch, a produce request and
their wake-ups), and each round carries messages of many key groups.  A round costs ten times as much as a message in
it.  Whether a round is saved when a key group leaves depends on the worker's other key groups.  A load that depends on
them cannot be balanced: the plan would miss its promise.  So rounds stay with the worker.  A key group is charged its
agents' steps and the cost of its messages w_k in full rounds (W = sum of all w_k):

    c_k = a_k + m * w_k,    m = min(MESSAGE_S, T / W)

This cost is the same on every worker, so a move brings what the plan promised.  At low rates, where each message has a
round of its own, it brings more.  `benchmarks/share_prediction.py` silences some of a worker's key groups and compares.

B must not be charged either.  It is measured in intervals without traffic, where it shows alone (`IdleBase`).  A
regression over busy intervals would extrapolate too far, and a minimum over busy intervals mistakes steady traffic for
idling.

A is measured and B is estimated, so B never reduces A.  A base that is too high only reduces the messages' part of T,
by at most MESSAGE_S each.  If A and P contradict each other, the loads of the interval are unknown.
"""

from collections import deque
from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from statistics import median
from typing import TypeVar

BYTES_PER_MESSAGE = 16 * 1024
"""Number of bytes that weigh as much as one message (serialisation and copies against the fixed cost per message)."""
MESSAGE_S = 70e-6
"""CPU seconds to fetch or produce one message in full rounds (measured with 200 events/s on one worker)."""
CLOCKS_S = 0.010
"""Seconds by which the agents' steps may exceed the process's CPU: one tick of Linux's coarsest clock (100 Hz).

On current kernels both clocks count the same nanoseconds, and the steps never exceed the process, whatever the other
threads do (`benchmarks/idle_base.py`).
"""
IDLE_CORES = 0.006
"""Idle base of a worker before its first idle interval; measured: 0.005 to 0.009 with 24 to 192 partitions."""
IDLE_MESSAGES_PER_S = 1.0
"""An interval with at most this traffic counts as idle."""
IDLE_INTERVALS = 30
"""Number of newest idle intervals from which the base is estimated."""
PLAUSIBLE_CORES, PLAUSIBLE_CORES_PER_KEY_GROUP = 0.080, 0.0006
"""An idle worker uses at most the first value plus the second value for each of its key groups.

Measured on a busy virtual machine with two slow cores, where idling costs five times IDLE_CORES, with statistics every
second (`benchmarks/idle_base.py`).  Medians: 0.020 cores with 16 key groups, 0.050 with 128, 0.090 with 512.  Largest
seconds: 0.030, 0.060, 0.120.  The bound is three to four times the median.
"""

K = TypeVar("K", bound=Hashable)


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """Work of one key group in an interval: CPU seconds of its agents; messages and bytes received, sent and logged."""

    agents_s: float = 0.0
    messages: int = 0
    bytes: int = 0

    def __post_init__(self) -> None:
        if self.agents_s < 0 or self.messages < 0 or self.bytes < 0:
            raise ValueError(f"work is not negative: {self}")

    @property
    def weight(self) -> float:
        """Weight of its part of the transport, in messages."""
        return self.messages + self.bytes / BYTES_PER_MESSAGE


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """Sums over an interval of `interval_s` seconds.  `process_s` None: the process's CPU could not be read."""

    interval_s: float
    process_s: float | None
    agents_s: float
    messages: int
    key_groups: int
    """Number of key groups that the worker owns."""
    calm: bool
    """True if only the job's own work ran: no rebalance, restore, hand-over or start at any time in the interval."""


class IdleBase:
    """Estimates how many cores the process uses without traffic: the median of the newest idle intervals."""

    def __init__(self) -> None:
        self._seen: deque[float] = deque(maxlen=IDLE_INTERVALS)

    def cores(self, key_groups: int) -> float:
        """The current estimate for a worker with `key_groups` key groups."""
        return min(median(self._seen), plausible_cores(key_groups)) if self._seen else IDLE_CORES

    def observe(self, interval: Interval) -> None:
        """Learn from an idle interval.  A busy one removes values that exceed what it used beside its agents."""
        if interval.process_s is None:
            return
        beside_s = max(0.0, interval.process_s - interval.agents_s)
        if interval.messages > IDLE_MESSAGES_PER_S * interval.interval_s:
            possible = (beside_s + CLOCKS_S) / interval.interval_s
            self._seen = deque((cores for cores in self._seen if cores <= possible), maxlen=IDLE_INTERVALS)
        elif interval.calm and beside_s / interval.interval_s <= plausible_cores(interval.key_groups):
            self._seen.append(beside_s / interval.interval_s)


def plausible_cores(key_groups: int) -> float:
    """Upper bound on the cores of an idle worker with `key_groups` key groups."""
    return PLAUSIBLE_CORES + PLAUSIBLE_CORES_PER_KEY_GROUP * key_groups


def contradiction(*, process_s: float | None, agents_s: float) -> str | None:
    """Why the loads of an interval are unknown; None if the parts add up."""
    if process_s is None:
        return "the CPU time of its process could not be read"
    if agents_s > process_s + CLOCKS_S:
        return f"its agents' steps take {agents_s:.3f} s of CPU, its whole process {process_s:.3f} s"
    return None


def apportion(work: Mapping[K, Work], *, process_s: float, idle_s: float) -> dict[K, float]:
    """CPU seconds of each key group: its agents' measured steps plus its messages' part of the transport.

    `work` covers everything that the process did.  Work without a key group has its own key in it, so that no key group
    is charged for it.
    """
    agents_s = sum(one.agents_s for one in work.values())
    weight = sum(one.weight for one in work.values())
    transport_s = max(0.0, process_s - agents_s - idle_s)
    message_s = min(MESSAGE_S, transport_s / weight) if weight else 0.0
    return {key: one.agents_s + one.weight * message_s for key, one in work.items()}
