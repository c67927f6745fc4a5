"""How many records wait: by the records that were read of so many offsets, since a difference of offsets is no count.

Compaction, transactions and deleted records leave offsets without records.  The newest offsets that were read say how
many records the next stretch of the log has.  What lies far ahead may have more or fewer: keys that were written once
are followed by others that are written again and again, and the newest segment is not compacted yet.  So somebody
looks at its end and into its middle, and again between two places where that differs too much to count.  Until nothing
differs so much, and while nothing of a topic was read, nothing is known: what is found only then would look as if it
arrived.
"""

from collections import deque
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

from faust.types import TP

READ = 200
"""Newest records of each partition whose offsets count: enough for an estimate within some percent, and soon renewed
where another part of the log begins."""
FAR = 10_000
"""Offsets up to which what was read is enough to go by."""
NEAR = 1_000
"""Offsets between two places between which nobody looks, however they differ."""
SHARE = 4
"""Nobody looks only where two places are no further apart than this part of what has not been read, and ..."""
TOLERANCE = 0.1
"""... where what lies between them is known up to this part of all."""
TURNS = 12
"""Turns of looking after which a place is looked at again: the log is compacted meanwhile."""
Gap = tuple[int, float, int, float]
"""From an offset with its density to another."""


class Found(NamedTuple):
    """What was found at an offset."""

    density: float
    """Records per offset from there on."""
    turn: int
    """When."""


class Density:
    """The newest offsets that were read of each partition, and what was found far ahead of them."""

    def __init__(self) -> None:
        self._read: dict[TP, deque[int]] = {}
        self._newest: dict[str, deque[int]] = {}
        """Of each topic, those of the partition that was read last."""
        self._found: dict[TP, dict[int, Found]] = {}
        """By offset, in its order."""
        self._tried: dict[TP, list[int]] = {}
        """Where nobody has answered in this turn."""
        self._settled: set[TP] = set()
        """Those of which one look more would have told hardly anything, at some time."""
        self._turn = 0

    def begin(self, tp: TP, offset: int) -> None:
        """Reading begins at this offset."""
        self._read[tp] = deque([offset - 1], maxlen=READ + 1)
        self._forget_ahead(tp)

    def read(self, tp: TP, offset: int) -> None:
        """A record with this offset was read."""
        if (read := self._read.get(tp)) is not None and offset > read[-1]:
            read.append(offset)
            self._newest[tp.topic] = read

    def forget(self, tp: TP) -> None:
        """The partition is no longer read here."""
        self._read.pop(tp, None)
        self._forget_ahead(tp)

    def _forget_ahead(self, tp: TP) -> None:
        self._found.pop(tp, None)
        self._tried.pop(tp, None)
        self._settled.discard(tp)

    def begin_turn(self) -> None:
        """Begin to look, also where nobody has answered before."""
        self._turn += 1
        self._tried.clear()

    def look(self, tp: TP, offset: int, density: float | None) -> None:
        """Somebody has looked at this offset, which has not been read; None: nobody has answered."""
        if tp not in self._read:
            return
        found = self._found.setdefault(tp, {})
        if density is None:
            self._tried.setdefault(tp, []).append(offset)
            found.pop(offset, None)
        else:
            self._found[tp] = dict(sorted({**found, offset: Found(density, self._turn)}.items()))

    def place_to_look(self, tp: TP, unread: range) -> int | None:
        """The offset at which a look would tell most; None: it would tell hardly anything, or nothing was read yet."""
        near = self._near(tp)
        if near is None or len(unread) <= FAR:
            return None
        gaps = list(self._gaps(tp, unread, near))
        total = sum(map(_at_least, gaps))
        heard = [self._up_to_silence(tp, gap) for gap in gaps]
        rough = [gap for gap in heard if _is_rough(gap, len(unread), total)]
        if rough:
            start, _, end, _ = max(rough, key=lambda gap: (gap[2] == unread.stop, _doubt(gap), gap[2] - gap[0]))
            return end - READ if end == unread.stop else (start + end) // 2
        self._settled.add(tp)
        old = (at for at, found in self._found.get(tp, {}).items() if found.turn <= self._turn - TURNS)
        return next((at for at in old if unread.start < at < unread.stop), None)

    def _up_to_silence(self, tp: TP, gap: Gap) -> Gap:
        """The part of a gap before the first place in it where nobody has answered in this turn."""
        start, before, end, after = gap
        return start, before, min((at for at in self._tried.get(tp, ()) if start < at < end), default=end), after

    def records(self, tp: TP, unread: range) -> int | None:
        """About how many records these offsets have.  None: nothing was read, or what is far is not known yet."""
        if not unread:
            return 0
        self._found[tp] = found = {at: each for at, each in self._found.get(tp, {}).items() if at > unread.start}
        near = self._near(tp)
        if near is None or (len(unread) > FAR and not (found and tp in self._settled)):
            return None
        return max(1, round(sum(_at_least(gap) + _doubt(gap) for gap in self._gaps(tp, unread, near))))

    def _near(self, tp: TP) -> float | None:
        """Records per offset of what was read last of the partition, or else of its topic."""
        read: Sequence[int] = self._read.get(tp, ())
        if len(read) < 2:
            read = self._newest.get(tp.topic, ())
        return None if len(read) < 2 else (len(read) - 1) / (read[-1] - read[0])

    def _gaps(self, tp: TP, unread: range, near: float) -> Iterator[Gap]:
        """What lies between the places whose density is known; behind the last one it is taken to go on."""
        found = self._found.get(tp, {})
        places = [(unread.start, near)]
        places += [(at, each.density) for at, each in found.items() if unread.start < at < unread.stop]
        places.append((unread.stop, places[-1][1]))
        for (start, before), (end, after) in pairwise(places):
            yield start, before, end, after


def _at_least(gap: Gap) -> float:
    """The records of a gap that has the lower density throughout."""
    start, before, end, after = gap
    return (end - start) * min(before, after)


def _doubt(gap: Gap) -> float:
    """By how many records that is wrong where the density changes in the middle."""
    start, before, end, after = gap
    return (end - start) * abs(after - before) / 2.0


def _is_rough(gap: Gap, unread: int, total: float) -> bool:
    """Whether a look into it would tell something."""
    length = gap[2] - gap[0]
    if length <= NEAR:
        return False
    return length > max(FAR, unread / SHARE) or _doubt(gap) > TOLERANCE * total
