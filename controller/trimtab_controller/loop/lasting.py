"""Concerns that stay in force until enough windows in a row have shown whether they hold.

Most concerns need several windows in a row.  A new leader has not seen these, and a gap in the windows begins the count
anew.  Without this, a concern would be reported as ended then, and soon after as begun again.  Each window shows by
itself whether a worker was given up, and the journal has what the guard has ended: these concerns end with the first
window that does not show them.
"""

from collections.abc import Sequence

from trimtab_controller.decider.concerns import WINDOWS, Concern, ConcernKind
from trimtab_protocol.messages.names import AppId
from trimtab_protocol.messages.snapshot import Snapshot
from trimtab_protocol.messages.status import Status

SETTLED = WINDOWS + 2
"""So many windows in a row show whether a concern holds, also if a plan makes one or two of them incomparable."""
SHOWN_BY_EACH_WINDOW = frozenset({ConcernKind.WORKER_CRASHES, ConcernKind.DISRUPTION_BUDGET, ConcernKind.JOB_SUFFERS})


class LastingConcerns:
    """The concerns in force, beginning with those of the `previous` status.

    `kept` = those that the last window does not show, and that too few windows in a row have ruled out.
    """

    def __init__(self, previous: Status | None) -> None:
        known = {str(kind): kind for kind in ConcernKind}  # another version may have further ones
        self.kept: tuple[Concern, ...] = tuple(
            Concern(kind=known[row.kind], app=row.app, workers=(), detail=row.text)
            for row in (previous.concerns if previous else ())
            if row.kind in known
        )
        self._in_force: dict[tuple[ConcernKind, AppId], Concern] = {(each.kind, each.app): each for each in self.kept}
        self._end_ms = 0
        self._windows = 0

    def see(self, snapshot: Snapshot, found: Sequence[Concern]) -> None:
        """Take a window, and the concerns that were found in it."""
        if snapshot.end_ms > self._end_ms:
            follows = snapshot.start_ms - self._end_ms <= snapshot.end_ms - snapshot.start_ms
            self._windows = self._windows + 1 if follows else 1
            self._end_ms = snapshot.end_ms
        shown = {(each.kind, each.app): each for each in found}
        settled = self._windows >= SETTLED
        unseen = {k: c for k, c in self._in_force.items() if k not in shown and c.kind not in SHOWN_BY_EACH_WINDOW}
        self.kept = () if settled else tuple(unseen.values())
        self._in_force = {**{(each.kind, each.app): each for each in self.kept}, **shown}
