"""How many records wait: by the records that were read of so many offsets, since a difference of offsets is no count.

Compaction, transactions and deleted records leave offsets without records.  The newest offsets that were read say how
many records a stretch of the log has.  What nobody has read may differ, and of a topic of which nothing was read yet
nothing is known.
"""

from collections import deque
from collections.abc import Sequence

from faust.types import TP

READ = 200
"""Newest records of each partition whose offsets count: enough for an estimate within some percent, and soon renewed
where another part of the log begins."""


class Density:
    """The newest offsets that were read of each partition."""

    def __init__(self) -> None:
        self._read: dict[TP, deque[int]] = {}
        self._newest: dict[str, deque[int]] = {}
        """Of each topic, those of the partition that was read last."""

    def begin(self, tp: TP, offset: int) -> None:
        """Reading begins at this offset."""
        self._read[tp] = deque([offset - 1], maxlen=READ + 1)

    def read(self, tp: TP, offset: int) -> None:
        """A record with this offset was read."""
        if (read := self._read.get(tp)) is not None and offset > read[-1]:
            read.append(offset)
            self._newest[tp.topic] = read

    def forget(self, tp: TP) -> None:
        """The partition is no longer read here."""
        self._read.pop(tp, None)

    def records(self, tp: TP, offsets: int) -> int | None:
        """About how many records so many offsets have, by what was read of the partition, or else of its topic.

        None: nothing was read.
        """
        if offsets <= 0:
            return 0
        read: Sequence[int] = self._read.get(tp, ())
        if len(read) < 2:
            read = self._newest.get(tp.topic, ())
        return max(1, round(offsets * (len(read) - 1) / (read[-1] - read[0]))) if len(read) > 1 else None
