"""Pace: how many hand-overs of an app may be in flight, by how the job bears them.  Pure.

Additive increase, multiplicative decrease.  A hand-over whose key groups paused for too long halves the number, and so
does a window in which the job has fallen too far behind since its plan began and does not catch up.  As many calm
hand-overs as are in flight raise it by one, but not while the job is behind.  Hand-overs that were released before the
number was halved say nothing of the new one, nor does a window that ended before.  Nothing of this is journalled.
"""

from collections.abc import Iterable

from trimtab_controller.execution.events import Limits, PaceChanged
from trimtab_controller.execution.lags import Lag
from trimtab_controller.execution.state import Handover, Round
from trimtab_protocol.messages.names import AppId

CALM_SHARE = 0.5
"""A job that is behind by no more than this share of the limit is calm."""


class Pace:
    """The number for each app; an app of which nothing is known has the limit of the configuration."""

    def __init__(self, limits: Limits, taken_over: Iterable[Round] = ()) -> None:
        """`taken_over` = plans in flight that another leader began: nobody knows how their jobs bear them."""
        self._limits = limits
        careful = max(1.0, limits.handovers_in_flight / 2.0)
        self._numbers: dict[AppId, float] = {row.app: careful for row in taken_over}
        self._halved_at: dict[AppId, float] = {}
        self._behind: set[AppId] = set()

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
            self._halve(now, app, before)
        elif app in self._numbers and app not in self._behind:
            self._numbers[app] += 1.0 / self._numbers[app]
            if self._numbers[app] >= self._limits.handovers_in_flight:
                del self._numbers[app]
                self._halved_at.pop(app, None)
        after = self.of(app)
        if after == before:
            return None
        return PaceChanged(app=app, before=before, after=after, pause_s=handover.pause_s)

    def see_lag(self, now: float, app: AppId, end_s: float, lag: Lag, in_flight: int) -> PaceChanged | None:
        """Learn from a window that ended at `end_s`; `in_flight` = hand-overs of the app.  Unknown says nothing."""
        limit, grown_s = self._limits.max_lag_s, lag.grown_s
        if grown_s is None or grown_s <= CALM_SHARE * limit:
            self._behind.discard(app)
            return None
        self._behind.add(app)
        if grown_s <= limit or lag.falling or end_s <= self._halved_at.get(app, 0.0):
            return None
        before = self.of(app)
        self._halve(now, app, min(before, max(1, in_flight)))  # from what there is: a high limit holds nothing back
        after = self.of(app)
        return None if after == before else PaceChanged(app=app, before=before, after=after, lag_s=grown_s)

    def _halve(self, now: float, app: AppId, number: int) -> None:
        self._numbers[app] = max(1.0, number // 2)
        self._halved_at[app] = now
