"""The concerns of the predecessor: they stay in force until this term has seen enough windows to judge for itself.

Most concerns need several windows in a row.  Without this, a new leader would tell their end and then their begin.
"""

from collections.abc import Iterable, Sequence

from trimtab_controller.decider.concerns import WINDOWS, Concern, ConcernKind
from trimtab_protocol.messages.snapshot import Snapshot
from trimtab_protocol.messages.status import Status

SETTLED = WINDOWS + 2
"""So many windows in a row show whether a concern holds, also if a plan makes one or two of them incomparable."""


class InheritedConcerns:
    """Those of the `previous` status that this term has neither found itself nor been able to rule out."""

    def __init__(self, previous: Status | None) -> None:
        known = {str(kind): kind for kind in ConcernKind}  # another version may have further ones
        self.left: tuple[Concern, ...] = tuple(
            Concern(kind=known[row.kind], app=row.app, workers=(), detail=row.text)
            for row in (previous.concerns if previous else ())
            if row.kind in known
        )
        self._end_ms = 0
        self._windows = 0

    def see(self, snapshot: Snapshot, own: Iterable[Concern]) -> Sequence[Concern]:
        """Take a window, and the concerns that this term finds in it; returns those that are left."""
        if snapshot.end_ms > self._end_ms:
            follows = snapshot.start_ms - self._end_ms <= snapshot.end_ms - snapshot.start_ms
            self._windows = self._windows + 1 if follows else 1
            self._end_ms = snapshot.end_ms
        found = {(concern.kind, concern.app) for concern in own}
        settled = self._windows >= SETTLED
        self.left = () if settled else tuple(each for each in self.left if (each.kind, each.app) not in found)
        return self.left
