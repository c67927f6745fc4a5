"""Whose CPU is it?  What would leave a worker with each of its key groups.

In an interval the process used P seconds of CPU.  They are

    P = B + A + T

    A   steps of the agents' coroutines, charged exactly: a_k for key group k (see `meter`)
    B   idle base: heartbeats, timers, polling, statistics; runs whether or not there is traffic
    T   transport: fetching, decoding, queueing, encoding, producing, committing

T has no owner on the clock: one thread serves all partitions, in rounds of the network.  It is modelled as W messages
of cost m and R rounds of cost r, where a message counts with its bytes and a round costs as much as MESSAGES_PER_ROUND
of them (at low rates each message comes alone, at 0.7 ms; in full rounds one costs 0.07 ms):

    T = m * W + r * R,    r = MESSAGES_PER_ROUND * m    =>    m = T / (W + MESSAGES_PER_ROUND * R)

With k go its messages w_k, and those e_k of the rounds that were only for k.  A round that also served another key
group will be needed for that one: its cost stays.  And rounds get cheaper the more there are (warm caches, answers that
come while another is handled): with single messages T grows as the power ROUND_ELASTICITY of the rate, so a round less
saves that part of an average one.  So

    c_k = a_k + m * (w_k + ROUND_ELASTICITY * MESSAGES_PER_ROUND * e_k),    sum(c_k) <= P - B

Sharing all of T by messages instead promises far more than a move brings, most where messages come together.
`benchmarks/share_prediction.py` silences some of a worker's key groups and compares.

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
MESSAGES_PER_ROUND = 9
"""One round of the network (request, answer, wake-ups) costs as much as so many messages in full rounds."""
ROUND_ELASTICITY = 0.65
"""Measured: T from 5 to 45 events/s grows with the power 0.65, from 50 to 200 events/s with 0.64."""
IDLE_CORES = 0.006
"""Idle base of a worker before it has been seen without traffic; measured: 0.005 to 0.009 with 24 to 192 partitions."""
IDLE_MESSAGES_PER_S = 1.0
"""Up to this traffic an interval counts as idle."""
IDLE_INTERVALS = 30
"""How many of the newest idle intervals make the base."""

K = TypeVar("K", bound=Hashable)


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """What one key group did in an interval: CPU seconds of its agents; messages and bytes received, sent and logged;
    rounds of the network that were for it alone.
    """

    agents_s: float = 0.0
    messages: int = 0
    bytes: int = 0
    rounds: int = 0

    def __post_init__(self) -> None:
        if self.agents_s < 0 or self.messages < 0 or self.bytes < 0 or self.rounds < 0:
            raise ValueError(f"work is not negative: {self}")

    @property
    def weight(self) -> float:
        """Of its part of the transport, in messages."""
        return self.messages + self.bytes / BYTES_PER_MESSAGE + MESSAGES_PER_ROUND * self.rounds

    @property
    def leaving(self) -> float:
        """The part of the weight that goes when the key group goes."""
        return self.weight - (1 - ROUND_ELASTICITY) * MESSAGES_PER_ROUND * self.rounds


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


def apportion(work: Mapping[K, Work], *, process_s: float, idle_s: float, shared_rounds: int = 0) -> dict[K, float]:
    """CPU seconds of each key group; together at most `process_s - idle_s`.

    `work` is of all that the process did; what belongs to no key group stands in it under a key of its own, so that
    nobody else pays for it.  `shared_rounds` served more than one key group.
    """
    agents_s = sum(one.agents_s for one in work.values())
    weight = sum(one.weight for one in work.values()) + MESSAGES_PER_ROUND * shared_rounds
    busy_s = max(0.0, process_s - idle_s)
    # The agents' clock is read more often than the process's; with coarse clocks it may show a little more.
    exact = min(1.0, busy_s / agents_s) if agents_s else 1.0
    transport_s = max(0.0, busy_s - agents_s)
    per_weight = transport_s / weight if weight else 0.0
    return {key: one.agents_s * exact + one.leaving * per_weight for key, one in work.items()}
