"""How many records wait: by the records that were read of so many offsets, since a difference of offsets is no count.

Compaction, transactions and deleted records leave offsets without records.  The newest offsets that were read say how
many records a stretch of the log has.  What nobody has read may differ, and of a topic of which nothing was read yet
nothing is known.
"""

from collections import defaultdict, deque

from faust.types import TP

READ = 200
"""Newest records of each partition whose offsets count: enough for an estimate within some percent, and soon renewed
where another part of the log begins."""


class Density:
    """The newest offsets that were read of each partition."""

    def __init__(self) -> None:
        self._read: dict[TP, deque[int]] = {}
        self._by_topic: defaultdict[str, set[TP]] = defaultdict(set)

    def begin(self, tp: TP, offset: int) -> None:
        """Reading begins at this offset."""
        self._read[tp] = deque([offset - 1], maxlen=READ + 1)
        self._by_topic[tp.topic].add(tp)

    def read(self, tp: TP, offset: int) -> None:
        """A record with this offset was read."""
        if (read := self._read.get(tp)) is not None and offset > read[-1]:
            read.append(offset)

    def forget(self, tp: TP) -> None:
        """The partition is no longer read here."""
        self._read.pop(tp, None)
        self._by_topic[tp.topic].discard(tp)

    def records(self, tp: TP, offsets: int) -> int | None:
        """How many records so many offsets have, by what was read of the partition, or else of its topic.

        None: nothing was read.
        """
        if offsets <= 0:
            return 0
        known = self._read.get(tp)
        read = [known] if known and len(known) > 1 else [self._read[each] for each in self._by_topic[tp.topic]]
        passed = sum(each[-1] - each[0] for each in read)
        return max(1, round(offsets * sum(len(each) - 1 for each in read) / passed)) if passed else None
