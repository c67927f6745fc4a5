"""How many records wait: by the records that were read of so many offsets, since a difference of offsets is no count.

Compaction, transactions and deleted records leave offsets without records.  The newest offsets that were read say how
many records a stretch of the log has.  What nobody has read may have fewer: keys that were written once are followed
by others that are written again and again.  So somebody looks into the middle of a long stretch, and the lower density
counts.  Before that, and while nothing of a topic was read, nothing is known.
"""

from collections import deque
from collections.abc import Sequence

from faust.types import TP

READ = 200
"""Newest records of each partition whose offsets count: enough for an estimate within some percent, and soon renewed
where another part of the log begins."""
FAR = 10_000
"""Offsets up to which what was read is enough to go by."""


class Density:
    """The newest offsets that were read of each partition."""

    def __init__(self) -> None:
        self._read: dict[TP, deque[int]] = {}
        self._newest: dict[str, deque[int]] = {}
        """Of each topic, those of the partition that was read last."""
        self._ahead: dict[TP, float] = {}
        """Records per offset in the middle of what has not been read, where that is long."""

    def begin(self, tp: TP, offset: int) -> None:
        """Reading begins at this offset."""
        self._read[tp] = deque([offset - 1], maxlen=READ + 1)
        self._ahead.pop(tp, None)

    def read(self, tp: TP, offset: int) -> None:
        """A record with this offset was read."""
        if (read := self._read.get(tp)) is not None and offset > read[-1]:
            read.append(offset)
            self._newest[tp.topic] = read

    def forget(self, tp: TP) -> None:
        """The partition is no longer read here."""
        self._read.pop(tp, None)
        self._ahead.pop(tp, None)

    def look(self, tp: TP, density: float) -> None:
        """Somebody has looked into the middle of what has not been read."""
        if tp in self._read:
            self._ahead[tp] = density

    def records(self, tp: TP, offsets: int) -> int | None:
        """About how many records so many offsets have, by what was read of the partition, or else of its topic.

        None: nothing was read, or nobody has looked at what is far ahead.
        """
        if offsets <= 0:
            return 0
        ahead = self._ahead.get(tp) if offsets > FAR else 1.0
        read: Sequence[int] = self._read.get(tp, ())
        if len(read) < 2:
            read = self._newest.get(tp.topic, ())
        if ahead is None or len(read) < 2:
            return None
        return max(1, round(offsets * min(ahead, (len(read) - 1) / (read[-1] - read[0]))))
