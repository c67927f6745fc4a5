"""Pace: how many hand-overs of an app may be in flight, by how long its key groups pause.  Pure.

Additive increase, multiplicative decrease: a hand-over whose key groups paused for too long halves the number, and as
many calm hand-overs as are in flight raise it by one.  Hand-overs that were released before the number was halved say
nothing of the new one.  Nothing of this is journalled.
"""

from collections.abc import Iterable

from trimtab_controller.execution.events import Limits, PaceChanged
from trimtab_controller.execution.state import Handover, Round
from trimtab_protocol.messages.names import AppId


class Pace:
    """The number for each app; an app of which nothing is known has the limit of the configuration."""

    def __init__(self, limits: Limits, taken_over: Iterable[Round] = ()) -> None:
        """`taken_over` = plans in flight that another leader began: nobody knows how their jobs bear them."""
        self._limits = limits
        careful = max(1.0, limits.handovers_in_flight / 2.0)
        self._numbers: dict[AppId, float] = {row.app: careful for row in taken_over}
        self._halved_at: dict[AppId, float] = {}

    def of(self, app: AppId) -> int:
        """How many hand-overs of the app may be in flight."""
        return int(self._numbers.get(app, self._limits.handovers_in_flight))

    def see(self, now: float, handover: Handover) -> PaceChanged | None:
        """Learn from a hand-over that has ended; the change that follows.  An unknown pause says nothing."""
        if handover.pause_s is None or handover.release is None:
            return None
        app, before = handover.app, self.of(handover.app)
        if handover.pause_s > self._limits.max_pause_s:
            if handover.release.issued_at <= self._halved_at.get(app, 0.0):
                return None
            self._numbers[app] = max(1.0, before // 2)
            self._halved_at[app] = now
        elif app in self._numbers:
            self._numbers[app] += 1.0 / self._numbers[app]
            if self._numbers[app] >= self._limits.handovers_in_flight:
                del self._numbers[app]
                self._halved_at.pop(app, None)
        after = self.of(app)
        if after == before:
            return None
        return PaceChanged(app=app, before=before, after=after, pause_s=handover.pause_s)
