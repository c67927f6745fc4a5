"""How long key groups of an app have been without an owner, or without as many warm standbys as the app asks for.

This begins with the window that shows it: an owner counts as lost, a standby is missing, or a worker says that one is
not warm yet.  It ends with the first window that shows nothing of it, told by workers that know the newest placement.
So it is known to a window.  A controller that takes over begins anew.

What was planned is when the last restore that was decided meanwhile should end, by the model of restores.  The bound is
the time that no other targets could have beaten.  Both count from the same moment as what is measured, so they have in
them what passed before the decision.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from trimtab_controller.decider.values.decision import WarmForecast
from trimtab_controller.decider.values.reasons import Concern, ConcernKind
from trimtab_controller.execution.state import Execution, Round
from trimtab_protocol.messages.names import AppId
from trimtab_protocol.messages.placement import Placement
from trimtab_protocol.messages.report import WorkerState
from trimtab_protocol.messages.snapshot import NodeWindow, Snapshot
from trimtab_protocol.wording import counted

LATE, LATE_S = 2.0, 60.0
"""It lasts too long when it takes this many times what was planned, and so many seconds more."""
UNPLANNED_S = 300.0
"""Or so long, if nothing was planned: nothing could be decided, or the workers restore by themselves."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RedundancyGap:
    """The last time that an app was without full redundancy; times in epoch seconds.

    `seen_at` = the end of the last window that showed it, or of the first that does not show it any more.  `lacking` =
    key groups without an owner or with too few warm standbys in that window; 0: it is over.  `planned_at`, `bound_at`:
    when it should end, and cannot before; None = nothing was decided for it.
    """

    began_at: float
    seen_at: float
    lacking: int
    planned_at: float | None = None
    bound_at: float | None = None

    @property
    def measured_s(self) -> float:
        """How long it has lasted."""
        return self.seen_at - self.began_at

    @property
    def planned_s(self) -> float | None:
        """How long it should last."""
        return None if self.planned_at is None else max(0.0, self.planned_at - self.began_at)

    @property
    def bound_s(self) -> float | None:
        """How long it lasts at least."""
        return None if self.bound_at is None else max(0.0, self.bound_at - self.began_at)

    @property
    def too_long(self) -> bool:
        """Whether it lasts, and clearly longer than planned."""
        planned_s = self.planned_s
        most_s = UNPLANNED_S if planned_s is None else max(LATE * planned_s, planned_s + LATE_S)
        return self.lacking > 0 and self.measured_s > most_s

    def expected(self, planned_at: float, bound_at: float) -> "RedundancyGap":
        """With what a decision promises; the latest counts."""
        return replace(
            self,
            planned_at=max(planned_at, self.planned_at or planned_at),
            bound_at=max(bound_at, self.bound_at or bound_at),
        )


class RedundancyTracker:
    """`gaps` = the last one of each app, None before the first; an app of which it is unknown is left out."""

    def __init__(self) -> None:
        self.gaps: dict[AppId, RedundancyGap | None] = {}
        self._promised: dict[AppId, tuple[float, float]] = {}
        """What the last decision promised: when all is warm, and when it is at the earliest."""

    def observe(
        self,
        snapshot: Snapshot,
        execution: Execution,
        *,
        ownerless: Mapping[AppId, int],
        unprotected: Mapping[AppId, int | None],
    ) -> None:
        """Follow the apps in a window; all others are forgotten.

        `ownerless` = key groups without an owner, as far as there are any; `unprotected` = those that have too few
        standbys, or lost some.  None: the window does not show it, such as while a large part of the app is away.
        """
        self.gaps = {app: gap for app, gap in self.gaps.items() if app in unprotected}
        self._promised = {app: found for app, found in self._promised.items() if app in unprotected}
        end_s = snapshot.end_ms / 1000.0
        nodes: dict[AppId, list[NodeWindow]] = {app: [] for app in unprotected}
        for row in snapshot.nodes:
            if row.app in nodes and row.steering and row.state is not WorkerState.AWAY:
                nodes[row.app].append(row)
        for app, rows in nodes.items():
            cold, known = _cold(rows), unprotected[app]
            lacking = max(ownerless.get(app, 0), known or 0) + (cold or 0)
            if cold is None and not lacking:
                self.gaps.pop(app, None)  # it may be over, and it may not
            elif lacking or known is None or not _know(rows, execution.placements[app]):
                self._lasts(app, end_s, lacking, execution.rounds.get(app))
            elif (gap := self.gaps.setdefault(app, None)) is not None and gap.lacking:
                self.gaps[app] = replace(gap, seen_at=end_s, lacking=0)

    def _lasts(self, app: AppId, end_s: float, lacking: int, running: Round | None) -> None:
        """It begins only where something lacks; it lasts also while that is not known."""
        gap = self.gaps.get(app)
        if gap is None or not gap.lacking:
            if not lacking:
                return
            gap = RedundancyGap(began_at=end_s, seen_at=end_s, lacking=lacking)
            planned_at, bound_at = self._promised.get(app, (0.0, 0.0))
            if planned_at > end_s:  # such as standbys that took the place of others
                gap = gap.expected(planned_at, bound_at)
        gap = replace(gap, seen_at=end_s, lacking=lacking or gap.lacking)
        if running is not None and running.lost and (found := running.recovery) is not None:
            gap = gap.expected(found.began_at + found.planned_s, found.began_at + found.bound_s)
        self.gaps[app] = gap

    def accepted(self, now: float, app: AppId, warm: WarmForecast | None) -> None:
        """Remember when the new standbys of a decision that is carried out should be warm."""
        if warm is None:
            return
        self._promised[app] = planned_at, bound_at = now + warm.seconds, now + warm.bound_s
        if (gap := self.gaps.get(app)) is not None and gap.lacking:
            self.gaps[app] = gap.expected(planned_at, bound_at)

    @property
    def concerns(self) -> tuple[Concern, ...]:
        """The apps in which it lasts clearly longer than planned."""
        late = {app: gap for app, gap in self.gaps.items() if gap is not None and gap.too_long}
        return tuple(_concern(app, gap) for app, gap in sorted(late.items()))


def _cold(rows: Iterable[NodeWindow]) -> int | None:
    """How many standbys the workers have not got warm yet; None = one of them does not say."""
    told = [row.cold for row in rows if row.standbys]
    return None if None in told else sum(cold for cold in told if cold is not None)


def _know(rows: Iterable[NodeWindow], placement: Placement) -> bool:
    """Whether what the workers say is about the newest placement."""
    return all(row.epoch is not None and row.epoch >= placement.epoch for row in rows)


def _concern(app: AppId, gap: RedundancyGap) -> Concern:
    planned_s, bound_s = gap.planned_s, gap.bound_s
    plan = "nothing is planned" if planned_s is None else f"planned were {planned_s:.0f} s, bound {bound_s:.0f} s"
    what = f"{counted(gap.lacking, 'key group')} without an owner or a warm standby"
    return Concern(
        kind=ConcernKind.WITHOUT_STANDBY, app=app, workers=(), detail=f"{what} for {gap.measured_s:.0f} s; {plan}"
    )
