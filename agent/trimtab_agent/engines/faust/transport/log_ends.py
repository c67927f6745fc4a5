"""Where the logs end whose partitions are not being fetched, because the worker's queues are full.

While a batch of a partition waits to be taken, aiokafka does not fetch the partition again, and its high water mark
stands still.  So the broker is asked.  A worker that keeps up asks nothing.  Where the leader of a partition is out of
reach, nothing is known of what waits there.
"""

from collections.abc import Collection, Mapping
from typing import Protocol

from aiokafka.errors import KafkaError
from faust.exceptions import ConsumerNotStarted
from faust.types import TP
from mode import get_logger

INTERVAL_S = 1.0
"""How often to ask, and how long ago the last fetch of a partition must be."""
LIMIT_S = 5.0
"""How long an answer may take."""

logger = get_logger(__name__)


class Asking(Protocol):
    """The consumer's thread, as far as it is needed here."""

    async def ends_not_fetched(self, tps: Collection[TP], after_s: float, limit_s: float) -> Mapping[TP, int | None]:
        """The end offsets of those partitions whose last fetch was answered more than `after_s` seconds ago.

        None where the partition's leader does not answer.
        """


class LogEnds:
    """The end offsets last learned; empty when the broker could not be asked."""

    def __init__(self) -> None:
        self._ends: Mapping[TP, int | None] = {}

    async def refresh(self, thread: Asking, tps: Collection[TP]) -> None:
        """Ask for the partitions that are not being fetched, and forget all others."""
        try:
            self._ends = await thread.ends_not_fetched(tps, INTERVAL_S, LIMIT_S)
        except (ConsumerNotStarted, KafkaError, TimeoutError, RuntimeError) as error:  # at the end
            self._ends = {}
            logger.debug("the ends of the logs are not known: %r", error)

    def out_of_reach(self) -> frozenset[TP]:
        """The partitions whose leader has not answered."""
        return frozenset(tp for tp, end in self._ends.items() if end is None)

    def newest(self, tp: TP, highwater: int | None) -> int | None:
        """The end of the log: the later one of the high water mark and what the broker answered; None if unknown."""
        if tp in self._ends and self._ends[tp] is None:
            return None
        known = [end for end in (highwater, self._ends.get(tp)) if end is not None]
        return max(known, default=None)
